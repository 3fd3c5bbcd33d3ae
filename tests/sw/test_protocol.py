"""The drafter protocol is wide enough: trees, rows that are never kept, drafters that are decoding loops themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.generate import Conversation, generate
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter, Extra, Tree
from gemmule.sw.decoding.verify import GREEDY, Match, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.models.bundled_models import encode
from gemmule.sw.step import Forward

from .test_sampling import Law, hashed

CONFIG = load_config("tiny")
SAMPLED = Match(Sampling(0.7, 8, Fraction(9, 10)), Noise(5))
NEAR = 14
"""Letters of the made-up models; texts of so few repeat themselves."""


def row(prefix: list[int]):
    """By the last token and whether the text is long: n-grams come again, and are not always right."""
    return hashed(0, NEAR, 3000)([*prefix[-1:], len(prefix) // 30])


def target(**options: int) -> Law:
    return Law(row, **{"max_positions": 128, "max_rows": 12, **options})


class Lookahead(Drafter):
    """Lookahead decoding with n-grams of two (Fu et al. 2024): a window of guesses runs beside the candidates.

    Its rows see the pending token and the window before them. What the target says behind each is the next guess, and
    a pair for the pool from which candidates come: those that followed the pending token, each a branch of its own.
    """

    def __init__(self, window: int, branches: int) -> None:
        self.size, self.branches = window, branches
        self.window = [i % NEAR for i in range(window)]
        self.pool: dict[int, list[int]] = {}
        self.nodes = self.kept_rows = 0
        self.shown: list[int] = []

    def propose(self, ids: list[int], budget: int) -> Tree:
        guesses = self.pool.get(ids[-1], [])[:min(self.branches, budget)]
        self.nodes = 1 + len(guesses)
        self.shown = self.window[:max(0, min(self.size, budget - len(guesses)))]
        extra = [Extra(token, 1 + i, (0, *range(self.nodes, self.nodes + i))) for i, token in enumerate(self.shown)]
        return Tree([ids[-1], *guesses], [-1, *[0] * len(guesses)], extra=extra)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        answers = out.argmax[self.nodes:]
        assert len(answers) == len(self.shown)
        for token, following in zip(self.shown, answers):
            known = self.pool.setdefault(token, [])
            if following in known:
                known.remove(following)
            known.insert(0, following)
        self.window = [*answers, *self.window[len(answers):]]


@dataclass
class Nested(Drafter):
    """Drafts what a decoding loop of its own gives: on a smaller model, with a drafter of that one's."""

    talk: Conversation
    count: int
    runs: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.talk.dropped = dropped

    def propose(self, ids: list[int], budget: int) -> Tree:
        if not min(self.count, budget):
            return Tree.chain(ids[-1], [])
        self.talk.window = list(ids)  # rows that its cache shares with it are kept
        run = self.talk.turn([], min(self.count, budget))
        self.runs += run.steps
        return Tree.chain(ids[-1], run.tokens)


def model(salt: int, near: int) -> Law:
    """Not far from the target."""
    other = hashed(salt, NEAR, 3000)
    return Law(lambda prefix: row(prefix) + other(prefix) // near, max_positions=128, max_rows=12, name="draft")


def nested(rule: Rule) -> Nested:
    """Three levels: the target, a model that is nearly right, drafted for by one that is less so."""
    small = DraftModel(model(9, 2), 2, rule)  # type: ignore[arg-type]
    return Nested(Conversation(model(5, 6), small, Ledger(CONFIG), rule=rule), 6)  # type: ignore[arg-type]


def looked_up(rule: Rule) -> Nested:
    return Nested(Conversation(model(5, 6), PromptLookup(4, frozenset()), Ledger(CONFIG),  # type: ignore[arg-type]
                               rule=rule), 5)


MAKE = {"lookahead": lambda rule: Lookahead(5, 3), "hierarchy": nested, "prompt lookup for a draft": looked_up}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("rule", [GREEDY, SAMPLED], ids=["greedy", "match"])
@pytest.mark.parametrize(("new", "limits", "overflow"), [
    (1, {}, "stop"), (2, {}, "stop"), (90, {}, "stop"), (200, {"max_positions": 40}, "stop"),
    (90, {"max_positions": 40}, "sinks"), (30, {"max_rows": 2}, "stop"), (30, {"max_rows": 1}, "stop")])
def test_the_text_of_autoregressive_decoding(name: str, rule: Rule, new: int, limits: dict[str, int],
                                             overflow: str) -> None:
    def run(drafter: Drafter):
        return generate(target(**limits), drafter, [3, 1, 4], new, Ledger(CONFIG), rule=rule,  # type: ignore[arg-type]
                        overflow=OVERFLOWS[overflow])

    plain, drafter = run(Autoregressive()), MAKE[name](rule)
    found = run(drafter)
    assert found.tokens == plain.tokens
    assert found.finish_reason == plain.finish_reason
    if new > 50 and limits.get("max_rows", 12) > 2:
        assert found.acceptance > 0
        assert len(found.steps) < len(plain.steps)
    if isinstance(drafter, Nested) and new > 50:
        assert sum(accepted for _, accepted in drafter.runs) > 0, "drafts are accepted at both levels"
        assert sum(drafted - accepted for drafted, accepted in drafter.runs) > 0


def test_extra_rows_are_answered_and_leave_no_trace() -> None:
    """Each sees what it says and nothing else; the cache holds the accepted path."""
    tree = Tree([4, 7, 8], [-1, 0, 1], extra=[Extra(9, 1), Extra(2, 3, (0, 1)), Extra(5, 2, (3,)), Extra(1, 0, ())])
    law = target()
    law.cache = [3, 1]
    rows = tree.rows(2)
    assert rows.positions.tolist() == [2, 3, 4, 3, 5, 4, 2]
    out = law.forward(rows, GREEDY.want(), law.kv())
    seen = [[4], [4, 7], [4, 7, 8], [4, 9], [4, 7, 2], [9, 5], [1]]
    assert out.argmax == [int(row([3, 1, *tokens]).argmax()) for tokens in seen]
    assert Tree([4], [-1]).rows(2).tokens.tolist() == [4]


@pytest.mark.parametrize(("extra", "message"), [
    (Extra(1, -1), "extra row 2 must have a depth of at least 0"), (Extra(1, 1, (2,)), "see rows 0 to 1"),
    (Extra(1, 1, (-1,)), "not depth 1 and rows \\[-1\\]")])
def test_what_is_no_extra_row(extra: Extra, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree([1, 2], [-1, 0], extra=[extra])


def test_on_the_device() -> None:
    """The bundled pair: the draft is itself drafted for by prompt lookup; and the target with a lookahead window."""
    config, ids = load_config("base"), encode("x = [1, 2, 3, 1, 2, 3, 1, 2, ")
    with Session(config) as session:
        plain = session.generate("ar", ids, 20)
        draft = session.draft
        assert draft is not None
        ledger = Ledger(config)
        inner = Conversation(draft, PromptLookup(4, frozenset()), ledger)
        hierarchy = Nested(inner, 5)
        found = generate(session.target, hierarchy, ids, 20, ledger)
        assert found.tokens == plain.tokens
        assert found.acceptance > 0
        assert sum(accepted for _, accepted in hierarchy.runs) > 0
        assert set(ledger.launches) == {"target", "draft"}
        assert generate(session.target, Lookahead(6, 3), ids, 20, Ledger(config)).tokens == plain.tokens
