"""What the benchmark of values by list counts, and the committed results."""

from __future__ import annotations

import json

import numpy as np

from benchmarks.pruned_values import CONTEXTS, LEAST, ROWS, TIMED, Counting
from benchmarks.pruning_page import ROOT
from gemmule.compiler.ir import Cache, Rows
from tests.compiler.integer_networks import Sizes, random_network

SIZES = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61, positions=99,
              prefix=2)


def test_values_that_are_met() -> None:
    """Of a pass in two pieces as of one; a threshold of 255 leaves about the largest one of each row and head."""
    network, counts = random_network(SIZES, 3), []
    for least, pieces in ((1, (60,)), (1, (25, 35)), (255, (60,))):
        Counting.counted[:] = 0
        interpreter, cache, at = Counting(network, values=least), Cache(network.graph), 0
        for piece in pieces:
            interpreter.forward(Rows.chain([(7 * (at + i)) % 61 for i in range(piece)], at).behind(2), cache)
            at += piece
        counts.append(Counting.counted.tolist())
    rows = SIZES.layers * SIZES.kv_heads * 60
    assert [seen for seen, _ in counts] == [rows * 61 // 2] * 3
    assert counts[1] == counts[0]
    assert counts[2][1] < 4 * rows < counts[0][1]


def test_committed_results() -> None:
    """Every threshold; zeros alone change no prediction, and a larger one leaves out more and never predicts better by
    much.
    """
    found = json.loads((ROOT / "docs" / "results" / "pruned_values.json").read_text())
    quality = {row["values"]: row for row in found["quality"]}
    assert list(quality) == sorted(LEAST)
    assert quality[1]["perplexity"] == quality[1]["dropped_probability"] == 0
    assert (np.diff([row["met"] for row in quality.values()]) < 0).all()
    assert (np.diff([row["dropped_probability"] for row in quality.values()]) > 0).all()
    rows = {(row["context"], row["rows"], row["values"]): row for row in found["cycles"]}
    assert len(rows) == len(CONTEXTS) * len(ROWS) * len(TIMED)
    for context in CONTEXTS:
        assert rows[context, 1, 1]["cycles"] < rows[context, 1, None]["cycles"]
        assert rows[context, 8, 1]["cycles"] == rows[context, 8, None]["cycles"]
