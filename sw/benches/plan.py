"""A bench as a whole: the cases, the sessions that they need, and every prompt through all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from gemmule.config import Config
from gemmule.io.progress import counting, say
from gemmule.sw.benches.batch import groups, measure_batch, rows_for
from gemmule.sw.benches.bench import BOUNDS, Case, measure, trace
from gemmule.sw.benches.finished import Finished
from gemmule.sw.decoding.methods import METHODS, drafting_of
from gemmule.sw.decoding.resident import resident
from gemmule.sw.decoding.session import NONE, Session
from gemmule.sw.decoding.verify import Rule
from gemmule.sw.device.timeline import Timeline
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.pair import Pair
from gemmule.sw.prompts.choose import Prompt

__all__ = ["Outcome", "Plan"]

RECORD = 5
"""Of what a file of finished results keeps: results of another form are not taken."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a bench found.

    Attributes:
        results: of each prompt, or of prompts that went together, by each case.
        parameters: weights beside the target's, by method.
        resident: what the session keeps in DRAM.
        timeline: of the first prompt, if a trace is wanted.
    """

    results: list[dict[str, Any]]
    parameters: Mapping[str, int]
    resident: dict[str, Any]
    timeline: Timeline | None


@dataclass(kw_only=True)
class Plan:
    """What is run, and on what. A context manager: it opens sessions as cases need them.

    Attributes:
        rules: by case.
        options: by method, values of its own options.
        launch, prefill_rows: as of a :class:`Session`; batches have a pass a launch and no prefill.
        pruning: the schedule of the target's cache, of texts alone.
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
        self.cases = [case for case in self.rules if case.num_tokens <= most]
        if not self.cases:
            self._opened.close()  # nobody leaves a context that was not entered
            raise InputError(f"--num-speculative-tokens must have a number up to {most} (one pass verifies {most + 1} "
                             f"rows), not {', '.join(map(str, sorted({case.num_tokens for case in self.rules})))}")
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def _session(self, rows: int | None) -> Session:
        """``rows``: of each text of a batch; None: texts alone."""
        general = any(case.temperature or (case.method not in BOUNDS and METHODS[case.method].needs_general)
                      for case in self.rules)
        return self._opened.enter_context(Session(
            self.device, self.backend, self.pair, general=general, launch=self.launch if self.pair.draft else "pass",
            interpreted=self.interpreted, batch=1 if rows is None else self.batch, rows=rows,
            prefill=self.prefill_rows if rows is None else 0, pruning=self.pruning,
            one_pass=any(case.method not in BOUNDS and METHODS[case.method].needs_one_pass for case in self.rules),
            drafting=drafting_of({case.method: self._options(case.method) for case in self.rules
                                  if case.method not in BOUNDS}, self.pair.positions)))

    def _together(self, case: Case) -> Session:
        """The session in which a case decodes texts that share passes."""
        rows = rows_for(case, self.batch)
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
        timeline = None
        if traced:
            say(f"tracing {prompts[0][0].name}")
            timeline = trace(self.alone, prompts[0][1], self.new_tokens, self.cases, self.pair.ends,
                             self.rules.__getitem__, self._options)
        last = self.alone if self.batch == 1 else self._together(self.cases[-1])
        drafting = {case.method: self.alone.extra_parameters(case.method, self._options(case.method))
                    for case in self.cases if case.method not in BOUNDS}
        return Outcome(results=results, parameters=drafting, resident=resident(last), timeline=timeline)

    def _measured(self, ids: list[list[int]]) -> list[dict[str, Any]]:
        """What each case does on prompts that go together."""
        ends, rule_of = self.pair.ends, self.rules.__getitem__
        if self.batch == 1:
            return list(measure(self.alone, ids[0], self.new_tokens, self.cases, ends, rule_of, self._options))
        return list(measure_batch(self.alone, self._together, ids, self.new_tokens, self.cases, ends, rule_of,
                                  self._options))

    def _key(self) -> list[Any]:
        """What results depend on."""
        ways = [(name, METHODS[name].digest, METHODS[name].values(self._options(name)))
                for name in sorted({case.method for case in self.cases} - {*BOUNDS})]
        return [self.device.sha256, *self.pair.digests, RECORD, *(
            sha256(program.image).hexdigest() for model in (self.alone.target, self.alone.draft) if model
            for program in (model.program, model.prefill, *model.narrow) if program),
            *([self.alone.one_pass.digest] if self.alone.one_pass else []),
            self.new_tokens, self.launch, self.batch, *self.given, [repr(case) for case in self.cases], ways]
