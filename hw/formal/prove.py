"""A proof of a target: bounded check, induction, covers, and the planted faults, property by property."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gemmule.hw.flow.tools import Tools
from gemmule.hw.formal.bench import Bench, Kind, Property
from gemmule.hw.formal.planted import Fault, planted
from gemmule.hw.formal.solve import Answer, Mode, Solver, translate
from gemmule.hw.formal.target import Target

__all__ = ["Finding", "Proof", "Result", "prove"]


class Proof(StrEnum):
    """How far a property holds."""

    ALWAYS = "for all time"
    BOUNDED = "bounded"
    FAILS = "fails"


@dataclass(frozen=True)
class Finding:
    """One property of a target."""

    name: str
    text: str
    proof: Proof
    depth: int
    """Cycles: of the induction's base, or of the bounded check, or up to the failure."""
    fault: str | None = None
    """The planted fault, in words."""
    found: bool = False
    """It makes the property fail."""
    found_in: int = 0
    """Cycles up to that failure."""


@dataclass(frozen=True)
class Result:
    """What is known of a target."""

    target: Target
    findings: tuple[Finding, ...]
    lemmas: tuple[Property, ...]
    """Proved with the properties, about registers inside."""
    trusted: tuple[Property, ...]
    """Assumptions about what is around the component."""
    unreached: tuple[str, ...]
    """Covers without a way to them: the proof may be empty."""
    failed: tuple[str, ...]
    """Assertions, lemmas included, that failed, with the trace."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Everything holds, every cover is reached, and every property has a planted fault that is found."""
        return not self.unreached and not self.failed and all(
            finding.proof != Proof.FAILS and finding.found for finding in self.findings)


@dataclass(frozen=True)
class _Run:
    """One target in its folder."""

    target: Target
    folder: Path
    solver: Solver
    progress: Callable[[str], None]

    def ask(self, mode: Mode, depth: int, what: str, keep: Callable[[Property], bool] = lambda property: True,
            fault: Fault | None = None) -> tuple[Bench, Answer]:
        """A new bench, and the solver's answer; ``what`` names its folder."""
        folder = self.folder / what.replace(" ", "-")
        self.progress(what)
        with planted(fault):
            bench = self.target.bench(keep)
        translate(bench.rtlil(), folder, Tools())
        return bench, self.solver.ask(mode, folder, depth, lambda step: self.progress(f"{what}: {step}"))


def prove(target: Target, folder: Path, *, faults: bool = True, solver: Solver | None = None,
          progress: Callable[[str], None] = lambda step: None) -> Result:
    """Prove a target and find its planted faults.

    Parameters
    ----------
    folder: of work files and traces.
    faults: plant them; without them no target passes.

    Raises:
        SynthError: a tool is missing or failed.
        FaultError: a planted fault does not fit the sources.
    """
    begin = time.monotonic()
    run = _Run(target, folder, solver or Solver(), progress)
    bench, bounded = run.ask(Mode.BOUNDED, target.depth, "bounded")
    asserted = [each for each in bench.properties if each.kind == Kind.ASSERT]
    failed = [_failure(bench, number, bounded) for number in bounded.failed]
    _, covers = run.ask(Mode.COVER, target.reach, "covers")
    induced = Answer(holds=False)
    if bounded.holds and not all(each.bounded for each in asserted):
        bench, induced = run.ask(Mode.INDUCTION, 1, "induction", lambda each: not each.bounded)
        failed += [_failure(bench, number, induced) for number in induced.failed]
    broken = {bench.properties[number].name for number in (*bounded.failed, *induced.failed)}
    findings = []
    for each in asserted:
        if each.lemma:
            continue
        proof = (Proof.FAILS if each.name in broken or not bounded.holds
                 else Proof.BOUNDED if each.bounded or not induced.holds else Proof.ALWAYS)
        fault = next((fault for fault in target.faults if fault.property == each.name), None)
        answer = Answer(holds=True)
        if fault and faults:
            _, answer = run.ask(Mode.BOUNDED, target.reach, f"fault in {each.name}",
                                lambda other, name=each.name: other.name == name, fault)  # type: ignore[misc]
        findings.append(Finding(each.name, each.text, proof, target.depth, fault.says if fault else None,
                                not answer.holds, answer.step + 1 if not answer.holds else 0))
    return Result(
        target, tuple(findings), tuple(each for each in asserted if each.lemma),
        tuple(each for each in bench.properties if each.kind == Kind.ASSUME),
        () if covers.holds else tuple(bench.properties[number].name for number in covers.failed) or ("all",),
        tuple(failed), time.monotonic() - begin)


def _failure(bench: Bench, number: int, answer: Answer) -> str:
    return f"{bench.properties[number].name}, cycle {answer.step}, trace {answer.trace}"
