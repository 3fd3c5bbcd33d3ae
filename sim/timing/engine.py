"""The timing engine: docs/timing.md, event-driven and compiled, one call a launch.

The loop visits only cycles in which dispatch or issue may change. Each visit takes every decision from the state before
it, then applies them: the same two-phase rule as the RTL. The next visit is in the first cycle in which a decision may
differ, or what a unit's cycles are counted as: the next one, or the earliest time stamp ahead that somebody waits for.
Issue looks, and first brings time-stamped state (finishes, releases) up to cycle ``t``, only where its own such cycle
is ``due``: between, commands enter queues behind others. Bursts are served by :mod:`gemmule.sim.timing.move`. Visiting
a cycle too many is harmless, and so is looking too often.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gemmule.resolve import OUT, TERMS
from gemmule.sim.compiled import borrowing, kept, stamp
from gemmule.sim.timing.dram import DRAM, reset
from gemmule.sim.timing.front import FRONT, next_front, reset_front, step_front
from gemmule.sim.timing.issue import (
    BUSY,
    DRAM_BOUND,
    EMPTY,
    ISSUE,
    choose,
    expire,
    idle,
    issue_command,
    next_stamp,
    reset_issue,
)
from gemmule.sim.timing.move import FOREVER, MOVER, advance, reset_mover
from gemmule.sim.timing.program import (
    CONTROL_UNIT,
    LOAD,
    PLACE,
    STORE,
    UNITS,
    begin_stream,
    count_stream,
    resolve_stream,
)
from gemmule.sim.timing.queues import enqueue

__all__ = ["STATE", "count_commands", "launch", "resolve_program"]

STATE = np.dtype([("dram", DRAM), ("mover", MOVER), ("issue", ISSUE), ("front", FRONT)])
"""Registers of one launch."""
_FAULT, _UNIT = OUT["fault"], OUT["unit"]


@borrowing
def _leaves(p, k, u):  # type: ignore[no-untyped-def]
    """Whether a unit's command may leave resolve."""
    return u == CONTROL_UNIT or k.pushed[u] - k.issued[u] < p.unit_queue


@borrowing
def _spend(k, spent, cycles):  # type: ignore[no-untyped-def]
    """Each unit spends cycles as its status says."""
    for u in range(UNITS):
        spent[u, k.status[u]] += cycles


@borrowing
def _simulate(  # type: ignore[no-untyped-def]
    table, stream, good, skipped, indices, starts, p, program, dram, mover, k, f, resolved, issue, finish, spent,
    traffic, ready,
):
    count = len(stream)
    reset(dram, p)
    reset_mover(mover)
    reset_issue(k, p)
    reset_front(p, f, len(table))
    t = sent = 0  # commands that have left resolve
    counted = 0  # cycle up to which those of each unit are in `spent`
    due = 0  # first cycle in which a command may issue, or a unit's cycles have another cause
    wake = 0  # first cycle in which fetch or the take may do something of itself
    fault_seen = 0  # first cycle in which the command that faults is at the end of resolve
    last = 0  # last cycle in which a control command left

    while True:
        looks = t >= due
        if looks:
            _spend(k, spent, t - counted)
            counted = t
            expire(k, mover, finish, t)
        if good < count and sent == good < f.taken and not fault_seen and ready[sent] <= t:
            fault_seen = t
        if (fault_seen or (sent == good == count and f.dropping == 0)) and idle(k):
            break

        # decisions
        chosen = choose(k, mover, t) if looks else -1
        push = sent < min(f.taken, good) and ready[sent] <= t
        if push:
            u = resolved[sent, _UNIT]
            push = _leaves(p, k, u)

        # updates
        changed = False
        if push or t >= wake:
            changed, ahead = step_front(
                p, f, dram, t, program, table, stream, ready, f.taken - sent < p.resolve or push)
            if ahead:
                mover.load_next = max(mover.load_next, t + 1)
            wake = next_front(p, f, t, program, changed, f.taken - sent - push < p.resolve)
        fresh = soon = False  # a unit has a head that it had not; its cycles have another cause from the next one on
        if push:
            u = resolved[sent, _UNIT]
            if u == CONTROL_UNIT:
                last = t
            else:
                fresh, soon = k.issued[u] == k.pushed[u], k.finished[u] == k.pushed[u]
                enqueue(k, sent, table[stream[sent, PLACE]], resolved[sent], skipped[sent])
            sent += 1
        if chosen >= 0:
            issue_command(p, k, mover, chosen, t, table, stream, resolved, indices, starts, issue)

        # next cycle in which dispatch or issue may change; bursts until then
        if soon:
            due = t + 1
        elif looks or fresh:
            due = next_stamp(k, mover, t, fresh or chosen >= 0)
        after = min(due, wake)
        if sent < f.taken:
            if ready[sent] > t:
                after = min(after, ready[sent])
            elif sent == good:
                after = after if fault_seen else t + 1
            elif _leaves(p, k, resolved[sent, _UNIT]):  # else its queue is full, until a command of it is issued
                after = t + 1
        if after >= FOREVER and (push or changed):
            after = t + 1  # that may have been the last of all
        mover.changed = FOREVER
        after = advance(p, mover, dram, indices, k.finish, after)
        due = min(due, mover.changed)
        if after >= FOREVER or after <= t:
            return -1, 0, -1  # no progress: an error of this file
        t = after

    _spend(k, spent, t - counted)
    cycles = max(last, k.last, f.last, fault_seen) + p.done
    for u in range(UNITS):
        spent[u, EMPTY] += cycles - t
    for now in range(t, cycles):  # resolve and fetch fill up behind a fault
        step_front(p, f, dram, now, program, table, stream, ready, f.taken - sent < p.resolve)
    for u, busy in ((LOAD, mover.load_beats + mover.fills), (STORE, mover.store_beats)):
        spent[u, DRAM_BOUND] = spent[u, BUSY] - busy
        spent[u, BUSY] = busy
    traffic[0], traffic[1], traffic[2] = f.beats * p.bus, mover.load_beats * p.bus, mover.store_beats * p.bus
    traffic[3], traffic[4], traffic[5] = f.bursts, mover.load_bursts, mover.store_bursts
    return (cycles, resolved[good, _FAULT], good) if good < count else (cycles, 0, -1)


def _entries():  # type: ignore[no-untyped-def]
    sources = stamp(Path(__file__).parent)

    @kept("the timing engine, part 1 of 3")
    def count_commands(table, bases, limits, lengths, cfg, behind, local):  # type: ignore[no-untyped-def]
        """Commands of a launch, see :func:`gemmule.sim.timing.program.count_stream`; ``local`` is changed."""
        assert sources >= 0
        begin_stream(local, bases, limits, lengths, len(table))
        return count_stream(table, cfg, behind, local)

    @kept("the timing engine, part 2 of 3")
    def resolve_program(  # type: ignore[no-untyped-def]
        table, bases, limits, lengths, cfg, behind, local, stream, resolved,
    ):
        """See :func:`gemmule.sim.timing.program.resolve_stream`."""
        assert sources >= 0
        begin_stream(local, bases, limits, lengths, len(table))
        return resolve_stream(table, cfg, behind, local, stream, resolved, np.zeros(TERMS, dtype=np.int64))

    @kept("the timing engine, part 3 of 3")
    def launch(  # type: ignore[no-untyped-def]
        table, stream, good, skipped, indices, starts, parameters, program, state, resolved, issue, finish, spent,
        traffic,
    ):
        """Run ``good`` resolved commands of ``stream``; fills ``issue``, ``finish``, ``spent``, ``traffic``.

        ``skipped`` is bool[commands]. The DRAM rows of an INDEXED command c are ``indices[starts[c]:]``.
        Arrays are int64: ``issue`` and ``finish`` filled with -1 by the caller, ``spent`` [units, causes] and
        ``traffic`` zeros in the order of :mod:`gemmule.csr`. Returns (cycles, fault code, index of the faulting
        command or -1). ``state`` is one zeroed :data:`STATE`: compiled records do not own their memory, so the
        caller does.
        """
        assert sources >= 0
        registers, count = state[0], len(stream)
        ready = np.zeros(count, dtype=np.int64)  # cycle from which on a command may leave resolve
        return _simulate(
            table, stream, good, skipped, indices, starts, parameters[0], program, registers.dram, registers.mover,
            registers.issue, registers.front, resolved, issue, finish, spent, traffic, ready)

    return count_commands, resolve_program, launch


count_commands, resolve_program, launch = _entries()
