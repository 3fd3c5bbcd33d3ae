"""Decoding methods measured side by side: each prompt by autoregressive decoding, then by every case.

Two cases bound what drafting can do: ``always``, whose drafts are the text itself, and ``never``, whose drafts are
always wrong; both draft for nothing. What is kept of a run are counts and cycles by whom they are of, from which
:mod:`gemmule.sw.benches.rows` makes the table: so speed-ups at any cost of the host need no run of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gemmule.compiler.ideal import ideal, ideal_by_operation
from gemmule.compiler.ir import Graph
from gemmule.sim.roofline import roofline_cycles
from gemmule.sw.decoding.generate import Generation, generate
from gemmule.sw.decoding.generation import distinct, loops
from gemmule.sw.decoding.methods import METHODS
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.decoding.verify import GREEDY, Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.device.timeline import Timeline, runs_behind

__all__ = [
    "BOUNDS", "CASE", "Case", "Foreseen", "OptionsOf", "costs", "foreseen", "measure", "measure_warm", "no_options",
    "trace",
]

BOUNDS = ("always", "never")
OptionsOf = Callable[[str], Mapping[str, Any]]
"""Values of a method's own options, by its name."""


def no_options(method: str) -> Mapping[str, Any]:
    """Defaults."""
    return NONE


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to decode.

    Attributes:
        method: its name, or one of :data:`BOUNDS`.
        num_tokens: drafted a step at most; 0: the method's own number, or none.
        temperature: 0 is greedy.
        rule: name of the rule by which tokens are chosen.
        warm: the method keeps what it learned from one prompt to the next.
    """

    method: str
    num_tokens: int
    temperature: float
    rule: str
    warm: bool = False

    def __str__(self) -> str:
        drafts, drawn = f" {self.num_tokens}" if self.num_tokens else "", f", {self.rule}, {self.temperature:g}"
        return self.method + drafts + " warm" * self.warm + (drawn if self.temperature else "")


CASE = tuple(Case.__dataclass_fields__)


class Foreseen(Drafter):
    """Drafts what it is told comes next, or always something else; no model runs for it."""

    def __init__(self, prompt: int, tokens: Sequence[int], num_tokens: int, right: bool, vocab: int) -> None:
        self.prompt, self.tokens, self.num_tokens = prompt, tokens, num_tokens
        self.shift, self.vocab = 0 if right else 1, vocab

    def propose(self, ids: list[int], budget: int) -> Tree:
        at = len(ids) - self.prompt
        coming = self.tokens[at:at + min(self.num_tokens, budget)]
        return Tree.chain(ids[-1], [(token + self.shift) % self.vocab for token in coming])


def measure(session: Session, ids: list[int], new_tokens: int, cases: Iterable[Case], stop: frozenset[int],
            rule_of: Callable[[Case], Rule], options_of: OptionsOf = no_options, *,
            adaptive: bool = False) -> Iterator[dict[str, Any]]:
    """What each case does behind a prompt; autoregressive decoding runs once for each rule.

    ``adaptive``: as of :meth:`gemmule.sw.decoding.session.Session.converse`, but for :data:`BOUNDS`.
    """
    for case, run, reference in _runs(session, ids, new_tokens, cases, stop, rule_of, options_of, adaptive=adaptive):
        yield _result(session, case, ids, run, rule_of(case), reference.tokens, costs(reference, session.target, [ids]),
                      options_of(case.method))


def measure_warm(session: Session, case: Case, prompts: Iterable[tuple[list[int], dict[str, Any]]], new_tokens: int,
                 stop: frozenset[int], rule: Rule, options: Mapping[str, Any], *,
                 adaptive: bool = False) -> Iterator[dict[str, Any]]:
    """What a warm case does behind prompts, one after the other.

    ``prompts``: each with a result of :func:`measure`, which has what autoregressive decoding does behind it.
    ``adaptive``: as of :func:`measure`.
    """
    session.memories.clear()
    for ids, known in prompts:
        run = session.generate(case.method, ids, new_tokens, case.num_tokens, stop, rule=rule,
                               options={**options, **METHODS[case.method].warm}, adaptive=adaptive)
        yield _result(session, case, ids, run, rule, known["ar_text"], known["ar"], options)


def _result(session: Session, case: Case, ids: list[int], run: Generation, rule: Rule, text: list[int],
            ar: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run; ``text`` and ``ar``: of autoregressive decoding by the same rule; ``options``: the method's own."""
    same_text = rule is GREEDY or rule.same_text
    lossless = case.method in BOUNDS or METHODS[case.method].lossless
    return asdict(case) | {
        "prompts": 1, "equal": int(run.tokens == text) if same_text else None, "lossless": lossless,
        "policy_equal": None if lossless else int(session.follows(case.method, options, ids, run.tokens)),
        "layers": run.layers_run,
        "distinct_4grams": distinct(run.tokens, 4), "looping": int(loops(run.tokens)), "text": run.tokens,
        "ar_text": text, "steps": [list(step) for step in run.steps],
        "run": costs(run, session.target, [ids]), "ar": ar}


def trace(session: Session, ids: list[int], new_tokens: int, cases: Iterable[Case], stop: frozenset[int],
          rule_of: Callable[[Case], Rule], options_of: OptionsOf = no_options, *, adaptive: bool = False) -> Timeline:
    """Every launch and step of each case behind a prompt, one case behind the other."""
    return runs_behind((str(case), run.ledger.cycles, run.ledger.timeline or []) for case, run, _ in _runs(
        session, ids, new_tokens, cases, stop, rule_of, options_of, traced=True, adaptive=adaptive))


def _runs(session: Session, ids: list[int], new_tokens: int, cases: Iterable[Case], stop: frozenset[int],
          rule_of: Callable[[Case], Rule], options_of: OptionsOf, *, traced: bool = False,
          adaptive: bool = False) -> Iterator[tuple[Case, Generation, Generation]]:
    """Of each case its run and that of autoregressive decoding by the same rule."""
    references: dict[Rule, Generation] = {}
    for case in cases:
        rule = rule_of(case)

        def decode(method: str, count: int | None, rule: Rule = rule) -> Generation:
            return session.generate(method, ids, new_tokens, count, stop, rule=rule, options=options_of(method),
                                    timeline=[] if traced else None, adaptive=adaptive)

        if rule not in references:
            references[rule] = decode("ar", None)
        reference = references[rule]
        if case.method == "ar":
            run = reference
        elif case.method in BOUNDS:
            drafter = foreseen(case, session, ids, reference)
            run = generate(session.target, drafter, ids, new_tokens,
                           Ledger(session.config, timeline=[] if traced else None), stop, rule=rule)
        else:
            run = decode(case.method, case.num_tokens)
        yield case, run, reference


def foreseen(case: Case, session: Session, ids: Sequence[int], reference: Generation) -> Foreseen:
    """The drafter of one of :data:`BOUNDS`, which knows what comes behind a prompt."""
    return Foreseen(len(ids), reference.tokens, case.num_tokens, case.method == "always",
                    session.target.program.graph.vocab)


def costs(run: Generation, target: LoadedModel, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Of a run, and of its prompts alone; ``roofline_cycles``: of the target's passes behind them."""
    whole, before = run.ledger, run.prefill
    return {"tokens": len(run.tokens), "steps": len(run.steps), "launches": whole.launches, "passes": whole.passes,
            "cycles": whole.by_model,
            "prefill_launches": before.launches, "prefill_cycles": before.by_model,
            "events": None if whole.uncounted else whole.events,
            "roofline_cycles": _roofline(run, target, prompts)}


def _roofline(run: Generation, target: LoadedModel, prompts: Sequence[Sequence[int]]) -> float:
    """Cycles in which the bus moves what the target's passes need at least: weights once a pass, for all texts."""
    graph, needed = target.program.graph, 0
    passes = run.ledger.passes.get("target", 0) - run.prefill.passes.get("target", 0)
    if run.layers_run:
        return _roofline_of_some(run, graph, len(prompts[0]) - 1)
    for text, prompt in zip(run.turns or (run,), prompts, strict=True):
        cached = len(prompt) - 1
        for drafted, accepted in text.steps:
            part = ideal(graph, drafted + 1, cached, wanted=drafted + 1, tokens=True)
            needed += part.bytes - part.weights
            cached += accepted + 1
    weights = ideal(graph, 1, 0, wanted=1, tokens=True).weights
    return roofline_cycles(needed + passes * weights, run.ledger.config)


def _roofline_of_some(run: Generation, graph: Graph, cached: int) -> float:
    """Of tokens that each run some of the layers: a share of what all layers need, and the head once."""
    output, needed = graph.output.rpartition(".")[2], 0
    for at, layers in enumerate(run.layers_run):
        parts = ideal_by_operation(graph, 1, cached + at, wanted=1, tokens=True)
        needed += parts[output].bytes + sum(
            part.bytes for name, part in parts.items() if name != output) * layers // graph.layers
    return roofline_cycles(needed, run.ledger.config)
