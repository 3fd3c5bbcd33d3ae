"""Greedy decoding of several tokens in one launch: a pass over one row is the body, its token the next one's input.

The device takes the token as an index of the embedding (``ARGMAX`` leaves it in entry 0 of the index list), so no host
stands between two tokens. The loop is compiled by the passes of the compiler, with the mapping, weights and cache of a
program of single launches, which stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.head.greedy import TURN_REGION
from gemmule.compiler.kernels.head.ids import HALF_BYTES, region_bytes
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.kernels.virtual import Buffer, Item, LengthReg
from gemmule.compiler.layout import Regions
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.emit import base_registers, emit, fixed_bases, with_straight_waits
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import fuse
from gemmule.compiler.passes.lower import lower
from gemmule.compiler.passes.notes import Notes
from gemmule.compiler.passes.schedule import schedule_greedy
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.search.decoder import compile_best
from gemmule.config import Config
from gemmule.isa import Command, MoveFlag, Unit, encode_program
from gemmule.sim.simulator import Simulator

__all__ = ["compile_greedy"]

JUDGED = 8
"""Steps of the launches whose cycles choose between loops."""


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
    notes = Notes()
    single = compile_best(network, config, effort=effort, rows=rows, tokens=True, notes=notes,
                          base_address=base_address)
    mapping, most = notes.mapping, single.max_positions
    if mapping is None:
        raise CompileError("a loop needs a mapping: the compiler is wrong")
    lowered = lower(network, config, fuse(network.graph), mapping, looped=True)
    bounds: Bounds = {
        LengthReg.ROWS: (1, 1), LengthReg.CONTEXT: (0, most - 1), LengthReg.WANTED: (1, 1),
        LengthReg.FIRST_WANTED: (0, 0), LengthReg.LEFT: (0, most), LengthReg.ROW: (
            0, mapping.attention.moved(network.graph.attentions[0], config.dim, rows))}
    orders = list(schedule_greedy(lowered, config))
    bases = base_registers(orders[0])
    found = [with_straight_waits(emit(items, _placed(items, config, notes.apart), bases), config, bounds)
             for items in orders]
    regions = Regions(config)
    regions.reserve("program", len(encode_program(found[0])))
    regions.reserve(ANSWERS, region_bytes(network.graph.by_name[network.graph.output].columns, HALF_BYTES * most))
    aligned = round_up(single.size, config.dram.banks * config.dram.row_bytes)
    names = {register: region for register, region in fixed_bases(bases).items() if not region.endswith(TURN_REGION)}

    def program(commands: Sequence[Command], bank: int) -> GreedyLoop:
        behind = aligned + bank * config.dram.row_bytes
        symbols = single.symbols | regions.symbols(base_address + behind)
        return GreedyLoop(
            config=config, image=encode_program(commands), commands=tuple(commands), base_address=base_address,
            size=behind + regions.size, symbols=symbols, bases=names, single=single, registers_of=bases,
            moved=dict(lowered.builder.moved))

    launches = program(found[0], 0).extremes()
    loops = [place_turn_waits(commands, config, launches) for commands in found]
    best = min((program(commands, 0) for commands in loops), key=_cost)
    best = min((program(best.commands, bank) for bank in range(config.dram.banks)), key=_cost)
    return best.verified(*best.extremes())


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


def _placed(items: Sequence[Item], config: Config, apart: bool) -> dict[Buffer, int]:
    try:
        return dict(allocate(items, config, apart=apart))
    except CompileError:
        return dict(allocate(items, config, apart=False))
