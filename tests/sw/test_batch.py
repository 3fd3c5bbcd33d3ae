"""Batches: the same loop, passes shared; each text is that of the sequence alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sw.decoding.asking import together
from gemmule.sw.decoding.context import OVERFLOWS
from gemmule.sw.decoding.generate import Conversation, generate
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.methods.draft import DraftModel
from gemmule.sw.decoding.methods.pld import PromptLookup
from gemmule.sw.decoding.noise import Noise
from gemmule.sw.decoding.sampling import Sampling
from gemmule.sw.decoding.session import Session, rows_of
from gemmule.sw.decoding.stops import NO_STOPS, Stops
from gemmule.sw.decoding.verify import GREEDY, Match, Rejection, Rule
from gemmule.sw.device.forward import Caches, append_rows
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.step import Forward, Want

from .test_decoding import FixedDrafter, TreeDrafter, bushy
from .test_sampling import Law, hashed

CONFIG = load_config("tiny")
VOCABULARY = 16
PROMPTS = [[3, 1, 4], [7], [2, 7, 1, 8, 2, 8], list(range(11)), [5, 5]]
NEW = 14


class Lanes:
    """A batch of made-up models: rows of every sequence in each pass, as the device wants them."""

    def __init__(self, make, batch: int, name: str = "target") -> None:
        self.lanes, self.name, self.loop, self.prefill = [make() for _ in range(batch)], name, None, None
        self.lanes[0].batch = batch
        self.logit_scale = 1 / 512
        self.passes: list[list[int]] = []

    @property
    def program(self) -> Law:
        return self.lanes[0]

    @property
    def room(self) -> int:
        return self.lanes[0].room

    def charging(self, ledger: Ledger, name: str = "") -> Lanes:
        return self

    def kv(self, sequence: int = 0, *, kept: bool = True) -> ContiguousKV:
        return ContiguousKV(self, self.room, sequence, kept=kept)

    def forward(self, rows: Rows, want: Want, kv: Caches, layers: object = None) -> Forward:
        append_rows(kv, rows)
        assert sorted(set(rows.sequences.tolist())) == list(range(len(self.lanes))), "each has a row at least"
        assert (np.diff(rows.sequences) >= 0).all()
        self.passes.append(np.bincount(rows.sequences).tolist())
        parts = []
        for number, lane in enumerate(self.lanes):
            own = rows.take(np.flatnonzero(rows.sequences == number))
            assert own.positions.max() < lane.max_positions
            count = len(own) if want.last is None else min(want.last, len(own))
            parts.append(lane.forward(own, Want(last=count, logits=want.logits), []))
        return Forward([token for part in parts for token in part.argmax], (),
                       np.concatenate([part.logits for part in parts]) if want.logits else None)

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        return self.lanes[sequence].commit(position, path)


def law(salt: int = 0, near: int = 0, context: int = 64) -> Law:
    return Law(hashed(salt, VOCABULARY, 1500, near), max_positions=context, max_rows=6)


MAKE = {
    "ar": lambda draft, rule: Autoregressive(), "pld": lambda draft, rule: PromptLookup(4, frozenset()),
    "draft": lambda draft, rule: DraftModel(draft, 3, rule), "trees": lambda draft, rule: TreeDrafter(bushy),
    "some": lambda draft, rule: FixedDrafter(lambda ids: [ids[0]] * (len(ids) % 4)),
}


def batch(name: str, rules: list[Rule], new: int = NEW, stops: Stops = NO_STOPS, context: int = 64,
          overflow: str = "stop") -> tuple[list[Generation], Lanes, Lanes, Ledger]:
    target, draft = Lanes(lambda: law(context=context), len(PROMPTS)), Lanes(
        lambda: law(5, 3, context), len(PROMPTS), "draft")
    ledger = Ledger(CONFIG)
    talks = [Conversation(target, MAKE[name](draft, rule), ledger, stops, rule, overflow=OVERFLOWS[overflow])  # type: ignore[arg-type]
             for rule in rules]
    runs = together([talk.turning(prompt, new + 3 * i) for i, (talk, prompt) in enumerate(zip(talks, PROMPTS))],
                    ("draft", "target"), len(PROMPTS))
    return runs, target, draft, ledger


def rules_of(name: str) -> list[Rule]:
    sampling = Sampling(0.9, 12, Fraction(9, 10))
    make = {"greedy": lambda i: GREEDY, "match": lambda i: Match(sampling, Noise(3, i)),
            "rejection": lambda i: Rejection(sampling, Noise(3, i))}[name]
    return [make(i) for i in range(len(PROMPTS))]


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("rule", ["greedy", "match", "rejection"])
@pytest.mark.parametrize(("context", "overflow"), [(64, "stop"), (16, "sinks")])
def test_each_text_is_that_of_the_sequence_alone(name: str, rule: str, context: int, overflow: str) -> None:
    """Prompts and texts of other lengths, some to the end of the context; the noise is each sequence's own."""
    rules = rules_of(rule)
    runs, target, draft, ledger = batch(name, rules, context=context, overflow=overflow)
    for i, (run, one) in enumerate(zip(runs, rules)):
        own = MAKE[name](law(5, 3, context), one)
        alone = generate(law(context=context), own, PROMPTS[i], NEW + 3 * i, Ledger(CONFIG), rule=one,  # type: ignore[arg-type]
                         overflow=OVERFLOWS[overflow])
        assert (run.tokens, run.steps, run.finish_reason) == (alone.tokens, alone.steps, alone.finish_reason)
        if rule != "rejection":
            plain = generate(law(context=context), Autoregressive(), PROMPTS[i], NEW + 3 * i, Ledger(CONFIG),  # type: ignore[arg-type]
                             rule=one, overflow=OVERFLOWS[overflow])
            assert run.tokens == plain.tokens
    if overflow == "stop":  # nothing is asked out of step but the prompts' rows
        assert len(target.passes) == max(len(run.steps) for run in runs) + 1
        assert len(draft.passes) <= 1 + 3 * max(len(run.steps) for run in runs)
    assert ledger.cycles == CONFIG.host.step_cycles * sum(len(run.steps) for run in runs)


def test_stops_end_one_text_and_not_the_others() -> None:
    rules = rules_of("greedy")
    whole, *_ = batch("draft", rules)
    for stop in {run.tokens[9] for run in whole}:
        runs, *_ = batch("draft", rules, stops=Stops(frozenset({stop})))
        for run, plain in zip(runs, whole):
            end = plain.tokens.index(stop) + 1 if stop in plain.tokens else len(plain.tokens)
            assert run.tokens == plain.tokens[:end]


def test_an_error_of_one_text_is_raised() -> None:
    target = Lanes(law, 2)
    talks = [Conversation(target, Autoregressive(), Ledger(CONFIG)) for _ in range(2)]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 63 tokens, not 70"):
        together([talks[0].turning([1], 3), talks[1].turning([1] * 70, 3)], ("target",), 2)


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_the_next_text_takes_the_place_of_one_that_is_done(batch: int) -> None:
    """Whatever was in the cache of the sequence before; nor do more sequences than texts change any."""
    rules = rules_of("match")
    target, draft = Lanes(law, batch), Lanes(lambda: law(5, 3), batch, "draft")
    talks = [Conversation(target, DraftModel(draft, 3, rule), Ledger(CONFIG), rule=rule)  # type: ignore[arg-type]
             for rule in rules]
    runs = together([talk.turning(prompt, 8 + 5 * i) for i, (talk, prompt) in enumerate(zip(talks, PROMPTS))],
                    ("draft", "target"), batch)
    for i, (run, rule) in enumerate(zip(runs, rules)):
        assert run.tokens == generate(law(), Autoregressive(), PROMPTS[i], 8 + 5 * i, Ledger(CONFIG),  # type: ignore[arg-type]
                                      rule=rule).tokens
    if batch > 1:
        assert len(target.passes) < sum(len(run.steps) for run in runs)


def test_rules_of_other_texts() -> None:
    sampling = Sampling(0.9)
    assert GREEDY.of_text(3) is GREEDY
    assert Match(sampling, Noise(4)).of_text(0) == Match(sampling, Noise(4))
    assert Rejection(sampling, Noise(4)).of_text(2) == Rejection(sampling, Noise(4, 2))


def test_rows_of_a_text() -> None:
    """What drafts need, and prompts, and the mesh has lanes for."""
    assert [rows_of(batch, 0) for batch in (2, 3, 4, 8, 32)] == [8, 4, 4, 4, 4]
    assert [rows_of(8, drafts) for drafts in (1, 3, 4, 7, 15)] == [4, 4, 8, 8, 16]


def test_prompts_take_fewer_passes_than_tokens() -> None:
    """`ar` in a batch: prompts by the program of 4 rows a text, tokens by one of 2, which takes 16 rows in all."""
    pair, passes = bundled_pair("small"), []
    with Session(load_config("base"), pair=pair, interpreted=True, batch=8, rows=rows_of(8, 0)) as session:
        assert [one.max_rows for one in session.target.narrow] == [2]
        for new in (1, 2):
            ledger = Ledger(session.config)
            session.generate_batch("ar", [list(range(1, 14))] * 8, new, ledger=ledger)
            passes.append(ledger.launches[TARGET])
    assert passes[0] == 3 + 1
    assert passes[1] == 3 + 2


def test_rows_of_a_batch() -> None:
    rows = Rows.batch([Rows.tree([1, 2, 3], [-1, 0, 0], 4), Rows.chain([9], 7)])
    assert rows.sequences.tolist() == [0, 0, 0, 1]
    assert rows.positions.tolist() == [4, 5, 5, 7]
    assert rows.mask.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
