"""A step of speculative decoding in one launch: a draft model's greedy steps, then the target's pass over its tokens.

The drafted tokens go where the target takes its tokens from, so the host writes the pending token and reads at the end.
When all drafts of a step were accepted, the draft model's cache lacks a row. A pass over it and the pending token,
for the first draft, stands in front of the image; a launch that lacks none starts behind it (``caught_up``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Rows
from gemmule.compiler.kernels.attention.shared import MASKS
from gemmule.compiler.kernels.embed import POSITIONS, TOKENS
from gemmule.compiler.kernels.head.ids import HALF_BYTES, PLANE
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.program import Program, ReadDram, Registers, Step
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.isa import COMMAND_BYTES, NUM_BASES
from gemmule.sim.result import Result

__all__ = ["OWN", "StepProgram"]

OWN = {region: f"{region} before" for region in (TOKENS, POSITIONS, MASKS)}
"""Inputs of the pass over a row that is lacking, which the loop has too."""


@dataclass(frozen=True, kw_only=True)
class StepProgram(Program):
    """Greedy steps of a draft and a pass of a target over the pending token and theirs; both have as many cached rows.

    It stands behind both programs, from which it has all but its commands.
    """

    loop: GreedyLoop
    target: ModelProgram
    firsts: tuple[int, int]
    """First base registers of the target, and of the pass over a row that is lacking."""
    catching_up: int
    """Commands of that pass, before all others."""
    drafting: int
    """Commands of the image before the target's, these included."""

    @cached_property
    def caught_up(self) -> StepProgram:
        """The same for a draft whose cache lacks nothing: the image from behind that pass."""
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
        done, single = min(1, self.catching_up), self.loop.single
        made = self.loop.registers(position + done, max(1, steps - done))
        self._stand(made, self.target.registers(steps + 1, position), self.firsts[0])
        self._window(made, self.firsts[0] + self.target.registers_of[TOKENS], TOKENS)
        self._window(made, self.loop.registers_of[TOKENS], TOKENS, done)
        self._window(made, self.loop.registers_of[ANSWERS], TOKENS, done + 1)
        if done:
            before = single.registers(2, position - 1, 1)
            self._stand(made, before, self.firsts[1])
            for region, own in OWN.items():
                if region in single.registers_of:
                    self._window(made, self.firsts[1] + single.registers_of[region], own)
            self._window(made, self.firsts[1] + single.registers_of[ANSWERS], TOKENS, 1)
            made.lengths[:] = before.lengths
        made.lengths[LengthReg.POSITION], made.lengths[LengthReg.DRAFTED] = position, steps
        return made

    @staticmethod
    def _stand(made: Registers, part: Registers, first: int) -> None:
        """Base registers of a part; those behind its last one are another's, or nobody's."""
        count = NUM_BASES - first
        made.bases[first:], made.limits[first:] = part.bases[:count], part.limits[:count]

    def _window(self, made: Registers, register: int, region: str, tokens: int = 0) -> None:
        """A base register at a region, behind so many tokens."""
        address, size = self.symbols[region]
        made.bases[register], made.limits[register] = address + HALF_BYTES * tokens, size - HALF_BYTES * tokens

    def step(self, token: int, position: int, steps: int, before: int | None = None) -> Step:
        """A launch that begins with ``token`` at ``position``; ``before``: the token whose row the draft's cache lacks.

        Raises:
            CompileError: as of :meth:`registers`; an unknown token; a lacking row where the launch passes none.
        """
        if (before is None) is (self.catching_up > 0):
            raise CompileError("the token before must be given where its row is passed, and not where it is cached")
        rows = Rows.chain([token] * (steps + 1), position)  # the drafts' places are written by the device
        inputs = [*self.loop.step(token, position, steps).inputs, *self._moved(self.target, {TOKENS: TOKENS}, rows)]
        if before is not None:
            inputs += self._moved(self.loop.single, OWN, Rows.chain([before, token], position - 1))
        return Step(self.registers(position, steps), tuple(inputs))

    def _moved(self, program: ModelProgram, regions: Mapping[str, str],
               rows: Rows) -> list[tuple[int, np.ndarray]]:
        """A pass's inputs, those of some regions in regions of this program."""
        moved = {program.symbols[region][0] + plane: self.symbols[own][0] + plane for region, own in regions.items()
                 if region in program.symbols for plane in (0, PLANE)}
        return [(moved.get(address, address), content) for address, content in program.inputs(rows)]

    def read_tokens(self, read_dram: ReadDram, steps: int) -> tuple[list[int], list[int]]:
        """The drafted tokens, and the target's greedy token behind the pending one and behind each of them."""
        drafted = self.read_ids(read_dram, TOKENS, 1, steps)
        return drafted, self.target.read_tokens(read_dram, steps + 1)

    def draft_cycles(self, result: Result) -> int:
        """Cycles of a launch until the draft's last command is finished; the others verify."""
        return int(result.finish[result.places < self.drafting].max())

    def extremes(self) -> list[Registers]:
        """Registers of launches at the ends of what they may hold."""
        most = self.positions - 1
        return [self.registers(position, steps) for steps in sorted({1, self.most})
                for position in sorted({self.first_position, min(65, most - steps), most - steps})]
