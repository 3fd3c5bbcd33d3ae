"""Prompts by a program of their own: the same texts and caches in fewer cycles, whatever decodes behind them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.config import load_config
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.pieces import launches
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.device.timeline import LaunchRecord, Timeline
from gemmule.sw.errors import InputError
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.reports.trace import phase
from gemmule.sw.step import Want

from .test_cli import run

BASE = load_config("base")
PROMPT = encode("class Stack:\n    def push(self, item):\n        self.items = []\n\n    def pop(self):\n") * 2
R = 16
"""Rows of a pass that decodes, of the small pair."""


def _cached(model: LoadedModel, positions: int) -> list[bytes]:
    """What a model's cache has of the first positions, run by run."""
    program, begin = model.program, model.program.symbols[CACHE][0]
    return [bytes(model.device.read_dram(begin + run * program.layout.pitch, positions * program.layout.row))
            for run in range(program.layout.runs)]


@pytest.mark.parametrize(("method", "options"), [
    ("ar", {}), ("draft", {}), ("draft", {"launch": "draft"}), ("draft", {"launch": "step"}), ("pld", {}),
    ("draft", {"general": True}), ("ar", {"prefill": 24})], ids=str)
def test_the_same_text_and_cache_in_fewer_cycles(method: str, options: dict[str, object]) -> None:
    """The models' caches hold the same bytes; behind the prompt each step takes the same cycles."""
    runs, caches = [], []
    for prefill in (0, options.get("prefill")):
        with Session(BASE, **options | {"prefill": prefill}) as session:  # type: ignore[arg-type]
            assert session.target.program.max_rows == R
            assert (session.target.prefill is None) is (prefill == 0)
            runs.append(session.generate(method, PROMPT, 12))
            positions = len(PROMPT) + len(runs[-1].tokens) - 1
            caches.append([_cached(model, positions if model is session.target else len(PROMPT) - 1)
                           for model in (session.target, session.draft) if model and (
                               method == "draft" or model is session.target)])
    before, now = runs
    assert now.tokens == before.tokens
    assert caches[0] == caches[1]
    assert now.steps == before.steps
    assert now.curve == before.curve
    assert now.prefill.cycles < 0.85 * before.prefill.cycles
    assert now.ledger.cycles - now.prefill.cycles == before.ledger.cycles - before.prefill.cycles


def test_of_each_model_and_each_turn() -> None:
    """Launches of prompts are named so in a trace; a later turn's input goes the same way."""
    with Session(BASE) as session:
        timeline: Timeline = []
        talk = session.converse("draft", 3, timeline=timeline)
        rows = {"target": session.target.prefill, "draft": session.draft.prefill if session.draft else None}
        for _ in range(2):
            begun = len(timeline)
            talk.turn(PROMPT[:40], 4)
            found = [record for record in timeline[begun:] if isinstance(record, LaunchRecord)]
            for model, program in rows.items():
                assert program is not None
                prompts = [record for record in found if record.model == model and phase(record) == "prefill"]
                assert len(prompts) == -(-39 // program.max_rows)
                assert all(tuple(record.commands) == program.commands for record in prompts)
                assert any(record.model == model and phase(record) != "prefill" for record in found)


def test_a_pass_over_the_whole_text() -> None:
    """Of a long pass only the last launch answers, by the program that decodes; and none is kept between passes."""
    with Session(BASE) as session, Session(BASE, prefill=0) as plain:
        found, before = (one.generate("ar", PROMPT, 3, kv_cache="none") for one in (session, plain))
        assert found.tokens == before.tokens
        assert found.ledger.cycles < 0.9 * before.ledger.cycles
        outs = [one.target.forward(Rows.chain(PROMPT), Want(last=5)) for one in (session, plain)]
        assert outs[0].argmax == outs[1].argmax
        assert len(outs[0].argmax) == 5
        assert outs[0].cycles < outs[1].cycles


# -- which launches


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return Session(BASE, prefill=32).target


@pytest.mark.parametrize(("rows", "last", "cut"), [
    (16, 0, [("plain", 16)]), (17, 0, [("prefill", 17)]), (33, 0, [("prefill", 16), ("prefill", 17)]),
    (100, 0, [("prefill", 25)] * 4), (40, 1, [("prefill", 24), ("plain", 16)]),
    (64, 16, [("prefill", 24), ("prefill", 24), ("plain", 16)]), (20, 17, [("plain", 16), ("plain", 4)]),
    (40, 40, [("plain", 16), ("plain", 16), ("plain", 8)]), (5, 5, [("plain", 5)])])
def test_launches(target: LoadedModel, rows: int, last: int, cut: list[tuple[str, int]]) -> None:
    """As few as there can be, nearly equal ones; what is answered goes by the program that has a head."""
    whole, program = Rows.chain(range(1, rows + 1), 7), target.program
    answered = np.arange(rows) >= rows - last
    found = list(launches(whole, answered, program, target.prefill, (), [7]))
    assert [("plain" if by is program else "prefill", len(piece.rows)) for by, piece in found] == cut
    assert np.concatenate([piece.rows.positions for _, piece in found]).tolist() == whole.positions.tolist()
    assert np.concatenate([piece.rows.tokens for _, piece in found]).tolist() == whole.tokens.tolist()
    assert np.concatenate([piece.index for _, piece in found]).tolist() == list(range(rows))
    assert [piece.before for _, piece in found] == [(int(piece.rows.positions[0]) - 7,) for _, piece in found]


def test_rows_that_are_no_chain(target: LoadedModel) -> None:
    """Not by the prefill: a tree of more rows than a pass takes is refused as before."""
    tree = Rows.tree(list(range(1, 21)), [-1, *([0] * 19)], 0)
    with pytest.raises(ValueError, match="a tree must fit one launch of 16 rows"):
        list(launches(tree, np.zeros(20, dtype=bool), target.program, target.prefill, (), [0]))


# -- the option


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "--prompt", "def mean(values):\n    return sum(values) / len(values)\n\n\ndef median(values):\n"
    found, path = {}, tmp_path / "a.json"
    for rows in ("", "0", "48"):
        assert run(monkeypatch, "generate", "--model", "small", *prompt, "--max-new-tokens", "4", "--json", str(path),
                   *(("--prefill-rows", rows) if rows else ())) == 0
        found[rows] = json.loads(path.read_text())
    shown = " ".join(capsys.readouterr().out.split())
    assert len({tuple(record["tokens"]) for record in found.values()}) == 1
    assert found["0"]["prefill_cycles"] > max(found[""]["prefill_cycles"], found["48"]["prefill_cycles"])
    assert [record["prefill_rows"] for record in found.values()] == [None, 0, 48]
    told = {name: record["resident"]["models"]["target"]["prefill_rows"] for name, record in found.items()}
    assert (told["0"], told["48"]) == (0, 48)
    assert told[""] > R
    assert "(prompts with up to 48 rows per launch)" in shown


@pytest.mark.parametrize(("rows", "message"), [
    ("513", "--prefill-rows must be from 0 to 512"), ("200", "--prefill-rows 200: rows of a launch"),
    ("16", "--prefill-rows must be 0, or more than the 16 rows of a pass that decodes, not 16")])
def test_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rows: str, message: str) -> None:
    assert run(monkeypatch, "generate", "--model", "small", "--prompt", "a", "--prefill-rows", rows) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_not_of_a_batch() -> None:
    with pytest.raises(InputError, match="--prefill-rows 32 is of one text, not of a --batch"):
        Session(BASE, batch=2, prefill=32)
    with Session(BASE, batch=2) as session:
        assert session.target.prefill is None
