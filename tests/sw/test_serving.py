"""Requests that arrive over time: texts are those of each prompt alone, caches hold what they must, times add up."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.costs.cost_curve import CostCurve
from gemmule.sw.errors import InputError
from gemmule.sw.kv.paged import PagedKV, PagePool
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.serving.arrivals import Arrival, poisson, read_trace, traced
from gemmule.sw.serving.outcome import Occupancy, Outcome
from gemmule.sw.serving.prompts import Prompts
from gemmule.sw.serving.serve import serve
from gemmule.sw.serving.summary import percentile, summary, waste
from gemmule.sw.step import Want
from tests.thinned import some

from .test_cli import run

CONFIG, PAIR = load_config("base"), bundled_pair()
SEED, CONTEXT, ROWS, PAGE = 20261127, 96, 4, 8
SHARED = PAIR.encode("import os\nimport sys\nfrom typing import Any\n")[:19]


def arrivals(seed: int, count: int = 9, shared: list[int] | None = None) -> list[Arrival]:
    """Prompts of other lengths at random times, some together, some when all is over; texts of 1 to 20 tokens."""
    random = np.random.default_rng(seed)
    prompts = Prompts(PAIR).first(["completion"], count)
    times = np.cumsum(random.choice([0, 0, 20_000, 400_000, 6_000_000], count)).tolist()
    return [Arrival(name=name, at=at, ids=(*(shared or ()), *ids[:int(random.integers(1, 40))]),
                    new_tokens=int(random.choice([1, 2, 9, 20])))
            for at, (name, ids) in zip(times, prompts, strict=True)]


@pytest.fixture(scope="module")
def alone() -> Session:
    return Session(CONFIG, pair=PAIR, interpreted=True)


@cache
def text(alone: Session, ids: tuple[int, ...], new: int, stop: frozenset[int]) -> list[int]:
    return alone.generate("ar", list(ids), new, None, stop).tokens


def expected(alone: Session, requests: list[Arrival], stop: frozenset[int]) -> list[list[int]]:
    return [text(alone, one.ids, one.new_tokens, stop) for one in requests]


@cache
def session(*, pool: int = 0, ahead: bool = True, interpreted: bool = True, batch: int = 3) -> Session:
    """Each is opened once: whoever is served leaves nothing behind."""
    return Session(CONFIG, pair=PAIR, interpreted=interpreted, batch=batch, rows=ROWS, ahead=ahead, context=CONTEXT,
                   pool=pool, page=PAGE)


def check(outcome: Outcome, requests: list[Arrival], texts: list[list[int]], batch: int = 3) -> None:
    """Texts, order and clock."""
    assert [one.generation.tokens if one.generation else [] for one in outcome.served] == texts
    assert [one.tokens for one in outcome.served] == [len(text) for text in texts]
    assert [one.entered for one in outcome.served] == sorted(one.entered for one in outcome.served), "first come"
    for one in outcome.served:
        assert one.arrival.at <= one.entered <= one.first <= one.last
        assert [at for at, _ in one.times] == sorted(at for at, _ in one.times)
    assert outcome.clock.now == outcome.clock.ledger.cycles + outcome.clock.idle
    assert outcome.span == max(one.last for one in outcome.served) - requests[0].at
    assert max(len(one.lengths) for one in outcome.passes) <= batch


@pytest.mark.parametrize(("pool", "ahead"), some([
    (120, True), (400, False), (0, True), (0, False), (400, True), (120, False)], 2))
def test_texts_are_those_alone(alone: Session, pool: int, ahead: bool) -> None:
    served = session(pool=pool, ahead=ahead)
    for number, (method, drafts) in enumerate((("ar", None), ("pld", 3), ("suffix", 3), ("draft", 3))):
        requests = arrivals(SEED + number)
        stop = frozenset() if number % 2 else frozenset({expected(alone, requests, frozenset())[1][-1]})
        outcome = serve(served, requests, method, drafts, stop, pieces=not ahead)
        check(outcome, requests, expected(alone, requests, stop))
        assert outcome.clock.idle > 0, "some request finds nobody"
        if served.target.pages:
            assert served.target.pages.free_pages == pool // PAGE - 1, "all pages came back"


@pytest.mark.parametrize("pool", some([120, 0]))
def test_the_device_takes_the_same_cycles(alone: Session, pool: int) -> None:
    """Values on the device, lists in its DRAM, against the interpreter with the timing of the same launches."""
    requests = arrivals(SEED, 6)
    texts, found = expected(alone, requests, frozenset()), []
    for interpreted in (True, False):
        outcome = serve(session(pool=pool, interpreted=interpreted), requests, "draft", 3, frozenset())
        check(outcome, requests, texts)
        found.append((outcome.clock.now, outcome.clock.ledger.launches, [one.times for one in outcome.served],
                      outcome.passes))
    assert found[0] == found[1]


def test_texts_leave_where_pages_are_few(alone: Session) -> None:
    requests = [Arrival(name=f"{i}", at=0, ids=one.ids[:20], new_tokens=30)
                for i, one in enumerate(arrivals(SEED, 5))]
    small, large = (serve(session(pool=pool), requests, "ar", None, frozenset()) for pool in (96, 400))
    for outcome in (small, large):
        check(outcome, requests, expected(alone, requests, frozenset()))
    assert sum(one.stopped for one in small.served) > 0
    assert sum(one.stopped for one in large.served) == 0
    assert small.served[0].stopped == 0, "who came first stays"
    assert large.clock.now < small.clock.now


@pytest.mark.parametrize("pool", some([120, 400]))
def test_what_all_begin_with_is_cached_once(alone: Session, pool: int) -> None:
    requests = arrivals(SEED, 6, SHARED)
    texts, served = expected(alone, requests, frozenset()), session(pool=pool)
    for method in ("ar", "pld"):
        outcome = serve(served, requests, method, 3, frozenset(), shared=SHARED)
        check(outcome, requests, texts)
        assert served.target.pages
        assert served.target.pages.free_pages == pool // PAGE - 1
    for one in outcome.passes:
        assert one.rows == len(SHARED) + sum(length - len(SHARED) for length in one.lengths)


def test_narrow_programs_take_passes_of_few_rows() -> None:
    wide, narrow = session.__wrapped__(batch=5), session(batch=5)
    assert [program.max_rows for program in narrow.target.narrow] == [2]
    wide.target.narrow = wide.draft.narrow = ()  # type: ignore[union-attr]
    requests = arrivals(SEED, 5)
    cycles = [serve(one, requests, "ar", None, frozenset()).clock.ledger.device_cycles for one in (wide, narrow)]
    assert cycles[1] < cycles[0]


def test_costs_are_those_of_launches() -> None:
    """What a pass would take is what it takes, by the program that takes it."""
    served = session(batch=5)
    costs, kvs = CostCurve(served.target), [served.target.kv(i) for i in range(5)]
    for rows in (1, 2, 3, 4):
        cached = [kv.length for kv in kvs]
        said = costs.of_batch(rows, [served.target.first + length for length in cached])
        out = served.target.forward(Rows.ragged([[1] * rows] * 5, cached), Want(), kvs)
        assert said == out.cycles + CONFIG.host.launch_cycles
    assert costs.of_batch(1, [16] * 5) < costs.of_batch(4, [16] * 5)


def test_one_length_for_all_texts_of_a_batch(alone: Session) -> None:
    """All texts that draft in a step draft as many, whatever they accept, until a text is near its end."""
    requests = [Arrival(name=f"{i}", at=0, ids=one.ids, new_tokens=24) for i, one in enumerate(arrivals(SEED, 3))]
    outcome = serve(session(), requests, "draft", 3, frozenset(), lengths="batch")
    check(outcome, requests, expected(alone, requests, frozenset()))
    steps = [one.generation.steps for one in outcome.served if one.generation]
    for together in list(zip(*steps))[:4]:
        assert len({drafted for drafted, _ in together}) == 1
    assert len({accepted for one in steps for _, accepted in one}) > 1, "acceptance is ragged"


def test_refuses_what_never_fits() -> None:
    requests = arrivals(SEED, 2)
    long = Arrival(name="long", at=0, ids=(1,) * 90, new_tokens=20)
    with pytest.raises(ValueError, match="long: a prompt and its new tokens must fit the context of 96, not 90"):
        serve(session(), [*requests, long], "ar", None, frozenset())
    middle = Arrival(name="middle", at=0, ids=(1,) * 50, new_tokens=20)
    served = session(pool=72)
    with pytest.raises(ValueError, match="middle: the pool must have 10 free pages of 8 rows for a request, not 8"):
        serve(served, [*requests, middle], "ar", None, frozenset())
    with pytest.raises(ValueError, match="in a pool of pages"):
        serve(session(), requests, "ar", None, frozenset(), shared=SHARED)


TRACES = {
    "requests: []\n": "requests",
    "requests:\n  - prompt: a\n": "at_us is missing",
    "requests:\n  - at_us: -1\n    prompt: a\n": "at least 0, not -1",
    "requests:\n  - at_us: 1.5\n    prompt: a\n": "plain decimal integer",
    "requests:\n  - at_us: 0\n": "one of both",
    "requests:\n  - at_us: 0\n    prompt: a\n    request: b\n": "one of both",
    "requests:\n  - at_us: 0\n    prompt: ''\n": "prompt",
    "requests:\n  - at_us: 0\n    promt: a\n": "did you mean prompt",
    "requests:\n  - at_us: 0\n    prompt: a\n    max_new_tokens: 0\n": "at least 1, not 0",
    "requests:\n  - at_us: 5\n    prompt: a\n  - at_us: 4\n    prompt: b\n": "must not fall, from 5 to 4",
    "shared: x\nrequests:\n  - at_us: 0\n    request: code/lines\n": "give each request a prompt",
    "- 1\n": "must hold fields", "": "it is empty", "requests: 3\n": "requests",
}


@pytest.mark.parametrize("text", TRACES)
def test_bad_traces_are_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=TRACES[text]) as error:
        read_trace(path)
    assert "\n" not in str(error.value)
    assert "trace.yaml" in str(error.value)


def test_a_trace_of_bundled_requests(tmp_path: Path) -> None:
    path = tmp_path / "trace.yaml"
    path.write_text("requests:\n  - at_us: 3\n    prompt: import\n  - at_us: 7\n    request: nothing\n")
    known = Prompts(PAIR)
    with pytest.raises(InputError, match="request 2 must name a bundled request, such as chat/capital, not 'nothing'"):
        traced(read_trace(path), CONFIG, PAIR, known.named, 5)
    name = known.first(None, 1)[0][0]
    path.write_text(f"requests:\n  - at_us: 3\n    prompt: import\n  - at_us: 7\n    request: {name}\n")
    found, shared = traced(read_trace(path), CONFIG, PAIR, known.named, 5)
    assert [(one.at, one.new_tokens) for one in found] == [(3000, 5), (7000, 5)]
    assert list(found[1].ids) == known.first(None, 1)[0][1]
    assert shared == []


def test_rates_share_their_gaps() -> None:
    prompts = [("a", [1])] * 50
    slow, fast = (poisson(rate, prompts, 3, CONFIG, 7) for rate in (10.0, 20.0))
    assert [one.at for one in fast] == pytest.approx([one.at / 2 for one in slow], abs=1)
    assert slow[0].at == 0
    assert slow[-1].at / 49 == pytest.approx(CONFIG.host.clock_mhz * 1e6 / 10, rel=0.5)


def test_percentiles_are_values() -> None:
    values = [5.0, 1.0, 9.0, 3.0]
    assert [percentile(values, share) for share in (50, 90, 99, 25)] == [3.0, 9.0, 9.0, 1.0]
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


def test_waste_by_hand() -> None:
    passes = [Occupancy(10, (3, 8), 0), Occupancy(30, (9,), 0), Occupancy(5, (), 0)]
    found = waste(passes, room=20, page=4, asked=10)
    used, cycles = 10 * 11 + 30 * 9, 45
    assert found.rows == pytest.approx(used / cycles)
    assert found.reserved == pytest.approx(1 - used / (10 * 40 + 30 * 20))
    assert found.asked == pytest.approx(1 - used / (10 * 20 + 30 * 10))
    assert found.paged == pytest.approx(1 - used / (10 * (4 + 8) + 30 * 12))
    pooled = waste([Occupancy(10, (6, 6), 0, rows=8, taken=16)], room=20, page=4, asked=10)
    assert (pooled.rows, pooled.paged) == (8, 0.5)


def test_figures_of_a_run(alone: Session) -> None:
    requests = arrivals(SEED, 4)
    outcome = serve(session(pool=400), requests, "ar", None, frozenset())
    found = summary(outcome, CONFIG, CONTEXT, PAGE)
    second = CONFIG.host.clock_mhz * 1e6
    assert found["tokens"] == sum(one.new_tokens for one in requests)
    assert found["tokens_per_second"] == pytest.approx(found["tokens"] / (outcome.span / second))
    assert found["seconds_latency"]["p99"] == max(one.latency for one in outcome.served) / second
    assert found["cycles"] + found["idle_cycles"] == outcome.clock.now
    assert 0 < found["waste_paged"] < found["waste_reserved"] < 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.booleans()), max_size=14))
def test_lacking_pages_are_never_too_few(operations: list[tuple[int, int, bool]]) -> None:
    """What a cache says that it takes at most, against the pool, with forks that share pages."""
    pool = PagePool(96, 4)
    caches = [PagedKV(None, pool, 60) for _ in range(2)]
    for at, count, fork in operations:
        kv = caches[at]
        if fork:
            caches[1 - at].truncate(0)
            kv.fork(caches[1 - at])
            continue
        count = min(count, 40 - kv.length)
        said, free = kv.lacking(count), pool.free_pages
        kv.places(count)
        kv.append(count)
        assert free - pool.free_pages <= said
        assert said <= -(-count // 4)


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, figure = tmp_path / "served.json", tmp_path / "served.svg"
    assert run(monkeypatch, "serve", "--model", "small", "--rate", "300,30000", "--requests", "4",
               "--max-new-tokens", "6", "--method", "ar,pld", "--batch", "2", "--pool", "600",
               "--compute", "interpreter", "--json", str(record), "--figure", str(figure)) == 0
    found = json.loads(record.read_text())
    assert [(row["method"], row["rate"], row["equal"], row["tokens"]) for row in found["rows"]] == [
        (method, rate, 4, 24) for rate in (300.0, 30000.0) for method in ("ar", "pld")]
    slow, fast = found["rows"][0], found["rows"][2]
    assert slow["seconds"] > fast["seconds"]
    assert slow["seconds_latency"]["p99"] <= fast["seconds_latency"]["p99"], "a larger load waits longer"
    assert figure.read_text().count("<svg") == 1
    assert "tokens/s" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "error"), {
    "--batch 1": "--batch must be at least 2, not 1: a text alone is what `gemmule generate` decodes",
    "--arrivals x.yaml --rate 2": "--arrivals says when requests come and what they ask: drop --rate",
    "--rate 0": "--rate must be from 0.001 to 1e+06, not 0",
    "--rate a": "--rate must be numbers between commas, not 'a'",
    "--method nothing": "--method must be one of",
    "--method parallel": "--method parallel takes one text, not a batch",
    "--requests 99": "--requests must be at most 50, the prompts of completion, not 99",
    "--category code": "--category code needs a model with a chat template",
    "--context 20 --max-new-tokens 19": "a prompt and its new tokens must fit the context of 20",
    "--pool 64 --requests 2": "the pool must have",
    "--method layerskip --pool 600": "--pool takes methods without the general program, not layerskip",
    "--arrivals nowhere.yaml": "nowhere.yaml",
}.items())
def test_refusals_are_one_line(monkeypatch: pytest.MonkeyPatch, words: str, error: str,
                               capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "serve", "--model", "small", "--compute", "interpreter", *words.split()) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    assert error in lines[0]
