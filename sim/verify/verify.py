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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    COMMAND_BYTES,
    TABLE_FIELDS,
    Command,
    MatrixFlag,
    MoveFlag,
    Unit,
    decode,
    decode_table,
    disassemble,
    encode_program,
)
from gemmule.resolve import FAULTS, OUT, check_registers, resolve
from gemmule.sim.errors import SimulationError
from gemmule.sim.verify.access import DRAM, SPACES, Access, accesses, common

__all__ = ["Access", "Conflict", "Order", "ProgramError", "accesses", "check_alone", "verify"]

_F = {name: i for i, name in enumerate(TABLE_FIELDS)}
_EXCLUSIVE = 1 << MoveFlag.ZERO | 1 << MoveFlag.BROADCAST
_IN_PLACE = ("src0", "src1", "residual", "sums", "predicate")
_WAITS = [_F[f"wait_{unit.name.lower()}"] for unit in Unit]


class ProgramError(SimulationError):
    """A program that may fault, race or never run as meant; the message names the commands."""


class Conflict(NamedTuple):
    """An earlier command that the present one races with."""

    command: int
    unit: Unit
    theirs: Access
    ours: Access
    rows: tuple[int, int]


class Order:
    """Commands seen so far: what each touches, and what had surely finished when it issued."""

    def __init__(self, config: Config, capacity: int) -> None:
        self.dim = config.dim
        self.found: list[Sequence[Access]] = []
        self.members: list[list[int]] = [[] for _ in Unit]
        self.known = np.zeros((capacity, len(Unit)), dtype=np.int64)
        self._exclusive = False  # the last load was surely a ZERO or BROADCAST load
        self._dataflow = 0  # OUTPUT_STATIONARY of the last matrix command of non-zero length
        self._guarded = False  # the last matrix command has a predicate
        self._rows: list[np.ndarray] = []
        self._outs: list[np.ndarray] = []
        # Bounding boxes by kind (read, write) and space; exact intervals only where these overlap.
        self._low = np.full((2, len(SPACES), capacity), np.iinfo(np.int64).max)
        self._high = np.full((2, len(SPACES), capacity), -1, dtype=np.int64)

    def clock(self, row: np.ndarray, out: np.ndarray, waits: Mapping[Unit, int]) -> np.ndarray:
        """Commands per unit that have surely finished when the next command issues."""
        unit = int(out[OUT["unit"]])
        own = self.members[unit]
        clock = self.known[own[-1]].copy() if own else np.zeros(len(Unit), dtype=np.int64)
        if unit in (Unit.VECTOR, Unit.SELECT) or self._alone(row, out) or unit == Unit.LOAD and self._exclusive:
            clock[unit] = len(own)
        for other, distance in waits.items():
            if distance:
                clock[other] = max(clock[other], len(self.members[other]) - distance + 1)
        for other in Unit:
            if clock[other]:
                np.maximum(clock, self.known[self.members[other][clock[other] - 1]], out=clock)
        return clock

    def _alone(self, row: np.ndarray, out: np.ndarray) -> bool:
        """Issues only while its unit has nothing in flight, whatever predicates are."""
        unit, flags = out[OUT["unit"]], int(out[OUT["flags"]])
        if out[OUT["zero"]] or unit == Unit.MATRIX and self._guarded:
            return True
        if row[_F["predicate"]]:
            return False
        if unit == Unit.MATRIX:
            return flags >> MatrixFlag.OUTPUT_STATIONARY & 1 != self._dataflow
        return bool(unit == Unit.LOAD and flags & _EXCLUSIVE)

    def conflicts(self, row: np.ndarray, out: np.ndarray, found: Sequence[Access],
                  clock: np.ndarray, *, latest: bool = False) -> Iterator[Conflict]:
        """Races of the next command with earlier ones, latest first within a unit; or only the latest of each."""
        if not found:
            return
        low, high = _boxes(found)
        for unit in Unit:
            window = np.array(self.members[unit][clock[unit]:], dtype=np.int64)
            if not len(window):
                continue
            meets = np.zeros(len(window), dtype=bool)
            for mine, theirs in ((1, 0), (1, 1), (0, 1)):
                starts = self._low[theirs][:, window] < high[mine][:, None]
                ends = self._high[theirs][:, window] > low[mine][:, None]
                meets |= (starts & ends).any(axis=0)
            for a in window[meets][::-1].tolist():
                race = None
                for race in self._pairs(a, unit, row, out, found):
                    yield race
                    if latest:
                        break
                if latest and race:
                    break

    def _pairs(self, a: int, unit: Unit, row: np.ndarray, out: np.ndarray,
               found: Sequence[Access]) -> Iterator[Conflict]:
        in_order = unit == out[OUT["unit"]] and self._in_order(unit, a, row, out)
        for theirs in self.found[a]:
            for ours in found:
                if theirs.space != ours.space or not (theirs.write or ours.write):
                    continue
                if in_order and not (unit == Unit.LOAD and theirs.write and not ours.write):
                    continue
                rows = common(theirs.spans, ours.spans)
                if rows:
                    yield Conflict(a, unit, theirs, ours, rows)

    def _in_order(self, unit: Unit, a: int, row: np.ndarray, out: np.ndarray) -> bool:
        """Writes of two commands of one unit to the same rows are in order by themselves.

        Matrix commands that are not ordered anyway have one dataflow: a change of it runs alone, also when it has a
        predicate and is not skipped.
        """
        if unit in (Unit.LOAD, Unit.STORE):
            return True
        before, raw = self._outs[a], self._rows[a]
        same_row = before[OUT["row2"]] == out[OUT["row2"]]
        same_stride = raw[_F["c_stride"]] == row[_F["c_stride"]] or before[OUT["n"]] <= self.dim
        return bool(unit == Unit.MATRIX and same_row and same_stride)

    def push(self, row: np.ndarray, out: np.ndarray, found: Sequence[Access], clock: np.ndarray) -> None:
        index = len(self.found)
        self.known[index] = clock
        unit, flags = int(out[OUT["unit"]]), int(out[OUT["flags"]])
        self.members[unit].append(index)
        real, guarded = not out[OUT["zero"]], bool(row[_F["predicate"]])
        if unit == Unit.LOAD:
            self._exclusive = real and not guarded and bool(flags & _EXCLUSIVE)
        elif unit == Unit.MATRIX:
            self._guarded = guarded
            if real:
                self._dataflow = flags >> MatrixFlag.OUTPUT_STATIONARY & 1
        self.found.append(found)
        self._rows.append(row)
        self._outs.append(out)
        self._low[:, :, index], self._high[:, :, index] = _boxes(found)


def _boxes(found: Sequence[Access]) -> tuple[np.ndarray, np.ndarray]:
    low = np.full((2, len(SPACES)), np.iinfo(np.int64).max)
    high = np.full((2, len(SPACES)), -1, dtype=np.int64)
    for access in found:
        at = int(access.write), access.space
        low[at] = min(low[at], access.spans[0, 0])
        high[at] = max(high[at], access.spans[-1, 1])
    return low, high


def check_alone(out: np.ndarray, found: Sequence[Access]) -> str | None:
    """What one command breaks by itself, as the end of a sentence; None when nothing."""
    if out[OUT["fault"]]:
        return f"faults: {FAULTS[int(out[OUT['fault']])]}"
    for write in found:
        if not write.write:
            continue
        if write.twice:
            return f"writes some {SPACES[write.space]} twice; fix its strides"
        for read in found:
            if read.write or read.space != write.space:
                continue
            # In place, element by element, is safe: a row is read before it is written.
            if read.origin == write.origin and read.operand in _IN_PLACE:
                continue
            hit = common(read.spans, write.spans)
            if hit:
                rows = f"{SPACES[write.space]} {hit[0]}..{hit[1] - 1}"
                return f"writes {rows} that it also reads as {read.operand}"
    return None


def _touches(found: Sequence[Access], low: int, high: int) -> bool:
    """Some DRAM write overlaps [low, high)."""
    return any(bool(((access.spans[:, 0] < high) & (access.spans[:, 1] > low)).any())
               for access in found if access.write and access.space == DRAM)


def verify(program: Iterable[Command] | bytes, config: Config, bases: np.ndarray, limits: np.ndarray,
           lengths: np.ndarray, program_address: int | None = None) -> None:
    """Check a program with given base, limit and length registers.

    With ``program_address``, stores into the program itself are refused too: fetch runs ahead of them
    by an amount that no wait controls.

    Raises:
        ProgramError: the first fault, impossible wait or race, naming commands and rows.
    """
    image = program if isinstance(program, bytes) else encode_program(program)
    table = decode_table(image)
    check_registers(config, bases, limits, lengths)
    out = resolve(table, np.asarray(bases, dtype=np.int64), np.asarray(limits, dtype=np.int64),
                  np.asarray(lengths, dtype=np.int64), config)

    def text(i: int) -> str:
        at = i * COMMAND_BYTES
        return f"command {i} ({disassemble(decode(int.from_bytes(image[at:at + COMMAND_BYTES], 'little')))})"

    order = Order(config, len(table))
    for b in range(len(table)):
        row, resolved = table[b], out[b]
        unit = int(resolved[OUT["unit"]])
        if unit >= len(Unit):
            raise ProgramError(f"command {b} names unit {unit}; units are 0 to {len(Unit) - 1}")
        found = [] if resolved[OUT["fault"]] else accesses(row, resolved, config)
        trouble = check_alone(resolved, found)
        if trouble:
            raise ProgramError(f"{text(b)} {trouble}")
        if program_address is not None and _touches(found, program_address, program_address + len(image)):
            raise ProgramError(
                f"{text(b)} stores into the program at {program_address}..{program_address + len(image) - 1}; "
                "fetch may already have read it: store elsewhere")
        waits = {other: int(row[_WAITS[other]]) for other in Unit}
        for other, distance in waits.items():
            if distance > len(order.members[other]):
                raise ProgramError(
                    f"{text(b)} waits for {other.name.lower()}:{distance}, but only "
                    f"{len(order.members[other])} such commands come before it; use a smaller distance")
        clock = order.clock(row, resolved, waits)
        for a, other, theirs, ours, rows in order.conflicts(row, resolved, found, clock):
            distance = len(order.members[other]) - order.members[other].index(a)
            how = [f"{i} {'writes' if access.write else 'reads'} {access.operand}"
                   for i, access in ((a, theirs), (b, ours))]
            raise ProgramError(
                f"{text(b)} may run before {text(a)} has finished: both touch {SPACES[ours.space]} "
                f"{rows[0]}..{rows[1] - 1} ({', '.join(how)}); let {b} wait for "
                f"{other.name.lower()}:{distance}")
        order.push(row, resolved, found, clock)
