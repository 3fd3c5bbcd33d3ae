"""What is surely ordered, and what touches what: the verifier's state, compiled, one command at a time.

For every row of a shared memory the state holds, by unit, the last command that wrote it and the last one that read
it, as numbers from 1 in the unit's own order. A command races when such a number is above what has surely finished
when it issues (its *clock*). The last writer is enough: earlier ones were ordered before it, or are exempt together
with it. DRAM has too many bytes for that: loads and stores that are not ordered yet wait in a list. So memory depends
on the device and on what is in flight, not on the program's length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gemmule.config import Config
from gemmule.isa import MAX_WAIT, NUM_PREDICATES, TABLE_FIELDS, MatrixFlag, Unit
from gemmule.operands import CLASS_OF, CLASSES, OUT, OUT_FIELDS, Class, Memory
from gemmule.operations import EXCLUSIVE_LOADS
from gemmule.resolve import TERMS, config_vector, resolve_row
from gemmule.sim.compiled import compiled, stamp

__all__ = ["FAULT", "FINE", "FULL", "OVERLAP", "PROGRAM", "RACE", "TWICE", "WAIT", "Order", "Plan", "State", "larger",
           "new_state", "walk"]

FINE, FAULT, TWICE, OVERLAP, PROGRAM, WAIT, RACE, FULL = range(8)
"""How a command ends: fine; faults; writes a place twice; writes what it reads; stores into the program; waits for a
command that does not exist; races; the list of DRAM accesses is full."""

_UNITS = len(Unit)
_LOAD, _STORE, _MATRIX, _VECTOR, _SELECT = map(int, Unit)
_RING = 64
"""Clocks kept by unit: a wait reaches that far back."""
assert _RING > MAX_WAIT
_SPM, _ACC, _DRAM, _LIST, _PREDICATE = (
    int(m) for m in (Memory.SPM, Memory.ACC, Memory.DRAM, Memory.LIST, Memory.PREDICATE))
_SHARED = (Memory.SPM, Memory.ACC, Memory.LIST, Memory.PREDICATE)
_C_MEMORY, _C_WRITE, _C_FIRST, _C_RUN, _C_TIMES, _C_COUNT, _C_STRIDE, _C_PLANES, _C_PLANE_STRIDE, _C_IN_PLACE = (
    int(column) for column in (
        Class.MEMORY, Class.WRITE, Class.FIRST, Class.RUN, Class.TIMES, Class.COUNT, Class.STRIDE, Class.PLANES,
        Class.PLANE_STRIDE, Class.IN_PLACE))
_O_FAULT, _O_UNIT, _O_OP, _O_FLAGS, _O_ZERO, _O_N, _O_ROW2 = (
    OUT[name] for name in ("fault", "unit", "op", "flags", "zero", "n", "row2"))
_F_WAIT, _F_PREDICATE, _F_C_STRIDE = (TABLE_FIELDS.index(name) for name in ("wait_load", "predicate", "c_stride"))
_STATIONARY = int(MatrixFlag.OUTPUT_STATIONARY)
_WROTE, _READ = range(2)
_GROUP = 5
"""Places are also looked at by groups of 32: most operands are long runs."""
_MOST = CLASSES.shape[1]
_MODES = _EXCLUSIVE, _DATAFLOW, _GUARDED, _SAME_ROW, _SAME_STRIDE, _SAME_SINCE = range(6)
_BURST = 7
_NUMBER, _FIRST, _RUN, _COUNT, _STRIDE, _LOW, _HIGH = range(_BURST)


class State(NamedTuple):
    """Arrays of one verification."""

    places: np.ndarray
    """int32[2, unit, place]: the unit's last command that wrote (0), that read (1) the place, over all shared memories.
    A command that touches a whole group is noted there instead."""
    whole: np.ndarray
    """int32[2, unit, place // 32]: the last command that wrote, that read every place of the group."""
    groups: np.ndarray
    """int32[2, unit, place // 32]: the highest number of the group's places."""
    last: np.ndarray
    """int64[2, unit, memory]: the unit's last command that wrote, that read anything of a memory."""
    block: np.ndarray
    """int64[2, accumulator row]: first row and stride of the C block in which the matrix unit wrote it last; a block
    of one column group has stride -1."""
    mark: np.ndarray
    """int32[place]: scratch of exact comparisons within a command, by its number."""
    offset: np.ndarray
    """int64[memory]: its first place."""
    known: np.ndarray
    """int64[unit, 64, unit]: clocks of the unit's last commands."""
    taken: np.ndarray
    """int64[unit]: commands so far."""
    mode: np.ndarray
    """int64[6]: the last load surely runs alone; dataflow of the last product; the last matrix command has a predicate;
    first row and stride of the C block of the last products, and the first of these."""
    bursts: np.ndarray
    """int64[2, capacity, 7]: loads and stores that may not be ordered yet: number, block, hull."""
    pending: np.ndarray
    """int64[3]: how many of them, and commands marked so far."""


def new_state(config: Config, capacity: int = 1024) -> State:
    """The state before the first command."""
    sizes = {Memory.SPM: config.spm_rows, Memory.ACC: config.acc_rows, Memory.LIST: config.list_entries,
             Memory.PREDICATE: NUM_PREDICATES}
    offset, places = np.zeros(len(Memory), dtype=np.int64), 0
    for memory in _SHARED:
        offset[memory] = places
        places += sizes[memory]
    groups = (places >> _GROUP) + 1
    return State(
        np.zeros((2, _UNITS, places), np.int32), np.zeros((2, _UNITS, groups), np.int32),
        np.zeros((2, _UNITS, groups), np.int32),
        np.zeros((2, _UNITS, len(Memory)), np.int64),
        np.zeros((2, config.acc_rows), np.int64), np.zeros(places, np.int32), offset,
        np.zeros((_UNITS, _RING, _UNITS), np.int64), np.zeros(_UNITS, np.int64),
        np.zeros(len(_MODES), np.int64),
        np.zeros((2, capacity, _BURST), np.int64), np.zeros(3, np.int64))


_resolve_row = compiled(resolve_row)


@njit
def clock_of(s, row, out, clock):  # type: ignore[no-untyped-def]
    """Commands by unit that have surely finished when this one issues, into ``clock``; False: an impossible wait."""
    unit = out[_O_UNIT]
    own = s.taken[unit]
    for u in range(_UNITS):
        clock[u] = s.known[unit, (own - 1) % _RING, u] if own else 0
    if unit in (_VECTOR, _SELECT) or _alone(s, row, out) or (unit == _LOAD and s.mode[_EXCLUSIVE]):
        clock[unit] = own
    for u in range(_UNITS):
        distance = row[_F_WAIT + u]
        if distance > s.taken[u]:
            return False
        if distance:
            finished = s.taken[u] - distance + 1
            if finished > clock[u]:
                clock[u] = finished
                for v in range(_UNITS):
                    clock[v] = max(clock[v], s.known[u, (finished - 1) % _RING, v])
    return True


@njit
def _alone(s, row, out):  # type: ignore[no-untyped-def]
    """Issues only while its unit has nothing in flight, whatever predicates are."""
    unit, flags = out[_O_UNIT], out[_O_FLAGS]
    if out[_O_ZERO] or (unit == _MATRIX and s.mode[_GUARDED]):
        return True
    if row[_F_PREDICATE]:
        return False
    if unit == _MATRIX:
        return flags >> _STATIONARY & 1 != s.mode[_DATAFLOW]
    return unit == _LOAD and flags & EXCLUSIVE_LOADS != 0


@njit
def _block(c, i, terms):  # type: ignore[no-untyped-def]
    """(first, run, count, stride, planes, plane stride) of operand i of class c, runs that touch made one."""
    run = terms[CLASSES[c, i, _C_RUN]] * CLASSES[c, i, _C_TIMES]
    count, stride = terms[CLASSES[c, i, _C_COUNT]], terms[CLASSES[c, i, _C_STRIDE]]
    planes, plane_stride = terms[CLASSES[c, i, _C_PLANES]], terms[CLASSES[c, i, _C_PLANE_STRIDE]]
    if planes > 1 and plane_stride == run:
        run, planes = run * planes, 1
    if count > 1 and stride == run:
        run, count = run * count, 1
    return terms[CLASSES[c, i, _C_FIRST]], run, count, stride, planes, plane_stride


@njit
def _disjoint(run, count, stride, planes, plane_stride):  # type: ignore[no-untyped-def]
    """Whether the runs of a block surely do not overlap."""
    if count == 1:
        return planes == 1 or plane_stride >= run
    if planes == 1:
        return stride >= run
    return ((stride >= run and plane_stride >= (count - 1) * stride + run)
            or (plane_stride >= run and stride >= (planes - 1) * plane_stride + run))


@njit
def _hull(block):  # type: ignore[no-untyped-def]
    """First row of a block, and the one behind its last."""
    first, run, count, stride, planes, plane_stride = block
    return first, first + (count - 1) * stride + (planes - 1) * plane_stride + run


@njit
def _mark(s, base, block):  # type: ignore[no-untyped-def]
    """Mark the places of a block, which forgets other marks; whether it names some place twice."""
    first, run, count, stride, planes, plane_stride = block
    s.pending[2] += 1
    twice = False
    for i in range(count):
        for j in range(planes):
            at = base + first + i * stride + j * plane_stride
            for place in range(at, at + run):
                twice = twice or s.mark[place] == s.pending[2]
                s.mark[place] = s.pending[2]
    return twice


@njit
def _marked(s, base, block):  # type: ignore[no-untyped-def]
    """Whether some place of a block is marked."""
    first, run, count, stride, planes, plane_stride = block
    for i in range(count):
        for j in range(planes):
            at = base + first + i * stride + j * plane_stride
            for place in range(at, at + run):
                if s.mark[place] == s.pending[2]:
                    return True
    return False


@njit
def check_alone(s, out, terms):  # type: ignore[no-untyped-def]
    """FINE, TWICE or OVERLAP for one command by itself."""
    c = CLASS_OF[out[_O_UNIT], out[_O_OP], out[_O_FLAGS]]
    for w in range(_MOST):
        memory = CLASSES[c, w, _C_MEMORY]
        if memory < 0 or memory > _PREDICATE or not CLASSES[c, w, _C_WRITE]:
            continue
        written = _block(c, w, terms)
        apart = _disjoint(written[1], written[2], written[3], written[4], written[5])
        if not apart and (memory == _DRAM or _mark(s, s.offset[memory], written)):
            return TWICE
        low, high = _hull(written)
        for r in range(_MOST):
            if CLASSES[c, r, _C_MEMORY] != memory or CLASSES[c, r, _C_WRITE] or memory == _DRAM:
                continue
            read = _block(c, r, terms)
            same = read[0] == written[0] and terms[CLASSES[c, r, _C_STRIDE]] == terms[CLASSES[c, w, _C_STRIDE]]
            first, end = _hull(read)
            if (CLASSES[c, r, _C_IN_PLACE] and same) or first >= high or low >= end:
                continue
            _mark(s, s.offset[memory], written)
            if _marked(s, s.offset[memory], read):
                return OVERLAP
    return FINE


@njit
def _latest(s, kind, u, low, high, clock):  # type: ignore[no-untyped-def]
    """The unit's last command that wrote (0) or read (1) places low .. high - 1, if it is above ``clock``; else 0."""
    most = 0
    for group in range(low >> _GROUP, ((high - 1) >> _GROUP) + 1):
        if s.groups[kind, u, group] > clock:
            most = max(most, s.whole[kind, u, group])
            for place in range(max(low, group << _GROUP), min(high, (group + 1) << _GROUP)):
                most = max(most, s.places[kind, u, place])
    return most if most > clock else 0


@njit
def _note(s, kind, u, low, high, number):  # type: ignore[no-untyped-def]
    """Places low .. high - 1 were written (0) or read (1) by the unit's command ``number``."""
    for group in range(low >> _GROUP, ((high - 1) >> _GROUP) + 1):
        first, end = group << _GROUP, (group + 1) << _GROUP
        s.groups[kind, u, group] = number
        if low <= first and end <= high:
            s.whole[kind, u, group] = number
        else:
            for place in range(max(low, first), min(high, end)):
                s.places[kind, u, place] = number


@njit
def _races_rows(s, unit, write, memory, block, out, row, clock, needed):  # type: ignore[no-untyped-def]
    """Raise ``needed`` to the latest commands beyond ``clock`` that the rows of an operand race with."""
    first, run, count, stride, planes, plane_stride = block
    for i in range(count):
        for j in range(planes):
            low = s.offset[memory] + first + i * stride + j * plane_stride
            high = low + run
            for u in range(_UNITS):
                if s.last[_WROTE, u, memory] <= clock[u] and (not write or s.last[_READ, u, memory] <= clock[u]):
                    continue  # all that it did to this memory has finished
                if u == unit:
                    if u == _MATRIX and memory == _ACC:
                        _races_block(s, low, high, out, row, clock, needed)
                    elif u == _LOAD and not write and memory == _ACC:
                        # ADD reads its rows a cycle before it writes them: the load before may not have.
                        needed[u] = max(needed[u], _latest(s, _WROTE, u, low, high, clock[u]))
                    continue
                needed[u] = max(needed[u], _latest(s, _WROTE, u, low, high, clock[u]))
                if write:
                    needed[u] = max(needed[u], _latest(s, _READ, u, low, high, clock[u]))


@njit
def _races_block(s, low, high, out, row, clock, needed):  # type: ignore[no-untyped-def]
    """Products that write the same C block are in order by themselves: visits of a row are a slot apart or more."""
    base, same = s.offset[_ACC], s.mode[_SAME_ROW] == out[_O_ROW2] and s.mode[_SAME_STRIDE] == row[_F_C_STRIDE]
    if same and clock[_MATRIX] >= s.mode[_SAME_SINCE] - 1:  # most products go on with the block of the one before
        return
    if not _latest(s, _WROTE, _MATRIX, low, high, clock[_MATRIX]):
        return
    for place in range(low, high):
        number = max(s.places[_WROTE, _MATRIX, place], s.whole[_WROTE, _MATRIX, place >> _GROUP])
        if number > clock[_MATRIX]:
            stride = s.block[1, place - base]
            if s.block[0, place - base] != out[_O_ROW2] or (stride >= 0 and stride != row[_F_C_STRIDE]):
                needed[_MATRIX] = max(needed[_MATRIX], number)


@njit
def _meets(first, run, count, stride, low, high):  # type: ignore[no-untyped-def]
    """Whether some run of a block overlaps [low, high)."""
    if stride == 0 or count == 1:
        return first < high and first + run > low
    i = max(0, (low - run - first) // stride + 1)  # the first run that ends after low
    return i < count and first + i * stride < high


@njit
def _races_dram(s, unit, block, clock, needed):  # type: ignore[no-untyped-def]
    """Loads that meet stores, stores that meet loads; each kind is in order by itself."""
    first, run, count, stride, _, _ = block
    last = first + (count - 1) * stride + run
    other = _STORE if unit == _LOAD else _LOAD
    for i in range(s.pending[other]):
        burst = s.bursts[other, i]
        number = burst[_NUMBER]
        if number <= clock[other] or number <= needed[other] or burst[_LOW] >= last or burst[_HIGH] <= first:
            continue
        hit = False
        if count <= burst[_COUNT]:
            for j in range(count):
                at = first + j * stride
                if _meets(burst[_FIRST], burst[_RUN], burst[_COUNT], burst[_STRIDE], at, at + run):
                    hit = True
                    break
        else:
            for j in range(burst[_COUNT]):
                at = burst[_FIRST] + j * burst[_STRIDE]
                if _meets(first, run, count, stride, at, at + burst[_RUN]):
                    hit = True
                    break
        if hit:
            needed[other] = number


@njit
def find_races(s, row, out, terms, clock, needed):  # type: ignore[no-untyped-def]
    """By unit the latest command that this one races with, 0 where there is none; True when there is any."""
    needed[:] = 0
    if out[_O_ZERO]:
        return False
    unit = out[_O_UNIT]
    c = CLASS_OF[unit, out[_O_OP], out[_O_FLAGS]]
    for i in range(_MOST):
        memory = CLASSES[c, i, _C_MEMORY]
        if memory < 0:
            break
        if memory == _DRAM:
            _races_dram(s, unit, _block(c, i, terms), clock, needed)
        elif memory <= _PREDICATE:
            block, write = _block(c, i, terms), CLASSES[c, i, _C_WRITE] != 0
            _races_rows(s, unit, write, memory, block, out, row, clock, needed)
    if row[_F_PREDICATE]:
        _races_rows(s, unit, False, _PREDICATE, (row[_F_PREDICATE], 1, 1, 0, 1, 0), out, row, clock, needed)
    found = False
    for u in range(_UNITS):
        if needed[u] <= clock[u]:
            needed[u] = 0
        found = found or needed[u] > 0
    return found


@njit
def _room(s, unit):  # type: ignore[no-untyped-def]
    """Drop DRAM accesses that every later command of the other kind is ordered after; whether one more fits."""
    other = _STORE if unit == _LOAD else _LOAD
    floor = s.known[other, (s.taken[other] - 1) % _RING, unit] if s.taken[other] else 0
    kept = 0
    for i in range(s.pending[unit]):
        if s.bursts[unit, i, _NUMBER] > floor:
            s.bursts[unit, kept] = s.bursts[unit, i]
            kept += 1
    s.pending[unit] = kept
    return kept < s.bursts.shape[1]


@njit
def push(s, row, out, terms, clock):  # type: ignore[no-untyped-def]
    """Take a command as the next one; False when the list of DRAM accesses is full (and nothing has changed)."""
    unit, real = out[_O_UNIT], out[_O_ZERO] == 0
    if real and unit <= _STORE and s.pending[unit] == s.bursts.shape[1] and not _room(s, unit):
        return False
    s.known[unit, s.taken[unit] % _RING] = clock
    s.taken[unit] += 1
    number = s.taken[unit]
    guarded = row[_F_PREDICATE] != 0
    if unit == _LOAD:
        s.mode[_EXCLUSIVE] = 1 if real and not guarded and out[_O_FLAGS] & EXCLUSIVE_LOADS else 0
    elif unit == _MATRIX:
        s.mode[_GUARDED] = 1 if guarded else 0
        if real:
            s.mode[_DATAFLOW] = out[_O_FLAGS] >> _STATIONARY & 1
            if s.mode[_SAME_ROW] != out[_O_ROW2] or s.mode[_SAME_STRIDE] != row[_F_C_STRIDE] or number == 1:
                s.mode[_SAME_ROW], s.mode[_SAME_STRIDE] = out[_O_ROW2], row[_F_C_STRIDE]
                s.mode[_SAME_SINCE] = number
    if not real:
        return True
    if guarded:
        place = s.offset[_PREDICATE] + row[_F_PREDICATE]
        _note(s, _READ, unit, place, place + 1, number)
        s.last[_READ, unit, _PREDICATE] = number
    c = CLASS_OF[unit, out[_O_OP], out[_O_FLAGS]]
    for o in range(_MOST):
        memory = CLASSES[c, o, _C_MEMORY]
        if memory < 0:
            break
        if memory > _PREDICATE:
            continue
        first, run, count, stride, planes, plane_stride = _block(c, o, terms)
        if memory == _DRAM:
            burst = s.bursts[unit, s.pending[unit]]
            burst[_NUMBER], burst[_FIRST], burst[_RUN] = number, first, run
            burst[_COUNT], burst[_STRIDE] = count, stride
            burst[_LOW], burst[_HIGH] = first, first + (count - 1) * stride + run
            s.pending[unit] += 1
            continue
        write = CLASSES[c, o, _C_WRITE] != 0
        kind = _WROTE if write else _READ
        s.last[kind, unit, memory] = number
        product = unit == _MATRIX and memory == _ACC and write
        for i in range(count):
            for j in range(planes):
                at = first + i * stride + j * plane_stride
                place = s.offset[memory] + at
                _note(s, kind, unit, place, place + run, number)
                if product:
                    s.block[0, at:at + run] = out[_O_ROW2]
                    s.block[1, at:at + run] = row[_F_C_STRIDE] if terms[CLASSES[c, o, _C_COUNT]] > 1 else -1
    return True


@njit
def into_program(out, terms, low, high):  # type: ignore[no-untyped-def]
    """Whether a store reaches DRAM bytes low .. high - 1."""
    c = CLASS_OF[out[_O_UNIT], out[_O_OP], out[_O_FLAGS]]
    for i in range(_MOST):
        if CLASSES[c, i, _C_MEMORY] == _DRAM and CLASSES[c, i, _C_WRITE]:
            first, run, count, stride, _, _ = _block(c, i, terms)
            if _meets(first, run, count, stride, low, high):
                return True
    return False


@njit
def step(s, row, out, terms, low, high, clock, needed):  # type: ignore[no-untyped-def]
    """Check one resolved command and take it; how it ends (:data:`FINE` ..)."""
    if out[_O_FAULT]:
        return FAULT
    if not out[_O_ZERO]:
        trouble = check_alone(s, out, terms)
        if trouble != FINE:
            return trouble
        if out[_O_UNIT] == _STORE and low < high and into_program(out, terms, low, high):
            return PROGRAM
    if not clock_of(s, row, out, clock):
        return WAIT
    if find_races(s, row, out, terms, clock, needed):
        return RACE
    return FINE if push(s, row, out, terms, clock) else FULL


def _entries() -> Any:
    sources = stamp(Path(__file__).parent)

    @njit(cache=True)
    def walk(s, table, start, bases, limits, lengths, cfg, low, high, out, needed):  # type: ignore[no-untyped-def]
        """Check commands from ``start`` on: (number of the first that is not fine, how it ends).

        ``out`` and ``needed`` (int64) are left as of that command; [low, high) is the program in DRAM, low = high for
        no check. State as by :func:`new_state`, the rest as for :func:`gemmule.resolve.resolve_row`.
        """
        assert sources >= 0
        terms, clock = np.zeros(TERMS, np.int64), np.zeros(_UNITS, np.int64)
        for i in range(start, len(table)):
            _resolve_row(table[i], bases, limits, lengths, cfg, out, terms)
            end = step(s, table[i], out, terms, low, high, clock, needed)
            if end != FINE:
                return i, end
        return len(table), FINE

    @njit(cache=True)
    def plan_row(s, row, bases, limits, lengths, cfg, out, terms):  # type: ignore[no-untyped-def]
        """Resolve a command; how it ends by itself."""
        assert sources >= 0
        _resolve_row(row, bases, limits, lengths, cfg, out, terms)
        if out[_O_FAULT]:
            return FAULT
        return FINE if out[_O_ZERO] else check_alone(s, out, terms)

    @njit(cache=True)
    def races_of(s, row, out, terms, needed):  # type: ignore[no-untyped-def]
        """The races of a resolved command as the next one; False: it waits for one that does not exist."""
        assert sources >= 0
        clock = np.zeros(_UNITS, np.int64)
        if not clock_of(s, row, out, clock):
            return False
        find_races(s, row, out, terms, clock, needed)
        return True

    @njit(cache=True)
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


def larger(state: State) -> State:
    """The same state with room for twice as many DRAM accesses."""
    return state._replace(bursts=np.concatenate((state.bursts, np.zeros_like(state.bursts)), axis=1))


class Order:
    """The commands of a program that is being built: what the next one would race with."""

    def __init__(self, config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray) -> None:
        self._state = new_state(config)
        self._registers = bases, limits, lengths
        self._cfg = config_vector(config)

    def count(self, unit: int) -> int:
        """Commands of a unit so far."""
        return int(self._state.taken[unit])

    def plan(self, row: np.ndarray) -> Plan:
        """One decoded command on these registers; its row may still get other waits."""
        out, terms = np.zeros(len(OUT_FIELDS), np.int64), np.zeros(TERMS, np.int64)
        end = _plan_row(self._state, row, *self._registers, self._cfg, out, terms)
        return Plan(row, out, terms, end == FINE)

    def races(self, plan: Plan) -> list[tuple[Unit, int]]:
        """Of each unit the latest command that the next one, with its waits, races with: (unit, wait distance)."""
        needed = np.zeros(_UNITS, np.int64)
        if not _races_of(self._state, plan.row, plan.out, plan.terms, needed):
            raise ValueError("a wait for a command that does not exist")
        return [(unit, self.count(unit) - int(needed[unit]) + 1) for unit in Unit if needed[unit]]

    def push(self, plan: Plan) -> None:
        """Append a command, with the waits that its row holds."""
        while not _take(self._state, plan.row, plan.out, plan.terms):
            self._state = larger(self._state)
