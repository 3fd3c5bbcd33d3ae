"""One layer of a model file on the RTL: what is cut, what it is fed with, and that a difference is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.layer_rtl import LayerRun, cut_vocabulary, differs, main, passes, stream_before
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.integer_networks import Sizes, random_network

TINY = load_config("tiny")
SIZES = Sizes(family="llama", layers=3, wide=True, prefix=1, steps=True)
TOKENS = np.array([3, 7, 7, 11, 2, 5])


def _logits(network: Network, tokens: np.ndarray) -> np.ndarray:
    return IntegerInterpreter(network).forward(Rows.chain(tokens.tolist(), 1), Cache(network.graph))


@pytest.mark.parametrize("sizes", [SIZES, Sizes(family="phi", prefix=1), Sizes(
    family="gpt2", prefix=1, bits=4, group=4, wide=True)], ids=["llama", "bias", "int4"])
def test_a_cut_vocabulary_leaves_the_other_logits(sizes: Sizes) -> None:
    network, kept = random_network(sizes, 5), np.array([2, 3, 5, 7, 11, 60])
    whole = _logits(network, TOKENS)
    cut = cut_vocabulary(network, kept)
    assert cut.graph.vocab == len(kept)
    np.testing.assert_array_equal(_logits(cut, np.searchsorted(kept, TOKENS)), whole[:, kept])
    assert network.graph.vocab == 61, "the network itself stays"


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_stream_is_what_the_whole_network_has_there(layer: int) -> None:
    network, seen = random_network(SIZES, 5), dict[str, np.ndarray]()
    name = residuals(network.graph)[layer]
    IntegerInterpreter(network).forward(Rows.chain(TOKENS.tolist(), 1), Cache(network.graph), seen.__setitem__)
    np.testing.assert_array_equal(stream_before(network, TOKENS, layer), seen[name])


@pytest.mark.rtl
def test_a_layer_is_the_same_everywhere() -> None:
    """Passes of two rows and one; then the weights are others, which the interpreter does not know."""
    network = random_network(SIZES, 5)
    run, stream = LayerRun(network, 1, TINY, 2, 8), stream_before(network, TOKENS, 1)
    with RtlDevice(TINY, dram_bytes=run.rtl_bytes) as rtl:
        rows = passes(run, stream[:5], 2, 2, rtl)
        assert [(row["pass"], row["rows"], row["cached"]) for row in rows] == [
            ("prompt", 2, 1), ("prompt", 1, 3), ("decode", 1, 4), ("decode", 1, 5)]
        assert not any(differs(row) for row in rows)
        assert min(row["cycles"] for row in rows) > 1000
        at, size = run.program.symbols["weights"]
        run.dram[at:at + size] ^= 85
        report, exact = run.forward(stream[5:], rtl)
        assert report.ok
        assert not exact
    assert run.cache.length() == 7


@pytest.mark.parametrize("name", ["bytes_different", "cycles_different", "counters_different", "interpreter_equal"])
def test_any_difference_counts(name: str) -> None:
    same = {"bytes_different": 0, "cycles_different": 0, "counters_different": 0, "interpreter_equal": True}
    assert not differs(same)
    assert differs(same | {name: 3 if "different" in name else False})


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["layer_rtl", "--model", str(tmp_path / "none"), "--layer", "1"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_the_committed_layer_is_the_same_everywhere() -> None:
    found = json.loads((Path(__file__).parents[1] / "docs" / "results" / "layer_rtl.json").read_text())
    assert (found["made"]["inner"], found["made"]["residual"], found["setting"]["prefix"]) == (16, "layer", 1)
    assert {row["pass"] for row in found["rows"]} == {"prompt", "decode"}
    assert not any(differs(row) for row in found["rows"])
