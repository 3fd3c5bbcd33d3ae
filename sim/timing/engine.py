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
from typing import Any, NamedTuple

import numpy as np

from gemmule.resolve import OUT, TERMS
from gemmule.sim.compiled import borrowing, inlined, kept, stamp
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

CLOCK = np.dtype([(name, np.int64) for name in (
    "t",  # the cycle visited
    "counted",  # cycle up to which those of each unit are in `spent`
    "due",  # first cycle in which a command may issue, or a unit's cycles have another cause
    "wake",  # first cycle in which fetch or the take may do something of itself
    "sent",  # commands that have left resolve
    "fault_seen",  # first cycle in which the command that faults is at the end of resolve; 0: not seen
    "last",  # last cycle in which a control command left
)])
"""What the loop itself knows."""
STATE = np.dtype([("dram", DRAM), ("mover", MOVER), ("issue", ISSUE), ("front", FRONT), ("clock", CLOCK)])
"""Registers of one launch."""
_FAULT, _UNIT = OUT["fault"], OUT["unit"]


class Run(NamedTuple):
    """One launch: what it is given, its registers, and where what it took goes (see :func:`launch`)."""

    parameters: Any
    table: Any
    stream: Any
    good: Any
    """Commands before the one that faults."""
    skipped: Any
    indices: Any
    starts: Any
    program: Any
    """Address of the image."""
    resolved: Any
    dram: Any
    mover: Any
    issuing: Any
    front: Any
    clock: Any
    ready: Any
    """By command the cycle from which on it may leave resolve."""
    issue: Any
    finish: Any
    spent: Any


@inlined
def _room(run, u):  # type: ignore[no-untyped-def]
    """Whether a command of unit ``u`` may leave resolve: its queue has room."""
    p, k = run.parameters, run.issuing
    return u == CONTROL_UNIT or k.pushed[u] - k.issued[u] < p.unit_queue


@inlined
def _begin(run):  # type: ignore[no-untyped-def]
    """The state in cycle 0."""
    reset(run.dram, run.parameters)
    reset_mover(run.mover)
    reset_issue(run.issuing, run.parameters)
    reset_front(run.parameters, run.front, len(run.table))


@inlined
def _spend(run):  # type: ignore[no-untyped-def]
    """Each unit spends the cycles since it was last looked at as its status says."""
    clock = run.clock
    for u in range(UNITS):
        run.spent[u, run.issuing.status[u]] += clock.t - clock.counted
    clock.counted = clock.t


@inlined
def _look(run):  # type: ignore[no-untyped-def]
    """Whether issue looks in this cycle; if so, first all that has a time stamp is brought up to it."""
    clock = run.clock
    looks = clock.t >= clock.due
    if looks:
        _spend(run)
        expire(run.issuing, run.mover, run.finish, clock.t)
    return looks


@inlined
def _see_fault(run):  # type: ignore[no-untyped-def]
    """The command that faults has come to the end of resolve: nothing leaves any more."""
    clock, good = run.clock, run.good
    there = good < len(run.stream) and clock.sent == good < run.front.taken
    if there and not clock.fault_seen and run.ready[good] <= clock.t:
        clock.fault_seen = clock.t


@inlined
def _over(run):  # type: ignore[no-untyped-def]
    """Whether nothing is left to do."""
    sent, good, count = run.clock.sent, run.good, len(run.stream)
    return (run.clock.fault_seen > 0 or (sent == good == count and run.front.dropping == 0)) and idle(run.issuing)


@inlined
def _decide(run, looks):  # type: ignore[no-untyped-def]
    """(unit whose head is issued or -1, whether a command leaves resolve): from the state before the cycle."""
    t, sent = run.clock.t, run.clock.sent
    chosen = choose(run.issuing, run.mover, t) if looks else -1
    leaves = sent < min(run.front.taken, run.good) and run.ready[sent] <= t
    if leaves:
        leaves = _room(run, run.resolved[sent, _UNIT])
    return chosen, leaves


@inlined
def _fetch(run, leaves):  # type: ignore[no-untyped-def]
    """The front end's part of the cycle; whether it did anything."""
    p, f, clock = run.parameters, run.front, run.clock
    t, sent = clock.t, clock.sent
    if not leaves and t < clock.wake:
        return False
    room = f.taken - sent <= p.resolve  # one more than there are stages: the last one is a queue of two
    changed, ahead = step_front(p, f, run.dram, t, run.program, run.table, run.stream, run.ready, room)
    if ahead:  # its read request goes before a load's
        run.mover.load_next = max(run.mover.load_next, t + 1)
    later = f.taken - sent - leaves <= p.resolve
    clock.wake = next_front(p, f, t, run.program, changed or later and not room, later)
    return changed


@inlined
def _leave(run):  # type: ignore[no-untyped-def]
    """A command leaves resolve. (Whether its unit has a head where it had none, whether nothing of it was left.)"""
    k, clock = run.issuing, run.clock
    sent = clock.sent
    clock.sent += 1
    u = run.resolved[sent, _UNIT]
    if u == CONTROL_UNIT:
        clock.last = clock.t
        return False, False
    fresh, soon = k.issued[u] == k.pushed[u], k.finished[u] == k.pushed[u]
    enqueue(k, sent, run.table[run.stream[sent, PLACE]], run.resolved[sent], run.skipped[sent])
    return fresh, soon


@inlined
def _issue(run, chosen):  # type: ignore[no-untyped-def]
    """The head of a unit is issued."""
    issue_command(
        run.parameters, run.issuing, run.mover, chosen, run.clock.t, run.table, run.stream, run.resolved, run.indices,
        run.starts, run.issue)


@inlined
def _next_look(run, looks, issued, fresh, soon):  # type: ignore[no-untyped-def]
    """Set when issue looks next, bursts aside: where it did not look and sees nothing new, that stays."""
    clock = run.clock
    if soon:  # the unit's cycles have another cause from the next one on
        clock.due = clock.t + 1
    elif looks or fresh:
        clock.due = next_stamp(run.issuing, run.mover, clock.t, fresh or issued)


@inlined
def _next_visit(run, acted):  # type: ignore[no-untyped-def]
    """The next cycle in which dispatch or issue may change, bursts aside.

    ``acted``: fetch did something in this one, or a command left resolve.
    """
    clock, sent = run.clock, run.clock.sent
    after = min(clock.due, clock.wake)
    if sent < run.front.taken:
        if run.ready[sent] > clock.t:
            after = min(after, run.ready[sent])
        elif sent == run.good:  # to see the fault
            after = after if clock.fault_seen else clock.t + 1
        elif _room(run, run.resolved[sent, _UNIT]):  # else its queue is full, until a command of it is issued
            after = clock.t + 1
    if after >= FOREVER and acted:  # that may have been the last of all
        after = clock.t + 1
    return after


@inlined
def _advance(run, after):  # type: ignore[no-untyped-def]
    """Serve bursts up to cycle ``after``, or an earlier one in which these change something, and go there.

    False: nobody waits for anything.
    """
    clock, mover = run.clock, run.mover
    mover.changed = FOREVER
    after = advance(run.parameters, mover, run.dram, run.indices, run.issuing.finish, after)
    clock.due = min(clock.due, mover.changed)
    moves = clock.t < after < FOREVER
    clock.t = after
    return moves


@inlined
def _finish(run):  # type: ignore[no-untyped-def]
    """The cycles of the launch, of which nothing is left to do; counts them up to their end."""
    p, f, k, clock, mover, spent = run.parameters, run.front, run.issuing, run.clock, run.mover, run.spent
    _spend(run)
    t = clock.t
    cycles = max(clock.last, k.last, f.last, clock.fault_seen) + p.done
    for u in range(UNITS):
        spent[u, EMPTY] += cycles - t
    for now in range(t, cycles):  # resolve and fetch fill up behind a fault
        room = f.taken - clock.sent <= p.resolve
        step_front(p, f, run.dram, now, run.program, run.table, run.stream, run.ready, room)
    for u, busy in ((LOAD, mover.load_beats + mover.fills), (STORE, mover.store_beats)):
        spent[u, DRAM_BOUND] = spent[u, BUSY] - busy
        spent[u, BUSY] = busy
    return cycles


@borrowing
def _simulate(run):  # type: ignore[no-untyped-def]
    """The cycles of a launch; -1: it makes no progress, an error of this file."""
    _begin(run)
    while True:
        looks = _look(run)
        _see_fault(run)
        if _over(run):
            return _finish(run)

        chosen, leaves = _decide(run, looks)

        # what was decided is applied
        fetched, fresh, soon = _fetch(run, leaves), False, False
        if leaves:
            fresh, soon = _leave(run)
        if chosen >= 0:
            _issue(run, chosen)

        # on to the next cycle that matters
        _next_look(run, looks, chosen >= 0, fresh, soon)
        if not _advance(run, _next_visit(run, fetched or leaves)):
            return -1


@borrowing
def _count_traffic(run, traffic):  # type: ignore[no-untyped-def]
    """What was moved over the bus, in the order of :mod:`gemmule.csr`."""
    p, f, mover = run.parameters, run.front, run.mover
    traffic[0], traffic[1], traffic[2] = f.beats * p.bus, mover.load_beats * p.bus, mover.store_beats * p.bus
    traffic[3], traffic[4], traffic[5] = f.bursts, mover.load_bursts, mover.store_bursts


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
        registers, ready = state[0], np.zeros(len(stream), dtype=np.int64)
        run = Run(
            parameters[0], table, stream, good, skipped, indices, starts, program, resolved, registers.dram,
            registers.mover, registers.issue, registers.front, registers.clock, ready, issue, finish, spent)
        cycles = _simulate(run)
        _count_traffic(run, traffic)
        if good < len(stream) and cycles >= 0:
            return cycles, resolved[good, _FAULT], good
        return cycles, 0, -1

    return count_commands, resolve_program, launch


count_commands, resolve_program, launch = _entries()
