"""What a campaign asks of the flow: mutants built into a device, and proofs that they change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmule.hw.flow import equal, few
from gemmule.hw.flow.mutate import Mutants
from gemmule.hw.flow.tools import Tools

__all__ = ["Trial"]


@dataclass(frozen=True)
class Trial:
    """The mutants of one netlist.

    Parameters
    ----------
    folder: of what proofs write.

    Raises:
        SynthError: Yosys is missing or failed, from every method.
    """

    mutants: Mutants
    folder: Path
    tools: Tools

    @property
    def attempts(self) -> int:
        """Ways to prove that a mutant changes nothing, from the quickest on."""
        return len(equal.ATTEMPTS)

    def build(self, numbers: Sequence[int], *, leaps: bool) -> Path:
        """Verilog with these mutants alone, by the same numbers; ``leaps``: its counts can leap."""
        return few.some_of(self.mutants, list(numbers), leaps=leaps, tools=self.tools)

    def prove(self, number: int, first: int, last: int) -> str | None:
        """The proof that attempt ``first`` or one up to ``last - 1`` finds, or None."""
        mutant = next(mutant for mutant in self.mutants.mutants if mutant.number == number)
        return equal.prove(mutant, self.mutants.netlist, self.folder, attempts=equal.ATTEMPTS[first:last],
                           tools=self.tools)
