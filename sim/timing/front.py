"""Fetch and resolve: when commands are requested, taken, and ready for their unit's queue.

The window of fetched commands keeps a *short* body (one that fits it) whole and reads it again turn by turn; a longer
one is fetched again each turn. ``stream`` (:func:`gemmule.sim.timing.program.resolve_stream`) already says in which
order commands are taken; what fetch requests follows from the bodies that it knows of at the time.
"""

from __future__ import annotations

import numpy as np

from gemmule.control import MAX_DEPTH, Loop
from gemmule.isa import COMMAND_BYTES, TABLE_FIELDS
from gemmule.sim.compiled import borrowing
from gemmule.sim.timing.dram import serve
from gemmule.sim.timing.move import FOREVER
from gemmule.sim.timing.program import BACK, BODY, CONTROL_UNIT, FREES, PLACE, REPEAT, TIMES

__all__ = ["FRONT", "next_front", "reset_front", "step_front"]

FRONT = np.dtype([
    # fetch: place of the next command, commands left to the end of the innermost body, bodies
    ("place", np.int64), ("left", np.int64), ("depth", np.int64), ("loops", np.int64, (MAX_DEPTH, len(Loop))),
    # commands by their number in the order of fetch: requested, next to take, and from which on the window keeps them
    ("requested", np.int64), ("reads", np.int64), ("kept", np.int64),
    ("anchored", np.int64),  # the window keeps a body whole
    ("arrival", np.int64, 128),  # by number: cycle from which on it can be taken
    ("taken", np.int64), ("take_next", np.int64),  # commands of the stream taken; not before this cycle
    ("asked", np.int64),  # commands of the burst that goes to the bus in the next cycle, and their place
    ("asked_place", np.int64),
    ("dropping", np.int64),  # commands of a body that comes no time
    ("pending", np.int64), ("effect", np.int64),  # a REPEAT taken, and the cycle in which others see it; -1: none
    ("last", np.int64),  # last cycle in which a command was dropped
    ("beats", np.int64), ("bursts", np.int64),
])
"""Registers of the front end."""
_UNIT, _OP = TABLE_FIELDS.index("unit"), TABLE_FIELDS.index("op")
_BEGIN, _COMMANDS, _TURNS, _REST = map(int, Loop)
_RING = 127


@borrowing
def reset_front(p, f, count):  # type: ignore[no-untyped-def]
    """The state before an image of ``count`` commands is fetched."""
    f.left = count
    f.take_next = p.registers
    f.pending = f.last = -1


@borrowing
def _fetch_beats(p, program, first, ahead):  # type: ignore[no-untyped-def]
    """Beats of a burst from command ``first`` on up to the last byte of ``ahead`` commands."""
    at = program + COMMAND_BYTES * first
    return ((at + COMMAND_BYTES * ahead - 1) >> p.bus_shift) - (at >> p.bus_shift) + 1


@borrowing
def _fetch_ready(p, f, program):  # type: ignore[no-untyped-def]
    """Commands of the fetch burst that may be requested now; 0 when there is none."""
    if f.left == 0:
        return 0
    at = program + COMMAND_BYTES * f.place
    ahead = min(f.left, (p.burst - (at & (p.burst - 1))) // COMMAND_BYTES)
    return ahead if p.fetch_queue - (f.requested - f.kept) >= ahead else 0


@borrowing
def _send(p, f, dram, t, program):  # type: ignore[no-untyped-def]
    """The burst of commands that was decided in the cycle before ``t`` goes to the bus."""
    first = f.asked_place
    beats = _fetch_beats(p, program, first, f.asked)
    start = serve(dram, p, t, program + COMMAND_BYTES * first, beats, 0)
    for i in range(f.asked):
        f.arrival[(f.requested - f.asked + i) & _RING] = (
            start + (_fetch_beats(p, program, first, i + 1) - 1) * p.beat_cycles + 1)
    f.beats += beats
    f.bursts += 1


@borrowing
def _request(f, ahead):  # type: ignore[no-untyped-def]
    """Decide to request a burst of commands."""
    for i in range(ahead):
        f.arrival[(f.requested + i) & _RING] = FOREVER
    f.asked_place = f.place
    f.requested += ahead
    f.place += ahead
    f.left -= ahead
    if f.left == 0 and f.depth > 0:
        loop = f.loops[f.depth - 1]
        if loop[_TURNS] > 1:
            loop[_TURNS] -= 1
            f.place, f.left = loop[_BEGIN], loop[_COMMANDS]
        else:
            f.left = loop[_REST]
            f.depth -= 1


@borrowing
def _repeat(p, f, table, stream):  # type: ignore[no-untyped-def]
    """The REPEAT that was taken last has its effect."""
    d, f.pending = f.pending, -1
    body, times = table[stream[d, PLACE], BODY], stream[d, TIMES]
    if times < 0:  # it faults
        return
    if times == 0:
        f.dropping = body
        return
    if f.anchored:
        return
    ahead = f.requested - f.reads
    short = body <= p.fetch_queue
    if ahead < body:
        loop = f.loops[f.depth]
        loop[_BEGIN], loop[_COMMANDS], loop[_TURNS] = f.place - ahead, body, 1 if short else times
        loop[_REST] = f.left - (body - ahead)
        f.left = body - ahead
        f.depth += 1
    f.anchored = 1 if short else 0


@borrowing
def step_front(p, f, dram, t, program, table, stream, ready, room):  # type: ignore[no-untyped-def]
    """Cycle ``t`` of fetch, of the take, and of a REPEAT's effect; (something changed, commands on the bus).

    ``ready[d]`` is set to the cycle from which on command d of the stream may leave resolve; ``room``: there is a
    free stage.
    """
    if f.pending >= 0 and t >= f.effect:
        _repeat(p, f, table, stream)
    # A REPEAT counts what fetch is ahead, so nothing is requested in the cycle before its effect.
    sent, ahead = f.asked, 0
    if sent:
        _send(p, f, dram, t, program)
    if t >= p.fetch_start - 1 and not (f.pending >= 0 and t == f.effect - 1):
        ahead = _fetch_ready(p, f, program)
    there = f.reads < f.requested and f.arrival[f.reads & _RING] <= t
    drop = f.dropping > 0 and there
    take = there and not drop and room and t >= f.take_next and f.taken < len(stream)
    if ahead:
        _request(f, ahead)
    f.asked = ahead
    if drop:
        f.dropping -= 1
        f.reads += 1
        f.last = t
        if not f.anchored:
            f.kept = f.reads
    if take:
        d = f.taken
        f.taken += 1
        f.reads += 1 - stream[d, BACK]
        if stream[d, FREES]:
            f.anchored = 0
        if not f.anchored:
            f.kept = f.reads
        ready[d] = t + p.resolve
        if table[stream[d, PLACE], _UNIT] == CONTROL_UNIT:
            ready[d] += p.control
            f.take_next = t + 1 + p.control
            if table[stream[d, PLACE], _OP] == REPEAT:
                f.pending, f.effect = d, f.take_next
    return sent > 0 or ahead > 0 or drop or take, sent


@borrowing
def next_front(p, f, t, program, changed, room):  # type: ignore[no-untyped-def]
    """The first cycle after ``t`` in which :func:`step_front` may do something of itself.

    ``changed``: it did something in ``t``; ``room``: there is a free stage from now on.
    """
    if changed and (room or f.dropping > 0 or _fetch_ready(p, f, program) > 0):
        return t + 1
    after = FOREVER
    if f.asked:
        return t + 1
    if t < p.fetch_start - 1:
        after = p.fetch_start - 1
    if f.reads < f.requested and f.arrival[f.reads & _RING] > t:
        after = min(after, f.arrival[f.reads & _RING])
    if f.take_next > t:
        after = min(after, f.take_next)
    return after
