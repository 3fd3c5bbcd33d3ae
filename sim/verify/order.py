"""What is surely ordered: commands taken one after another, each with its clock.

A command's clock says, by unit, how many commands have surely finished when it issues. It races with what touches a
common place and is not within its clock (``races.py``).
"""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.control import MAX_COMMANDS, Local, Loop, Sequence, begin, execute, new_local, parameter_read, take
from gemmule.isa import CONTROL, TABLE_FIELDS, MatrixFlag, Unit
from gemmule.operands import CLASSES, Memory
from gemmule.resolve import FAULTS, TERMS, config_vector, resolve_row
from gemmule.sim.compiled import borrowing, compiled, kept, stamp
from gemmule.sim.verify.alone import check_alone
from gemmule.sim.verify.blocks import COUNTS, MEMORY, MOST, WRITE, block_of, class_of, into_program
from gemmule.sim.verify.races import find_races
from gemmule.sim.verify.state import (
    COUNT,
    DATAFLOW,
    FAULT,
    FINE,
    FIRST,
    FULL,
    GROUP,
    GUARDED,
    HIGH,
    LOW,
    NUMBER,
    PROGRAM,
    RACE,
    READ,
    RING,
    RUN,
    SAME_ROW,
    SAME_SINCE,
    SAME_STRIDE,
    STRIDE,
    UNSET,
    WROTE,
    State,
    larger,
    new_state,
    note,
)
from gemmule.terms import OUT, OUT_FIELDS

__all__ = ["Order", "Plan", "walk"]

_UNITS = len(Unit)
_LOAD, _STORE, _MATRIX, _VECTOR, _SELECT = map(int, Unit)
_ACC, _DRAM, _PREDICATE = int(Memory.ACC), int(Memory.DRAM), int(Memory.PREDICATE)
_FAULT, _UNIT, _FLAGS, _ZERO, _ROW2 = (OUT[name] for name in ("fault", "unit", "flags", "zero", "row2"))
_F_WAIT, _F_PREDICATE, _F_C_STRIDE = (TABLE_FIELDS.index(name) for name in ("wait_load", "predicate", "c_stride"))
_STATIONARY = int(MatrixFlag.OUTPUT_STATIONARY)
_F_UNIT, _CONTROL, _MOST, _ILLEGAL = TABLE_FIELDS.index("unit"), int(CONTROL), MAX_COMMANDS, FAULTS.index("illegal")
_PLACE, _LEFT, _DEPTH, _TURNS = int(Sequence.PLACE), int(Sequence.LEFT), int(Sequence.DEPTH), int(Loop.TURNS)
_resolve_row, _take_next, _execute, _parameter_read = map(compiled, (resolve_row, take, execute, parameter_read))


@borrowing
def clock_of(s, row, out, clock):  # type: ignore[no-untyped-def]
    """Commands by unit that have surely finished when this one issues, into ``clock``.

    A wait that reaches back beyond the first command of a unit waits for nothing.
    """
    unit = out[_UNIT]
    own = s.taken[unit]
    for u in range(_UNITS):
        clock[u] = s.known[unit, (own - 1) % RING, u] if own else 0
    if unit in (_VECTOR, _SELECT) or _alone(s, row, out):
        clock[unit] = own
    for u in range(_UNITS):
        distance = row[_F_WAIT + u]
        if 0 < distance <= s.taken[u]:
            finished = s.taken[u] - distance + 1
            if finished > clock[u]:
                clock[u] = finished
                for v in range(_UNITS):
                    clock[v] = max(clock[v], s.known[u, (finished - 1) % RING, v])


@borrowing
def _alone(s, row, out):  # type: ignore[no-untyped-def]
    """Issues only while its unit has nothing in flight, whatever predicates are.

    Loads that do so have no rule of their own here: loads are in order among themselves.
    """
    unit, flags = out[_UNIT], out[_FLAGS]
    if out[_ZERO] or (unit == _MATRIX and s.mode[GUARDED]):
        return True
    return unit == _MATRIX and row[_F_PREDICATE] == 0 and flags >> _STATIONARY & 1 != s.mode[DATAFLOW]


@borrowing
def _room(s, unit):  # type: ignore[no-untyped-def]
    """Drop DRAM accesses that every later command of the other kind is ordered after; whether one more fits."""
    other = _STORE if unit == _LOAD else _LOAD
    floor = s.known[other, (s.taken[other] - 1) % RING, unit] if s.taken[other] else 0
    kept = 0
    for i in range(s.pending[unit]):
        if s.bursts[unit, i, NUMBER] > floor:
            for field in range(s.bursts.shape[2]):
                s.bursts[unit, kept, field] = s.bursts[unit, i, field]
            kept += 1
    s.pending[unit] = kept
    return kept < s.bursts.shape[1]


@borrowing
def push(s, row, out, terms, clock):  # type: ignore[no-untyped-def]
    """Take a command as the next one; False when the list of DRAM accesses is full (and nothing has changed)."""
    unit, real = out[_UNIT], out[_ZERO] == 0
    if real and unit <= _STORE and s.pending[unit] == s.bursts.shape[1] and not _room(s, unit):
        return False
    for other in range(_UNITS):
        s.known[unit, s.taken[unit] % RING, other] = clock[other]
    s.taken[unit] += 1
    number = s.taken[unit]
    guarded = row[_F_PREDICATE] != 0
    if unit == _MATRIX:
        s.mode[GUARDED] = 1 if guarded else 0
        if real:
            s.mode[DATAFLOW] = out[_FLAGS] >> _STATIONARY & 1
            if s.mode[SAME_ROW] != out[_ROW2] or s.mode[SAME_STRIDE] != row[_F_C_STRIDE] or number == 1:
                s.mode[SAME_ROW], s.mode[SAME_STRIDE] = out[_ROW2], row[_F_C_STRIDE]
                s.mode[SAME_SINCE] = number
    if not real:
        return True
    if guarded:
        place = s.offset[_PREDICATE] + row[_F_PREDICATE]
        note(s, READ, unit, place, place + 1, number)
        s.last[READ, unit, _PREDICATE] = number
    c = class_of(out)
    for o in range(MOST):
        memory = CLASSES[c, o, MEMORY]
        if memory < 0:
            break
        if memory > _PREDICATE:
            continue
        first, run, count, stride, planes, plane_stride = block_of(c, o, terms)
        if memory == _DRAM:
            burst = s.bursts[unit, s.pending[unit]]
            burst[NUMBER], burst[FIRST], burst[RUN] = number, first, run
            burst[COUNT], burst[STRIDE] = count, stride
            burst[LOW], burst[HIGH] = first, first + (count - 1) * stride + run
            s.pending[unit] += 1
            continue
        write = CLASSES[c, o, WRITE] != 0
        kind = WROTE if write else READ
        s.last[kind, unit, memory] = number
        product = unit == _MATRIX and memory == _ACC and write
        for i in range(count):
            for j in range(planes):
                at = first + i * stride + j * plane_stride
                place = s.offset[memory] + at
                note(s, kind, unit, place, place + run, number)
                if product:
                    s.block[0, at:at + run] = out[_ROW2]
                    s.block[1, at:at + run] = row[_F_C_STRIDE] if terms[CLASSES[c, o, COUNTS]] > 1 else -1
    return True


@borrowing
def step(s, row, out, terms, low, high, clock, needed):  # type: ignore[no-untyped-def]
    """Check one resolved command and take it; how it ends (:data:`FINE` ..)."""
    if out[_FAULT]:
        return FAULT
    if not out[_ZERO]:
        trouble = check_alone(s, out, terms)
        if trouble != FINE:
            return trouble
        if out[_UNIT] == _STORE and low < high and into_program(out, terms, low, high):
            return PROGRAM
    clock_of(s, row, out, clock)
    if find_races(s, row, out, terms, clock, needed):
        return RACE
    return FINE if push(s, row, out, terms, clock) else FULL


@borrowing
def control(row, local, cfg, out):  # type: ignore[no-untyped-def]
    """Take and run a control command."""
    out[:] = 0
    word = _parameter_read(row, local)
    if 0 <= word < len(local.words) and not local.written[word]:
        return UNSET
    place, left, depth = local.sequence[_PLACE], local.sequence[_LEFT], local.sequence[_DEPTH]
    turns = local.loops[depth - 1, _TURNS] if depth else 0
    _take_next(local)
    out[_FAULT] = _execute(row, local, cfg)
    if out[_FAULT] == 0:
        return FINE
    local.sequence[_PLACE], local.sequence[_LEFT], local.sequence[_DEPTH] = place, left, depth
    if depth:
        local.loops[depth - 1, _TURNS] = turns
    return FAULT


def _entries() -> Any:
    sources = stamp(Path(__file__).parent)

    @kept("the verifier")
    def walk(s, table, local, cfg, low, high, number, out, needed):  # type: ignore[no-untyped-def]
        """Check a launch from where ``local`` stands: (commands up to the first that is not fine, how it ends).

        ``local`` stands at that command then, and ``out`` and ``needed`` (int64) are left as of it. ``number`` commands
        went before. [low, high) is the program in DRAM, low = high for no check. State as by :func:`new_state`, the
        rest as for :func:`gemmule.resolve.resolve_row`.
        """
        assert sources >= 0
        terms, clock = np.zeros(TERMS, np.int64), np.zeros(_UNITS, np.int64)
        sequence = local.sequence
        while sequence[_LEFT] > 0:
            row = table[sequence[_PLACE]]
            if number == _MOST:
                out[_FAULT] = _ILLEGAL
                return number, FAULT
            if row[_F_UNIT] == _CONTROL:
                end = control(row, local, cfg, out)
            else:
                _resolve_row(row, local.bases, local.limits, local.lengths, cfg, out, terms)
                end = step(s, row, out, terms, low, high, clock, needed)
                if end == FINE:
                    _take_next(local)
            if end != FINE:
                return number, end
            number += 1
        return number, FINE

    @kept("the verifier of single commands")
    def plan_row(s, row, bases, limits, lengths, cfg, out, terms):  # type: ignore[no-untyped-def]
        """Resolve a command; how it ends by itself."""
        assert sources >= 0
        _resolve_row(row, bases, limits, lengths, cfg, out, terms)
        if out[_FAULT]:
            return FAULT
        return FINE if out[_ZERO] else check_alone(s, out, terms)

    @kept("the verifier's races")
    def races_of(s, row, out, terms, needed):  # type: ignore[no-untyped-def]
        """The races of a resolved command as the next one, into ``needed``."""
        assert sources >= 0
        clock = np.zeros(_UNITS, np.int64)
        clock_of(s, row, out, clock)
        find_races(s, row, out, terms, clock, needed)

    @kept("the verifier's state")
    def take(s, row, out, terms):  # type: ignore[no-untyped-def]
        """Append a resolved command; False when the state must grow first."""
        assert sources >= 0
        clock = np.zeros(_UNITS, np.int64)
        clock_of(s, row, out, clock)
        return push(s, row, out, terms, clock)

    return walk, plan_row, races_of, take


walk, _plan_row, _races_of, _take = _entries()


class Plan(NamedTuple):
    """A resolved command: decoded row, columns of ``OUT_FIELDS``, terms; whether it is legal by itself."""

    row: np.ndarray
    out: np.ndarray
    terms: np.ndarray
    legal: bool


class Order:
    """The commands of a program that is being built: what the next one would race with."""

    def __init__(self, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray) -> None:
        self._state = new_state(config)
        self.local = new_local(config)
        """Registers as the next command sees them."""
        begin(self.local, bases, limits, lengths, 0)
        self._begun = self._number = 0
        self._cfg = config_vector(config)
        self.fault = 0
        """Of the command at which :meth:`run` stopped: index into ``FAULTS``."""

    def count(self, unit: int) -> int:
        """Commands of a unit so far."""
        return int(self._state.taken[unit])

    def plan(self, row: np.ndarray) -> Plan:
        """One decoded command on these registers; its row may still get other waits."""
        out, terms = np.zeros(len(OUT_FIELDS), np.int64), np.zeros(TERMS, np.int64)
        local = self.local
        end = _plan_row(self._state, row, local.bases, local.limits, local.lengths, self._cfg, out, terms)
        return Plan(row, out, terms, end == FINE)

    def races(self, plan: Plan) -> list[tuple[Unit, int]]:
        """Of each unit the latest command that the next one, with its waits, races with: (unit, wait distance)."""
        needed = np.zeros(_UNITS, np.int64)
        _races_of(self._state, plan.row, plan.out, plan.terms, needed)
        return [(unit, self.count(unit) - int(needed[unit]) + 1) for unit in Unit if needed[unit]]

    def push(self, plan: Plan) -> None:
        """Append a command, with the waits that its row holds."""
        while not _take(self._state, plan.row, plan.out, plan.terms):
            self._state = larger(self._state)

    def copy(self) -> Order:
        """The same, to try something on."""
        other = copy(self)
        other._state = State(*(part.copy() for part in self._state))
        other.local = Local(*(part.copy() for part in self.local))
        return other

    def run(self, table: np.ndarray, *, program: range = range(0),
            most: int = MAX_COMMANDS) -> tuple[int, int, list[tuple[Unit, int]]]:
        """Append a decoded piece of program, control commands and repeated bodies in it.

        (place in the piece of the first command that is not fine, how it ends, its races as by :meth:`races`); what
        went before that command is appended. ``program``: bytes in which nothing may be stored. One command more than
        ``most`` faults.
        """
        self.local.sequence[:] = 0
        self.local.sequence[_LEFT] = len(table)
        self._begun = self._number = MAX_COMMANDS - most
        return self.resume(table, program=program)

    def resume(self, table: np.ndarray, *, program: range = range(0)) -> tuple[int, int, list[tuple[Unit, int]]]:
        """Go on where :meth:`run` stopped, when that command has got more waits; answers like it.

        Waits only add to what is ordered: turns that went before need not be looked at again.
        """
        out, needed = np.zeros(len(OUT_FIELDS), np.int64), np.zeros(_UNITS, np.int64)
        end = FULL
        while end == FULL:
            self._number, end = walk(self._state, table, self.local, self._cfg, program.start, program.stop,
                                     self._number, out, needed)
            if end == FULL:
                self._state = larger(self._state)
        self.fault = int(out[_FAULT]) if end == FAULT else 0
        races = [(unit, self.count(unit) - int(needed[unit]) + 1) for unit in Unit if end == RACE and needed[unit]]
        return int(self.local.sequence[_PLACE]), end, races

    @property
    def taken(self) -> int:
        """Commands that the last :meth:`run` has appended, each time they ran."""
        return self._number - self._begun

    def wrote(self, since: Order, memory: Memory, first: int, end: int) -> bool:
        """Whether a command after those of ``since`` writes places first .. end - 1 of a shared memory."""
        state, low, high = self._state, int(self._state.offset[memory]) + first, int(self._state.offset[memory]) + end
        groups = slice(low >> GROUP, (high - 1 >> GROUP) + 1)
        return any(max(state.places[WROTE, unit, low:high].max(), state.whole[WROTE, unit, groups].max())
                   > since.count(unit) for unit in Unit)
