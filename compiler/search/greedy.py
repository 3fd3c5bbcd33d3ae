"""Greedy decoding of several tokens in one launch: a pass over one row is the body, its token the next one's input.

The device takes the token as an index of the embedding (``ARGMAX`` leaves it in entry 0 of the index list), so no host
stands between two tokens. The loop is compiled by the passes of the compiler, with the mapping, weights and cache of a
program of single launches, which stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.head.greedy import TURN_REGION
from gemmule.compiler.kernels.head.ids import HALF_BYTES, region_bytes
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.virtual import Buffer, Item, LengthReg
from gemmule.compiler.passes.allocate import allocate_apart
from gemmule.compiler.passes.emit import base_registers, fixed_bases
from gemmule.compiler.passes.entry import Entry, Lowered, Scheduled
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.passes.lower import lower
from gemmule.compiler.passes.pipeline import finish, run
from gemmule.compiler.passes.schedule import schedule_greedy
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.decoder import compile_best
from gemmule.config import Config
from gemmule.isa import MoveFlag, Unit
from gemmule.sim.simulator import Simulator

__all__ = ["compile_greedy"]

JUDGED = 8
"""Steps of the launches whose cycles choose between loops."""
OWN = ("program", ANSWERS)
"""Regions that the loop has beside those of single passes."""


class LoopEntry(Entry[GreedyLoop]):
    """One order of a turn, from the loop's commands on virtual buffers and the registers that all orders have."""

    name = "a greedy loop"

    def __init__(self, network: Network, single: ModelProgram, lowered: Lowered, items: Sequence[Item],
                 registers: Mapping[str, int]) -> None:
        super().__init__(single.config)
        self.network, self.single, self.items, self.registers = network, single, items, registers
        self.written = lowered
        (self.mapping,), self.apart = single.choice.mappings, single.choice.apart

    def lower(self) -> Lowered:
        return self.written

    def schedule(self) -> Scheduled:
        return Scheduled(self.items, [self.items])

    def allocate(self) -> Mapping[Buffer, int]:
        return allocate_apart(self.items, self.config) if self.apart else super().allocate()

    def name_bases(self) -> Mapping[str, int]:
        return self.registers

    def limit(self) -> Bounds:
        attention, most = self.mapping.attention, self.single.max_positions
        moved = attention.moved(self.network.graph.attentions[0], self.config.dim, self.single.max_rows)
        return {LengthReg.ROWS: (1, 1), LengthReg.CONTEXT: (0, most - 1), LengthReg.WANTED: (1, 1),
                LengthReg.FIRST_WANTED: (0, 0), LengthReg.LEFT: (0, most), LengthReg.ROW: (0, moved)}

    def regions(self) -> Mapping[str, int]:
        columns = self.network.graph.by_name[self.network.graph.output].columns
        return {ANSWERS: region_bytes(columns, HALF_BYTES * self.single.max_positions)}

    def build(self) -> GreedyLoop:
        names = {register: region for register, region in fixed_bases(self.bases).items()
                 if not region.endswith(TURN_REGION)}
        return GreedyLoop(**self.standing(names), single=self.single, registers_of=self.bases,
                          moved=dict(self.lowered.moved))


def compile_greedy(network: Network, config: Config, *, effort: int = 4, rows: int = 1,
                   base_address: int = 0) -> GreedyLoop:
    """Compile a quantised decoder to one program that takes any number of greedy steps.

    ``rows``: new rows of a single pass, whose program stands beside it. ``effort``: mappings that are compared by the
    cycles of single passes. The gather of a step's token holds back the loads behind it, so how many stand before it
    is chosen by the cycles of launches; then the DRAM bank in which the image begins, as its commands come while
    weights do.

    Raises:
        CompileError: it does not fit the configuration; the message says what to change.
    """
    single = compile_best(network, config, effort=effort, rows=rows, tokens=True, base_address=base_address)
    lowered = lower(network, config, fuse(network.graph), single.choice.mappings[0], looped=True)
    orders = list(schedule_greedy(lowered, config))
    bases = base_registers(orders[0])
    entries = [LoopEntry(network, single, lowered, items, bases) for items in orders]
    for entry in entries:
        run(entry, "lower", "waits")
    linker = Linker(config, {name: region for name, region in single.symbols.items() if name not in OWN})
    linker.add(entries[0])
    aligned = round_up(single.size, config.dram.banks * config.dram.row_bytes)
    table = linker.table(base_address, aligned)
    best = min((linker.link(entry, table, last="turns") for entry in entries), key=_cost)
    banks = (linker.table(base_address, aligned + bank * config.dram.row_bytes) for bank in range(config.dram.banks))
    return finish(min((best.moved_to(table) for table in banks), key=_cost), ())


def _cost(loop: GreedyLoop) -> int:
    """Cycles of launches of several steps, at both ends of the context and between."""
    device, cycles = Simulator(loop.config, dram_bytes=1), 0
    gathered = {place: np.zeros(1, dtype=np.int64) for place, command in enumerate(loop.commands)
                if command.unit is Unit.LOAD and MoveFlag.INDEXED in command.flags}
    steps = min(JUDGED, loop.max_positions)
    for position in (0, (loop.max_positions - steps) // 2, loop.max_positions - steps):
        device.load(loop.launch("", NO_DRAM, loop.registers(position, steps)))
        cycles += int(device.run(timing_only=True, indices=gathered).cycles)
    return cycles
