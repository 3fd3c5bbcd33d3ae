"""Searches on devices: texts, scores and cycles of the interpreter, the model and the RTL; caches that texts share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.files.model_file import save_model
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.config import load_config
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.search.run import BeamSearch, BestOf, Found
from gemmule.sw.decoding.search.scores import log_probabilities
from gemmule.sw.decoding.search.session import SearchSession
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.stops import NO_STOPS, Stops
from gemmule.sw.decoding.verify import Match, Rejection
from gemmule.sw.errors import InputError
from gemmule.sw.kv.branches import Branches, Shared
from gemmule.sw.limits import SMALL
from gemmule.sw.models.branching import Branching
from gemmule.sw.models.pair import bundled_pair, imported_pair
from gemmule.sw.step import Want
from tests.compiler.integer_networks import random_network

from .test_cli import run
from .test_generate_imported import MADE, SIZES, TOKENIZER

BASE, PAIR = load_config("base"), bundled_pair(SMALL)
PROMPT = PAIR.encode("def mean(values):\n    total = 0\n    for ")
NEW, WIDTH = 10, 4
BRANCHING = Branching(width=WIDTH, room=200)
SAMPLED = Match(Sampling(800.0, 60, Fraction(9, 10)), Noise(11))
"""The pair's logits have no scale, so that a temperature must be high to matter."""


@pytest.fixture(scope="module")
def interpreted() -> Iterator[SearchSession]:
    with SearchSession(BASE, PAIR, BRANCHING, interpreted=True) as made:
        yield made


@pytest.fixture(scope="module")
def plain() -> Iterator[Session]:
    with Session(BASE, pair=PAIR, general=True, interpreted=True) as made:
        yield made


def _told(found: Found) -> list[tuple[list[int], int, int, str]]:
    return [(one.tokens, one.total, one.score, one.finish_reason) for one in found.candidates]


def _slow(width: int, ends: frozenset[int], penalty: int, new: int) -> list[tuple[list[int], int]]:
    """Beam search without a cache: every text is passed whole for each token."""
    placed = PAIR.target(BASE, 0)
    interpreter, graph = IntegerInterpreter(placed.network), placed.network.graph
    scale = float(graph.by_name[graph.output].type.scale)
    live, done = [(list[int](), 0)], list[tuple[list[int], int, Fraction]]()
    for _ in range(new):
        every = []
        for number, (tokens, total) in enumerate(live):
            logits = interpreter.forward(Rows.chain([*PROMPT, *tokens]), Cache(graph))[-1:].astype(np.int16)
            every += [(total + int(p), number, token) for token, p in enumerate(log_probabilities(logits, scale)[0])]
        every.sort(key=lambda one: (-one[0], *one[1:]))
        texts = [([*live[number][0], token], total) for total, number, token in every[:(1 + len(ends)) * width]]
        done += [(tokens, total, Fraction(total, len(tokens)**penalty))
                 for tokens, total in texts[:width] if tokens[-1] in ends]
        done = sorted(done, key=lambda one: -one[2])[:width]
        live = [text for text in texts if text[0][-1] not in ends][:width]
        if len(done) == width and done[-1][2] >= Fraction(live[0][1], len(live[0][0])**penalty):
            break
    else:
        done += [(tokens, total, Fraction(total, len(tokens)**penalty)) for tokens, total in live]
    return [(tokens, total) for tokens, total, _ in sorted(done, key=lambda one: -one[2])[:width]]


@pytest.mark.parametrize(("width", "penalty", "ended"), [(2, 1, False), (4, 0, False), (4, 1, True)])
def test_beams_equal_a_search_without_a_cache(interpreted: SearchSession, width: int, penalty: int,
                                              ended: bool) -> None:
    """``ended``: frequent tokens end texts, so that some are complete early."""
    free = interpreted.search(BeamSearch(width), PROMPT, NEW)
    ends = frozenset(one.tokens[3] for one in free.candidates) if ended else frozenset[int]()
    found = interpreted.search(BeamSearch(width, Decimal(penalty)), PROMPT, NEW, Stops(ends))
    assert [(one.tokens, one.total) for one in found.candidates] == _slow(width, ends, penalty, NEW)
    assert ended is any(one.finish_reason == "stop" for one in found.candidates)
    assert found.moved > 0


def test_one_beam_is_autoregressive_decoding(interpreted: SearchSession, plain: Session) -> None:
    for stops in (NO_STOPS, Stops(frozenset(plain.generate("ar", PROMPT, NEW).tokens[4:5]))):
        reference = plain.generate("ar", PROMPT, NEW, stop=stops)
        found = interpreted.search(BeamSearch(1), PROMPT, NEW, stops)
        (one,) = found.candidates
        assert (one.tokens, one.finish_reason) == (reference.tokens, reference.finish_reason)
        assert found.rows == [1] * len(one.tokens)


@pytest.mark.parametrize("rule", [SAMPLED, Rejection(SAMPLED.sampling, SAMPLED.noise)], ids=["match", "rejection"])
def test_sampled_texts_are_those_of_autoregressive_decoding(interpreted: SearchSession, plain: Session,
                                                           rule: Any) -> None:
    """Some end early by tokens or strings, so that passes have fewer rows from then on."""
    free = interpreted.search(BestOf(WIDTH, rule), PROMPT, NEW)
    assert len({tuple(one.tokens) for one in free.candidates}) == WIDTH
    text = PAIR.decode(free.candidates[0].tokens)
    stops = Stops(frozenset({free.candidates[1].tokens[5]}), [text[len(text) // 3:][:4]], PAIR.words)
    found = interpreted.search(BestOf(WIDTH, rule), PROMPT, NEW, stops)
    assert sorted(one.number for one in found.candidates) == list(range(WIDTH))
    for one in found.candidates:
        alone = plain.generate("ar", PROMPT, NEW, stop=stops, rule=rule.of_text(one.number))
        assert (one.tokens, one.finish_reason, one.stop_string, one.text_end) == (
            alone.tokens, alone.finish_reason, alone.stop_string, alone.text_end)
    assert {one.finish_reason for one in found.candidates} >= {"stop"}
    assert found.rows[0] == 1
    assert found.rows[1:] == sorted(found.rows[1:], reverse=True)
    assert [one.score for one in found.candidates] == sorted((one.score for one in found.candidates), reverse=True)


def test_majority(interpreted: SearchSession) -> None:
    """Few tokens of a low temperature, so that some texts are the same: these come first, their number is told."""
    rule = Match(Sampling(300.0), Noise(3))
    found = interpreted.search(BestOf(WIDTH, rule, "majority", PAIR.decode), PROMPT, 2)
    votes = [one.votes for one in found.candidates]
    texts = [PAIR.decode(one.tokens).strip() for one in found.candidates]
    assert votes == sorted(votes, reverse=True)
    assert votes == [texts.count(text) for text in texts]


@pytest.fixture(scope="module")
def by_model() -> tuple[Found, Found]:
    with SearchSession(BASE, PAIR, BRANCHING) as session:
        return (session.search(BeamSearch(WIDTH), PROMPT, NEW), session.search(BestOf(WIDTH, SAMPLED), PROMPT, NEW))


def test_model_equals_the_interpreter(interpreted: SearchSession, by_model: tuple[Found, Found]) -> None:
    """Texts, scores and every step's cycles, with rows that take places of free ones."""
    for way, other in zip((BeamSearch(WIDTH), BestOf(WIDTH, SAMPLED)), by_model, strict=True):
        found = interpreted.search(way, PROMPT, NEW)
        assert _told(found) == _told(other)
        assert (found.curve, found.ledger.cycles, found.shared) == (other.curve, other.ledger.cycles, other.shared)


@pytest.mark.rtl
def test_rtl_equals_the_model(tmp_path: Path) -> None:
    """Of a small random network, whose tokens are those of the bundled pair."""
    save_model(tmp_path / "target", random_network(SIZES["one-layer"], 1), MADE, TOKENIZER, (1,))
    edge, pair = load_config("edge"), imported_pair(tmp_path / "target")
    room = Branching(width=WIDTH, room=60)
    with SearchSession(edge, pair, room) as model, SearchSession(edge, pair, room, "rtl") as rtl:
        for way in (BeamSearch(WIDTH), BestOf(WIDTH, SAMPLED)):
            found, other = (session.search(way, PROMPT[:6], 3) for session in (model, rtl))
            assert _told(found) == _told(other)
            assert found.curve == other.curve


def test_what_texts_share(by_model: tuple[Found, Found]) -> None:
    """Sampled texts share the prompt; beams share more, and their free rows are taken again."""
    beams, sampled = by_model
    prompt = len(PROMPT) - 1
    assert sampled.shared == Shared(rows=prompt + 1 + WIDTH * (NEW - 1), apart=WIDTH * (prompt + NEW),
                                    used=prompt + 1 + WIDTH * (NEW - 1), forks=WIDTH - 1)
    assert beams.shared.apart == WIDTH * (prompt + NEW)
    assert beams.shared.rows < sampled.shared.rows
    assert beams.shared.used <= sampled.shared.used
    assert beams.shared.copied == 0
    assert beams.shared.forks > WIDTH - 1


def test_one_launch_a_step(by_model: tuple[Found, Found]) -> None:
    for found in by_model:
        launches = found.ledger.launches["target"] - found.prefill.launches["target"]
        assert launches == len(found.rows) == NEW
        host = BASE.host
        assert found.ledger.host_cycles - found.prefill.host_cycles == NEW * (host.launch_cycles + host.step_cycles)
        assert sum(found.curve) == found.ledger.cycles - found.prefill.cycles


def test_branches(interpreted: SearchSession) -> None:
    """Rows that no text names any more are taken again, the lowest first; a text may be forked or dropped."""
    kv = interpreted.target.kv()
    interpreted.target.forward(Rows.chain(PROMPT), Want(last=0), kv)
    first, texts = kv.length, Branches(kv)
    texts.fork([0, 0, 0])
    texts.forward([1, 2, 3], Want(logits=True))
    assert [rows[-1] for rows in texts.lists] == [first, first + 1, first + 2]
    texts.fork([2, 2])
    texts.forward([4, 5], Want(logits=True))
    assert [rows[first:] for rows in texts.lists] == [[first + 2, first], [first + 2, first + 1]]
    assert kv.length == first + 3
    assert texts.shared() == Shared(rows=first + 3, apart=3 * (first + 1), used=first + 3, forks=3)
    with pytest.raises(ValueError, match="each of 2 texts must go on by one token, not 3"):
        texts.forward([1, 2, 3], Want(logits=True))
    with pytest.raises(ValueError, match=r"texts are 0 to 1, not \[2\]"):
        texts.fork([2])


def test_the_context_ends_texts(interpreted: SearchSession) -> None:
    positions = interpreted.target.program.text_positions
    prompt = (PROMPT * 40)[:positions - 3]
    for way in (BeamSearch(2), BestOf(2, SAMPLED)):
        found = interpreted.search(way, prompt, 8)
        assert {one.finish_reason for one in found.candidates} == {"context"}
        assert {len(one.tokens) for one in found.candidates} == {3}


@pytest.mark.parametrize(("prompt", "rule"), [
    ([], "must hold at least one token, not none"), ([1] * 256, "must hold at most 255 tokens, not 256; shorten it")])
def test_refuses_prompts(interpreted: SearchSession, prompt: list[int], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        interpreted.search(BeamSearch(2), prompt, 4)


def test_refuses_more_texts_than_rows() -> None:
    with pytest.raises(InputError, match="at most 16 texts with target on base, a row of a pass each, not 17"):
        SearchSession(BASE, PAIR, Branching(width=17, room=100))


def test_refuses_more_rows_than_lists_name() -> None:
    with pytest.raises(InputError, match="need at most 65,536 rows of the cache, not 70,000: ask for fewer texts"):
        SearchSession(BASE, PAIR, Branching(width=2, room=70_000))


COMMAND = ("generate", "--model", SMALL, "--prompt", "def mean(values):\n    total = 0\n    for ",
           "--max-new-tokens", "6", "--compute", "interpreter")


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON with all candidates and scores, and what is shown."""
    out = tmp_path / "a.json"
    assert run(monkeypatch, *COMMAND, "--beams", "3", "--length-penalty", "0.5", "--json", str(out)) == 0
    record, shown = json.loads(out.read_text()), capsys.readouterr().out
    assert record["schema"] == "gemmule/search/1"
    assert (record["search"], record["width"], record["length_penalty"]) == ("beams", 3, 0.5)
    scores = [one["score"] for one in record["candidates"]]
    assert scores == sorted(scores, reverse=True)
    for one in record["candidates"]:
        assert one["score"] == pytest.approx(one["log_probability"] / len(one["tokens"])**0.5, rel=1e-6)
    assert record["tokens"] == record["candidates"][0]["tokens"]
    assert record["kv"]["copied_rows"] == 0
    assert record["kv"]["bytes"] < record["kv"]["bytes_apart"] < record["kv"]["reserved_bytes"]
    assert len(record["rows_by_step"]) == record["steps"] == record["ar"]["steps"] == 6
    assert "0 rows copied" in shown
    assert run(monkeypatch, *COMMAND, "--best-of", "3", "--temperature", "30", "--rank", "majority", "--no-baseline",
               "--json", str(out)) == 0
    record = json.loads(out.read_text())
    assert (record["search"], record["rank"], record["ar"], record["verify"]) == ("best-of", "majority", None, "match")
    assert "votes" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "rule"), [
    (("--beams", "17"), "--beams must be from 1 to 16 (one pass has 16 rows), not 17"),
    (("--best-of", "1"), "--best-of must be from 2 to 16 (one pass has 16 rows), not 1"),
    (("--length-penalty", "1"), "--length-penalty needs --beams N"),
    (("--early-stop",), "--early-stop needs --beams N"),
    (("--rank", "mean"), "--rank needs --best-of N"), (("--rank", "best"), "--rank must be one of mean, majority"),
    (("--beams", "2", "--length-penalty", "11"), "--length-penalty must be from -10 to 10, not 11"),
    (("--beams", "2", "--best-of", "2"), "exclude each other"),
    (("--beams", "2", "--method", "pld"), "drafts nothing, so it does not go with --method pld"),
    (("--best-of", "2", "--temperature", "1", "--method", "draft"), "does not go with --method draft"),
    (("--beams", "2", "--temperature", "1"), "not with --temperature 1"),
    (("--best-of", "2"), "--best-of 2 needs --temperature above 0"),
    (("--beams", "2", "--stop", "x"), "--beams 2 ends texts at tokens alone, not with --stop 'x'"),
    (("--beams", "2", "--kv-cache", "none"), "does not go with --kv-cache none"),
    (("--beams", "2", "--context-overflow", "crop"), "does not go with --context-overflow crop"),
    (("--beams", "2", "--html", "a.html"), "does not go with --html"),
    (("--beams", "2", "--skip-zeros"), "does not go with --skip-zeros"),
    (("--beams", "2", "--stream"), "does not go with --stream"),
])
def test_wrong_options(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...],
                       rule: str) -> None:
    assert run(monkeypatch, *COMMAND, *options) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert rule in said
    assert said.count("error:") == 1
