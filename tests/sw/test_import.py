"""From a checkpoint's directory to a model file and to passes on the device, by the commands."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files import model_check
from gemmule.compiler.files.model_file import load_model
from gemmule.sw.models import importing
from gemmule.sw.models.bundled_models import MODELS
from tests.compiler import families

from .test_cli import run

TOKENIZER = next(MODELS.rglob("tokenizer.json"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer, and text.txt beside it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "llama"
    families.write(folder, families.make("llama", seed=20261123, head_dim=24, layers=2, vocab=1024))
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder.parent / "text.txt").write_text(Path(json.__file__).read_text())
    return folder


def _import(monkeypatch: pytest.MonkeyPatch, folder: Path, out: Path, *options: str) -> int:
    return run(monkeypatch, "import", str(folder), "--calibrate", str(folder.parent / "text.txt"), "--out", str(out),
               "--window", "32", *options)


def test_import_and_run(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path) -> None:
    out, numbers = tmp_path / "model.safetensors", tmp_path / "numbers.json"
    assert _import(monkeypatch, checkpoint, out, "--method", "nearest", "--json", str(numbers)) == 0
    record = json.loads(numbers.read_text())
    assert record["bytes"] == out.stat().st_size
    assert (record["usable"], record["written"], record["method"]) == (True, True, "nearest")
    assert list(record["kinds"]) == ["text"]
    assert 0 <= record["kl_mean"] < 0.05
    assert record["top1_agreement"] > 0.8
    assert record["peak_memory"] > 1 << 20
    assert abs(record["perplexity_int"] / record["perplexity_float"] - 1) < 0.05
    assert len(record["layer_error"]) == 2
    assert (record["cosine_mean"], record["cosine_least"]) == (None, None)
    before = out.read_bytes()
    assert _import(monkeypatch, checkpoint, out, "--method", "nearest") == 0
    assert out.read_bytes() == before
    prefill = "--phase", "prefill", "--seq", "9", "--rows", "4"
    for options in (("--seq", "20", "--rows", "3"), prefill, ("--seq", "20", "--batch", "3"),
                    (*prefill, "--batch", "2")):
        assert run(monkeypatch, "run", "model", str(out), "--config", "edge", "--json", str(numbers), *options) == 0
        record = json.loads(numbers.read_text())
        assert record["output_equals_interpreter"] is True
        assert 0 < record["roofline_fraction"] < 1
        assert sum(part["cycles"] for part in record["layers"]) < record["cycles"]
        assert len(record["layers"]) == 2
    assert run(monkeypatch, "run", "model", str(out), "--seq", "20", "--timing-only", "--json", str(numbers)) == 0
    assert json.loads(numbers.read_text())["output_equals_interpreter"] is None


def test_import_with_another_activation(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                        checkpoint: Path, tmp_path: Path) -> None:
    """The file has it, and no other is made of that file; the polynomial is of GELU alone."""
    out, numbers = tmp_path / "model.safetensors", tmp_path / "numbers.json"
    options = "--method", "nearest", "--json", str(numbers), "--activation"
    assert _import(monkeypatch, checkpoint, out, *options, "word") == 0
    record = json.loads(numbers.read_text())
    assert record["activation"] == "word"
    assert abs(record["perplexity_int"] / record["perplexity_float"] - 1) < 0.05
    for words in ((), ("--activation", "word")):
        assert run(monkeypatch, "run", "model", str(out), "--seq", "9", "--json", str(numbers), *words) == 0
        record = json.loads(numbers.read_text())
        assert (record["activation"], record["output_equals_interpreter"]) == ("word", True)
    assert run(monkeypatch, "run", "model", str(out), "--activation", "table") == 2
    assert "--activation table is made of tables of bytes, not of word: import" in capsys.readouterr().err
    assert _import(monkeypatch, checkpoint, tmp_path / "none", *options, "ibert") == 2
    assert "--activation ibert needs a network with GELU, not silu: use table or word" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["bert", "bert-classifier"])
def test_import_an_encoder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkpoint: Path,
                           tmp_path: Path, family: str) -> None:
    """Cosines of the output in place of perplexity; it gives no text."""
    folder, out, numbers = tmp_path / family, tmp_path / "model.safetensors", tmp_path / "numbers.json"
    made = families.make(family, seed=20261123, layers=2, vocab=1024)
    if family != "bert":
        made.config["id2label"] = {str(number): name for number, name in enumerate("VWXYZ")}
    families.write(folder, made)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    shutil.copy(checkpoint.parent / "text.txt", tmp_path / "text.txt")
    assert _import(monkeypatch, folder, out, "--method", "nearest", "--json", str(numbers)) == 0
    record = json.loads(numbers.read_text())
    assert (record["family"], record["perplexity_float"], record["perplexity_int"]) == ("bert", None, None)
    assert 0.98 < record["cosine_least"] <= record["cosine_mean"] <= 1
    assert record["logits_error"] < 0.1
    assert len(record["layer_error"]) == 2
    words = capsys.readouterr().out
    assert "cosine of float and integers" in " ".join(words.split())
    assert "perplexity" not in words
    loaded = load_model(out)
    assert loaded.network.graph.encoder
    assert loaded.labels == (() if family == "bert" else tuple("VWXYZ"))
    assert run(monkeypatch, "generate", "--model", str(out)) == 2
    error = capsys.readouterr().err.strip()
    assert f"--model {out} must be a decoder, not an encoder" in error
    assert "\n" not in error


def test_timing_only_has_the_cycles_of_data(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path) -> None:
    out, numbers = tmp_path / "model.safetensors", tmp_path / "numbers.json"
    assert _import(monkeypatch, checkpoint, out, "--method", "nearest", "--bits", "int4", "--group", "0") == 0
    for batch in ("1", "3"):
        cycles = set()
        for options in ((), ("--timing-only",)):
            assert run(monkeypatch, "run", "model", str(out), "--seq", "11", "--batch", batch, "--json", str(numbers),
                       *options) == 0
            cycles.add(json.loads(numbers.read_text())["cycles"])
        assert len(cycles) == 1


@pytest.mark.parametrize(("options", "message"), [
    (["--group", "3"], "--group must be 0 or a power of two up to 32768, not 3"),
    (["--window", "1"], "--window must be from 2 to 4,096 tokens, not 1"),
    (["--bits", "int2"], "--bits must be one of int8, int4, not 'int2'"),
    (["--method", "third"], "--method must be one of auto, nearest, second-order, not 'third'"),
    (["--down", "int2"], "--down must be one of int8, int4, not 'int2'"),
    (["--evaluate", "a=README.md", "--evaluate", "a=LICENSE"], "--evaluate must name each kind of text once, not 'a'"),
    (["--calibrate", "nothing.txt"], "--calibrate must name a file that can be read, not 'nothing.txt'"),
])
def test_import_refuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkpoint: Path,
                        tmp_path: Path, options: list[str], message: str) -> None:
    out = tmp_path / "model.safetensors"
    assert _import(monkeypatch, checkpoint, out, *options) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_run_model_refuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], checkpoint: Path,
                           tmp_path: Path) -> None:
    for words, message in (([str(checkpoint)], "is a directory: `gemmule import"),
                           ([str(checkpoint.parent / "text.txt")], "is not a safetensors file"),
                                           ([str(tmp_path / "none")], "none")):
        assert run(monkeypatch, "run", "model", *words) == 2
        assert message in capsys.readouterr().err


def test_kinds_of_text_and_the_default_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                            checkpoint: Path, tmp_path: Path) -> None:
    """Each kind has its numbers; without files Python's own text is used, other parts of it to measure on."""
    out, numbers = tmp_path / "model.safetensors", tmp_path / "numbers.json"
    text = checkpoint.parent / "text.txt"
    assert _import(monkeypatch, checkpoint, out, "--json", str(numbers), "--evaluate", str(text), "--evaluate",
                   f"again={text}") == 0
    kinds = json.loads(numbers.read_text())["kinds"]
    assert list(kinds) == ["text", "again"]
    assert kinds["text"] == kinds["again"]
    assert run(monkeypatch, "import", str(checkpoint), "--out", str(out), "--window", "32", "--json",
               str(numbers)) == 0
    record = json.loads(numbers.read_text())
    assert list(record["kinds"]) == ["prose", "code"]
    assert (record["calibration_windows"], record["evaluation_windows"]) == (16, 8)
    assert "left" in capsys.readouterr().err


def test_what_is_not_usable_is_not_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                           tmp_path: Path) -> None:
    """Logits that are a hundred times too sharp for their scale: the last line and the exit code say so."""
    folder, out, numbers = tmp_path / "llama", tmp_path / "model.safetensors", tmp_path / "numbers.json"
    made = families.make("llama", seed=20261126, head_dim=24, layers=2, vocab=1024)
    for name in [name for name in made.tensors if name.endswith("embed_tokens.weight")]:
        made.tensors[name] = made.tensors[name] * 1e-5
        made.tensors[name][7] = 1e3  # a token that calibration does not see: one step for all loses the others
    families.write(folder, made)
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (tmp_path / "text.txt").write_text(Path(json.__file__).read_text())
    options = "--residual", "one", "--json", str(numbers)
    assert _import(monkeypatch, folder, out, *options) == 1
    last = capsys.readouterr().out
    assert "this file is not usable: " in last
    assert " ".join(last.split()).endswith("nothing was written, --force keeps it")
    record = json.loads(numbers.read_text())
    assert (record["usable"], record["written"], out.exists()) == (False, False, False)
    assert "behind layer 0" in record["why_unusable"]
    assert _import(monkeypatch, folder, out, *options, "--force") == 1
    assert json.loads(numbers.read_text())["written"] is True
    assert load_model(out).network.graph.layers == 2


def test_a_row_that_underflows(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path) -> None:
    """One output of a linear at 1e-30, one with a bias: zero rows, and the file can be read."""
    folder, out, numbers = tmp_path / "tiny", tmp_path / "model.safetensors", tmp_path / "numbers.json"
    for family, name, options in (("llama", "layers.0.mlp.down_proj.weight", ()),
                                  ("opt", "layers.0.fc2.weight", ("--bits", "int4"))):
        made = families.make(family, seed=3, head_dim=24, layers=2, vocab=1024)
        (full,) = [at for at in made.tensors if at.endswith(name)]
        made.tensors[full][5] = 1e-30
        families.write(folder / family, made)
        shutil.copy(TOKENIZER, folder / family / "tokenizer.json")
        shutil.copy(checkpoint.parent / "text.txt", folder / "text.txt")
        assert _import(monkeypatch, folder / family, out, "--json", str(numbers), *options) == 0
        assert json.loads(numbers.read_text())["usable"] is True
        network = load_model(out).network
        down = network.graph.by_name["0.down"]
        assert not network.tensor(down, "weight")[5].any()


def test_a_file_that_reads_back_wrong_is_not_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                  checkpoint: Path, tmp_path: Path) -> None:
    """A damaged copy is refused before it takes the target's place; nothing else stays in the folder."""
    real = load_model

    def damaged(path: Path) -> object:
        found = real(path)
        name = next(iter(found.network.weights))
        found.network.weights[name][...] = 0
        return found

    monkeypatch.setattr(model_check, "load_model", damaged)
    out = tmp_path / "new" / "model.safetensors"
    assert _import(monkeypatch, checkpoint, out) == 2
    assert "what was written must compute what was quantised" in capsys.readouterr().err
    assert not out.parent.exists()


def test_an_interrupted_import_leaves_nothing(monkeypatch: pytest.MonkeyPatch, checkpoint: Path,
                                              tmp_path: Path) -> None:
    """While it measures, and while it tries what it wrote: as a signal ends it, with a folder that was made for it."""
    def stop(*words: object, **more: object) -> None:
        raise SystemExit(143)

    out = tmp_path / "new" / "model.safetensors"
    for module, name in ((importing, "compare"), (importing, "check_written")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, stop)
            assert _import(patch, checkpoint, out) == 143
        assert not out.parent.exists()


def test_scales_of_a_written_file_are_checked(monkeypatch: pytest.MonkeyPatch, checkpoint: Path,
                                              tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    assert _import(monkeypatch, checkpoint, out) == 0
    network = load_model(out).network
    nodes = (network.graph.nodes[0].model_copy(update={"type": network.graph.nodes[0].type.model_copy(
        update={"scale": 0.0})}), *network.graph.nodes[1:])
    spoilt = dataclasses.replace(load_model(out), network=dataclasses.replace(
        network, graph=network.graph.model_copy(update={"nodes": nodes})))
    monkeypatch.setattr(model_check, "load_model", lambda path: spoilt)
    with pytest.raises(CompileError, match="embedding: scales must be finite and above 0, not 0.0"):
        model_check.check_written(out, network, [1, 2])
