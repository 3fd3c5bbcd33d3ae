"""A bench as a whole: the cases, the sessions that they need, and every prompt through all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from gemmule.config import Config
from gemmule.io.progress import counting, say
from gemmule.sw.benches.batch import groups, measure_batch, rows_for
from gemmule.sw.benches.bench import BOUNDS, Case, measure, measure_warm, trace
from gemmule.sw.benches.finished import Finished
from gemmule.sw.decoding.methods import METHODS, VOCABULARY, Method, drafting_of, needing_int4
from gemmule.sw.decoding.resident import resident
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.decoding.verify import Rule
from gemmule.sw.device.costs.cost_curve import free_rows
from gemmule.sw.device.timeline import Timeline
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.pair import Pair
from gemmule.sw.prompts.choose import Prompt

__all__ = ["Outcome", "Plan"]

RECORD = 7
"""Of what a file of finished results keeps: results of another form are not taken."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a bench found.

    Attributes:
        results: of each prompt, or of prompts that went together, by each case.
        parameters: weights beside the target's, by method.
        resident: what the session keeps in DRAM.
        timeline: of the first prompt, if a trace is wanted.
        pass_costs: what passes of the target cost by rows, behind contexts that the prompts come to.
    """

    results: list[dict[str, Any]]
    parameters: Mapping[str, int]
    resident: dict[str, Any]
    timeline: Timeline | None
    pass_costs: list[dict[str, Any]] = field(default_factory=list)


@dataclass(kw_only=True)
class Plan:
    """What is run, and on what. A context manager: it opens sessions as cases need them.

    Attributes:
        rules: by case.
        options: by method, values of its own options.
        launch, prefill_rows: as of a :class:`Session`; batches have a pass a launch and no prefill.
        pruning: the schedule of the target's cache, of texts alone.
        adaptive: steps draft and verify as many candidates as pay.
        interpreted: values by the integer interpreter.
        given: what else decides results: numbers and words that a file of finished ones must agree with.
    """

    device: Config
    backend: str
    pair: Pair
    rules: dict[Case, Rule]
    options: Mapping[str, Mapping[str, Any]]
    new_tokens: int
    launch: str
    prefill_rows: int | None
    batch: int
    interpreted: bool
    pruning: Pruning | None = None
    adaptive: bool = False
    given: Sequence[Any] = ()
    _opened: ExitStack = field(default_factory=ExitStack)
    _shared: dict[int, Session] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Open the session of single texts, and leave out cases that draft more than its passes verify.

        Raises:
            InputError: no case is left.
        """
        self.alone = self._session(None)
        most = self.alone.target.program.max_rows - 1
        self.rules = {self._numbered(case): rule for case, rule in self.rules.items()}
        self.cases = [case for case in self.rules if case.num_tokens <= most]
        if not self.cases:
            self._opened.close()  # nobody leaves a context that was not entered
            raise InputError(f"--num-speculative-tokens must have a number up to {most} (one pass verifies {most + 1} "
                             f"rows), not {', '.join(map(str, sorted({case.num_tokens for case in self.rules})))}")
        return self

    def _numbered(self, case: Case) -> Case:
        """The case with the number of drafts that its method has by itself, where none is told."""
        own = case.num_tokens or case.method in BOUNDS
        return case if own else replace(case, num_tokens=self.alone.drafts(case.method, None))

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def _session(self, rows: int | None) -> Session:
        """``rows``: of each text of a batch; None: texts alone."""
        general = any(case.temperature for case in self.rules) or any(
            one.needs_general or (self.adaptive and rows is None and one.confident) for one in self._methods)
        return self._opened.enter_context(Session(
            self.device, self.backend, self.pair, general=general, launch=self.launch if self.pair.draft else "pass",
            interpreted=self.interpreted, batch=1 if rows is None else self.batch, rows=rows,
            prefill=self.prefill_rows if rows is None else 0, pruning=self.pruning,
            trained=sorted({one.trained for one in self._methods if one.trained}, reverse=True),
            int4=any(needing_int4(one.name, self._options(one.name)) for one in self._methods),
            wide=any(one.wide for one in self._methods),
            draft_vocabulary=next(filter(None, (mine.get(VOCABULARY.key) for mine in self.options.values())), None),
            drafting=drafting_of({one.name: self._options(one.name) for one in self._methods}, self.pair.positions)))

    @property
    def _methods(self) -> list[Method]:
        """Of all cases but the bounds."""
        return [METHODS[case.method] for case in self.rules if case.method not in BOUNDS]

    def _together(self, case: Case) -> Session:
        """The session in which a case decodes texts that share passes; `ar` passes prompts as the widest of others do.
        """
        others = [one for one in self.cases if one.method in BOUNDS or not METHODS[one.method].needs_general]
        rows = max(rows_for(one, self.batch) for one in (others if case.method == "ar" else [case]))
        if rows not in self._shared:
            self._shared[rows] = self._session(rows)
        return self._shared[rows]

    def _options(self, method: str) -> Mapping[str, Any]:
        return self.options.get(method, NONE)

    def run(self, prompts: Sequence[tuple[Prompt, list[int]]], resume: Path | None, traced: bool) -> Outcome:
        """Every prompt by every case. ``resume``: a file of finished results; ``traced``: the first prompt again."""
        kept, done = Finished(resume, self._key()), 0
        results: list[dict[str, Any]] = []
        with counting("prompts", len(prompts)) as tell:
            for group in groups(prompts, self.batch):
                first = group[0][0]
                found = kept.of("\n".join(f"{prompt.kind} {prompt.name} {prompt.text}" for prompt, _ in group),
                                partial(self._measured, [tokens for _, tokens in group]))
                results += [result | {"category": first.kind, "prompt": first.name} for result in found]
                done += len(group)
                tell(done, first.name)
        results += self._warm(prompts, results, kept) if any(case.warm for case in self.cases) else []
        timeline = None
        if traced:
            say(f"tracing {prompts[0][0].name}")
            timeline = trace(self.alone, prompts[0][1], self.new_tokens, [case for case in self.cases if not case.warm],
                             self.pair.ends, self.rules.__getitem__, self._options, adaptive=self.adaptive)
        last = self.alone if self.batch == 1 else self._together(self.cases[-1])
        drafting = {case.method: self.alone.extra_parameters(case.method, self._options(case.method))
                    for case in self.cases if case.method not in BOUNDS}
        return Outcome(results=results, parameters=drafting, resident=resident(last), timeline=timeline,
                       pass_costs=self._pass_costs([len(ids) for _, ids in prompts]))

    def _pass_costs(self, prompts: Sequence[int]) -> list[dict[str, Any]]:
        """Of greedy passes of one text, or of a batch; nothing of caches that choose what they read."""
        if self.pruning or not prompts:
            return []
        sessions = [self._together(case) for case in self.cases] if self.batch > 1 else [self.alone]
        widest = max(sessions, key=lambda session: session.target.program.max_rows)
        room = widest.target.room - widest.target.program.max_rows
        contexts = sorted({min(prompts), min(max(prompts) + self.new_tokens, room)})
        return [{"cached": cached, "batch": self.batch, "cycles": cycles, "rows": free_rows(cycles)}
                for cached in contexts for cycles in [widest.curve.row_costs(cached)]]

    def _warm(self, prompts: Sequence[tuple[Prompt, list[int]]], results: Sequence[dict[str, Any]],
              kept: Finished) -> list[dict[str, Any]]:
        """Every prompt by each warm case, one case after the other: a case is finished as a whole."""
        found: list[dict[str, Any]] = []
        cases = [case for case in self.cases if case.warm]
        each = len(results) // len(prompts)
        with counting("warm methods", len(cases)) as tell:
            for done, case in enumerate(cases, 1):
                behind = [(ids, next(result for result in results[number * each:(number + 1) * each]
                                     if (result["temperature"], result["rule"]) == (case.temperature, case.rule)))
                          for number, (_, ids) in enumerate(prompts)]
                names = [f"{prompt.kind} {prompt.name} {prompt.text}" for prompt, _ in prompts]
                some = kept.of("\n".join([repr(case), *names]), partial(self._kept_warm, case, behind))
                found += [result | {"category": prompt.kind, "prompt": prompt.name}
                          for result, (prompt, _) in zip(some, prompts, strict=True)]
                tell(done, str(case))
        return found

    def _kept_warm(self, case: Case, behind: list[tuple[list[int], dict[str, Any]]]) -> list[dict[str, Any]]:
        return list(measure_warm(self.alone, case, behind, self.new_tokens, self.pair.ends, self.rules[case],
                                 self._options(case.method), adaptive=self.adaptive))

    def _measured(self, ids: list[list[int]]) -> list[dict[str, Any]]:
        """What each case does on prompts that go together."""
        ends, rule_of = self.pair.ends, self.rules.__getitem__
        if self.batch == 1:
            return list(measure(self.alone, ids[0], self.new_tokens, [case for case in self.cases if not case.warm],
                                ends, rule_of, self._options, adaptive=self.adaptive))
        return list(measure_batch(self.alone, self._together, ids, self.new_tokens, self.cases, ends, rule_of,
                                  self._options, adaptive=self.adaptive))

    def _datastores(self) -> list[str]:
        """Digests of the texts that methods draft from."""
        chosen = (METHODS[case.method].values(self._options(case.method)).get("retrieval_corpus")
                  for case in self.cases if case.method not in BOUNDS)
        return [self.pair.datastore(corpus).digest for corpus in dict.fromkeys(chosen) if corpus]

    def _key(self) -> list[Any]:
        """What results depend on."""
        ways = [(name, METHODS[name].digest, METHODS[name].values(self._options(name)))
                for name in sorted({case.method for case in self.cases} - {*BOUNDS})]
        return [self.device.sha256, *self.pair.digests, RECORD, *(
            sha256(program.image).hexdigest()
            for model in (self.alone.target, self.alone.draft, self.alone.int4) if model
            for program in (model.program, model.prefill, *model.narrow, model.sampled) if program),
            *(one.digest for one in self.alone.trained.values()), *self._datastores(),
            self.new_tokens, self.launch, self.batch, *self.given, *(["adaptive"] if self.adaptive else []),
            [repr(case) for case in self.cases if not case.warm], ways]
