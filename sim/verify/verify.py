"""Static verifier: a program that passes has no data race and no fault with given registers.

A command is *ordered after* another when it cannot issue before the other has finished. The facts:
a wait; everything that a waited command, or an earlier command of the own unit, was itself ordered
after; the vector and the select unit run one command at a time; a command that runs alone (zero length, ZERO
and BROADCAST loads, a change of the matrix dataflow, a matrix command after one with a predicate) issues with
its unit idle; no load issues while a ZERO or BROADCAST load is in flight. A command with a predicate may be
skipped: what it may touch counts, that it would run alone does not. Two commands that touch a common row, or
entry of a list, or predicate, one of them writing, must be ordered, except where one unit's streams are in
order on the very port: loads after loads (not ADD, which reads its rows a cycle before it writes them), stores
after stores, and accumulation into the same C block (visits of a row are then at least one slot apart). REUSE
takes the weights of an earlier command of its own unit, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gemmule.config import Config
from gemmule.control import MAX_COMMANDS, Local, begin, new_local, refusal
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    Command,
    Unit,
    decode,
    decode_table,
    disassemble,
    encode_program,
)
from gemmule.resolve import FAULTS, OUT, check_program, check_registers, config_vector
from gemmule.sim.errors import SimulationError
from gemmule.sim.stream import Stream, Streams
from gemmule.sim.verify.access import Access, accesses, common
from gemmule.sim.verify.order import walk
from gemmule.sim.verify.state import FAULT, FINE, FULL, PROGRAM, RACE, UNSET, larger, new_state
from gemmule.terms import OUT_FIELDS

__all__ = ["ProgramError", "check_alone", "verify"]

class ProgramError(SimulationError):
    """A program that may fault, race or never run as meant; the message names the commands."""


def check_alone(found: Sequence[Access]) -> str | None:
    """What one command breaks by itself, as the end of a sentence; None when nothing."""
    for write in found:
        if not write.write or write.memory.private:
            continue
        if write.twice:
            return f"writes some {write.memory.label} twice; fix its strides"
        for read in found:
            if read.write or read.memory != write.memory:
                continue
            # In place, element by element, is safe: a row is read before it is written.
            if read.operand.in_place and read.origin == write.origin:
                continue
            hit = common(read.spans, write.spans)
            if hit:
                return f"writes {write.memory.label} {hit[0]}..{hit[1] - 1} that it also reads as {read.operand.name}"
    return None


class _Explain:
    """The message of the command at which the walk stopped; looks at nothing else again."""

    def __init__(self, image: bytes, stream: Stream, config: Config) -> None:
        self.image, self.stream, self.config = image, stream, config

    def text(self, i: int) -> str:
        return f"{self.name(i)} ({self.listing(i)})"

    def name(self, i: int) -> str:
        """``command 7``, in a program with bodies ``command 7 (at 3)``."""
        place = int(self.stream.places[i])
        return f"command {i}" if i == place else f"command {i} at {place}"

    def listing(self, i: int) -> str:
        at = int(self.stream.places[i]) * COMMAND_BYTES
        return disassemble(decode(int.from_bytes(self.image[at:at + COMMAND_BYTES], "little")))

    def found(self, i: int) -> list[Access]:
        return accesses(self.stream.table[self.stream.places[i]], self.stream.resolved[i], self.config)

    def fault(self, b: int, code: int, local: Local) -> str:
        unit = int(self.stream.units[b])
        if unit == CONTROL and b < MAX_COMMANDS:
            why = refusal(self.stream.table[self.stream.places[b]], local)
            return f"{self.text(b)} faults: {FAULTS[code]}; it {why}"
        if unit > CONTROL:
            return f"{self.name(b)} names unit {unit}; units are 0 to {int(CONTROL)}"
        return f"{self.text(b)} faults: {FAULTS[code]}"

    def race(self, b: int, needed: np.ndarray) -> str:
        unit = next(unit for unit in Unit if needed[unit])
        of_unit = np.flatnonzero(self.stream.units[:b] == unit)
        a = int(of_unit[needed[unit] - 1])
        ours, theirs = self.found(b), self.found(a)
        loads = int(self.stream.units[b]) == unit == Unit.LOAD  # their writes are in order by themselves
        for x, y in ((x, y) for x in theirs for y in ours):
            if (x.memory == y.memory and not x.memory.private and (x.write or y.write)
                    and not (loads and y.write)):
                rows = common(x.spans, y.spans)
                if rows:
                    how = [f"{i} {'writes' if access.write else 'reads'} {access.operand.name}"
                           for i, access in ((a, x), (b, y))]
                    return (f"{self.text(b)} may run before {self.text(a)} has finished: both touch {y.memory.label} "
                            f"{rows[0]}..{rows[1] - 1} ({', '.join(how)}); let {b} wait for "
                            f"{unit.label}:{len(of_unit) - needed[unit] + 1}")
        raise AssertionError("commands that race have a place in common")


def verify(program: Iterable[Command] | bytes, config: Config, bases: np.ndarray, limits: np.ndarray,
           lengths: np.ndarray, program_address: int | None = None) -> None:
    """Check a program with given base, limit and length registers.

    With ``program_address``, stores into the program itself are refused too: fetch runs ahead of them
    by an amount that no wait controls.

    Raises:
        ProgramError: the first fault or race, naming commands and rows.
    """
    image = program if isinstance(program, bytes) else encode_program(program)
    table = decode_table(image)
    check_registers(config, bases, limits, lengths)
    registers = (np.asarray(bases, dtype=np.int64), np.asarray(limits, dtype=np.int64),
                 np.asarray(lengths, dtype=np.int64))
    low = high = 0
    if program_address is not None:
        check_program(config, program_address, len(image))
        low, high = program_address, program_address + len(image)
    state, local, at, end = new_state(config), new_local(config), 0, FULL
    begin(local, *registers, len(table))
    out, needed = np.zeros(len(OUT_FIELDS), np.int64), np.zeros(len(Unit), np.int64)
    while end == FULL:
        at, end = walk(state, table, local, config_vector(config), low, high, at, out, needed)
        if end == FULL:
            state = larger(state)
    if end == FINE:
        return
    explain = _Explain(image, Streams(config).follow(table, *registers), config)
    if end == FAULT:
        raise ProgramError(explain.fault(at, int(out[OUT["fault"]]), local))
    if end == PROGRAM:
        raise ProgramError(
            f"{explain.text(at)} stores into the program at {low}..{high - 1}; fetch may already have read it: "
            "store elsewhere")
    if end == UNSET:
        raise ProgramError(f"{explain.text(at)} reads a parameter that no PARAMS of this launch has brought before")
    if end == RACE:
        raise ProgramError(explain.race(at, needed))
    trouble = check_alone(explain.found(at))
    assert trouble is not None, "what the walk refuses is wrong for a reason"
    raise ProgramError(f"{explain.text(at)} {trouble}")
