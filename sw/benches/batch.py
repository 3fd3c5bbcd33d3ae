"""Decoding methods measured on prompts that share passes: beside autoregressive decoding of the same batch, and alone.

Of each way to decode, and of autoregressive decoding, three things are told apart: the texts of the batch, which are
those that the prompts give alone; its cycles over those of autoregressive decoding that shares passes, too; and cycles
a token one prompt at a time over cycles a token of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from statistics import mean
from typing import Any, TypeVar

from gemmule.sw.benches.bench import BOUNDS, Case, OptionsOf, costs, foreseen, no_options
from gemmule.sw.decoding.asking import together
from gemmule.sw.decoding.generate import Conversation, Generation, generate
from gemmule.sw.decoding.generation import beside, distinct, joined, loops
from gemmule.sw.decoding.session import NONE, Session, rows_of
from gemmule.sw.decoding.stops import Stops
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import TARGET
from gemmule.sw.prompts.choose import Prompt

__all__ = ["groups", "measure_batch", "rows_for"]

T = TypeVar("T")


def rows_for(case: Case, batch: int) -> int:
    """Rows of a text of a batch, for as many drafts as the case has; a bound drafts like any drafter."""
    return rows_of(batch, case.num_tokens)


def groups(prompts: Sequence[tuple[Prompt, T]], batch: int) -> Iterator[list[tuple[Prompt, T]]]:
    """Prompts of a category that go together."""
    for _, mine in groupby(prompts, lambda one: one[0].kind):
        while part := list(islice(mine, batch)):
            yield part


def measure_batch(alone: Session, sessions: Callable[[Case], Session], prompts: Sequence[list[int]], new_tokens: int,
                  cases: Iterable[Case], stop: frozenset[int], rule_of: Callable[[Case], Rule],
                  options_of: OptionsOf = no_options, *, adaptive: bool = False) -> Iterator[dict[str, Any]]:
    """What each case does behind prompts that go together, in the session that it has.

    ``adaptive``: as of :func:`gemmule.sw.benches.bench.measure`. The batch of autoregressive decoding and its texts
    alone run once for each rule.
    """
    singles: dict[Rule, list[Generation]] = {}
    batches: dict[Rule, Generation] = {}
    for case in cases:
        rule, options = rule_of(case), options_of(case.method) if case.method not in BOUNDS else NONE
        plain = Case(method="ar", num_tokens=0, temperature=case.temperature, rule=case.rule)
        if rule not in singles:
            singles[rule] = _alone(alone, plain, prompts, new_tokens, stop, rule, [], NONE)
            batches[rule] = _batch(sessions(plain), plain, prompts, new_tokens, stop, rule, [], NONE)
        references, reference = singles[rule], batches[rule]
        ar = case.method == "ar"
        session, run, texts = sessions(case), reference, references
        if not ar:
            run = _batch(session, case, prompts, new_tokens, stop, rule, references, options, adaptive=adaptive)
            texts = _alone(alone, case, prompts, new_tokens, stop, rule, references, options, adaptive=adaptive)
        same_text = rule is GREEDY or rule.same_text
        yield asdict(case) | {
            "prompts": len(prompts), "equal": sum(text.tokens == other.tokens for text, other in zip(
                run.turns, references, strict=True)) if same_text else None,
            "distinct_4grams": mean(distinct(text.tokens, 4) for text in run.turns),
            "text": [text.tokens for text in run.turns], "ar_text": [text.tokens for text in references],
            "looping": sum(loops(text.tokens) for text in run.turns),
            "steps": [list(step) for step in run.steps], "run": costs(run, session.target, prompts),
            "ar": costs(reference, sessions(plain).target, prompts),
            "alone": costs(joined(texts), alone.target, prompts)}


def _alone(session: Session, case: Case, prompts: Sequence[list[int]], new_tokens: int, stop: frozenset[int],
           rule: Rule, references: Sequence[Generation], options: Mapping[str, Any], *,
           adaptive: bool = False) -> list[Generation]:
    """Each text by itself, drawn as that text of the batch is."""
    if case.method in BOUNDS:
        return [generate(session.target, foreseen(case, session, ids, known), ids, new_tokens, Ledger(session.config),
                         stop, rule=rule.of_text(i))
                for i, (ids, known) in enumerate(zip(prompts, references, strict=True))]
    return [session.generate(case.method, ids, new_tokens, case.num_tokens or None, stop, rule=rule.of_text(i),
                             options=options, adaptive=adaptive) for i, ids in enumerate(prompts)]


def _batch(session: Session, case: Case, prompts: Sequence[list[int]], new_tokens: int, stop: frozenset[int],
           rule: Rule, references: Sequence[Generation], options: Mapping[str, Any], *,
           adaptive: bool = False) -> Generation:
    """All texts as one run; ``references``: what the drafters of :data:`BOUNDS` know."""
    ledger = Ledger(session.config)
    if case.method in BOUNDS:
        talks = [Conversation(session.target, foreseen(case, session, ids, known), ledger, Stops(stop),
                              rule.of_text(i))
                 for i, (ids, known) in enumerate(zip(prompts, references, strict=True))]
        askings = [talk.turning(ids, new_tokens) for talk, ids in zip(talks, prompts)]
        texts = together(askings, (TARGET,), session.batch)
    else:
        texts = session.generate_batch(case.method, prompts, new_tokens, case.num_tokens or None, stop, rule=rule,
                                       ledger=ledger, options=options, adaptive=adaptive)
    run = beside(texts, ledger)
    run.prefill = max((text.prefill for text in texts), key=lambda before: before.cycles)
    return run
