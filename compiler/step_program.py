"""A step of speculative decoding in one launch: a draft model's greedy steps, then the target's pass over its tokens.

The drafted tokens go where the target takes its tokens from, so the host writes the pending token and reads at the end.
When all drafts of a step were accepted, the draft model's cache lacks a row. A pass over it stands in front of the
image, and a launch that does not need it starts behind it (:attr:`StepProgram.caught_up`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.greedy import GreedyLoop
from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.embed import TOKENS
from gemmule.compiler.kernels.head import ANSWERS, TOKEN_BYTES
from gemmule.compiler.kernels.virtual import Registers as Length
from gemmule.compiler.model_program import ModelProgram
from gemmule.compiler.program import Program, ReadDram, Registers, Step
from gemmule.isa import COMMAND_BYTES, NUM_BASES
from gemmule.sim.result import Result

__all__ = ["BEFORE", "CACHED", "STEPS", "StepProgram"]

CACHED, STEPS = NUM_BASES - 2, NUM_BASES - 1
"""Base registers whose displacements hold the cached rows and the steps of a launch."""
BEFORE = "token before"
"""Region of the token of the row that the draft's cache lacks."""


@dataclass(frozen=True, kw_only=True)
class StepProgram(Program):
    """Greedy steps of a draft and a pass of a target over the pending token and theirs; both have as many cached rows.

    It stands behind both programs, from which it has all but its commands.
    """

    loop: GreedyLoop
    target: ModelProgram
    firsts: tuple[int, int]
    """First base registers of the target, and of the pass over the row that is lacking."""
    catching_up: int
    """Commands that pass that row, before all others."""
    drafting: int
    """Commands of the image before the target's, these included."""

    @cached_property
    def caught_up(self) -> StepProgram:
        """The same for a draft whose cache lacks nothing: the image from behind the pass over what it lacks."""
        skipped = self.catching_up * COMMAND_BYTES
        address, size = self.symbols["program"]
        return replace(
            self, image=self.image[skipped:], commands=self.commands[self.catching_up:], catching_up=0,
            drafting=self.drafting - self.catching_up,
            symbols=self.symbols | {"program": (address + skipped, size - skipped)})

    @property
    def positions(self) -> int:
        """Of the text at most."""
        return min(self.loop.max_positions, self.target.max_positions)

    @property
    def most(self) -> int:
        """Steps of a launch at most: a pass verifies one row more."""
        return min(self.target.max_rows - 1, self.positions - 1 - self.first_position)

    @property
    def first_position(self) -> int:
        """Of the pending token, at least."""
        return 1 if self.catching_up else 0

    def registers(self, position: int, steps: int) -> Registers:
        """Registers of a launch of ``steps`` steps, and the pass that verifies them, behind ``position`` cached rows.

        Raises:
            CompileError: no step, more than a pass verifies, or more than positions.
        """
        if not 1 <= steps <= self.most or position < self.first_position:
            raise CompileError(f"steps of a launch that verifies them must be from 1 to {self.most} behind "
                               f"{self.first_position} rows or more, not {steps} behind {position}")
        made, verify = self.loop.registers(position, steps), self.target.registers(steps + 1, position)
        self._stand(made, verify, self.firsts[0])
        self._window(made, self.loop.registers_of[ANSWERS], TOKENS, TOKEN_BYTES)
        self._window(made, self.firsts[0] + self.target.registers_of[TOKENS], TOKENS)
        if self.catching_up:
            before = self.loop.single.registers(1, position - 1, 0)
            self._stand(made, before, self.firsts[1])
            self._window(made, self.firsts[1] + self.loop.single.registers_of[TOKENS], BEFORE)
            before.lengths[Length.STEPS] = steps
            made.lengths[:] = before.lengths
        return made

    @staticmethod
    def _stand(made: Registers, part: Registers, first: int) -> None:
        """Base registers of a part; those beyond the last one are not its."""
        count = min(NUM_BASES - first, CACHED)
        made.bases[first:first + count], made.limits[first:first + count] = part.bases[:count], part.limits[:count]

    def _window(self, made: Registers, register: int, region: str, behind: int = 0) -> None:
        address, size = self.symbols[region]
        made.bases[register], made.limits[register] = address + behind, size - behind

    def step(self, token: int, position: int, steps: int, before: int | None = None) -> Step:
        """A launch that begins with ``token`` at ``position``; ``before``: the token whose row the draft's cache lacks.

        Raises:
            CompileError: as of :meth:`registers`; an unknown token; a lacking row where the launch passes none.
        """
        if (before is None) is (self.catching_up > 0):
            raise CompileError("the token before must be given where its row is passed, and not where it is cached")
        rows = Rows.chain([token] * (steps + 1), position)  # the drafts' places are written by the device
        inputs = [*self.loop.step(token, position, steps).inputs, *self._moved(self.target, TOKENS, rows)]
        if before is not None:
            inputs += self._moved(self.loop.single, BEFORE, Rows.chain([before], position - 1))
        return Step(self.registers(position, steps), tuple(inputs))

    def _moved(self, program: ModelProgram, region: str, rows: Rows) -> list[tuple[int, np.ndarray]]:
        """A pass's inputs, its tokens in a region of this program."""
        own = program.symbols[TOKENS][0]
        return [(self.symbols[region][0] if address == own else address, content)
                for address, content in program.inputs(rows)]

    def read_tokens(self, read_dram: ReadDram, steps: int) -> tuple[list[int], list[int]]:
        """The drafted tokens, and the target's greedy token behind the pending one and behind each of them."""
        drafted = self.read(read_dram, TOKENS, TOKEN_BYTES, TOKEN_BYTES * steps).view("<u2").tolist()
        return drafted, self.target.read_tokens(read_dram, steps + 1)

    def draft_cycles(self, result: Result) -> int:
        """Cycles of a launch until the draft's last command is finished; the others verify."""
        return int(result.finish[result.places < self.drafting].max())

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        most = self.positions - 1
        return [self.registers(position, steps) for steps in sorted({1, self.most})
                for position in sorted({self.first_position, min(65, most - steps), most - steps})]
