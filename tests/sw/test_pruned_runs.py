"""`gemmule run model` and `run arch` with a schedule: a pruned cache of decoders, rows that leave encoders by shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.files.model_file import save_model
from gemmule.compiler.ir import Cache, HeadPruning, TokenPruning
from gemmule.config import load_config
from gemmule.sw.device.chosen import InterpretedChooser
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.workloads.architectures import Work, run_architecture
from gemmule.sw.workloads.passes import Passes
from gemmule.sw.workloads.pruned_passes import PrunedPasses, selection_beside
from tests.compiler.integer_networks import Sizes, random_network

from .test_architectures import small
from .test_cli import run
from .test_encode import MADE

EDGE, BASE = load_config("edge"), load_config("base")
SIZES = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61, positions=300,
              prefix=2)
SHORT = Pruning(keep=0.5, every=16, last=16, whole=32)
TEXT = "keep: 0.5\nevery: 16\nlast: 16\nwhole: 32\n"
ROW = 2 * 2 * 16 * 3
"""Bytes of a cached row."""


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMMULE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "decoder.safetensors"
    save_model(file, random_network(SIZES, 1), MADE.model_copy(update={"prefix": (1, 2)}), None)
    return file


def told(monkeypatch: pytest.MonkeyPatch, where: Path, text: str, *words: str) -> dict[str, Any]:
    schedule, numbers = where / "schedule.yaml", where / "numbers.json"
    schedule.write_text(text)
    assert run(monkeypatch, "run", *words, "--config", "edge", "--prune", str(schedule), "--json", str(numbers)) == 0
    found: dict[str, Any] = json.loads(numbers.read_text())
    return found


def test_decoder(decoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                 capsys: pytest.CaptureFixture[str]) -> None:
    """With data both caches and the logits are the interpreter's; without any about as many cycles."""
    words = ("model", str(decoder), "--seq", "100")
    found = told(monkeypatch, tmp_path, TEXT, *words)
    assert "pruned cache: 50 rows per KV head, 64% of the KV bytes; " in " ".join(capsys.readouterr().out.split())
    timed = told(monkeypatch, tmp_path, TEXT, *words, "--timing-only")
    assert found["output_equals_interpreter"] is True
    assert found["prune"] == {"keep": 0.5, "every": 16, "first": 4, "last": 16, "whole": 32, "score": "attention",
                              "page": 8, "values": None, "four": None, "halves": None, "progressive": None}
    assert found["kept_rows_by_layer"] == timed["kept_rows_by_layer"] == [50, 50, 50]
    assert (found["kv_bytes"], found["kv_bytes_dense"]) == (ROW * 58 + ROW * (100 - 4) // 16, ROW * 100)
    assert found["cycles"] < found["cycles_dense"] == timed["cycles_dense"]
    assert found["cycles_with_selection"] == found["cycles"] + found["selection_cycles"] // 16
    assert 0 <= found["topk_exposed_cycles"] <= found["topk_cycles"] == timed["topk_cycles"]
    assert 0 < found["topk_cycles"] < found["selection_cycles"]
    assert 0 < found["dropped_probability"] < 0.5
    assert timed["dropped_probability"] is None
    for name in ("cycles", "selection_cycles"):
        assert timed[name] == pytest.approx(found[name], rel=0.03)


def test_windows_and_short_texts(decoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that are not chosen are copied; a text that is too short keeps all and costs what the dense one does."""
    window = told(monkeypatch, tmp_path, TEXT + "score: none\n", "model", str(decoder), "--seq", "100", "--rows", "3")
    assert window["output_equals_interpreter"] is True
    assert (window["topk_cycles"], window["dropped_probability"]) == (0, None)
    assert window["kv_bytes"] == ROW * 58
    assert window["cycles_with_selection"] == window["cycles"] + 3 * window["selection_cycles"] // 16 > window["cycles"]
    short = told(monkeypatch, tmp_path, TEXT, "model", str(decoder), "--seq", "32")
    assert short["output_equals_interpreter"] is True
    assert (short["kept_rows_by_layer"], short["kv_bytes"]) == ([32] * 3, short["kv_bytes_dense"])
    assert short["cycles"] == short["cycles_dense"] == short["cycles_with_selection"]
    assert "pruned cache: all 32 rows are kept" in capsys.readouterr().out


def test_planted_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of either cache that the device does not have is told, even where the answers would be equal."""
    network = random_network(SIZES, 1)
    program = compile_network(network, EDGE, rows=1)
    selection = selection_beside(network, "random 1", program, SHORT)

    def equal() -> bool:
        with PrunedPasses(program, selection, network, SHORT, "model", 0, False) as passes:
            passes.fill_cache(60)
            passes.run(1, 0)
            return passes.equal

    keep = InterpretedChooser._keep

    def other_rows(self: InterpretedChooser, lists: dict[str, np.ndarray]) -> None:
        name = min(lists)
        lists[name][0, 5] = next(row for row in range(60) if row not in lists[name][0])
        keep(self, lists | {name: np.sort(lists[name], axis=1)})

    def other_value(self: InterpretedChooser, lists: dict[str, np.ndarray]) -> None:
        keep(self, lists)
        name = min(lists)
        self.whole.contents(name)[1][40, 3] ^= 1

    assert equal()
    for fault in (other_rows, other_value):
        monkeypatch.setattr(InterpretedChooser, "_keep", fault)
        assert not equal()


def test_decoder_by_shape() -> None:
    """The report adds up, and the dense step is the one of a run without a schedule."""
    dense = run_architecture(small(), EDGE, Work(seq=100))
    pruned = run_architecture(small(), EDGE, Work(seq=100, pruning=SHORT))
    assert dense["kept_rows_by_layer"] is dense["prune"] is dense["cycles_with_selection"] is None
    assert pruned["cycles_dense"] == dense["cycles"] > pruned["cycles"]
    assert pruned["kept_rows_by_layer"] == [50, 50]
    assert pruned["kv_bytes_dense"] == 100 * 2 * 128 * 2 > pruned["kv_bytes"] > 58 * 2 * 128 * 2
    assert sum(part["macs"] for part in pruned["operators"]) == pruned["macs"] < dense["macs"]
    assert sum(part["network_bytes"] for part in pruned["operators"]) == pruned["network_bytes"]
    spent = pruned["cycles_with_selection"] + pruned["host_cycles"]
    assert pruned["tokens_per_second"] == pytest.approx(EDGE.host.clock_mhz * 1e6 / spent)
    every = run_architecture(small(), EDGE, Work(seq=100, pruning=replace(SHORT, keep=1.0)))
    assert every["cycles"] == every["cycles_dense"]
    assert every["kept_rows_by_layer"] == [100, 100]


def test_time_is_that_of_a_network_with_numbers() -> None:
    """Layers are equal by shape, so two of them are compiled; the selecting pass too."""
    sizes = Sizes(family="llama", hidden=128, inner=512, layers=4, heads=2, kv_heads=2, head_dim=64, vocab=97,
                  positions=128)
    network = random_network(sizes, 1)
    program = compile_network(network, EDGE, rows=1, tokens=True)
    selection = selection_beside(network, "random 4", program, SHORT)
    with PrunedPasses(program, selection, network, SHORT, "model", 0, True) as passes:
        passes.fill_cache(100)
        passes.run(1, 1)
    told, record = passes.pruned(), run_architecture(small().resized("layers", 4), EDGE, Work(seq=100, pruning=SHORT))
    assert record["topk_cycles"] == told["topk_cycles"]
    for name in ("selection_cycles", "cycles_with_selection", "cycles_dense"):
        assert record[name] == pytest.approx(told[name], rel=5e-3)


def test_encoder_by_shape() -> None:
    dense = run_architecture(small("bert-base"), EDGE, Work(seq=40))
    pruned = run_architecture(small("bert-base"), EDGE, Work(seq=40, pruning=TokenPruning(layers=(0.5, 0.25))))
    assert pruned["kept_rows_by_layer"] == [20, 10]
    assert pruned["cycles_dense"] == dense["cycles"] > 1.3 * pruned["cycles"]
    assert (pruned["selection_cycles"], pruned["dropped_probability"]) == (None, None)
    assert pruned["topk_cycles"] > 0
    assert pruned["kv_bytes_dense"] == 40 * 2 * 128 * 2
    assert pruned["kv_bytes"] == (40 + 20) * 2 * 128
    assert sum(part["macs"] for part in pruned["operators"]) == pruned["macs"] < dense["macs"]


def test_heads_by_shape() -> None:
    """Without data the first heads stay; what skipped ones would multiply and load is not counted."""
    dense, pruned = (run_architecture(small("bert-base"), EDGE, Work(seq=40, pruning=pruning)) for pruning in (
        None, TokenPruning(heads=HeadPruning(layers=(0.5,)))))
    assert pruned["kept_heads_by_layer"] == [1, 1]
    assert pruned["prune"]["heads"] == [0.5]
    assert pruned["cycles_dense"] == dense["cycles"] > 1.04 * pruned["cycles"]
    assert pruned["dram_bytes"] < dense["dram_bytes"]
    assert pruned["kv_bytes_dense"] - pruned["kv_bytes"] == 40 * 2 * 64
    assert sum(part["macs"] for part in pruned["operators"]) == pruned["macs"]
    assert dense["macs"] - pruned["macs"] == 40 * 4 * 64 * 128 + 2 * 40 * 40 * 64
    weights = [{part["name"]: part["weight_bytes"] for part in record["operators"]} for record in (dense, pruned)]
    assert 4 * weights[1]["query"] == 3 * weights[0]["query"]
    assert weights[1]["up"] == weights[0]["up"]


def test_random_rows_go_behind_others() -> None:
    """The base class fills a cache in pieces as it does at once."""
    network = random_network(SIZES, 1)
    program = compile_network(network, EDGE, rows=1)
    with Passes(program, network, "model", 0, False) as passes:
        passes.fill_cache(20)
        passes._fill(passes.cache, 10)
        passes.cached = passes.position = 32
        passes.run(1, 1)
        assert passes.equal
        assert passes.cache.length() == 33
        assert isinstance(passes.cache, Cache)


@pytest.mark.parametrize(("text", "words", "message"), [
    ("keep: 0", (), "keep must be at least 1 row, not 0"), ("keep: 0.0", (), "keep must be a share above 0"),
    ("keep: 200\n", (), "keep must be at most the 100 rows that are cached, more do not exist, not 200"),
    ("layers: [0.5, 0.9]", (), "must be keys with keep or values among them, for a decoder, not layers"),
    (TEXT, ("--phase", "prefill"), "--phase must be decode with --prune, not prefill"),
    (TEXT, ("--batch", "2"), "--batch must be 1 with --prune, not 2"),
    (TEXT, ("--attention", "online"), "--attention must be exact with --prune, not online"),
    (TEXT, ("--fusion", "off"), "--fusion must be on with --prune, not off"),
    (TEXT, ("--rows", "17"), "--rows must be at most 16, as no pass reaches across a selection, not 17"),
    ("keep: 0.5\nscore: pages", (), "score must be attention, heavy or none here, not pages"),
    ("keep: 0.5\nfirst: 0\nlast: 0\nwhole: 2", ("--seq", "3"), "rows choose, and only 3 are cached")])
@pytest.mark.parametrize("command", ["model", "arch"])
def test_refuses(decoder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                 command: str, text: str, words: tuple[str, ...], message: str) -> None:
    schedule = tmp_path / "schedule.yaml"
    schedule.write_text(text)
    target = str(decoder) if command == "model" else "gpt2"
    options = ("--prune", str(schedule), *(("--config", "edge") if command == "model" else ()), *(
        words if "--seq" in words else ("--seq", "100", *words)))
    assert run(monkeypatch, "run", command, target, *options) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert sum("error" in line for line in error) == 1
    assert message in error[-1]


@pytest.mark.parametrize(("name", "text", "words", "message"), [
    ("bert-base", "layers: [0.5, 0.6]", (), "layer 1 must keep at most what layer 0 leaves, 0.5, not 0.6"),
    ("bert-base", "layers: [0]", (), "layer 0 must keep more than 0 rows, not 0"),
    ("bert-base", "layers: [200]", (), "layer 0 must keep at most 128 rows, which a sequence has, not 200"),
    ("bert-base", f"layers: {[0.5] * 13}", (), "layers must be at most 12, which the network has, not 13"),
    ("bert-base", "heads: [13]", (), "layer 0 must leave at most 12 heads, which the network has, not 13"),
    ("bert-base", f"heads: {[6] * 13}", (), "heads must be at most 12 numbers, one for each layer that the network"),
    ("bert-base", "layers: [0.5]", ("--search", "branch-and-bound"), "--search branch-and-bound goes without --prune"),
    ("gpt2", TEXT, ("--sweep", "seq"), "--prune goes without --sweep")])
def test_refuses_by_shape(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
                          name: str, text: str, words: tuple[str, ...], message: str) -> None:
    schedule = tmp_path / "schedule.yaml"
    schedule.write_text(text)
    assert run(monkeypatch, "run", "arch", name, "--prune", str(schedule), *words) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert sum("error" in line for line in error) == 1
    assert message in error[-1]


def test_memories_bound_the_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                 tmp_path: Path) -> None:
    """More cached rows than the select unit has keys."""
    schedule = tmp_path / "schedule.yaml"
    schedule.write_text(TEXT)
    assert run(monkeypatch, "run", "arch", "llama-68m", "--seq", "1200", "--prune", str(schedule)) == 2
    assert "base chooses among at most 1,024 cached rows, not 1,200: take a configuration with more select_keys" in (
        " ".join(capsys.readouterr().err.split()))
