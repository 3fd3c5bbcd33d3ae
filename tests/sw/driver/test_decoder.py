"""The run that the driver must equal is that of the decoding loop; texts of tokens are those of the tokenizer."""

from __future__ import annotations

import json
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
