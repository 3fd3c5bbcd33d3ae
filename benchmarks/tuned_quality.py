"""What tuning for self-drafting costs the target: `python -m benchmarks.tuned_quality --out docs/results`.

Loss of the default and the tuned target on held-out library text, both in integers, and how often the exits of both say
what all layers say.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.sw.device.forward import logit_scale
from gemmule.sw.device.some_layers.layerwise import Layerwise
from gemmule.sw.limits import DEFAULT, MODELS_FOLDER
from gemmule.sw.models.bundled_models import bundled_model, bundled_tokenizer
from gemmule.sw.models.drafting.tuned import FILE, changed, read_changes
from gemmule.sw.text.corpus import load_corpus
from gemmule.sw.training.data.tokenizer import token_stream
from gemmule.sw.training.networks.export import write_json

__all__ = ["judged"]

WINDOW, EXITS = 256, (1, 2, 3, 4)


def judged(network: Network, windows: np.ndarray) -> dict[str, Any]:
    """Nats a token, and by exit the share of tokens at which it says the same as all layers  # [windows, tokens + 1]"""
    interpreter, layers = IntegerInterpreter(network), Layerwise(network)
    names, scale = residuals(network.graph), logit_scale(network.graph)
    nats, same = [], {depth: [] for depth in EXITS}
    for window in windows:
        values: dict[str, np.ndarray] = {}
        rows = Rows.chain(window[:-1].tolist())
        codes = interpreter.forward(rows, Cache(network.graph), values.__setitem__)
        logits = codes * scale
        logits -= logits.max(axis=1, keepdims=True)
        nats.append(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(rows)), window[1:]])
        for depth in EXITS:
            exit_codes = layers.logits(rows, values[names[depth]])
            same[depth].append(exit_codes.argmax(axis=1) == codes.argmax(axis=1))
    return {"nats": float(np.mean(nats)), "exits": {str(depth): float(np.mean(part)) for depth, part in same.items()}}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=48)
    args = parser.parse_args()
    stream = token_stream(bundled_tokenizer(DEFAULT), load_corpus().split("held_out"))
    starts = np.linspace(0, len(stream) - WINDOW - 1, args.windows).astype(np.int64)
    windows = np.stack([stream[start:start + WINDOW + 1] for start in starts])
    target = bundled_model("target", DEFAULT)
    tuned, _ = changed(target, read_changes(MODELS_FOLDER / DEFAULT / FILE, target))
    write_json(args.out / "tuned_quality.json", {
        "windows": args.windows, "window": WINDOW,
        "default": judged(target.network, windows), "tuned": judged(tuned.network, windows)})


if __name__ == "__main__":
    main()
