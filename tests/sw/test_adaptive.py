"""Adaptive verification: no text changes, nothing is lost, and little of what could be gained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding.adaptive import account
from gemmule.sw.decoding.adaptive.acceptance import FIRST, Acceptance, Mark, marks_of
from gemmule.sw.decoding.adaptive.account import HORIZON, LIMIT
from gemmule.sw.decoding.adaptive.adaptive import Adaptive
from gemmule.sw.decoding.adaptive.steps import Steps
from gemmule.sw.decoding.adaptive.won import Won
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.recycling import Recycling, Table
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter, Extra, Tree
from gemmule.sw.decoding.verify import GREEDY, Rejection, Rule
from gemmule.sw.device.costs.cost_curve import CostCurve, free_rows
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET, LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.step import Forward, Want
from tests.thinned import thinned

from .test_methods import CONFIG, DRAFT, FREE, LENGTHS, OVERFLOWS, PROMPTS, RULES, Request, datastore, model, plain


def adapted(inner: Drafter, target: LoadedModel, ledger: Ledger, rule: Rule = GREEDY) -> Adaptive:
    program = target.program
    return Adaptive(inner, Steps(CostCurve(target), ledger, TARGET, want=rule.want(), rows=program.max_rows,
                                 parameters=program.graph.parameters, step=CONFIG.host.step_cycles))


def made(method: str, ledger: Ledger, rule: Rule) -> tuple[Adaptive, Conversation]:
    """A method with most candidates, and a text that it drafts for."""
    target, way = model(), METHODS[method]
    kv = target.charging(ledger).kv()
    inner = way.make(Request(
        draft=model(DRAFT, 1).charging(ledger), target=target.charging(ledger, DRAFT), cache=kv,
        lengths=LENGTHS["constant"](7 if way.drafts else 0), ends=frozenset(), rule=rule, host=CONFIG.host,
        options=way.values({}), datastore=datastore, skipping=lambda: (1,)))
    drafter = adapted(inner, target, ledger, rule)
    return drafter, Conversation(target, drafter, ledger, rule=rule, overflow=OVERFLOWS["sinks"], kv=kv)


def most(reference: Generation) -> float:
    """Cycles that a text may take: none of its tokens won, and its drafter asked as the limit lets."""
    behind = reference.ledger.cycles - reference.prefill.cycles
    step = behind / max(1, len(reference.steps))
    return reference.ledger.cycles + LIMIT * (reference.prefill.cycles + max(behind, HORIZON * step)) + 0.05 * step


@cache
def _second_turn(prompt: tuple[int, ...], rule: str) -> list[int]:
    """What autoregressive decoding says behind another text of its own."""
    talk = Conversation(model(), Autoregressive(), Ledger(CONFIG), rule=RULES[rule], overflow=OVERFLOWS["sinks"])
    talk.turn(list(prompt), 40)
    return talk.turn([5], 30).tokens


@pytest.mark.parametrize(("method", "rule"), thinned(
    [name for name in FREE if name != "ar" and not (METHODS[name].needs_int4 or METHODS[name].schedule)], RULES))
def test_every_method(method: str, rule: str) -> None:
    """The text of autoregressive decoding, turn by turn and through a cut; a text that nobody can guess costs no more
    than the limit. Drafts of a draft as large as the target never pay.
    """
    prompt, ledger = PROMPTS[0], Ledger(CONFIG)
    _, talk = made(method, ledger, RULES[rule])
    expected = plain(tuple(prompt), 40, rule, "sinks")
    run = talk.turn(prompt, 40)
    assert run.tokens == expected.tokens
    assert ledger.cycles <= most(expected), (method, ledger.cycles / expected.ledger.cycles)
    assert talk.turn([5], 30).tokens == _second_turn(tuple(prompt), rule)


class Told(Drafter):
    """Drafts the text itself, or another one; siblings behind each token, wrong ones first or last."""

    def __init__(self, text: Sequence[int], prompt: int, *, right: bool, weights: int = 0, branches: bool = False,
                 chances: bool = False) -> None:
        self.text, self.prompt, self.shift, self.weights = text, prompt, 0 if right else 1, weights
        self.branches, self.chances = branches, chances
        self.asked = self.proposed = 0

    def drafting(self, count: int) -> int:
        return self.weights * count

    def propose(self, ids: list[int], budget: int) -> Tree:
        coming = [(token + self.shift) % 41 for token in self.text[len(ids) - self.prompt:][:budget]]
        self.asked += 1
        self.proposed += len(coming)
        if not self.branches:
            return Tree.chain(ids[-1], coming)
        tokens, parent, chances, last = [ids[-1]], [-1], [1.0], 0
        for token in coming[:budget // 2]:  # the wrong one first
            tokens += [(token + 7) % 41, token]
            parent += [last, last]
            chances += [chances[last] * 0.3, chances[last] * 0.6]
            last = len(tokens) - 1
        return Tree(tokens, parent, chances=chances if self.chances else ())


def told(prompt: list[int], new: int, **options: object) -> tuple[Generation, Told, Generation]:
    expected = plain(tuple(prompt), new, "greedy", "stop")
    ledger = Ledger(CONFIG)
    inner = Told(expected.tokens, len(prompt), **options)  # type: ignore[arg-type]
    run = Conversation(model().charging(ledger), adapted(inner, model(), ledger), ledger).turn(prompt, new)
    assert run.tokens == expected.tokens
    return run, inner, expected


def test_free_drafts_that_are_right_are_all_taken() -> None:
    run, _, _ = told(PROMPTS[0], 50, right=True)
    assert run.tokens_per_step > 6.5
    assert [accepted for _, accepted in run.steps[1:4]] == [7, 7, 7], "none is left out once they are right"


@pytest.mark.parametrize("chances", [False, True])
def test_the_right_sibling_comes_to_stand_in_place(chances: bool) -> None:
    """Wrong siblings are left out as it is seen that they are wrong, and the right ones then need no move."""
    run, _, expected = told(PROMPTS[0], 50, right=True, branches=True, chances=chances)
    drafted = [count for count, _ in run.steps]
    assert sum(accepted for _, accepted in run.steps) == len(run.tokens) - len(run.steps)
    assert max(drafted[:2]) > min(drafted[-4:-1])
    assert run.ledger.cycles < (0.5 if chances else 0.65) * expected.ledger.cycles


def test_drafts_that_are_never_right_are_given_up() -> None:
    """Free ones too: rows cost little, but win nothing; tried again now and then."""
    run, inner, expected = told(PROMPTS[0], 50, right=False)
    assert run.ledger.cycles <= most(expected)
    drafted = [count for count, _ in run.steps]
    assert sum(drafted[25:]) <= sum(drafted[:25]) / 3
    assert inner.asked == len(run.steps) - 1, "but for the last step, where nothing may be drafted"


def test_a_costly_drafter_is_asked_as_far_as_it_pays() -> None:
    """Of passes that take half of the target's, none pays where nothing is right, all where everything is."""
    ledger, expected = Ledger(CONFIG), plain(tuple(PROMPTS[0]), 50, "greedy", "stop")
    for salt, least, largest in ((0, 0.0, 1.01), (1, 0.0, 1.02)):
        ledger = Ledger(CONFIG)
        inner = DraftModel(model(DRAFT, salt).charging(ledger, DRAFT), 7, host=CONFIG.host)
        run = Conversation(model().charging(ledger), adapted(inner, model(), ledger), ledger).turn(PROMPTS[0], 50)
        assert run.tokens == expected.tokens
        assert least <= ledger.cycles / expected.ledger.cycles < largest
        assert ledger.cycles <= most(expected)


class InPlace(Told):
    """It drafts behind the rows that the target has cached."""

    def prompt_weights(self) -> int:
        return 0


@pytest.mark.parametrize(("kind", "asks"), [(Told, False), (InPlace, True)])
def test_a_drafter_in_the_targets_cache_passes_no_prompt(kind: type[Told], asks: bool) -> None:
    """A quarter of the target's weights: what passes of a long prompt would cost keeps the other one from drafting."""
    prompt, ledger = (PROMPTS[0] * 30)[:30], Ledger(CONFIG)
    expected = plain(tuple(prompt), 12, "greedy", "stop")
    inner = kind(expected.tokens, len(prompt), right=True, weights=model().program.graph.parameters // 4)
    run = Conversation(model().charging(ledger), adapted(inner, model(), ledger), ledger).turn(prompt, 12)
    assert run.tokens == expected.tokens
    assert bool(inner.asked) == asks


def test_the_limit_is_what_keeps_a_text_from_losing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a drafter that is taken to be right loses more: what the tests above check can fail."""
    monkeypatch.setattr(account, "LIMIT", 1.0)
    ledger, expected = Ledger(CONFIG), plain(tuple(PROMPTS[0]), 30, "greedy", "stop")
    inner = DraftModel(model(DRAFT, 1).charging(ledger, DRAFT), 7, host=CONFIG.host)
    drafter = adapted(inner, model(), ledger)
    monkeypatch.setattr(drafter.won, "expected", lambda: [100.0 * count for count in range(8)])
    Conversation(model().charging(ledger), drafter, ledger).turn(PROMPTS[0], 30)
    assert ledger.cycles > most(expected)


def test_rows_beside_candidates_count() -> None:
    """A window that fills passes is given up where its guesses win nothing."""

    class Windowed(Told):
        launches = 3

        def propose(self, ids: list[int], budget: int) -> Tree:
            self.asked += 1
            return Tree([ids[-1]], [-1], extra=[Extra(1, 1)] * budget)

    expected = plain(tuple(PROMPTS[0]), 40, "greedy", "stop")
    ledger = Ledger(CONFIG)
    inner = Windowed(expected.tokens, len(PROMPTS[0]), right=False)
    run = Conversation(model().charging(ledger), adapted(inner, model(), ledger), ledger).turn(PROMPTS[0], 40)
    assert run.tokens == expected.tokens
    assert inner.asked < 4


# -- what it knows

@pytest.mark.parametrize("want", [Want(), Want(top=4), Want(logits=True)])
def test_costs_are_those_of_passes(want: Want) -> None:
    """To the cycle."""
    target, curve = model(), CostCurve(model())
    for cached in (0, 7, 32, 50, 59):
        for rows in (1, 3, 8):
            if cached + rows > target.room:
                continue
            kv = target.kv()
            if cached:
                target.forward(Rows.chain([1] * cached), Want(last=0), kv)
            tokens = [token * 7 % 41 for token in range(rows)]
            out = target.forward(Rows.chain(tokens, cached), want, kv)
            taken = out.cycles + len(out.results) * CONFIG.host.launch_cycles
            assert curve.of(rows, cached, want) == taken
    costs = curve.row_costs(20)
    assert costs == sorted(costs)
    assert len(costs) == 8
    assert free_rows([100.0, 102.0, 103.0, 103.1, 110.0]) == 3
    assert free_rows([100.0, 101.0]) == 2


def test_moving_a_path_costs_what_it_costs() -> None:
    target, curve = model(), CostCurve(model())
    kv = target.kv()
    target.forward(Rows.chain([1] * 32), Want(last=0), kv)
    target.forward(Rows.tree([1, 2, 3], [-1, 0, 0], 32), Want(), kv)
    assert curve.move(1, 32) == kv.commit([0, 2])
    assert CostCurve(model(general=False, pool=192)).move(3, 5) == 0, "where a list names rows, none is moved"


def test_acceptance_learns_each_mark() -> None:
    """Shares of what was accepted among what was looked at, from the drafter's own chance on."""
    random, known = np.random.default_rng(3), Acceptance()
    tree = Tree([9, 1, 2, 3], [-1, 0, 0, 1], chances=[1.0, 0.5, 0.2, 0.4], source="long")
    assert known.of_paths(tree) == pytest.approx([1.0, 0.5, 0.2, 0.4])
    for _ in range(400):
        draw = random.random()
        known.observe(tree, [0, 1, 3] if draw < 0.45 else [0, 1] if draw < 0.9 else [0])
    chances = known.of_paths(tree)
    assert chances[1] == pytest.approx(0.9, abs=0.08)
    assert chances[2] < 0.02
    assert chances[3] / chances[1] == pytest.approx(0.5, abs=0.15)
    other = Tree(tree.tokens, tree.parent, chances=tree.chances, source="short")
    assert known.of_paths(other) == pytest.approx([1.0, 0.5, 0.2, 0.4]), "another source is another matter"


def test_marks_of_trees_without_chances() -> None:
    known, tree = Acceptance(), Tree([9, 1, 2, 3], [-1, 0, 0, 1])
    assert [mark for mark, _ in marks_of(tree)] == [Mark("", None, 1, 0), Mark("", None, 1, 1), Mark("", None, 2, 0)]
    first = known.of_paths(tree)
    assert first[1] == FIRST
    assert first[2] < first[1]
    for _ in range(30):
        known.observe(tree, [0, 2])
    assert known.of_paths(tree)[2] > 0.9 > 0.1 > known.of_paths(tree)[1]


def test_drawn_tokens_are_judged_by_their_depth_alone() -> None:
    """What is decided by the token that was drawn is biased (Leviathan's rule holds for any other choice)."""
    drawn = np.array([1, 2, 3])
    sure = Tree([9, 1, 2], [-1, 0, 1], {1: drawn, 2: drawn}, chances=[1.0, 0.9, 0.8], source="long")
    unsure = Tree([9, 0, 0], [-1, 0, 1], {1: drawn, 2: drawn}, chances=[1.0, 0.1, 0.01], source="short")
    assert marks_of(sure) == marks_of(unsure)


def test_what_a_count_of_candidates_wins() -> None:
    won = Won(4)
    assert won.expected() == pytest.approx([0, 0.6, 1.08, 1.464, 1.7712])
    for _ in range(200):
        won.observe(3, 2)
    expected = won.expected()
    assert expected[1] == pytest.approx(1.0, abs=0.05)
    assert expected[2] == pytest.approx(2.0, abs=0.1)
    assert expected[3] - expected[2] < 0.1
    before = won.expected()[1]
    for _ in range(500):
        won.fade()
    assert won.expected()[1] < before
    assert won.expected()[1] == pytest.approx(0.6, abs=0.05), "what is known fades"


def test_a_drafter_is_told_which_tree_was_verified() -> None:
    """Token Recycling learns behind the nodes that were verified, not behind those that it proposed."""
    ledger = Ledger(CONFIG)
    drafter, talk = made("recycling", ledger, GREEDY)
    trees: list[Tree] = []
    inner = drafter.inner
    assert isinstance(inner, Recycling)

    class Checked(Table):
        def take(self, tokens: Iterable[int], out: Forward, rows: Sequence[int] | None = None) -> None:
            tokens = list(tokens)
            if rows is None:
                assert len(tokens) == len(out.argmax), "an answer for each node, and no other"
            trees.append(drafter.tree)
            super().take(tokens, out, rows)

    inner.table = Checked(8)
    assert talk.turn(PROMPTS[0], 40).tokens == plain(tuple(PROMPTS[0]), 40, "greedy", "sinks").tokens
    assert trees


def test_trees_of_the_table_are_as_large_as_pays() -> None:
    """Where rows cost much, by the shape of the most tokens a cycle; not where costs are not known."""
    way, target = METHODS["recycling"], model()

    def request(curve: CostCurve | None) -> Request:
        return Request(draft=None, target=target, cache=target.kv(), lengths=LENGTHS["constant"](7), ends=frozenset(),
                       rule=GREEDY, host=CONFIG.host, options=way.values({"recycling_shape": "cost"}), curve=curve)

    sizes = []
    for factor in (1, 1 << 20):
        curve = CostCurve(target)
        curve.of = lambda rows, cached, want, factor=factor: 1 << 20 if rows == 1 else (1 << 20) + rows * factor  # type: ignore[method-assign,misc]
        run = Conversation(target, way.make(request(curve)), Ledger(CONFIG)).turn(PROMPTS[0], 20)
        assert run.tokens == plain(tuple(PROMPTS[0]), 20, "greedy", "stop").tokens
        sizes.append(max(drafted for drafted, _ in run.steps))
    assert sizes == [7, 0]
    with pytest.raises(InputError, match="--recycling-shape cost takes one text with its whole cache"):
        way.make(request(None))


def test_rejection_sampling_keeps_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawn chain is cut by what earlier steps were like; the text then follows the target's law as before: with a
    draft that is the target, every token is accepted.
    """
    monkeypatch.setattr(account, "LIMIT", 1.0)
    rule = Rejection(Sampling(0.9, 8, Fraction(9, 10)), Noise(7))
    ledger = Ledger(CONFIG)
    inner = DraftModel(model(DRAFT).charging(ledger, DRAFT), 7, rule, CONFIG.host)
    drafter = adapted(inner, model(), ledger, rule)
    drafter.steps.overhead = 0.0  # as if drafting were free
    run = Conversation(model().charging(ledger), drafter, ledger, rule=rule).turn(PROMPTS[0], 40)
    assert sum(drafted for drafted, _ in run.steps)
    assert all(drafted == accepted for drafted, accepted in run.steps)


# -- sessions

def test_sessions_that_cannot() -> None:
    device = load_config("base")
    with Session(device, launch="draft") as session, pytest.raises(
            InputError, match="--adaptive takes texts with their whole caches, a pass a launch, not --launch draft or"):
        session.converse("pld", adaptive=True)
    with Session(device, interpreted=True, general=True) as session:
        with pytest.raises(InputError, match="not --kv-cache none: drop one of the two"):
            session.converse("pld", adaptive=True, kv_cache="none")
        runs = [session.generate(name, [5, 6, 7, 5, 6, 7, 5], 24, adaptive=True) for name in ("pld", "draft", "ar")]
        assert runs[0].tokens == runs[1].tokens == runs[2].tokens
        assert runs[1].ledger.cycles <= most(runs[2])


def test_answers_of_the_target_are_not_asked_for_in_vain() -> None:
    """Where nothing is drafted, a pass gives greedy tokens and no more."""
    ledger = Ledger(CONFIG)
    drafter, talk = made("recycling", ledger, GREEDY)
    drafter.won.tried, drafter.won.right = [1e9] * 7, [0.0] * 7
    wants: list[Want | None] = []
    propose = talk.drafter.want

    def want() -> Want | None:
        wants.append(propose())
        return wants[-1]

    drafter.want = want  # type: ignore[method-assign]
    talk.turn(PROMPTS[0], 10)
    assert wants == [None] * 10


def test_observing_needs_the_answers_of_the_tree() -> None:
    """A step that drafts nothing leaves the drafter out, and it begins anew behind the text when it is asked."""
    seen: list[tuple[str, int]] = []

    class Learns(Told):
        def begin(self, ids: list[int], dropped: int = 0) -> None:
            seen.append(("begin", len(ids)))

        def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
            seen.append(("observe", len(new)))

    expected = plain(tuple(PROMPTS[0]), 20, "greedy", "stop")
    ledger = Ledger(CONFIG)
    inner = Learns(expected.tokens, len(PROMPTS[0]), right=True, weights=1)
    drafter = adapted(inner, model(), ledger)
    talk = Conversation(model().charging(ledger), drafter, ledger)
    assert talk.turn(PROMPTS[0], 9).tokens == expected.tokens[:9]
    assert seen[0] == ("begin", len(PROMPTS[0]))
    assert seen[1][0] == "observe"
