"""`gemmule run model` of an encoder: a whole sequence, its output against the interpreter, one line for refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmule.compiler.files.model_file import Made, save_model
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network, scaled

from .test_cli import run

MADE = Made(version="1", bits=8, group=0, method="nearest", smooth=False, seed=1, calibration_sha256="0")

TKINTER = """\
class Dialog(Toplevel):
    def __init__(self, master=None, **options):
        Toplevel.__init__(self, master)
        self.entry = Entry(self, name="entry", width=20)
        self.entry.pack(side=LEFT, fill=X)
        self.tk.call('wm', 'title', self._w)
        self.bind('<Return>', self.ok)
"""
ASYNCIO = """\
    async def wait(self, timeout=None):
        waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
        if not future.done():
            future.set_result(None)
        self._loop.call_soon(task.cancel)
        transport.close()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "encoder.safetensors"
    save_model(path, random_encoder(EncoderSizes(layers=3, labels=4), 1), MADE, None)
    return path


def test_a_sequence(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, found = file.parent / "numbers.json", []
    for options in ((), ("--timing-only",)):
        assert run(monkeypatch, "run", "model", str(file), "--seq", "21", "--config", "tiny", "--json", str(numbers),
                   *options) == 0
        found.append(json.loads(numbers.read_text()))
    record, timed = found
    assert "the output equals the integer interpreter's" in capsys.readouterr().out
    assert (record["phase"], record["rows"], record["passes"]) == ("encode", 21, 1)
    assert record["output_equals_interpreter"] is True
    assert timed["output_equals_interpreter"] is None
    assert timed["cycles"] == record["cycles"]
    # Products of 21 rows: 4 of 24 x 24 and 2 of 24 x 40 a layer, scores and contexts; of one row pooler and classifier.
    macs = 3 * (21 * (4 * 24 * 24 + 2 * 24 * 40) + 2 * 21 * 21 * 24) + 24 * 24 + 24 * 4
    assert record["utilization"] == pytest.approx(macs / (16 * record["cycles"]))
    cycles = [layer["cycles"] for layer in record["layers"]]
    assert len(cycles) == 3
    assert sum(cycles) < record["cycles"] < 1.5 * sum(cycles)
    operators = {part["name"]: part for part in record["operators"]}
    assert {"key", "attention", "output", "attention_norm", "up", "down", "pooler", "classifier"} <= set(operators)
    assert operators["up"]["weight_bytes"] % (40 * 24 + 7 * 40) == 0
    assert operators["attention"]["weight_bytes"] == 0


def test_attention_and_softmax(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = file.parent / "numbers.json"
    for attention, softmax in (
            ("standard", "exact"), ("standard", "ibert"), ("exact", "softermax"), ("online", "exact")):
        assert run(monkeypatch, "run", "model", str(file), "--seq", "9", "--config", "tiny", "--json", str(numbers),
                   "--attention", attention, "--softmax", softmax) == 0
        record = json.loads(numbers.read_text())
        assert (record["attention"], record["softmax"]) == (attention, softmax)
        assert record["output_equals_interpreter"] is True


def test_activation(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, scales = file.parent / "numbers.json", file.parent / "scales.safetensors"
    save_model(scales, scaled(random_encoder(EncoderSizes(layers=1), 1)), MADE, None)
    for activation in ("table", "word", "ibert"):
        assert run(monkeypatch, "run", "model", str(scales), "--seq", "9", "--config", "tiny", "--json", str(numbers),
                   "--activation", activation) == 0
        record = json.loads(numbers.read_text())
        assert (record["activation"], record["output_equals_interpreter"]) == (activation, True)
    assert run(monkeypatch, "run", "model", str(file), "--activation", "word") == 2
    assert "--activation word needs the network's scales, which it does not tell" in capsys.readouterr().err


def test_the_bundled_encoder_tells_where_a_text_is_from(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, text = tmp_path / "numbers.json", tmp_path / "text.py"
    for said, words in (("tkinter", TKINTER), ("asyncio", ASYNCIO)):
        text.write_text(words)
        assert run(monkeypatch, "run", "model", "encoder", "--text", str(text), "--seq", "64", "--json",
                   str(numbers)) == 0
        record = json.loads(numbers.read_text())
        assert record["output_equals_interpreter"] is True
        assert record["seq"] == record["rows"] == 64
        assert sum(record["labels"].values()) == pytest.approx(1)
        assert next(iter(record["labels"])) == said
        assert f"the text is of: {said} " in capsys.readouterr().out


def test_refused_texts(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = file.parent / "text.py"
    text.write_text("import os\n")
    for model, options, says in (
            (str(file), ("--seq", "9"), f"--text needs a classifier that names its labels, which {file} does not"),
            ("encoder", ("--timing-only",), "--text needs the data, which --timing-only leaves out"),
            ("encoder", ("--seq", "1"), "--seq must be more than the 1 special tokens of a sequence, not 1")):
        assert run(monkeypatch, "run", "model", model, "--text", str(text), *options) == 2
        error = capsys.readouterr().err.strip()
        assert says in error
        assert "\n" not in error


def test_fusion(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, found = file.parent / "numbers.json", []
    for fusion in ("on", "off"):
        assert run(monkeypatch, "run", "model", str(file), "--seq", "9", "--config", "tiny", "--json", str(numbers),
                   "--fusion", fusion) == 0
        found.append(json.loads(numbers.read_text()))
    fused, apart = found
    assert (fused["fusion"], apart["fusion"], apart["output_equals_interpreter"]) == ("on", "off", True)
    assert apart["cycles"] > fused["cycles"]
    assert apart["dram_bytes_by_purpose"]["store"] > fused["dram_bytes_by_purpose"]["store"]


def test_refusals(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    decoder = file.parent / "decoder.safetensors"
    save_model(decoder, random_network(Sizes(family="gpt2"), 1), MADE, None)
    for words, message in (
            ((file, "--phase", "decode"), "--phase must be encode for"), ((file, "--batch", "2"), "--batch must be 1"),
            ((decoder, "--phase", "encode"), "--phase must be prefill or decode for"),
            ((file, "--seq", "41"), "--seq must be from 1 to 40"),
            (("small",), "small must be a file that `gemmule import` wrote, smollm2, or encoder")):
        assert run(monkeypatch, "run", "model", *map(str, words)) == 2
        assert message in capsys.readouterr().err
    assert run(monkeypatch, "compile", str(file)) == 2
    assert "gemmule run model" in capsys.readouterr().err


def test_pruning(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Fewer cycles and products, the interpreter's rows and output; without data about as many cycles."""
    numbers, schedule, found = file.parent / "numbers.json", file.parent / "schedule.yaml", []
    for text, options in (("layers: [1.0, 1.0, 1.0]", ()), ("layers: [0.8, 0.5]\nlast: 1", ()),
                          ("layers: [0.8, 0.5]\nlast: 1", ("--timing-only",))):
        schedule.write_text(text)
        assert run(monkeypatch, "run", "model", str(file), "--seq", "21", "--config", "tiny", "--json", str(numbers),
                   "--prune", str(schedule), *options) == 0
        found.append(json.loads(numbers.read_text()))
    whole, pruned, timed = found
    assert (whole["kept_rows_by_layer"], whole["topk_cycles"], whole["topk_exposed_cycles"]) == ([21, 21, 21], 0, 0)
    assert pruned["kept_rows_by_layer"] == timed["kept_rows_by_layer"] == [17, 11, 11]
    assert pruned["output_equals_interpreter"] is whole["output_equals_interpreter"] is True
    assert 0 <= pruned["topk_exposed_cycles"] <= pruned["topk_cycles"]
    assert pruned["topk_cycles"] == timed["topk_cycles"] > 0
    assert pruned["cycles"] < 0.9 * whole["cycles"]
    assert timed["cycles"] == pytest.approx(pruned["cycles"], rel=0.02)
    assert pruned["cycles_dense"] == whole["cycles_dense"] == whole["cycles"]
    assert pruned["cycles_with_selection"] == pruned["cycles"]
    assert (pruned["kv_bytes"], pruned["kv_bytes_dense"]) == (2 * 24 * (21 + 17 + 11), 2 * 24 * 63)
    assert pruned["prune"] == {"layers": [0.8, 0.5], "first": 1, "last": 1, "importance": "layer", "heads": None}
    assert "rows that layers leave: 17, 11, 11; TOP_K takes " in capsys.readouterr().out
    macs = sum(rows * (3 * 24 * 24) + 2 * rows * rows * 24 + left * (24 * 24 + 2 * 24 * 40)
               for rows, left in ((21, 17), (17, 11), (11, 11))) + 24 * 24 + 24 * 4
    assert pruned["utilization"] == pytest.approx(macs / (16 * pruned["cycles"]))


def test_pruning_of_heads(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone and with rows: the interpreter's heads and output, fewer products, as many cycles without data."""
    numbers, schedule, found = file.parent / "numbers.json", file.parent / "schedule.yaml", []
    for text, options in (("heads: [2, 1]", ()), ("heads: [2, 1]", ("--timing-only",)),
                          ("heads: [1.0, 0.3]\nlayers: [0.8, 0.5]", ()), ("heads: [1.0]", ())):
        schedule.write_text(text)
        assert run(monkeypatch, "run", "model", str(file), "--seq", "21", "--config", "tiny", "--json", str(numbers),
                   "--prune", str(schedule), *options) == 0
        found.append(json.loads(numbers.read_text()))
    alone, timed, both, whole = found
    assert [one["output_equals_interpreter"] for one in found] == [True, None, True, True]
    assert alone["kept_heads_by_layer"] == timed["kept_heads_by_layer"] == [2, 1, 1]
    assert (alone["kept_rows_by_layer"], both["kept_rows_by_layer"]) == ([21] * 3, [17, 11, 11])
    assert both["kept_heads_by_layer"] == [3, 1, 1]
    assert alone["prune"] == {"layers": [1.0], "first": 1, "last": 0, "importance": "layer", "heads": [2, 1]}
    assert timed["cycles"] == pytest.approx(alone["cycles"], rel=0.05)
    assert alone["topk_cycles"] == timed["topk_cycles"] > 0
    assert (alone["kv_bytes"], alone["kv_bytes_dense"]) == (2 * 21 * 8 * (3 + 2 + 1), 2 * 24 * 63)
    assert whole["cycles"] == whole["cycles_dense"]
    assert whole["kept_heads_by_layer"] == [3, 3, 3]
    said = " ".join(capsys.readouterr().out.split())
    assert "rows that layers leave: 21, 21, 21; heads that layers leave: 2, 1, 1; TOP_K takes " in said
    macs = 3 * 21 * 2 * 24 * 40 + 24 * 24 + 24 * 4 + sum(
        21 * 4 * 24 * 8 * heads + 2 * 21 * 21 * 8 * heads for heads in (3, 2, 1))
    assert alone["utilization"] == pytest.approx(macs / (16 * alone["cycles"]))
    weights = {part["name"]: part["weight_bytes"] for part in alone["operators"]}
    every = {part["name"]: part["weight_bytes"] for part in whole["operators"]}
    assert weights["up"] == every["up"]
    assert weights["query"] == every["query"] * 6 // 9


def test_refused_schedules(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    schedule, decoder = file.parent / "schedule.yaml", file.parent / "decoder.safetensors"
    save_model(decoder, random_network(Sizes(family="gpt2"), 1), MADE, None)
    for model, text, options, says in (
            (file, "layers: [0.5, 0.6]", (), ": layer 1 must keep at most what layer 0 leaves, 0.5, not 0.6"),
            (file, "layers: [1.0, 0.0]", (), ": layer 1 must keep more than 0 rows, not 0.0: keep at least 1"),
            (file, "layers: [30]", (), "layer 0 must keep at most 21 rows, which a sequence has, not 30"),
            (file, "layers: [0.5, 0.5, 0.5, 0.5]", (), "layers must be at most 3, which the network has, not 4"),
            (file, "layers: 0.5", (), "must be keys with a list of layers or of heads among them"),
            (file, "layers: ['a']", (), ": layers must be numbers, one a layer, not ['a']"),
            (file, "layers: [0.5]\nfrist: 1", (), " has no key 'frist': an encoder's are layers, first, last, "),
            (file, "layers: [", (), "is no YAML: "),
            (file, "layers: [0.5]", ("--attention", "online"), "not by online attention: use exact"),
            (decoder, "layers: [0.5]", (), " must be keys with keep or values among them, for a decoder, not layers: "),
            (file, "keep: 0.5", (), "must be keys with a list of layers or of heads among them, for an encoder"),
            (file, "layers: [0.5]\nheads: 2", (), "must be keys with a list of layers or of heads among them"),
            (file, "heads: [2, 3]", (), ": layer 1 must leave at most what layer 0 leaves, 2, not 3"),
            (file, "heads: [2, 0]", (), ": layer 1 must leave more than 0 heads, not 0: leave at least 1"),
            (file, "heads: [4]", (), "layer 0 must leave at most 3 heads, which the network has, not 4"),
            (file, "heads: [3, 2, 2, 1]", (), "heads must be at most 3 numbers, one for each layer that the network"),
            (file, "heads: ['a']", (), ": heads must be numbers, one a layer, not ['a']")):
        schedule.write_text(text)
        assert run(monkeypatch, "run", "model", str(model), "--seq", "21", "--config", "tiny", "--prune",
                   str(schedule), *options) == 2
        error = capsys.readouterr().err.strip()
        assert says in error
        assert "\n" not in error
    assert run(monkeypatch, "run", "model", str(file), "--prune", "absent.yaml") == 2
    assert "--prune absent.yaml cannot be read: No such file" in capsys.readouterr().err
