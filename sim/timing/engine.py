"""The timing engine: docs/timing.md, event-driven and compiled, one call a launch.

The loop visits only cycles in which dispatch or issue may change. Each visit first brings time-stamped
state (finishes, releases) up to cycle ``t``, then takes every decision from it, then applies them: the
same two-phase rule as the RTL. A visit that changed something is followed by ``t + 1``; otherwise the
next one is the earliest time stamp ahead. Bursts in between are served by :mod:`gemmule.sim.timing.move`. Visiting a
cycle too many is harmless.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit

from gemmule.isa import COMMAND_BYTES
from gemmule.resolve import OUT
from gemmule.sim.compiled import kept, stamp
from gemmule.sim.timing.dram import DRAM, reset, serve
from gemmule.sim.timing.issue import (
    BUSY,
    DRAM_BOUND,
    EMPTY,
    ISSUE,
    choose,
    expire,
    issue_command,
    next_stamp,
    reset_issue,
)
from gemmule.sim.timing.move import FOREVER, MOVER, advance, reset_mover
from gemmule.sim.timing.program import LOAD, STORE, UNITS, prepare, resolve_good

__all__ = ["STATE", "launch", "resolve_program"]

STATE = np.dtype([("dram", DRAM), ("mover", MOVER), ("issue", ISSUE)])
"""Registers of one launch."""
_FAULT, _UNIT = OUT["fault"], OUT["unit"]


@njit
def _fetch_ready(p, program, count, requested, taken):  # type: ignore[no-untyped-def]
    """Commands of the fetch burst that may be requested now; 0 when there is none."""
    if requested == count:
        return 0
    at = program + COMMAND_BYTES * requested
    ahead = min(count - requested, (p.burst - (at & (p.burst - 1))) // COMMAND_BYTES)
    return ahead if p.fetch_queue - (requested - taken) >= ahead else 0


@njit
def _fetch_beats(p, program, first, ahead):  # type: ignore[no-untyped-def]
    """Beats of a burst from command ``first`` on up to the last byte of ``ahead`` commands."""
    at = program + COMMAND_BYTES * first
    return ((at + COMMAND_BYTES * ahead - 1) >> p.bus_shift) - (at >> p.bus_shift) + 1


@njit
def _fetch(p, dram, t, program, first, ahead, enter):  # type: ignore[no-untyped-def]
    """Request a burst of commands in cycle ``t``; its beats. ``enter`` says when each is in the fetch queue."""
    beats = _fetch_beats(p, program, first, ahead)
    start = serve(dram, p, t, program + COMMAND_BYTES * first, beats, 0)
    for i in range(ahead):
        enter[first + i] = start + (_fetch_beats(p, program, first, i + 1) - 1) * p.beat_cycles + 1
    return beats


@njit
def _simulate(  # type: ignore[no-untyped-def]
    table, good, skipped, indices, starts, p, program, dram, mover, k, resolved, issue, finish, spent, traffic,
):
    count = len(table)
    order, alone = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    target = np.zeros((count, UNITS), dtype=np.int64)
    prepare(table, good, skipped, resolved, order, k.first, target, alone)
    # cycle from which a command may go on: from the fetch queue, and once taken from the end of resolve
    enter = np.zeros(count, dtype=np.int64)
    reset(dram, p)
    reset_mover(mover)
    reset_issue(k, p)
    t = requested = taken = sent = fetch_beats = fetch_bursts = 0  # sent: pushed into unit queues
    fault_seen = 0  # first cycle in which the command that faults is at the end of resolve

    while True:
        complete = expire(k, mover, resolved, order, finish, t)
        if good < count and sent == good < taken and not fault_seen and enter[sent] <= t:
            fault_seen = t
        if complete and (good == count or fault_seen):
            break

        # decisions
        chosen = choose(k, mover, resolved, order, target, alone, t)
        push = sent < min(taken, good) and enter[sent] <= t
        if push:
            u = resolved[sent, _UNIT]
            push = k.pushed[u] - k.issued[u] < p.unit_queue
        take = taken < requested and enter[taken] <= t and (taken - sent < p.resolve or push)
        ahead = _fetch_ready(p, program, count, requested, taken) if t >= p.fetch_start else 0

        # updates
        if ahead:
            fetch_beats += _fetch(p, dram, t, program, requested, ahead, enter)
            fetch_bursts += 1
            requested += ahead
            mover.load_next = max(mover.load_next, t + 1)
        if push:
            k.pushed[resolved[sent, _UNIT]] += 1
            sent += 1
        if take:
            enter[taken] = t + p.resolve
            taken += 1
        if chosen >= 0:
            issue_command(p, k, mover, chosen, t, table, resolved, order, indices, starts, issue, finish)

        # next cycle in which dispatch or issue may change; bursts until then
        after = t + 1
        if chosen < 0 and not (push or take or ahead):
            after = next_stamp(k, mover, order, finish, t)
            if t < p.fetch_start:
                after = p.fetch_start
            for i in (sent, taken):
                if i < requested and enter[i] > t:
                    after = min(after, enter[i])
        after = advance(p, mover, dram, indices, finish, after)
        if after >= FOREVER or after <= t:
            return -1, 0, -1  # no progress: an error of this file
        for u in range(UNITS):
            spent[u, k.status[u]] += after - t
        t = after

    last = fault_seen
    for i in range(good):
        last = max(last, finish[i])
    cycles = last + p.done
    for u in range(UNITS):
        spent[u, EMPTY] += cycles - t
    for i in range(good, count):
        finish[i] = -1
    for now in range(t, cycles):  # resolve and fetch fill up behind a fault
        take = taken < requested and enter[taken] <= now and taken - sent < p.resolve
        ahead = _fetch_ready(p, program, count, requested, taken)
        if ahead:
            fetch_beats += _fetch(p, dram, now, program, requested, ahead, enter)
            fetch_bursts += 1
            requested += ahead
        taken += take
    for u, busy in ((LOAD, mover.load_beats + mover.fills), (STORE, mover.store_beats)):
        spent[u, DRAM_BOUND] = spent[u, BUSY] - busy
        spent[u, BUSY] = busy
    traffic[0], traffic[1], traffic[2] = (
        fetch_beats * p.bus, mover.load_beats * p.bus, mover.store_beats * p.bus)
    traffic[3], traffic[4], traffic[5] = fetch_bursts, mover.load_bursts, mover.store_bursts
    return (cycles, resolved[good, _FAULT], good) if good < count else (cycles, 0, -1)


def _entries():  # type: ignore[no-untyped-def]
    sources = stamp(Path(__file__).parent)

    @kept("the timing engine, part 1 of 2")
    def resolve_program(table, bases, limits, lengths, cfg, resolved):  # type: ignore[no-untyped-def]
        """Fill ``resolved`` up to the first command that faults; the number of commands before it.

        As :func:`gemmule.resolve.resolve`, with ``cfg`` from :func:`gemmule.resolve.config_vector`.
        """
        assert sources >= 0
        return resolve_good(table, bases, limits, lengths, cfg, resolved)

    @kept("the timing engine, part 2 of 2")
    def launch(  # type: ignore[no-untyped-def]
        table, good, skipped, indices, starts, parameters, program, state, resolved, issue, finish, spent, traffic,
    ):
        """Run one launch of ``good`` resolved commands; fills ``issue``, ``finish``, ``spent``, ``traffic``.

        ``skipped`` is bool[commands]. The DRAM rows of an INDEXED command c are ``indices[starts[c]:]``.
        Arrays are int64: ``issue`` filled with -1, ``finish`` with 2**62 by the caller, ``spent``
        [units, causes] and ``traffic`` zeros in the order of :mod:`gemmule.csr`. ``resolved`` is changed:
        what is skipped is of length zero afterwards. Returns (cycles, fault code, index of the faulting
        command or -1). ``state`` is one zeroed :data:`STATE`: compiled records do not own their memory,
        so the caller does.
        """
        assert sources >= 0
        registers = state[0]
        return _simulate(
            table, good, skipped, indices, starts, parameters[0], program, registers.dram, registers.mover,
            registers.issue, resolved, issue, finish, spent, traffic)

    return resolve_program, launch


resolve_program, launch = _entries()
