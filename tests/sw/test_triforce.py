"""Drafting with the target in a small cache: the law of two levels, the rows of both caches, what is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.programs.selecting import KEPT
from gemmule.config import load_config
from gemmule.sw.decoding.generate import Conversation, Generation, generate
from gemmule.sw.decoding.methods import METHODS, drafting_of
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.methods.triforce import Nothing, TriForce
from gemmule.sw.decoding.noise import Noise, Purpose
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter
from gemmule.sw.decoding.verify import GREEDY, Match, Rejection, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.errors import InputError
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.drafting import DraftingKV
from gemmule.sw.kv.sinks import SinksKV
from gemmule.sw.models.pair import bundled_pair
from tests.thinned import thinned

from .test_cli import run
from .test_sampling import RIGHT, Law, Plain, Script, expected, small

BASE, TINY = load_config("base"), load_config("tiny")
SMALL = {"cache_budget": 24, "cache_sinks": 4, "cache_window": 16, "retrieve_every": 20, "lowest_cache_budget": 32}
TEXT = "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    "
NEW = 50


# -- the law of two levels, exactly

class Lower:
    """Draws of the middle level."""

    def __init__(self, script: Levels) -> None:
        self.script = script

    def below(self, most: int, *place: object) -> int:
        return self.script.below(most, "middle", *place)


class Levels(Script):
    """Draws of the text, and other ones of what drafts it."""

    def drafting(self) -> Lower:
        return Lower(self)


class Alike(Noise):
    """The same draws for both."""

    def drafting(self) -> Noise:
        return self


class Small(ContiguousKV):
    """A cache of the made-up model that the target is in its small cache."""

    model: Any

    def follow(self, ids: list[int]) -> None:
        self.model.cache = self.ids = ids[:-1]
        self._length = len(self.ids)


Row = Callable[[list[int]], np.ndarray]
LEVELS: tuple[Row, Row, Row] = (small(0), small(3), small(4))
"""Weights of the target, of it in its small cache, and of the draft model."""
LOWEST: dict[str, Callable[[Rule, Row], Drafter]] = {
    "draft": lambda rule, row: DraftModel(Law(row), 1, rule),  # type: ignore[arg-type]
    "pld": lambda rule, row: PromptLookup(1, frozenset()), "none": lambda rule, row: Nothing()}


def text(noise: Any, lowest: str, new: int, levels: tuple[Row, Row, Row] = LEVELS) -> list[int]:
    rule = Rejection(Plain(), noise)  # type: ignore[arg-type]
    target, middle = Law(levels[0]), Law(levels[1], name="middle")
    kv = target.kv()
    drafter = TriForce(kv, Small(middle, middle.room), LOWEST[lowest](rule.drafting(), levels[2]),  # type: ignore[arg-type]
                       2, rule, lowest_drafts=1)
    return generate(target, drafter, [2, 1], new, Ledger(TINY), rule=rule, kv=kv).tokens  # type: ignore[arg-type]


def law(lowest: str, new: int) -> dict[tuple[int, ...], Fraction]:
    found: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    script = Levels()
    for _ in script.runs():
        found[tuple(text(script, lowest, new))] += script.probability
    return dict(found)


@pytest.mark.parametrize("lowest", LOWEST)
def test_two_levels_have_the_joint_law_of_autoregressive_sampling(lowest: str) -> None:
    seen = law(lowest, 3)
    assert sum(seen.values()) == 1
    assert seen == expected(3)


def _no_residual_in_the_middle(self: Rejection, p: np.ndarray, *rest: object) -> tuple[np.ndarray, bool]:
    """As the reference code has it: behind a rejection the middle level draws by p, and tells p."""
    left, accepted = RIGHT(self, p, *rest)
    return (p if isinstance(self.noise, Lower) else left), accepted


def test_the_reference_code_has_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rejection, "_try", _no_residual_in_the_middle)
    assert law("draft", 3) != expected(3)


def test_draws_of_both_levels_must_be_others() -> None:
    """A draft that was accepted by the draw by which the text then accepts it has not the law that it tells."""
    rows = [(lambda prefix, row=row: np.array(row, dtype=np.int16)) for row in ((1, 3), (1, 1), (1, 0))]

    def share(noise: type[Noise]) -> float:
        return sum(text(noise(seed), "draft", 3, tuple(rows))[0] == 0 for seed in range(400)) / 400  # type: ignore[arg-type]

    assert 0.2 < share(Noise) < 0.3
    assert 0.45 < share(Alike) < 0.55
    noise = Noise(7)
    draws = {one.below(1 << 64, 3, Purpose.ACCEPT) for one in (noise, noise.drafting(), noise.drafting().drafting())}
    assert len(draws) == 3


# -- texts and caches

@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    pair = bundled_pair("small")
    drafting = drafting_of({"triforce": SMALL}, pair.positions)
    with Session(BASE, pair=pair, general=True, drafting=drafting) as device, \
            Session(BASE, pair=pair, general=True, drafting=drafting, interpreted=True) as interpreted:
        yield {"device": device, "interpreter": interpreted}


def _ids() -> list[int]:
    return bundled_pair("small").encode(TEXT)


def _rows(session: Session, region: str, first: int, count: int) -> bytes:
    """Rows of one of the caches, in every run."""
    selection, layout = session.target.selection, session.target.program.layout
    assert selection
    address = selection.select.symbols[region][0] + first * layout.row
    return b"".join(bytes(session.device.read_dram(address + number * layout.pitch, count * layout.row))
                    for number in range(layout.runs))


def _talk(session: Session, **options: Any) -> Conversation:
    return session.converse("triforce", options.pop("drafts", None), options={**SMALL, **options})


SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "suffix, window": {"lowest_drafter": "suffix", "retrieve": "window", "cache_sinks": 0, "cache_window": 8,
                       "retrieve_every": 7},
    "pld, chunks": {"lowest_drafter": "pld", "retrieve": "chunks", "cache_sinks": 8, "cache_budget": 48},
    "none, 2 drafts, large": {"lowest_drafter": "none", "drafts": 2, "cache_budget": 200},
    "3 of the lowest, window": {"lowest_drafts": 3, "retrieve": "window"},
    "suffix, 3 drafts": {"lowest_drafter": "suffix", "drafts": 3},
    "pld, each token": {"lowest_drafter": "pld", "retrieve_every": 1}}
RULES = {"greedy": GREEDY, "match": Match(Sampling(0.8), Noise(3))}


@pytest.mark.parametrize(("setting", "rule"), [
    pytest.param(*pair.values, marks=pair.marks if i < 8 else pytest.mark.long)  # 4 settings have every value
    for i, pair in enumerate(thinned(SETTINGS, RULES))])
def test_the_text_and_the_whole_cache_are_those_of_autoregressive_decoding(sessions: dict[str, Session],
                                                                           setting: str, rule: str) -> None:
    """Greedy, and by noise that both levels share; on the device and the interpreter in the same cycles."""
    pair, options = bundled_pair("small"), SETTINGS[setting]
    guards = {name: options[name] for name in ("cache_sinks", "cache_window", "retrieve") if name in options}
    made = {"device": sessions["device"], "interpreter": sessions["interpreter"]}
    if guards:
        drafting = drafting_of({"triforce": SMALL | guards}, pair.positions)
        made = {name: Session(BASE, pair=pair, general=True, drafting=drafting, interpreted=name == "interpreter")
                for name in made}
    runs: list[Generation] = []
    for name, session in made.items():
        plain = session.converse("ar", rule=RULES[rule])
        expected = plain.turn(_ids(), NEW).tokens
        count = len(_ids()) + NEW - 1
        rows = _rows(session, CACHE, 0, count) if name == "device" else b""
        given = {key: value for key, value in options.items() if key != "drafts"}
        talk = session.converse("triforce", options.get("drafts"), options=SMALL | given, rule=RULES[rule])
        runs.append(talk.turn(_ids(), NEW))
        assert runs[-1].tokens == expected
        assert not rows or _rows(session, CACHE, 0, count) == rows
        assert sum(kept > 0 for _, kept in runs[-1].steps) >= len(runs[-1].steps) / 5
    assert runs[0].ledger == runs[1].ledger
    assert runs[0].steps == runs[1].steps


def test_the_small_cache_holds_rows_of_the_whole_one(sessions: dict[str, Session]) -> None:
    """The first and the newest ones of a window, and behind them what the text gained."""
    session = sessions["device"]
    talk = _talk(session, retrieve="window", retrieve_every=1000)
    talk.turn(_ids(), 30)
    assert isinstance(talk.drafter, TriForce)
    cache = talk.drafter.small
    cache.follow(talk.window)
    (chosen,) = cache.selections
    assert (chosen.cached, chosen.kept) == (len(_ids()) - 1, 24)
    assert _rows(session, KEPT, 0, 4) == _rows(session, CACHE, 0, 4)
    since = len(talk.window) - 1 - chosen.cached
    assert cache.length == 24 + since
    assert _rows(session, KEPT, 4, 20 + since) == _rows(session, CACHE, chosen.cached - 20, 20 + since)


def test_rows_are_chosen_anew(sessions: dict[str, Session]) -> None:
    """After so many tokens, where the text is another one, and where somebody has written over them."""
    session = sessions["interpreter"]
    first, second = _talk(session), _talk(session)
    caches = [talk.drafter.small for talk in (first, second)]  # type: ignore[attr-defined]
    first.turn(_ids(), NEW)
    assert len(caches[0].selections) == 3
    assert all(one.cached >= before.cached + 20 for before, one in zip(caches[0].selections, caches[0].selections[1:]))
    second.turn(_ids()[5:], 10)
    first.turn([7], 4)
    assert len(caches[0].selections) == 4
    first.retract(40)
    first.turn([7, 8], 4)
    assert len(caches[0].selections) == 5
    assert first.window[-4:] == session.generate("ar", first.window[:-4], 4).tokens


def test_a_drafter_keeps_the_first_and_the_newest_rows(sessions: dict[str, Session]) -> None:
    talk = _talk(sessions["device"], lowest_cache_budget=16)
    talk.turn(_ids(), NEW)
    lowest = talk.drafter.lowest  # type: ignore[attr-defined]
    assert isinstance(lowest.cache, SinksKV)
    kept = lowest.cache._of
    assert kept[:4].tolist() == [0, 1, 2, 3]
    assert len(kept) <= 16 + 7
    assert (np.diff(kept[4:]) == 1).all()
    assert kept[4] > len(_ids())
    with pytest.raises(ValueError, match="must hold more than its 8 first rows and a quarter of all, not 10"):
        SinksKV(None, 99, sinks=8, most=10)


def test_stops_and_ends(sessions: dict[str, Session]) -> None:
    """A token of the text that is said to end it, most new tokens, and the end of the context."""
    session = sessions["interpreter"]
    tokens = session.generate("ar", _ids(), NEW).tokens
    for new in (1, 2, 7, 8):
        assert session.generate("triforce", _ids(), new, options=SMALL).tokens == tokens[:new]
    for stop in (tokens[11], tokens[17]):
        cut = tokens[:tokens.index(stop) + 1]
        assert session.generate("triforce", _ids(), NEW, stop=frozenset({stop}), options=SMALL).tokens == cut
    long = (_ids() * 9)[:session.target.room - 5]
    for method, options in (("ar", {}), ("triforce", SMALL)):
        found = session.generate(method, long, 20, options=options)
        assert (len(found.tokens), found.finish_reason) == (5, "context")


# -- what is refused

@pytest.mark.parametrize(("options", "message"), [
    ({"cache_budget": 17}, "--cache-budget must be at least --cache-sinks [+] --cache-window = 20 rows, not 17"),
    ({"lowest_cache_budget": 8, "cache_sinks": 6}, "needs a session with drafting="),
    ({"cache_window": 255, "cache_budget": 300, "retrieve": "magic"},
     "--retrieve must be one of attention, chunks, window"),
    ({"retrieve": "chunks"}, "needs a session with drafting=")])
def test_bad_options(sessions: dict[str, Session], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _talk(sessions["device"], **options)


def test_a_text_longer_than_the_device_chooses_among(sessions: dict[str, Session]) -> None:
    session = sessions["interpreter"]
    talk = _talk(session)
    cache = talk.drafter.small  # type: ignore[attr-defined]
    assert isinstance(cache, DraftingKV)
    cache.chooser.most = 30  # type: ignore[misc]
    with pytest.raises(ValueError, match="chooses among at most 30 cached rows, not .*: take --retrieve window"):
        talk.turn(_ids(), 8)


@pytest.mark.parametrize(("options", "message"), [
    (["--kv-cache", "none"], "of which --kv-cache none keeps none"),
    (["--prune", "PRUNE"], "not --prune: drop one of the two"),
    (["--batch", "2", "--prompt-file", "PROMPTS"], "not --batch 2: drop one of the two")])
def test_what_excludes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str],
                          options: list[str], message: str) -> None:
    files = {"PRUNE": tmp_path / "half.yaml", "PROMPTS": tmp_path / "prompts.txt"}
    files["PRUNE"].write_text("keep: 0.5\n")
    files["PROMPTS"].write_text("a\n---\nb\n")
    given = [str(files.get(option, option)) for option in options]
    assert run(monkeypatch, "generate", "--model", "small", "--method", "triforce", *given) == 2
    assert message in capsys.readouterr().err


def test_it_is_declared() -> None:
    assert METHODS["triforce"].schedule
    values = METHODS["triforce"].values({})
    assert (values["cache_budget"], values["cache_sinks"], values["retrieve_every"]) == (None, 16, 256)
    for positions, keep in ((256, 64), (8192, 256)):
        made = METHODS["triforce"].schedule(values, positions)
        assert (made.keep, made.score) == (keep, "attention")
