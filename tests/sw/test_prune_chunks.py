"""Caches pruned by chunks: one text by every method, the device's beside the interpreter's, more rows than keys."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gemmule.config import Config, load_config
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.interpreted import InterpretedModel
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning, load_pruning
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.workloads.pruned import Untimed, pruned_cache

from .test_cli import run
from .test_prune_pages import TEXTS

BASE = load_config("base")
CHUNKS = Pruning(keep=0.4, every=16, first=10, last=16, whole=40, score="chunks")
NEW = 60


def _prompt() -> list[int]:
    return bundled_pair("small").encode(3 * TEXTS[0])


@cache
def _interpreted(schedule: Pruning) -> list[int]:
    network = bundled_pair("small").target(BASE, 0).network
    model = InterpretedModel(TARGET, network, Untimed(network.graph, max_rows=16), None)  # type: ignore[arg-type]
    talk = Conversation(model, METHODS["ar"].make(None), Ledger(BASE), rule=GREEDY,  # type: ignore[arg-type]
                        kv=pruned_cache(model, schedule, 16))
    return talk.turn(_prompt(), NEW).tokens


def test_every_method_decodes_the_interpreters_text() -> None:
    """By two drafters, with selections that a step does not cross."""
    with Session(BASE, pair=bundled_pair("small"), pruning=CHUNKS) as session:
        made = session.generate("ar", _prompt(), NEW)
        assert made.tokens == _interpreted(CHUNKS)
        for method in ("draft", "pld"):
            assert session.generate(method, _prompt(), NEW, 4).tokens == made.tokens
    assert made.pruned
    assert made.pruned.selections > 2
    assert made.pruned.rows < made.pruned.rows_dense


def test_the_choice_counts() -> None:
    """Other chunks, or none, give another text; all chunks give that of the whole cache."""
    assert _interpreted(CHUNKS) != _interpreted(replace(CHUNKS, keep=30))
    with Session(BASE, pair=bundled_pair("small"), pruning=replace(CHUNKS, keep=1.0)) as every, \
            Session(BASE, pair=bundled_pair("small")) as dense:
        assert every.generate("pld", _prompt(), NEW, 4).tokens == dense.generate("ar", _prompt(), NEW).tokens


def test_rows_of_a_schedule() -> None:
    """In whole chunks between the first and the newest ones."""
    assert [CHUNKS.rows(cached) for cached in (40, 41, 100, 250)] == [40, 33, 36, 98]
    assert all((cached - CHUNKS.rows(cached)) % 8 == 0 for cached in range(1, 300))
    assert CHUNKS.always == (10, 16, 8, 0)
    assert replace(CHUNKS, score="attention").always == (10, 16, 0, 0)


def test_more_rows_than_the_device_has_keys() -> None:
    """A device chooses among eight times as many rows by chunks as by rows."""
    few = Config.model_validate(BASE.model_dump() | {"name": "few-keys", "select_keys": 64})
    pair, prompt = bundled_pair("small"), _prompt()
    assert len(prompt) > 64
    with Session(few, pair=pair, pruning=CHUNKS) as chunks, \
            Session(few, pair=pair, pruning=replace(CHUNKS, score="attention")) as rows:
        assert chunks.generate("ar", prompt, NEW).tokens == _interpreted(CHUNKS)
        with pytest.raises(InputError, match="more than the 64 among which this device chooses"):
            rows.generate("ar", prompt, NEW)


@pytest.mark.parametrize(("text", "message"), [
    ("score: chunks\nkeep: 0.5\npage: 12", "page must be one of"),
    ("keep: 0.5\npage: 8", "page is of score: pages and chunks alone"),
    ("score: chunks\nkeep: 0.5\nvalues: 2", "values does not go with score: chunks"),
    ("score: chunks\nkeep: 0.5\nfour: 0.5", "four goes with score: attention")])
def test_bad_schedules(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        load_pruning(file)


@pytest.mark.parametrize(("text", "message"), [
    ("score: chunks\nkeep: 0.5\nlast: 8", "must be at least the 16 of a pass, not 8"),
    ("score: chunks\nkeep: 0.5\npage: 4", "a multiple of 8, not 4")])
def test_chunks_that_a_device_does_not_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                            capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    """One line, exit code 2."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    assert run(monkeypatch, "generate", "--model", "small", "--prune", str(file)) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert message in errors[0]

