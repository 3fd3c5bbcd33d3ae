"""A sentence encoder from which heads leave: similarities beside the dense integers', drawn heads, and cycles.

    python -m benchmarks.pruned_heads --out docs/results        (behind `python -m benchmarks.pruned_sentences`)

Texts and encoder are those of :mod:`benchmarks.pruned_sentences`, to whose file this adds. Schedules leave 8 of 12
heads behind one layer or another, fewer, fewer layer by layer, and rows beside heads. Beside the heads of largest
importance stand heads that are drawn: anew for each text, or once for all texts (the mean of several draws).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.common import console, show, write
from benchmarks.pruned_sentences import CYCLES, SEED, Texts, cycles, encoder_folder, mean_share, passages, prepare, told
from gemmule.compiler.ir import Cache, HeadPruning, Network, PruningInterpreter, Rows, TokenPruning
from gemmule.config import Config, load_config

__all__ = ["DRAWS", "mean_heads", "measure"]

DRAWS = 3
"""Of heads that are the same for all texts."""
FILE = "pruned_sentences.json"
HEADS: tuple[tuple[int, ...], ...] = (
    (8,), (12, 8), (12, 12, 8), (12, 12, 12, 8), (12, 12, 12, 12, 8), (12, 12, 12, 12, 6), (12, 11, 10, 9, 8), (6,))
"""Heads that layers leave."""
SCHEDULES = (*(TokenPruning(heads=HeadPruning(layers=left)) for left in HEADS),
             TokenPruning(layers=(1.0, 1.0, 1.0, 0.7), importance="layers", first=1, last=1,
                          heads=HeadPruning(layers=(12, 12, 12, 12, 8))))


class DrawnHeads(PruningInterpreter):
    """Heads leave at random: the same ones of all texts."""

    def __init__(self, network: Network, pruning: TokenPruning, seed: int = SEED) -> None:
        super().__init__(network, pruning)
        self.random = np.random.default_rng(seed)
        self.draw()

    def draw(self) -> None:
        """Another order of the heads, which holds in all layers."""
        self.order = self.random.permutation(self.network.graph.attentions[0].heads).astype(np.int64)

    def choose_heads(self, importance: np.ndarray, kept: int) -> np.ndarray:
        return super().choose_heads(self.order << self.heads.shift if self.heads else self.order, kept)


class EachDrawn(DrawnHeads):
    """Others of each text."""

    def forward(self, rows: Rows, cache: Cache, *more: Any, **others: Any) -> np.ndarray:
        self.draw()
        return super().forward(rows, cache, *more, **others)


def _drawn(seed: int) -> type[DrawnHeads]:
    class Drawn(DrawnHeads):
        """Of one seed."""

        def __init__(self, network: Network, pruning: TokenPruning) -> None:
            super().__init__(network, pruning, seed)

    return Drawn


def mean_heads(pruning: TokenPruning, layers: int, heads: int) -> float:
    """Of the heads, what layers have in the mean: the first one all."""
    assert pruning.heads
    left = [heads, *map(float, pruning.heads.layers)]
    return float(np.mean((left + left[-1:] * layers)[:layers])) / heads


def measure(network: Network, tokenizer: Tokenizer, texts: Mapping[tuple[str, str], Texts],
            config: Config) -> dict[str, Any]:
    """Every schedule on all texts, and its cycles."""
    layers, heads = network.graph.layers, network.graph.attentions[0].heads
    ranked = []
    for kind, pruning in product(("passages", "sentences"), SCHEDULES):
        seen, unseen = (texts[kind, half] for half in ("seen", "unseen"))
        ranked.append({
            "texts": kind, "schedule": told(pruning), "heads": mean_heads(pruning, layers, heads),
            "rows": mean_share(pruning, layers), "spearman_seen": seen.compare(pruning),
            "spearman_unseen": unseen.compare(pruning), "each_drawn_unseen": unseen.compare(pruning, EachDrawn),
            "drawn_unseen": [unseen.compare(pruning, _drawn(SEED + i)) for i in range(DRAWS)]})
        console.print(f"{kind}, {told(pruning)}: {ranked[-1]['spearman_unseen']:.4f}")
    timed = []
    for length in CYCLES:
        tokens: Sequence[int] = passages(tokenizer, length, 1)[0]
        dense = cycles(network, config, tokens, None)
        for pruning in SCHEDULES:
            found = cycles(network, config, tokens, pruning)
            timed.append({"tokens": length, "schedule": told(pruning), **found, "cycles_dense": dense["cycles"],
                          "cycles_ratio": dense["cycles"] / found["cycles"]})
            console.print(f"{length} tokens, {told(pruning)}: {timed[-1]['cycles_ratio']:.3f}")
    return {"heads": ranked, "heads_cycles": timed}


def main() -> None:
    """Measure, print, add to what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="directory of another sentence encoder of 6 layers and 12 heads")
    parser.add_argument("--config", default="base")
    parser.add_argument("--out", type=Path, help=f"folder with {FILE}")
    options = parser.parse_args()
    console.print(f"seed {SEED}")
    found = measure(*prepare(encoder_folder(options.model)), load_config(options.config))
    show("similarities beside the dense integers'", found["heads"])
    show("a passage, on the model", found["heads_cycles"])
    if options.out:
        path = options.out / FILE
        write(path, json.loads(path.read_text()) | found)


if __name__ == "__main__":
    main()
