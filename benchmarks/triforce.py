"""SmolLM2 that drafts for itself in a small cache: what it costs and gives by length of the text.

    python -m benchmarks.triforce cycles --out docs/results/triforce.json
    python -m benchmarks.triforce prompt --out docs/results/triforce.json
    python -m benchmarks.triforce runs --out docs/results/triforce.json

``cycles``: passes of SmolLM2 (int8) on `base` with memories for lists of 8,192 rows, timing alone: over the whole cache
by rows, over a small one, a retrieval, and the copy of what a step adds; and from these the speed-up over
autoregressive decoding by how often drafts are accepted, with the best number of drafts. ``prompt``: keys and values of
a text of 8,000 tokens, a module of Python's library, by the integer interpreter, kept in build and gone on with where
they end. ``runs``: real texts behind the first tokens of it, as many as are there, by :data:`WAYS`; tokens must be those
of autoregressive decoding. Finished rows are kept in --out and not run again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import console, run_part, show
from benchmarks.pruning import LISTS
from benchmarks.smollm2.model import model_path, pair_of, source
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.config import Config, load_config
from gemmule.io.files import write_atomically

MODULE, TOKENS, PIECE = "configparser", 8000, 256
"""Of the prompt, and how many of its rows go in a pass."""
KEPT = Path("build/triforce_prompt.npz")
Record = dict[str, Any]


def config() -> Config:
    """`base` with lists of 8,192 rows."""
    return Config.model_validate(load_config("base").model_dump() | {"name": "base-long-lists", **LISTS})


def text() -> list[int]:
    """Tokens of the prompt."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or not spec.origin:
        raise SystemExit(f"the standard library's sources are needed, and {MODULE} is not there")
    ids: list[int] = source().tokenizer.encode(Path(spec.origin).read_text("utf-8"), add_special_tokens=False).ids
    return ids[:TOKENS]


class Prompt:
    """Keys and values of the text's first tokens, as many as have been passed."""

    def __init__(self, network: Network, ids: Sequence[int]) -> None:
        self.network, self.ids, self.cache = network, ids, Cache(network.graph)
        if KEPT.is_file():
            with np.load(KEPT) as found:
                for name in self.cache.width:
                    self.cache.extend(name, 0, *found[name])
                self.cache.advance(self._rows(0, found[name].shape[1]))

    @property
    def passed(self) -> int:
        """Tokens."""
        return self.cache.length() - self.network.graph.prefix

    def go_on(self) -> None:
        """A piece more; the head is left out."""
        graph, first = self.network.graph, self.passed
        rows = self._rows(first, min(PIECE, len(self.ids) - first))
        head = graph.by_name[graph.output]
        for node, _ in IntegerInterpreter(self.network).steps(rows, self.cache):
            if node.name in head.inputs:
                break
        self.cache.advance(rows)

    def save(self) -> None:
        """For the next run."""
        first = self.network.graph.prefix
        KEPT.parent.mkdir(exist_ok=True)
        part = KEPT.with_suffix(".part.npz")
        np.savez(part, **{name: np.stack([rows[first:] for rows in self.cache.contents(name)])  # type: ignore[arg-type]
                          for name in self.cache.width})
        part.replace(KEPT)

    def _rows(self, first: int, count: int) -> Rows:
        return Rows.chain(self.ids[first:first + count], first).behind(self.network.graph.prefix)


def prompt(record: Record, save: Callable[[], None]) -> None:
    """Pass the text."""
    kept = Prompt(load_model(model_path("int8")).network, text())
    while kept.passed < len(kept.ids):
        kept.go_on()
        if kept.passed % (4 * PIECE) < PIECE or kept.passed == len(kept.ids):
            kept.save()
        console.print(f"{kept.passed:,} of {len(kept.ids):,} tokens")
    record["prompt"] = {"module": MODULE, "tokens": len(kept.ids)}


PARTS: dict[str, Callable[[Record, Callable[[], None]], None]] = {"prompt": prompt}


def main() -> None:
    run_part(__doc__, PARTS, "triforce", {"model": "smollm2", "weights": "int8"})


if __name__ == "__main__":
    main()
