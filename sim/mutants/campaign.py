"""A campaign: mutants on checks and proofs in turn, the cheap ones first, until each is killed, proved or left open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gemmule.config import Config
from gemmule.io.progress import counting, working
from gemmule.sim.mutants.checks import Checks
from gemmule.sim.mutants.kept import Kept
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.verdicts import Verdict, verdicts

__all__ = ["Bench", "Campaign"]


class Bench(Protocol):
    """What builds mutants in and proves of them that they change nothing."""

    @property
    def attempts(self) -> int:
        """Ways in which it tries to prove it, from the quickest on."""

    def build(self, numbers: Sequence[int], *, leaps: bool) -> Path:
        """Verilog of the device with these mutants to choose from; ``leaps``: its counts can leap."""

    def prove(self, number: int, first: int, last: int) -> str | None:
        """The proof that attempt ``first`` or one up to ``last - 1`` finds, or None."""


class Campaign:
    """Mutants of one device. A run that was interrupted goes on where it was, for what is found is kept.

    Parameters
    ----------
    root: folder of what is kept; ``key``: what proofs are of, those of other things are not used.
    equal: proofs that are already known, by mutant.
    over: whether the time for it is over; mutants that are left then stay open.

    Members
    -------
    verdicts: of the mutants that were judged, by number, the last one of each.
    equal: proofs by mutant.
    """

    def __init__(self, config: Config, checks: Checks, bench: Bench, root: Path, key: str, *,
                 equal: Mapping[int, str], over: Callable[[], bool]) -> None:
        self.config, self.checks, self.bench, self.root, self.over = config, checks, bench, root, over
        self.verdicts: dict[int, Verdict] = {}
        self.equal = dict(equal)
        self._proofs = Kept(root / "proofs.jsonl", key)

    def run(self, numbers: Sequence[int]) -> list[int]:
        """Those of these mutants that stay open: no check noticed them, and no proof says that none can.

        Nearly all fail a few programs. One proof that is quick takes less than the other checks; those that take long
        are for what survives all of them.
        """
        left = list(numbers)
        if self.checks.early and left:
            left = self._judge(left, self.checks.early, "early.jsonl", self._build(left, leaps=False))
        left = self._prove(left, 1)
        if left:
            verilog = self._build(left, leaps=True)
            for i, group in enumerate(self.checks.late, 1):
                left = self._judge(left, group, f"late_{i}.jsonl", verilog)
        return self._prove(left, self.bench.attempts)

    def _build(self, numbers: Sequence[int], *, leaps: bool) -> Path:
        with working("building the mutants in"):
            return self.bench.build(numbers, leaps=leaps)

    def _judge(self, numbers: list[int], checks: Sequence[Check], kept: str, verilog: Path) -> list[int]:
        """Those that live through the checks, or that time is over for."""
        if self.over():
            return numbers
        alive: list[int] = []
        with counting("mutants", len(numbers)) as tell:
            for i, verdict in enumerate(verdicts(self.config, verilog, numbers, checks, self.checks.dram_bytes,
                                                 self.root / kept, self.checks.key), 1):
                self.verdicts[verdict.number] = verdict
                alive += [verdict.number] * (verdict.killed_by is None)
                tell(i, f"{len(alive)} survive")
                if self.over():
                    return [*alive, *numbers[i:]]
        return alive

    def _prove(self, numbers: list[int], attempts: int) -> list[int]:
        """Those of which none of the first ``attempts`` proves that they change nothing."""
        left = []
        with counting("survivors", max(1, len(numbers))) as tell:
            for i, number in enumerate(numbers, 1):
                known = self._proofs.results.get(number, {"proof": None, "attempts": 0})
                if not known["proof"] and known["attempts"] < attempts and not self.over():
                    proof = self.bench.prove(number, known["attempts"], attempts)
                    self._proofs.add(number, proof=proof, attempts=attempts)
                    known = self._proofs.results[number]
                if known["proof"]:
                    self.equal[number] = known["proof"]
                else:
                    left.append(number)
                tell(i, f"{len(self.equal)} proved to change nothing")
        return left
