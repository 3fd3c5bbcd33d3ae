"""Placed waits: enough (the verifier finds no race) and not idle (without one it does)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.compile import compile_network
from gemmule.compiler.passes.footprints import footprints
from gemmule.compiler.passes.waits import place_waits
from gemmule.config import load_config
from gemmule.isa import Command, Dyn, Length, RequantFlag, Unit, VOp, decode_table
from gemmule.operands import Memory
from gemmule.resolve import resolve
from gemmule.sim.verify.access import accesses
from gemmule.sim.verify.verify import ProgramError, verify
from tests.compiler.integer_networks import Sizes, random_network

BASE = load_config("base")


def test_every_wait_of_a_decoder_is_needed() -> None:
    """Leaving out any one wait is a race that the verifier finds, at some launch."""
    network = random_network(Sizes(family="llama", layers=1, inner=700, positions=32), 31)
    program = compile_network(network, BASE, rows=16)
    launches = [program.registers(rows, position) for rows, position in ((16, 5), (1, 31))]
    for registers in launches:
        verify(program.commands, BASE, *registers)
    commands, removed, idle = list(program.commands), 0, []
    for i, command in enumerate(commands):
        for unit in command.waits:
            fewer = replace(command, waits={u: d for u, d in command.waits.items() if u is not unit})
            removed += 1
            try:
                for registers in launches:
                    verify([*commands[:i], fewer, *commands[i + 1:]], BASE, *registers)
                idle.append((command.note, unit.name))
            except ProgramError:
                pass
    # The rest guard rows that a dynamic address could reach at other launches.
    assert removed > 40
    assert len(idle) <= removed // 10, idle


def _load(row: int, rows: int) -> Command:
    return Command.make(Unit.LOAD, base=0, bytes=16 * rows, row=row, block_stride=1, rows=1)


def _product(row: int) -> Command:
    return Command.make(Unit.MATRIX, a_row=4096, a_stride=16, b_row=row, b_stride=16, c_row=0, c_stride=16,
                        m=4, n=16, k=16)


def test_read_after_write_write_after_read_and_distances() -> None:
    loads = [_load(4096, 16), _load(0, 16), _load(16, 16)]
    commands = [*loads, _product(0), _product(16), _load(0, 16), _product(0)]
    waits = [c.waits for c in place_waits(commands, BASE, {})]
    assert waits == [
        {}, {}, {}, {Unit.LOAD: 2}, {Unit.LOAD: 1}, {Unit.MATRIX: 2}, {Unit.LOAD: 1}]


def test_implied_waits_are_left_out() -> None:
    requant = Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, src0_stride=16, dst=8192, dst_stride=16, m=4,
                           n=16)
    store = Command.make(Unit.STORE, base=1, bytes=16, row=8192, block_stride=1, row_stride=1, rows=4)
    commands = [_load(4096, 16), _load(0, 16), _product(0), requant, store, _load(0, 16), _load(8192, 4)]
    waits = [c.waits for c in place_waits(commands, BASE, {})]
    # The last load overwrites what vector wrote and store read: waiting for the store implies the rest.
    assert waits[2:] == [
        {Unit.LOAD: 1}, {Unit.MATRIX: 1}, {Unit.VECTOR: 1}, {Unit.MATRIX: 1}, {Unit.STORE: 1}]


def test_dynamic_rows_count_with_their_whole_range() -> None:
    bounds = {1: (1, 4), 2: (2, 10)}
    command = Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, src0_stride=16, dst=100, dst_stride=64,
                           m=Length(8, 1), n=20, flags=(RequantFlag.WIDE,), dyn=(Dyn.DST, 2, 3))
    written = {r for part in footprints(command, BASE, bounds) if part.write
               for rows in part.slices() for r in range(rows.start, rows.stop)}
    wanted = {100 + 3 * x + group * 64 + plane * 32 + row
              for x in range(2, 11) for group in range(2) for plane in range(2) for row in range(4)}
    assert written == wanted


def test_far_waits_are_clamped() -> None:
    commands = [_load(0, 16), *[_load(64 + i, 1) for i in range(100)], _product(0)]
    assert place_waits(commands, BASE, {})[-1].waits == {Unit.LOAD: 63}


def test_errors() -> None:
    store = Command.make(Unit.STORE, base=0, bytes=16, row=0, block_stride=1, rows=1)
    with pytest.raises(CompileError, match="base register 0 is both"):
        place_waits([_load(0, 1), store], BASE, {})
    with pytest.raises(CompileError, match="must stay below row 16384"):
        place_waits([_load(16384, 1)], BASE, {})


def test_footprints_agree_with_the_verifier() -> None:
    """At fixed registers, every row that the verifier sees is in the static footprint."""
    network = random_network(Sizes(family="llama", layers=1, positions=32), 32)
    program = compile_network(network, BASE, rows=16)
    bounds = {1: (1, 16), 2: (0, 31), 3: (0, 16), 4: (0, 15), 5: (0, 32), 6: (0, 31)}
    table = decode_table(program.image)
    for rows, position in ((16, 16), (3, 7)):
        resolved = resolve(table, *program.registers(rows, position), BASE)
        for command, row, out in zip(program.commands, table, resolved):
            static = {(part.memory, part.write): set() for part in footprints(command, BASE, bounds)}
            for part in footprints(command, BASE, bounds):
                for piece in part.slices():
                    static[part.memory, part.write] |= set(range(piece.start, piece.stop))
            for access in accesses(row, out, BASE):
                if access.memory <= Memory.ACC:
                    touched = set(np.concatenate([np.arange(a, b) for a, b in access.spans]).tolist())
                    assert touched <= static[access.memory, access.write], command
