"""What the benchmark of 4 bits computes, and the committed results."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.halves import CHOSEN, CONTEXTS, TIMED, WAYS, Halving, Way
from benchmarks.halves_page import ROOT
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from tests.compiler.integer_networks import Sizes, random_network

SIZES = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=2, vocab=61, positions=120,
              prefix=2)


def _logits(interpreter: IntegerInterpreter, pieces: tuple[int, ...]) -> np.ndarray:
    cache, at, found = Cache(interpreter.network.graph), 0, []
    for piece in pieces:
        rows = Rows.chain([(7 * (at + i)) % 61 for i in range(piece)], at).behind(2)
        found.append(interpreter.forward(rows, cache))
        at += piece
    return np.concatenate(found)


@pytest.mark.parametrize("way", [Way(), *WAYS.values()])
def test_ways_by_pieces(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a text in pieces as of one; with 8 bits the plain interpreter's, with 4 others behind row 32."""
    network = random_network(SIZES, 3)
    monkeypatch.setattr(Halving, "way", way)
    found, plain = _logits(Halving(network), (100,)), _logits(IntegerInterpreter(network), (100,))
    np.testing.assert_array_equal(_logits(Halving(network), (40, 25, 35)), found)
    np.testing.assert_array_equal(found[:32], plain[:32])
    assert (found == plain).all() is np.bool_(way == Way())


def test_all_rows_take_all_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a probability above 1 every row does: keys are whole but for those above 119."""
    network = random_network(SIZES, 3)
    monkeypatch.setattr(Halving, "way", Way(keys=True, below=1.5))
    monkeypatch.setattr(Halving, "counted", np.zeros(2, dtype=np.int64))
    _logits(Halving(network), (100,))
    assert Halving.counted.tolist() == [100 * SIZES.layers * SIZES.heads] * 2


def test_committed_results() -> None:
    """Every way, schedule and cache. Values bear 4 bits, keys do not; fewer bytes take fewer cycles."""
    found = json.loads((ROOT / "docs" / "results" / "halves.json").read_text())
    uniform = {row["bits"]: row for row in found["uniform"]}
    assert list(uniform) == list(WAYS)
    assert abs(uniform["values"]["perplexity"]) < 0.005 < 0.1 < uniform["keys"]["perplexity"]
    taken = [uniform[f"keys, all bits below {below}"]["rows_with_all_bits"] for below in (0.1, 0.3, 0.5)]
    assert taken == sorted(taken)
    assert {row["schedule"] for row in found["chosen"]} <= set(CHOSEN)
    rows = {(row["context"], row["cache"]): row for row in found["cycles"]}
    assert len(rows) == len(CONTEXTS) * len(TIMED)
    for context in CONTEXTS:
        whole, values, both = (rows[context, name] for name in ("8 bits", "values of 4 bits", "both of 4 bits"))
        assert whole["kv_bytes"] > values["kv_bytes"] > both["kv_bytes"]
        # Behind more than 4,096 positions scores of rows of 4 bits are computed twice.
        assert (whole["pass"] > values["pass"] > both["pass"]) is (context < 4096)
