"""A draft's greedy loop and a target's pass over its tokens, made one program.

Programs over one DRAM become one stream. Base registers of each part are its own. Length registers are shared: the
numbers of cached rows and of steps wait in displacements of the target's first base registers, from which each part has
its lengths. Waits between parts are found as those between turns are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.embed import TOKENS
from gemmule.compiler.kernels.head.ids import HALF_BYTES, halves
from gemmule.compiler.kernels.virtual import LengthReg
from gemmule.compiler.layout import Regions
from gemmule.compiler.passes.entry import Entry
from gemmule.compiler.passes.pipeline import finish
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.step_program import OWN, StepProgram
from gemmule.control import set_displacement, set_length
from gemmule.isa import (
    CONTROL,
    NUM_BASES,
    Command,
    COp,
    MoveFlag,
    Source,
    Target,
    Unit,
)
from gemmule.sim.simulator import Simulator

__all__ = ["link_step"]

FEW = 3
"""Steps of the launches whose cycles choose, beside as many as there may be."""
TURNS = 3
"""Of each body that are looked through for waits; the whole program is verified."""
PLACES = 4
"""In a row of DRAM at which the image may begin."""


def link_step(loop: GreedyLoop, target: ModelProgram, base_address: int) -> StepProgram:
    """One program of both, which stand in the same DRAM, to stand at ``base_address``.

    Where its image begins among the banks of DRAM is chosen by the cycles of launches: commands come while weights do.

    Raises:
        CompileError: they do not go together; the message says what to change.
    """
    config, single = loop.config, loop.single
    firsts = (1 + _last(loop.commands), 2 + _last(loop.commands) + _last(target.commands))
    if (needed := firsts[1] + _last(single.commands) + 1) > NUM_BASES:
        raise CompileError(f"a draft and a target in one launch must use at most {NUM_BASES} base registers, not "
                           f"{needed}")
    if any(one.batch > 1 or one.max_rows < 2 or not one.tokens or one.pool for one in (single, target)):
        raise CompileError("a draft and a target in one launch must give tokens of 2 rows or more of a sequence whose "
                           "cache stands in order")
    if single.graph.prefix != target.graph.prefix:
        raise CompileError(f"a draft and a target in one launch must have equal prefixes, not "
                           f"{single.graph.prefix} and {target.graph.prefix} rows")
    if halves(single.graph.vocab) != halves(target.graph.vocab):
        raise CompileError("a draft and a target in one launch must both have tokens of 16 bits, or both more, not "
                           f"{single.graph.vocab:,} and {target.graph.vocab:,} of them")
    entry = StepEntry(loop, target, firsts)
    linker = Linker(config)
    linker.add(entry)
    whole = linker.link(entry, linker.table(base_address), last="link")
    tail = finish(whole.caught_up, (TURNS,), last="turns").commands
    whole = finish(whole.written([*whole.commands[:whole.catching_up], *tail]), (TURNS,), last="turns")
    period = config.dram.banks * config.dram.row_bytes
    piece = max(config.dram.row_bytes // PLACES, Regions(config).align)
    best = min((whole.moved_to(linker.table(base_address, skipped)) for skipped in range(0, period, piece)), key=_cost)
    finish(best.caught_up, ())
    return finish(best, ())


class StepEntry(Entry[StepProgram]):
    """The commands of both programs, with what stands between them; base registers of each part are its own."""

    name = "a step"

    def __init__(self, loop: GreedyLoop, target: ModelProgram, firsts: tuple[int, int]) -> None:
        """``firsts``: first base registers of the target, and of the pass over a row that is lacking."""
        super().__init__(loop.config)
        self.loop, self.target, self.firsts = loop, target, firsts
        own, before = firsts
        self.catching_up = [*_keep(own), *(_moved(command, before) for command in loop.single.commands),
                            *_loop_lengths(own)]
        self.drafting = [*_keep(own), *_behind_all(loop.commands)]
        behind = [*_verify_lengths(own), *(_moved(command, own) for command in target.commands)]
        self.commands = [*self.catching_up, *self.drafting, *behind]

    def regions(self) -> Mapping[str, int]:
        single, target = self.loop.single.symbols, self.target.symbols
        return {TOKENS: HALF_BYTES + max(target[TOKENS][1], single[TOKENS][1])} | {
            name: single[region][1] for region, name in OWN.items() if region in single}

    def build(self) -> StepProgram:
        catching_up = len(self.catching_up)
        return StepProgram(**self.standing({}), loop=self.loop, target=self.target, firsts=self.firsts,
                           catching_up=catching_up, drafting=catching_up + len(self.drafting))


def _cost(program: StepProgram) -> int:
    """Cycles of launches of few and of many steps, in the middle of the context, the draft's cache lacking nothing."""
    program = program.caught_up
    device, cycles = Simulator(program.config, dram_bytes=1), 0
    gathers = [place for place, command in enumerate(program.commands)
               if command.unit is Unit.LOAD and MoveFlag.INDEXED in command.flags]
    for steps in sorted({min(FEW, program.most), program.most}):
        position = max(0, program.positions // 2 - steps - 1)
        device.load(program.launch("", NO_DRAM, program.registers(position, steps)))
        cycles += int(device.run(timing_only=True, indices={
            place: np.zeros(1 if place < program.drafting else steps + 1, dtype=np.int64) for place in gathers}).cycles)
    return cycles


def _keep(base: int) -> list[Command]:
    """Keep the cached rows that a step begins with, and its steps, in displacements from a base register on."""
    return [set_displacement(base, Source.LENGTH, LengthReg.POSITION, note="cached rows, kept"),
            set_displacement(base + 1, Source.LENGTH, LengthReg.DRAFTED, note="steps, kept")]


def _behind_all(commands: Sequence[Command]) -> list[Command]:
    """The loop's commands, whose first load waits for all before it: else loads within the body would, every turn."""
    first = next(i for i, command in enumerate(commands) if command.unit is Unit.LOAD)
    waits = dict(commands[first].waits) | {unit: 1 for unit in Unit if unit is not Unit.LOAD}
    return [*commands[:first], replace(commands[first], waits=waits), *commands[first + 1:]]


def _loop_lengths(base: int) -> list[Command]:
    """Length registers of the loop, behind the pass that gave the first draft, and what is to be kept again."""
    return [*(set_length(register, amount=1, note="one row") for register in (LengthReg.ROWS, LengthReg.WANTED)),
            set_length(LengthReg.FIRST_WANTED, note="which is answered"),
            *(set_length(register, Source.DISPLACEMENT, base, amount=1, note="cached rows")
              for register in (LengthReg.CONTEXT, LengthReg.ROW)),
            set_length(LengthReg.TOTAL, Source.DISPLACEMENT, base, amount=2, note="cached rows and the new one"),
            set_length(LengthReg.STEPS, Source.DISPLACEMENT, base + 1, amount=-1, note="steps that are left"),
            set_length(LengthReg.POSITION, Source.DISPLACEMENT, base, note="cached rows, to keep"),
            set_length(LengthReg.DRAFTED, Source.DISPLACEMENT, base + 1, note="steps, to keep")]


def _verify_lengths(base: int) -> list[Command]:
    """Length registers of the target's pass, behind the loop, which has counted the cached rows on."""
    return [set_length(LengthReg.TOTAL, Source.LENGTH, LengthReg.CONTEXT, amount=1, note="cached and new rows"),
            *(set_length(register, Source.DISPLACEMENT, base + 1, amount=1, note="steps and the pending token")
              for register in (LengthReg.ROWS, LengthReg.WANTED)),
            *(set_length(register, Source.DISPLACEMENT, base, note="cached rows")
              for register in (LengthReg.CONTEXT, LengthReg.ROW)),
            *(set_displacement(register, note="the target's") for register in (base, base + 1))]


def _bases(command: Command) -> dict[str, int]:
    """Fields of a command that name base registers."""
    fields = command.fields
    if command.unit != CONTROL:
        named = {"base": "base" in fields}
    else:
        named = {"target_reg": command.op == COp.SET and fields["target"] == Target.DISPLACEMENT,
                 "source_reg": command.op == COp.SET and fields["source"] == Source.DISPLACEMENT}
    return {name: fields[name] for name, is_base in named.items() if is_base}


def _last(commands: Sequence[Command]) -> int:
    """Last base register that commands name."""
    return max(number for command in commands for number in _bases(command).values())


def _moved(command: Command, by: int) -> Command:
    """A command whose base registers stand further behind."""
    return replace(command, fields=dict(command.fields) | {
        name: number + by for name, number in _bases(command).items()})
