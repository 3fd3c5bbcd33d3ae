"""Adaptive verification of texts that share passes: same texts, nothing lost; what is counted is what `ar` takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.sw.decoding.adaptive import account
from gemmule.sw.decoding.adaptive.account import HORIZON, LIMIT, Account, by_place
from gemmule.sw.decoding.adaptive.adaptive import Adaptive
from gemmule.sw.decoding.adaptive.steps import Steps
from gemmule.sw.decoding.asking import together
from gemmule.sw.decoding.generate import Conversation
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods import DRAFT
from gemmule.sw.decoding.session import Session
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import GREEDY
from gemmule.sw.device.costs.cost_curve import CostCurve
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.serving.arrivals import Arrival
from gemmule.sw.serving.serve import serve
from gemmule.sw.step import Want
from tests.thinned import of_methods, some, thinned

from .test_methods import CONFIG as EDGE
from .test_methods import DRAFT as OTHER
from .test_methods import SHARING, model, talk

CONFIG, PAIR = load_config("base"), bundled_pair("small")
BATCH, NEW = 4, 40
PROMPTS = [PAIR.encode(text) for text in (
    "def main(arguments):\n    ", "import os\nimport sys\n", "class Node:\n    def __init__(self",
    "for number in range(10):\n    print(number", "try:\n    value = int(", "return [one for one in")]


@pytest.fixture(scope="module")
def session() -> Session:
    """Passes of four texts, by programs of 4 and of 8 rows."""
    made = Session(CONFIG, pair=PAIR, interpreted=True, batch=BATCH, rows=8)
    assert [one.max_rows for one in made.target.narrow] == [4]
    return made


def plain(session: Session, prompts: Sequence[list[int]], lengths: Sequence[int]) -> tuple[list[Generation], Ledger]:
    ledger = Ledger(CONFIG)
    talks = [session.converse("ar", ledger=ledger) for _ in prompts]
    return together([one.turning(prompt, new) for one, prompt, new in zip(talks, prompts, lengths)], (DRAFT, TARGET),
                    BATCH), ledger


class Planted(Drafter):
    """Drafts what comes, or never what comes, or now and then; as if by a model of so many weights."""

    def __init__(self, text: Sequence[int], prompt: int, right: float, weights: int, seed: int) -> None:
        self.text, self.prompt, self.right, self.weights = text, prompt, right, weights
        self.random = np.random.default_rng(seed)

    def drafting(self, count: int) -> int:
        return self.weights * count

    def propose(self, ids: list[int], budget: int) -> Tree:
        coming = self.text[len(ids) - self.prompt:][:budget]
        return Tree.chain(ids[-1], [token if self.random.random() < self.right else (token + 1) % 512
                                    for token in coming])


def planted(session: Session, rights: Sequence[float], weights: int = 0,
            lengths: Sequence[int] = (NEW, NEW // 2, NEW, 3, 9, NEW), *,
            shared: bool = False) -> tuple[Ledger, Ledger, Steps]:
    """Texts of which each has a drafter that is right so often; the ledgers of this run and of `ar`.

    ``shared``: short prompts, which wait for others to share passes with.
    """
    prompts = [prompt[:9] if shared else prompt for prompt in PROMPTS[:len(rights)]]
    known, reference = plain(session, prompts, lengths)
    ledger = Ledger(CONFIG)
    steps = session.steps(GREEDY, ledger, shared=shared)
    askings = []
    for number, (prompt, right) in enumerate(zip(prompts, rights)):
        kv = session.target.charging(ledger).kv()
        inner = Planted(known[number].tokens, len(prompt), right, weights, number)
        text = Conversation(session.target, Adaptive(inner, steps, lambda kv=kv: kv.sequence), ledger, kv=kv)  # type: ignore[misc]
        askings.append(text.turning(prompt, lengths[number]))
    runs = together(askings, (DRAFT, TARGET), BATCH, lambda text, free: steps.admits(
        len(prompts[text]) - 1, free, len(prompts) - text))
    assert [run.tokens for run in runs] == [run.tokens for run in known]
    return ledger, reference, steps


def most(session: Session, reference: Ledger) -> float:
    """Cycles that texts may take, were nothing won."""
    one = session.curve.of_batch(1, [session.target.first + 40] * BATCH) + BATCH * CONFIG.host.step_cycles
    return reference.cycles + LIMIT * max(reference.cycles, HORIZON * one)


@pytest.mark.parametrize(("rights", "weights"), thinned(
    [(0.0,) * 6, (0.0,) * 4, (0.3, 0.0, 0.1, 0.0), (1.0, 0.0, 0.0, 0.0)], [0, 20_000]))
def test_no_batch_is_slower(session: Session, rights: tuple[float, ...], weights: int) -> None:
    """Drafters that are never right, for some texts or for all; texts end early, and others take their places."""
    ledger, reference, _ = planted(session, rights, weights)
    assert ledger.cycles <= most(session, reference)


def test_drafts_that_are_right_win(session: Session) -> None:
    """All places of a wide pass are used where that pays."""
    ledger, reference, _ = planted(session, (1.0,) * 4, lengths=(NEW,) * 4)
    assert ledger.cycles < 0.45 * reference.cycles


def test_without_the_limit_batches_lose(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above check can fail: drafters taken to be right, and nothing that stops them."""
    monkeypatch.setattr(account, "LIMIT", 1.0)
    monkeypatch.setattr("gemmule.sw.decoding.adaptive.acceptance.Acceptance.chance", lambda *_: 0.9)
    ledger, reference, _ = planted(session, (0.0,) * 4)
    monkeypatch.undo()
    assert ledger.cycles > 1.02 * reference.cycles
    assert ledger.cycles > most(session, reference)


@pytest.mark.parametrize("count", some([6, 4]))
def test_the_account_is_what_autoregressive_decoding_takes(session: Session, count: int) -> None:
    """Of texts of other lengths, of which some take others' places: costs are of other tokens than the texts'."""
    ledger, reference, steps = planted(session, (0.9, 0.5, 0.0, 1.0, 0.7, 0.2)[:count])
    assert ledger.cycles < reference.cycles
    for text in steps.account.texts:
        text.over = True
    steps.account.catch_up()
    assert not steps.account.texts
    assert steps.account.plain + steps.account.beside == pytest.approx(reference.cycles, rel=1e-3)


def short(session: Session, method: str) -> tuple[int, float]:
    """Cycles of twelve short answers, whose prompts share passes where they enter together, and the most by `ar`."""
    prompts, found = [one[:9] for one in (*PROMPTS, *reversed(PROMPTS))], []
    for name in (method, "ar"):
        ledger = Ledger(CONFIG)
        texts = session.generate_batch(name, prompts, 6, None if name == "ar" else 3, ledger=ledger,
                                       adaptive=name != "ar")
        found.append(([text.tokens for text in texts], ledger))
    assert found[0][0] == found[1][0]
    return found[0][1].cycles, most(session, found[1][1])


@pytest.mark.parametrize("method", some(["pld", "draft", "suffix"]))
def test_short_answers_are_not_slower(session: Session, method: str) -> None:
    """Texts that end early wait for others, with which the next prompts share passes as they do by `ar`."""
    taken, limit = short(session, method)
    assert taken <= limit


def test_prompts_that_go_alone_cost_more(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above checks can fail: each text enters as soon as another one ends."""
    monkeypatch.setattr(Steps, "admits", lambda *_: True)
    taken, limit = short(session, "pld")
    assert taken > 1.05 * limit


def test_long_answers_do_not_wait_for_all(session: Session) -> None:
    """Where passes of its own cost a prompt less than an empty place loses, a text enters."""
    ledger, reference, steps = planted(session, (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), lengths=(72,) * 6, shared=True)
    assert ledger.cycles < 0.9 * reference.cycles
    for text in steps.account.texts:
        text.over = True
    steps.account.catch_up()
    assert steps.account.plain + steps.account.beside == pytest.approx(reference.cycles, rel=5e-3)


@pytest.mark.parametrize("method", of_methods([name for name in SHARING if name != "ar"], ("draft-tree", "jacobi")))
def test_texts_that_nobody_guesses(method: str) -> None:
    """Random networks: each text is that of `ar`, and the batch is not slower."""
    prompts, found = [[3, 1, 4, 1, 5], [7, 7], [2, 9, 2, 9]], []
    target, draft = model(batch=2), model(OTHER, 1, batch=2)
    for adaptive in (False, True):
        ledger = Ledger(EDGE)
        steps = Steps(CostCurve(target), ledger, TARGET, want=GREEDY.want(), rows=8, places=2, together=2,
                      parameters=target.program.graph.parameters, step=EDGE.host.step_cycles,
                      prefix=target.first)
        askings = []
        for prompt in prompts:
            text = talk(method if adaptive else "ar", target.charging(ledger), draft, GREEDY, ledger, count=7)
            if adaptive:
                text.drafter = Adaptive(text.drafter, steps, lambda text=text: text.cached.sequence)  # type: ignore[misc]
            askings.append(text.turning(prompt, 30))
        found.append(([run.tokens for run in together(askings, (DRAFT, TARGET), 2)], ledger.cycles))
    assert found[0][0] == found[1][0]
    assert found[1][1] <= 1.02 * found[0][1]  # texts of 30 tokens: the limit is that of 64


@pytest.mark.parametrize(("cache", "method"), some([
    ((160, True), "pld"), ((0, False), "draft"), *product([(0, True), (400, True)], ["pld", "draft"]),
    ((160, True), "draft"), ((0, False), "pld")], 2))
def test_requests_that_arrive(cache: tuple[int, bool], method: str) -> None:
    """Requests join while others draft, leave for lack of pages, and pass their prompts in pieces."""
    pool, ahead = cache
    served = Session(CONFIG, pair=PAIR, interpreted=True, batch=3, rows=4, ahead=ahead, context=96, pool=pool, page=8)
    requests = [Arrival(name=f"{number}", at=90_000 * number, ids=tuple(prompt[:20]),
                        new_tokens=(30, 1, 24)[number % 3]) for number, prompt in enumerate(PROMPTS)]
    found = []
    for name, adaptive in (("ar", False), (method, True)):
        outcome = serve(served, requests, name, None if name == "ar" else 3, frozenset(), pieces=not ahead,
                        adaptive=adaptive)
        found.append((outcome, [one.generation.tokens for one in outcome.served if one.generation]))
        if served.target.pages:
            assert served.target.pages.free_pages == pool // 8 - 1, "all pages came back"
    assert found[0][1] == found[1][1]
    assert found[1][0].clock.now <= 1.01 * found[0][0].clock.now


def test_prompts_that_share_passes() -> None:
    """As `ar` passes them: 14 cycles for two texts that enter together, whoever entered first here."""
    ledger = Ledger(CONFIG)
    counted = Account(ledger, TARGET, lambda cached: 10.0, 2, 0)

    def taken(cycles: int) -> None:
        ledger.by_model[TARGET] = ledger.by_model.get(TARGET, 0) + cycles
        ledger.device_cycles += cycles

    taken(14)
    first, second = counted.enter(0, 10), counted.enter(1, 28)
    assert counted.coming == 14, "together, though 28 were expected"
    assert (first.apart, second.apart) == (5, 14)
    assert counted.drafting == 0
    for text in (first, second):
        counted.observe(text, 3, 2)
    counted.catch_up()
    assert (counted.plain, counted.beside, counted.coming) == (20, 14, 0)
    first.over, counted.waiting = True, 2
    counted.catch_up()
    assert counted.lacks, "the first one has all of its tokens by `ar`, too"
    taken(6)
    third = counted.enter(0, 6)
    counted.catch_up()
    assert not counted.lacks
    assert (counted.beside, counted.coming) == (20, 0)
    counted.observe(second, 5, 3)
    taken(4)
    fourth = counted.enter(0, 4)
    counted.observe(fourth, 3, 3)
    third.over = second.over = True
    counted.catch_up()
    assert (counted.plain, counted.beside, counted.coming) == (50, 24, 0)


@pytest.mark.parametrize("method", some(["pld", "lookahead"]))
def test_long_prompts_of_other_lengths(method: str) -> None:
    """What they take together is less than the longest one lets expect: nobody may spend the rest."""
    prompts = [(PROMPTS[number] * 9)[:length] for number, length in enumerate((70, 9, 20, 12))]
    with Session(CONFIG, pair=PAIR, interpreted=True, batch=BATCH, rows=4) as made:
        ledgers = [Ledger(CONFIG), Ledger(CONFIG)]
        for name, ledger in zip(("ar", method), ledgers):
            made.generate_batch(name, prompts, NEW, None if name == "ar" else 3, ledger=ledger, adaptive=name != "ar")
        one = made.curve.of_batch(1, [made.target.first + 40] * BATCH) + BATCH * CONFIG.host.step_cycles
    assert ledgers[1].cycles <= ledgers[0].cycles + LIMIT * max(ledgers[0].cycles, HORIZON * one)


def test_places_of_texts() -> None:
    assert by_place(3, [(1, 7), (1, 9), (0, 4)]) == [4, 7, 9]
    ledger = Ledger(CONFIG)
    counted = Account(ledger, TARGET, lambda cached: sum(10 if one is None else one for one in cached), 2, 1)
    first, second, third = (counted.enter(place) for place in (0, 1, 0))
    counted.observe(first, 5, 3)
    counted.catch_up()
    assert counted.plain == 0, "the slower text has no token yet"
    assert counted.ahead == 3
    counted.observe(second, 8, 1)
    counted.catch_up()
    assert counted.plain == 5 + 8 + 2
    second.over = True
    counted.observe(third, 20, 1)
    counted.catch_up()
    assert counted.plain == 15 + 6 + 20 + 2, "the third takes the place of the second"
    third.away = True
    counted.catch_up()
    assert counted.plain == 43 + 7 + 10 + 1, "one that has left is not waited for"


class Flat:
    """Passes of 100 cycles, over prompts of 10,000."""

    def of(self, rows: int, cached: int, want: Want) -> float:
        return 10_000.0 if want == Want(last=0) else 100.0

    def of_batch(self, rows: int | Sequence[int], cached: Sequence[int], want: Want) -> float:
        return self.of(1, 0, want)

    def widths(self, want: Want) -> list[int]:
        return [4]

    def move(self, rows: int, cached: int) -> int:
        return 0


@pytest.mark.parametrize(("overhead", "asked"), [(1.0, True), (1.5, False)])
def test_prompts_that_drafters_pass_together(overhead: float, asked: bool) -> None:
    """A drafter of 1.2 % of the weights passes a prompt of 10,000 cycles: 120 of the 148 that may be lost, or 180."""
    ledger = Ledger(CONFIG)
    steps = Steps(Flat(), ledger, TARGET, want=GREEDY.want(), rows=4, parameters=1000, step=0, places=2, together=2,
                  shared=100)
    steps.overhead = overhead
    texts = [Adaptive(Planted([5] * 9, 4, 1.0, 12, seed), steps, lambda place=seed: place) for seed in range(2)]  # type: ignore[misc]
    ledger.by_model[TARGET] = ledger.device_cycles = 10_000
    for text in texts:
        text.begin([1, 2, 3, 4])
        text.budget = 1
        steps.come(text)
    steps.count()
    assert [text.asked for text in texts] == [asked] * 2
