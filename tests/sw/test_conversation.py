"""Full contexts, turns and passes without a cache, on a made-up target: the text of autoregressive decoding."""

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw import limits
from gemmule.sw.decoding.context import OVERFLOWS, Overflow
from gemmule.sw.decoding.generate import Conversation, generate
from gemmule.sw.decoding.generation import joined
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling, shared_draw
from gemmule.sw.decoding.stops import NO_STOPS, Stops
from gemmule.sw.decoding.verify import Match, Rejection
from gemmule.sw.device.forward import Caches
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.step import Forward, Want

from .test_decoding import VOCABULARY, FakeModel, FixedDrafter, Shape, TreeDrafter, bushy
from .test_sampling import Law, hashed

CONFIG = load_config("tiny")


@dataclass
class WholeModel(FakeModel):
    """Next token by all of the prefix, so that one token more or less in the context shows; counts rows."""

    rows: list[int] = field(default_factory=list)

    def next_token(self, prefix: list[int]) -> int:
        value = self.salt
        for token in prefix:
            value = (value * 31 + token + 7) % 1009
        return value % VOCABULARY

    def forward(self, rows: Rows, want: Want, kv: Caches, layers: object = None) -> Forward:
        self.rows.append(len(rows))
        return super().forward(rows, want, kv)


def guess(ids: list[int]) -> list[int]:
    """Right but for every third place."""
    text = list(ids)
    for _ in range(7):
        right = WholeModel().next_token(text)
        text.append((right + (len(text) % 3 == 0)) % VOCABULARY)
    return text[len(ids):]


MAKE = {
    "ar": lambda shape: Autoregressive(), "pld": lambda shape: PromptLookup(5, frozenset()),
    "draft": lambda shape: DraftModel(WholeModel(salt=5, shape=shape, name="draft"), 3),
    "same draft": lambda shape: DraftModel(WholeModel(shape=shape, name="draft"), 4),
    "guess": lambda shape: FixedDrafter(guess), "trees": lambda shape: TreeDrafter(bushy),
}


def plainly(prompt: list[int], new: int, context: int, overflow: Overflow | None) -> list[int]:
    """Token by token, the window cut as it is told: the first ones and the newest up to half of the context."""
    window, found = list(prompt), list[int]()
    while len(found) < new:
        if len(window) >= context:
            if overflow is None:
                break
            first = min(overflow.sinks, context // 4)
            window = window[:first] + window[len(window) - (context // 2 - first):]
        found.append(WholeModel().next_token(window))
        window.append(found[-1])
    return found


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("context", [4, 9, 16, 23])
def test_full_contexts(name: str, overflow: str, context: int) -> None:
    """Cut at the same places whatever is drafted; prompts may be longer than the context."""
    shape, dropped = Shape(max_positions=context), False
    for prompt in ([3, 1, 4], list(range(14)), [3] * 22):
        if overflow == "stop" and len(prompt) >= context:
            continue
        target = WholeModel(shape=shape)
        found = generate(target, MAKE[name](shape), prompt, 60, Ledger(CONFIG), overflow=OVERFLOWS[overflow])
        assert found.tokens == plainly(prompt, 60, context, OVERFLOWS[overflow])
        assert found.finish_reason == ("context" if overflow == "stop" else "length")
        dropped |= len(found.tokens) + len(prompt) > context
    assert dropped is (overflow != "stop")


def test_sinks_are_not_passed_again() -> None:
    target = WholeModel(shape=Shape(max_positions=16))
    generate(target, Autoregressive(), [3] * 10, 7, Ledger(CONFIG), overflow=OVERFLOWS["sinks"])
    assert target.rows == [9, *[1] * 6, 3, 1], "of 4 sinks and the 4 newest the last one is pending"
    target = WholeModel(shape=Shape(max_positions=16))
    generate(target, Autoregressive(), list(range(10)), 7, Ledger(CONFIG), overflow=OVERFLOWS["crop"])
    assert target.rows == [9, *[1] * 6, 7, 1]


def test_contexts_too_short_to_cut() -> None:
    with pytest.raises(ValueError, match="at most 0 tokens, not 1"):
        generate(WholeModel(shape=Shape(max_positions=1)), Autoregressive(), [1], 2, Ledger(CONFIG),
                 overflow=OVERFLOWS["crop"])
    for context in (2, 3):
        run = generate(WholeModel(shape=Shape(max_positions=context)), Autoregressive(), [1], 9, Ledger(CONFIG),
                       overflow=OVERFLOWS["sinks"])
        assert len(run.tokens) == 9


def test_drawn_tokens_over_a_full_context() -> None:
    """Noise goes by the place in the whole text, not in the window: none is used twice, target and draft agree."""
    sampling, noise, context = Sampling(0.8, 12, Fraction(9, 10)), Noise(3), 20
    row = hashed(0, 16, 1500)
    window, expected, dropped = [3, 1, 4], list[int](), 0
    while len(expected) < 50:
        if len(window) >= context:
            dropped += len(window) - context // 2
            window = window[-(context // 2):]
        token = shared_draw(sampling.weights(row(window), 1 / 512), noise, dropped + len(window))
        expected.append(token)
        window.append(token)
    draft = DraftModel(Law(row, max_positions=context), 4, Match(sampling, noise))  # type: ignore[arg-type]
    run = generate(Law(row, max_positions=context), draft, [3, 1, 4], 50, Ledger(CONFIG),  # type: ignore[arg-type]
                   rule=Match(sampling, noise), overflow=OVERFLOWS["crop"])
    assert run.tokens == expected
    assert run.acceptance == 1, "the same model by the same noise"
    places: list[tuple] = []

    class Watched(Noise):
        def below(self, most, position, purpose, number=0):
            places.append((position, purpose, number))
            return super().below(most, position, purpose, number)

    rule = Rejection(sampling, Watched(3))
    draft = DraftModel(Law(hashed(5, 16, 1500, 2), max_positions=context), 1, rule)  # type: ignore[arg-type]
    generate(Law(row, max_positions=context), draft, [3, 1, 4], 50, Ledger(CONFIG),  # type: ignore[arg-type]
             rule=rule, overflow=OVERFLOWS["crop"])
    assert len(places) == len(set(places)), "one draft a step: no draw is made again"


# -- turns

TURNS = [[3, 1, 4], [1, 5], [9, 2, 6, 5, 3], [5]]


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("context", [60, 21])
def test_turns(name: str, kept: bool, context: int) -> None:
    """Each turn is a prompt of all that was said before; with the cache kept only what is new is passed."""
    shape, text, overflow = Shape(max_positions=context), list[int](), OVERFLOWS["sinks"]
    target, ledger = WholeModel(shape=shape), Ledger(CONFIG)
    talk = Conversation(target, MAKE[name](shape), ledger, overflow=overflow,  # type: ignore[arg-type]
                        kv=target.kv(kept=kept))  # type: ignore[arg-type]
    turns = []
    for given in TURNS:
        text += given
        # A text is cut where it fills the context, so by its turns.
        if context == 60:
            expected = plainly(text, 9, context, overflow)
        else:
            other = Conversation(WholeModel(shape=shape), Autoregressive(), Ledger(CONFIG), overflow=overflow)
            for before in turns:
                other.turn(before[0], 9)
            expected = other.turn(given, 9).tokens
        before = len(talk.cached.ids)
        run = talk.turn(given, 9)
        assert run.tokens == expected
        assert run.cached == before
        assert len(talk.cached.ids) == (len(talk.window) - 1 if kept else 0)
        text += run.tokens
        turns.append((given, run))
    if name == "ar" and kept and context == 60:
        assert target.rows == [2, *[1] * 9, *[2, *[1] * 9], *[5, *[1] * 9], *[1, *[1] * 9]]
    whole = joined([run for _, run in turns])
    assert whole.tokens == [token for _, run in turns for token in run.tokens]
    assert len(whole.steps) == len(whole.curve) == sum(len(run.steps) for _, run in turns)
    assert whole.ledger.cycles == ledger.cycles == CONFIG.host.step_cycles * len(whole.steps)


def test_a_turn_behind_a_stop() -> None:
    """The cache holds the rows of tokens that a stop cut off; the next turn does not see them."""
    plain = generate(WholeModel(), Autoregressive(), [3, 1, 4], 20, Ledger(CONFIG)).tokens
    for at in range(3, 12):
        talk = Conversation(WholeModel(), MAKE["same draft"](Shape()), Ledger(CONFIG), Stops(frozenset({plain[at]})))
        first = talk.turn([3, 1, 4], 20)
        assert first.tokens == plain[:plain.index(plain[at]) + 1]
        text = [3, 1, 4, *first.tokens, 8, 8]
        talk.stops = NO_STOPS
        assert talk.turn([8, 8], 9).tokens == plainly(text, 9, 40, None)


# -- no cache

@pytest.mark.parametrize("name", MAKE)
def test_no_cache(name: str) -> None:
    """The same text and steps; every step passes the whole text."""
    runs, rows = [], []
    for kept in (True, False):
        target, drafter = WholeModel(), MAKE[name](Shape())
        if isinstance(drafter, DraftModel):
            drafter.cache.kept = kept
        runs.append(generate(target, drafter, [3, 1, 4], 20, Ledger(CONFIG), kv=target.kv(kept=kept)))
        rows.append(target.rows)
    assert runs[0].tokens == runs[1].tokens
    assert runs[0].steps == runs[1].steps
    lengths = [position for position, _ in runs[1].curve]
    assert lengths == [position for position, _ in runs[0].curve]
    assert rows[1] == [count for at, (drafted, _) in zip(lengths, runs[1].steps) for count in (at - 1, drafted + 1)]
    assert sum(rows[0]) == 2 + sum(drafted + 1 for drafted, _ in runs[0].steps)


def test_halting() -> None:
    """Behind a step, with what there is by then."""
    done: list[int] = []
    talk = Conversation(WholeModel(), Autoregressive(), Ledger(CONFIG))
    run = talk.turn([3, 1, 4], 20, done.extend, lambda: len(done) >= 5)
    assert run.tokens == done == plainly([3, 1, 4], 5, 40, None)
    assert run.finish_reason == "interrupted"


def test_names() -> None:
    assert tuple(OVERFLOWS) == limits.OVERFLOWS
