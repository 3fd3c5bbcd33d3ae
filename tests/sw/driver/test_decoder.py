"""The run that the driver must equal is that of the decoding loop; texts of tokens are those of the tokenizer."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.session import Session
from gemmule.sw.driver.decoder import placed_decoder, reference, token_texts
from gemmule.sw.models.pair import bundled_pair

from ..test_cli import run


def test_the_reference_is_autoregressive_decoding() -> None:
    """Tokens, launches and device cycles of `gemmule generate --method ar`."""
    edge, pair = load_config("edge"), bundled_pair()
    prompt = pair.encode("def read_lines(path):\n    return [line.strip() for line in path]\n")
    assert len(prompt) > 16, "a prompt of more than one launch"
    with Session(edge, pair=pair) as session:
        generation = session.generate("ar", prompt, 3, stop=pair.ends)
    seen = reference(placed_decoder(pair, "target", edge), "model", prompt, 3, pair.ends)
    ledger = generation.ledger
    assert (seen.tokens, seen.launches, seen.device_cycles) == (
        generation.tokens, ledger.launches["target"], ledger.device_cycles)


def test_texts_are_bytes_that_make_up_any_text() -> None:
    pair = bundled_pair()
    texts = token_texts(pair.tokenizer, pair.vocab)
    assert len(texts) == pair.vocab
    assert all(texts[end] == b"" for end in pair.ends)
    words = "naïve = '\N{EURO SIGN}'  # \N{ROCKET}\n"
    assert b"".join(texts[token] for token in pair.encode(words)).decode() == words
    assert token_texts(None, 5) == []


def test_it_writes_all_that_a_host_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "driver", "--config", "tiny", "--network", "draft", "--rows", "4", "--json", "a.json") == 0
    record = json.loads(Path("a.json").read_text())
    assert {path.name for path in Path("build/driver").iterdir()} == {Path(path).name for path in record["files"]} == {
        "gemmule.h", "gemmule_driver.h", "gemmule_driver.c", "gemmule_decoder.h", "gemmule_decoder.c",
        "gemmule_dram.hpp", "gemmule_bench.cpp", "decoder.gmd"}
    assert (record["runs"], record["equal"]) == (None, None)
    assert run(monkeypatch, "header", "--config", "tiny", "--out", "h/gemmule.h", "--json", "a.json") == 0
    assert Path("h/gemmule.h").read_bytes() == Path("build/driver/gemmule.h").read_bytes()


@pytest.mark.parametrize(("lacks", "why"), [
    ("core", "--soc needs the RISC-V core of the package sentinel-cpu: install the extra soc"),
    ("compiler", "--soc needs riscv64-unknown-elf-gcc on PATH: install it")])
def test_a_system_without_its_parts_is_refused_in_one_line(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], lacks: str,
        why: str) -> None:
    def version(package: str) -> str:
        if lacks == "core":
            raise PackageNotFoundError(package)
        return "0.1.0b2"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gemmule.sw.driver.soc_run.version", version)
    monkeypatch.setattr("gemmule.sw.driver.soc_run.shutil.which", lambda name: None)
    assert run(monkeypatch, "driver", "--config", "tiny", "--network", "draft", "--rows", "4", "--soc") == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith(f"error: {why}")


@pytest.mark.parametrize(("words", "why"), [
    (["--max-new-tokens", "256"], "--max-new-tokens must be from 1 to 255"),
    (["--prompt", "a " * 200, "--max-new-tokens", "200"], "prompt and new tokens must be at most 256 together"),
    (["--out", "a.json"], "--out must be a folder, not the file 'a.json'"),
    (["--network", "both"], "--network must be one of target, draft, not 'both'")])
def test_options_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str], words: list[str], why: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text("{}")
    assert run(monkeypatch, "driver", "--config", "tiny", *words) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
