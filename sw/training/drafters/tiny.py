"""Try the way in seconds, on whatever device there is: `python -m gemmule.sw.training.drafters.tiny`.

A target of three layers that was never trained and requests of random tokens, then a run that continues the first: what
comes out is worth nothing, but every line of the run has run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from gemmule.sw.training.drafters.packed import Pack, Shape, quantised_bytes, read_pack, write_pack
from gemmule.sw.training.drafters.recipe import DraftersRecipe, NetworkRecipe, WritingRecipe
from gemmule.sw.training.drafters.run import run
from gemmule.sw.training.drafters.start import continued, open_start

__all__ = ["RECIPE", "SHAPE", "tiny_pack"]

SHAPE = Shape(hidden=64, layers=3, heads=4, kv_heads=2, inner=96, vocab=96, theta=10000.0, eps=1e-5)
END = 2
RECIPE = DraftersRecipe(
    network=NetworkRecipe(depths=(1, 2, 3), vocabulary=64, positions=4, rollouts=3, eagle_inner=96, parallel_inner=64),
    writing=WritingRecipe(invented=48, most_invented=40, chat_rows=16, given_rows=8, chat_length=64, given_length=80,
                          answer=24, held_out=4, judged=20),
    rounds=3, steps=6, rows=512, judge_steps=2)


def tiny_pack(folder: Path, seed: int = 0) -> Pack:
    """Write and read a pack of a target with random weights."""
    draws, shape = np.random.default_rng(seed), SHAPE

    def matrix(outputs: int, inputs: int) -> np.ndarray:
        return (draws.normal(size=(outputs, inputs)) * inputs ** -0.5).astype(np.float32)

    keys, ones = shape.kv_heads * shape.head_dim, np.ones(shape.hidden, np.float32)
    tensors = {"token_embd.weight": 2 * matrix(shape.vocab, shape.hidden), "output_norm.weight": ones}
    for at in range(shape.layers):
        for name, (outputs, inputs) in {
                "attn_q": (shape.hidden, shape.hidden), "attn_k": (keys, shape.hidden), "attn_v": (keys, shape.hidden),
                "attn_output": (shape.hidden, shape.hidden), "ffn_gate": (shape.inner, shape.hidden),
                "ffn_up": (shape.inner, shape.hidden), "ffn_down": (shape.hidden, shape.inner)}.items():
            tensors[f"blk.{at}.{name}.weight"] = matrix(outputs, inputs)
        tensors[f"blk.{at}.attn_norm.weight"] = tensors[f"blk.{at}.ffn_norm.weight"] = ones

    def text() -> list[int]:
        return draws.integers(END + 1, shape.vocab, draws.integers(3, 9)).tolist()

    lists = {"asked": [("code", text()) for _ in range(40)], "instructions": [("passage", text())],
             "requests": [("code", text()), ("chat", text())],
             "stops": [("stops", list(range(10, shape.vocab, 5)))]}
    write_pack(folder, shape, quantised_bytes(tensors), text(), text(), END, lists)
    return read_pack(folder)


def main() -> None:
    """The command."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        pack = tiny_pack(folder / "pack")
        run(RECIPE, pack, folder / "out", folder / "work")
        again = replace(RECIPE, seed=2, kinds=("parallel",))
        start = open_start(folder / "out", again.kinds, again.network)
        run(continued(again, start), pack, folder / "later", folder / "more", start=start)
        print(*(f"{path.parent.name}/{path.name} {path.stat().st_size:,}" for path in sorted(folder.glob("*/*.*"))
                if path.parent.name in ("out", "later")), sep="\n")


if __name__ == "__main__":
    main()
