"""Sampling in integers: weights, draws, and the exact law of sampled speculative decoding, by enumeration."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding import verify
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.noise import Noise, Purpose
from gemmule.sw.decoding.sampling import Sampling, _shares, draw, shared_draw
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import Chosen, Match, Rejection, Rule
from gemmule.sw.device.forward import Caches, append_rows
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import Asking, Forward, Want

SCALE = 1 / 512


@dataclass
class Law:
    """A made-up model: logits of each row by its whole prefix; its cache holds what was fed to it."""

    row: Callable[[list[int]], np.ndarray]
    max_positions: int = 64
    max_rows: int = 8
    batch: int = 1
    name: str = "target"
    logit_scale: float = SCALE
    loop: None = None
    pool: int = 0
    cache: list[int] = field(default_factory=list)

    @property
    def program(self) -> "Law":
        return self

    @property
    def room(self) -> int:
        return self.max_positions

    def charging(self, ledger: Ledger, name: str = "") -> "Law":
        return self

    def kv(self, sequence: int = 0, *, kept: bool = True) -> ContiguousKV:
        return ContiguousKV(self, self.room, sequence, kept=kept)

    def forward(self, rows: Rows, want: Want, kv: Caches, layers: object = None) -> Forward:
        append_rows(kv, rows)
        before = self.cache[:int(rows.positions[0])]
        assert len(before) == rows.positions[0], "a pass may not leave a hole in the cache"
        self.cache = before + rows.tokens.tolist()
        last = len(rows) if want.last is None else want.last
        found = [self.row(before + rows.tokens[seen].tolist()) for seen in rows.mask[len(rows) - last:]]
        return Forward([int(row.argmax()) for row in found], (), np.array(found) if want.logits else None)

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        self.cache = self.cache[:position] + [self.cache[position + node] for node in path]
        return 0


def hashed(salt: int, vocabulary: int, spread: int, near: int = 0) -> Callable[[list[int]], np.ndarray]:
    """int16 logits by the last four tokens; of ``near`` other than 0 close to those of salt 0."""
    def row(prefix: list[int]) -> np.ndarray:
        def rows(key: int) -> np.ndarray:
            return np.random.default_rng([key, *prefix[-4:]]).integers(-spread, spread, vocabulary)
        return (rows(0) + rows(salt) // near if near else rows(salt)).astype(np.int16)
    return row


# -- weights

def test_weights_are_the_softmax() -> None:
    logits = np.random.default_rng(1).integers(-4000, 4000, 300).astype(np.int16)
    for temperature in (0.3, 0.8, 1.0, 2.5):
        weights = Sampling(temperature).weights(logits, SCALE)
        exact = np.exp((logits - logits.max()) * SCALE / temperature)
        assert weights.max() == 65535
        assert np.abs(weights / 65536 - exact).max() < 2e-3


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.integers(0, 50), st.integers(1, 100))
@settings(max_examples=300, deadline=None)
def test_top_k_then_top_p(values: list[int], top_k: int, percent: int) -> None:
    """Against the rule as it is told, with fractions."""
    logits, top_p = (np.array(values) * 200).astype(np.int16), Fraction(percent, 100)
    whole = Sampling(0.7).weights(logits, SCALE)
    order = sorted(range(len(values)), key=lambda token: (-values[token], token))[:top_k or len(values)]
    kept, reached = [], 0
    for token in order:
        if Fraction(reached, int(whole[order].sum())) >= top_p:
            break
        kept.append(token)
        reached += int(whole[token])
    seen = Sampling(0.7, top_k, top_p).weights(logits, SCALE)
    assert {int(token): int(seen[token]) for token in np.flatnonzero(seen)} == {
        token: int(whole[token]) for token in kept if whole[token]}


@pytest.mark.parametrize(("wrong", "message"), [
    ({"temperature": 0.0}, "from 0.001 to 1000, not 0.0: 0 is greedy"), ({"temperature": float("nan")}, "not nan"),
    ({"temperature": 1.0, "top_k": -1}, "top-k must be at least 0"),
    ({"temperature": 1.0, "top_p": Fraction(0)}, "top-p must be above 0 and at most 1, not 0"),
    ({"temperature": 1.0, "top_p": Fraction(3, 2)}, "not 1.5"),
])
def test_what_is_no_sampling(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**wrong)


# -- draws

GOLDEN = [553, 454, 868, 472]


def test_draws_are_fixed_by_their_place() -> None:
    """The same numbers for ever: texts that people have published depend on them."""
    noise = Noise(7, 1)
    assert [noise.below(1000, at, Purpose.TOKEN) for at in range(4)] == [
        Noise(7, 1).below(1000, at, Purpose.TOKEN) for at in range(4)] == GOLDEN
    places = [(seed, at, purpose, number) for seed in (1, 2) for at in (1, 11) for purpose in Purpose
              for number in (0, 1)]
    found = {Noise(seed).below(1 << 128, at, purpose, number) for seed, at, purpose, number in places}
    assert len(found) == len(places)
    assert noise.below(1, 0, Purpose.TOKEN) == 0
    for most in (0, -1, 1 << 401):
        with pytest.raises(ValueError, match="a draw must be below"):
            noise.below(most, 0, Purpose.TOKEN)


def test_draws_are_even() -> None:
    counts = np.bincount([Noise(3).below(6, at, Purpose.TOKEN) for at in range(6000)], minlength=6)
    assert counts.min() > 880
    assert counts.max() < 1120


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=12).filter(any))
@settings(max_examples=100, deadline=None)
def test_shares_are_exact(weights: list[int]) -> None:
    whole, rest = _shares(np.array(weights), sum(weights))
    for token, weight in enumerate(weights):
        if weight < sum(weights):
            assert int(whole[token]) * sum(weights) + rest.get(token, 0) == weight << 64


@pytest.mark.parametrize("draws", [draw, shared_draw])
def test_draws_have_the_law_of_their_weights(draws: Callable[..., int]) -> None:
    weights, count = np.array([5, 0, 1, 65535, 40000, 7]), 4000
    more = (Purpose.TOKEN,) if draws is draw else ()
    seen = np.bincount([draws(weights, Noise(11), at, *more) for at in range(count)], minlength=6)
    expected = weights / weights.sum() * count
    assert seen[1] == 0
    assert np.abs(seen - expected).max() < 4 * np.sqrt(count / 4)
    assert draws(np.array([0, 9, 0]), Noise(1), 5, *more) == 1
    with pytest.raises(ValueError, match="must not all be 0"):
        draws(np.array([0, 0]), Noise(1), 5, *more)


def test_shared_draws_agree_as_often_as_they_must() -> None:
    random, count = np.random.default_rng(2), 1500
    for _ in range(4):
        p, q = (random.integers(0, 65536, 24) >> random.integers(0, 12, 24) for _ in range(2))
        a, b = p / p.sum(), q / q.sum()
        wanted = np.minimum(a, b).sum() / np.maximum(a, b).sum()
        seen = sum(shared_draw(p, Noise(5), at) == shared_draw(q, Noise(5), at) for at in range(count)) / count
        assert abs(seen - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / count) + 1e-3


# -- the text of sampling by match

@pytest.mark.parametrize("gamma", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("near", [2, 20])
def test_match_gives_the_text_of_autoregressive_sampling(gamma: int, near: int) -> None:
    rule: Rule = Match(Sampling(0.8, 12, Fraction(9, 10)), Noise(gamma))
    prompt, runs = [3, 1, 4], []
    for drafter in (Autoregressive(), DraftModel(Law(hashed(5, 16, 900, near)), gamma, rule), PromptLookup(
            gamma, frozenset())):
        target = Law(hashed(0, 16, 900))
        runs.append(generate(target, drafter, prompt, 40, Ledger(load_config("tiny")), rule=rule))
        assert target.cache[:42] == [*prompt, *runs[-1].tokens][:42]
    assert runs[0].tokens == runs[1].tokens == runs[2].tokens
    assert len(set(runs[0].tokens)) > 4
    assert runs[1].acceptance > (0.5 if near == 20 else 0.1)


# -- the law of sampling by rejection, exactly

class Script:
    """Every outcome of every draw in turn: one run of a program for each, with its probability."""

    def __init__(self) -> None:
        self.prefix: list[tuple[int, int]] = []

    def runs(self) -> Iterator[None]:
        """For each path through the draws: run the program inside, then go on."""
        while True:
            self.seen: dict[tuple, int] = {}
            self.taken: list[tuple[int, int]] = []
            yield
            while self.taken and self.taken[-1][0] == self.taken[-1][1] - 1:
                self.taken.pop()
            if not self.taken:
                return
            value, most = self.taken.pop()
            self.prefix = [*self.taken, (value + 1, most)]

    def below(self, most: int, *place: object) -> int:
        if (most, *place) not in self.seen:
            at = len(self.taken)
            value = self.prefix[at][0] if at < len(self.prefix) else 0
            self.taken.append((value, most))
            self.seen[most, *place] = value
        return self.seen[most, *place]

    @property
    def probability(self) -> Fraction:
        found = Fraction(1)
        for _, most in self.taken:
            found /= most
        return found


class Plain:
    """Logits are weights already: few enough outcomes to count them all."""

    def weights(self, logits: np.ndarray, scale: float) -> np.ndarray:
        return logits.astype(np.int64)


def small(salt: int) -> Callable[[list[int]], np.ndarray]:
    """Weights of three tokens that sum to 2 or 3, by the whole prefix."""
    table = [(1, 1, 1), (2, 1, 0), (0, 2, 1), (1, 0, 2), (0, 1, 1), (1, 1, 0), (0, 0, 2)]

    def row(prefix: list[int]) -> np.ndarray:
        value = salt
        for token in prefix:
            value = (value * 5 + token * 3 + 1) % 97
        return np.array(table[value % len(table)], dtype=np.int16)
    return row


def law(rule: Rejection, make: Callable[[], object], new: int) -> dict[tuple[int, ...], Fraction]:
    found: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    script = rule.noise
    assert isinstance(script, Script)
    for _ in script.runs():
        seen = generate(Law(small(0)), make(), [2, 1], new, Ledger(load_config("tiny")), rule=rule)
        found[tuple(seen.tokens)] += script.probability
    return dict(found)


def expected(new: int) -> dict[tuple[int, ...], Fraction]:
    found = {}
    for tokens in product(range(3), repeat=new):
        chance = Fraction(1)
        for at, token in enumerate(tokens):
            row = small(0)([2, 1, *tokens[:at]])
            chance *= Fraction(int(row[token]), int(row.sum()))
        if chance:
            found[tokens] = chance
    return found


class Siblings(Drafter):
    """Two candidates for the next token, drawn independently by the same weights."""

    def __init__(self, rule: Rejection) -> None:
        self.rule = rule

    def propose(self, ids: list[int], budget: int) -> Tree:
        q = small(3)(ids).astype(np.int64)
        drawn = [int(np.searchsorted(np.cumsum(q), self.rule.noise.below(
            int(q.sum()), len(ids), Purpose.DRAFT, number), side="right")) for number in range(min(2, budget))]
        return Tree([ids[-1], *drawn], [-1] + [0] * len(drawn), {node + 1: q for node in range(len(drawn))})


class Fixed(Siblings):
    """Candidates without chance: the same two tokens, one of them twice."""

    def propose(self, ids: list[int], budget: int) -> Tree:
        tokens = [ids[-1], 1, 1, 2][:budget + 1]
        return Tree(tokens, [-1, 0, 0, 0][:len(tokens)])


DRAFTERS: dict[str, Callable[[Rejection], Callable[[], object]]] = {
    "autoregressive": lambda rule: Autoregressive,
    "one draft": lambda rule: lambda: DraftModel(Law(small(3)), 1, rule),
    "two drafts": lambda rule: lambda: DraftModel(Law(small(3)), 2, rule),
    "the target itself": lambda rule: lambda: DraftModel(Law(small(0)), 2, rule),
    "siblings": lambda rule: lambda: Siblings(rule),
    "fixed siblings": lambda rule: lambda: Fixed(rule),
    "lookup": lambda rule: lambda: PromptLookup(2, frozenset()),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_rejection_has_the_joint_law_of_autoregressive_sampling(name: str) -> None:
    rule = Rejection(Plain(), Script())
    seen = law(rule, DRAFTERS[name](rule), 3)
    assert sum(seen.values()) == 1
    assert seen == expected(3)


def _no_residual(self: Rejection, p: np.ndarray, *rest: object) -> tuple[np.ndarray, bool]:
    """TriForce's inner loop as it is published: behind a rejection it draws by p."""
    return p, RIGHT(self, p, *rest)[1]


def _only_the_token(self: Rejection, p: np.ndarray, tree: Tree, node: int, *rest: object) -> tuple[np.ndarray, bool]:
    """Takes what is left for a candidate without chance."""
    left = p.copy()
    left[tree.tokens[node]] = 0
    return left, RIGHT(self, p, tree, node, *rest)[1]


def _one_more(self: Rejection, p: np.ndarray, tree: Tree, node: int, position: int,
              number: int) -> tuple[np.ndarray, bool]:
    """Accepts at equality too."""
    token, q = tree.tokens[node], tree.weights[node]
    most, share = int(q[token]) * int(p.sum()), int(p[token]) * int(q.sum())
    if self.noise.below(most, position, Purpose.ACCEPT, number) <= share:
        return p, True
    return np.maximum(p * int(q.sum()) - q * int(p.sum()), 0), False


RIGHT = Rejection._try


@pytest.mark.parametrize("mutant", [_no_residual, _only_the_token, _one_more])
def test_wrong_rules_have_another_law(mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rejection, "_try", mutant)
    rule = Rejection(Plain(), Script())
    assert law(rule, DRAFTERS["one draft"](rule), 2) != expected(2)


def test_dropping_a_drawn_draft_has_another_law() -> None:
    """Ending a draft because of what was drawn, not before it was drawn, is biased."""
    rule = Rejection(Plain(), Script())

    class Picky(DraftModel):
        def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
            tree = yield from super().propose(ids, budget)
            low = tree.weights and tree.weights[1][tree.tokens[1]] < 2
            return Tree.chain(ids[-1], []) if low else tree

    assert law(rule, lambda: Picky(Law(small(3)), 1, rule), 2) != expected(2)


def test_a_draft_that_cannot_be_is_never_kept() -> None:
    rule = Rejection(Plain(), Noise(1))
    tree = Tree.chain(0, [2], [np.array([0, 0, 5])])
    for at in range(50):
        path, new = rule.verify(tree, Forward([0, 0], (), np.array([[3, 1, 0], [1, 1, 1]])), 1.0, at)
        assert path == [0]
        assert new[0] != 2


def test_greedy_proposals_have_no_weights() -> None:
    chosen = verify.GREEDY.propose(Forward([4, 5], ()), 1.0, 3)
    assert isinstance(chosen, Chosen)
    assert (chosen.token, chosen.weights) == (5, None)
