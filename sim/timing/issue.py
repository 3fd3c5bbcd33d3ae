"""Issue: which head goes, what it claims and when it releases, and where each unit's cycles go."""

from __future__ import annotations

import numpy as np

from gemmule.csr import CAUSES
from gemmule.operations import ISSUE_PRIORITY
from gemmule.resolve import OUT, STREAM_UNIT, STREAMS
from gemmule.sim.compiled import borrowing, inlined
from gemmule.sim.timing.move import FOREVER, begin_load, begin_store
from gemmule.sim.timing.program import LOAD, MATRIX, PLACE, SELECT, STORE, UNITS, VECTOR
from gemmule.sim.timing.queues import CLAIMS, QUEUES, SLOT
from gemmule.sim.timing.units import matrix_times, select_finish, vector_finish

__all__ = [
    "BUSY", "DRAM_BOUND", "EMPTY", "ISSUE", "choose", "expire", "idle", "issue_command", "next_stamp", "reset_issue",
]

BUSY, DRAM_BOUND, EMPTY, WAITING, PORTS = range(len(CAUSES))
_PRIORITY = tuple(map(int, ISSUE_PRIORITY))
_STREAM = tuple(STREAM_UNIT.index(u) for u in range(UNITS))  # a unit's first stream
_STREAMS, _VECTOR_W, _SELECT_W = len(STREAMS), STREAMS.index("vector.w"), STREAMS.index("select.w")
_OP, _FLAGS, _M, _N, _K, _APART = (OUT[name] for name in ("op", "flags", "m", "n", "k", "apart"))

ISSUE = np.dtype([
    *QUEUES,
    ("limit", np.int64, UNITS),  # commands in flight
    ("status", np.int64, UNITS),  # cause of the unit's cycles from this visit on
    ("held", np.int64, _STREAMS),  # ports by stream; of load.w, matrix.A, .B, .C too many while `stale`
    ("stale", np.int64),
    ("preload_free", np.int64),  # as issue sees it
    ("stream_free", np.int64),  # in the unit
    # matrix commands that hold ports of A and of B: from these numbers on, to these cycles
    ("a_done", np.int64), ("b_done", np.int64), ("a_end", np.int64, SLOT + 1), ("b_end", np.int64, SLOT + 1),
    ("last", np.int64),  # last finish
])
"""Registers of the issue logic."""


@borrowing
def reset_issue(k, p):  # type: ignore[no-untyped-def]
    """The state before the first command."""
    k.limit[LOAD], k.limit[STORE], k.limit[MATRIX] = p.load_commands, p.store_commands, p.matrix_commands
    k.limit[VECTOR] = k.limit[SELECT] = 1


@borrowing
def idle(k):  # type: ignore[no-untyped-def]
    """Whether every command dispatched has visibly finished."""
    left = 0
    for u in range(UNITS):
        left += k.pushed[u] - k.finished[u]
    return left == 0


@borrowing
def _union(k, unit, begin, end, claim):  # type: ignore[no-untyped-def]
    """Ports that one stream holds for its unit's commands begin .. end - 1."""
    mask = 0
    for i in range(begin, end):
        mask |= k.claim[unit, i & SLOT, claim]
    return mask


@borrowing
def expire(k, s, finish, t):  # type: ignore[no-untyped-def]
    """Pass the time stamps before cycle ``t``; ``finish`` of the stream is filled in."""
    for u in range(UNITS):
        done = k.finished[u]
        if done < k.issued[u] and k.finish[u, done & SLOT] < t:
            while done < k.issued[u] and k.finish[u, done & SLOT] < t:
                finish[k.command[u, done & SLOT]] = k.finish[u, done & SLOT]
                done += 1
            k.last = max(k.last, k.finish[u, (done - 1) & SLOT])
            k.finished[u] = done
            if u in (LOAD, MATRIX):
                k.stale = 1
            elif u == VECTOR:
                k.held[_STREAM[VECTOR]:_VECTOR_W + 1] = 0
            elif u == SELECT:
                k.held[_STREAM[SELECT]:_SELECT_W + 1] = 0
    last = k.issued[MATRIX]
    if k.a_done < last and k.a_end[k.a_done & SLOT] <= t:
        while k.a_done < last and k.a_end[k.a_done & SLOT] <= t:
            k.a_done += 1
        k.stale = 1
    if k.b_done < last and k.b_end[k.b_done & SLOT] <= t:
        while k.b_done < last and k.b_end[k.b_done & SLOT] <= t:
            k.b_done += 1
        k.stale = 1
    if t >= s.reader_idle:
        k.held[1] = 0


@borrowing
def _refresh(k):  # type: ignore[no-untyped-def]
    """What streams with several commands in flight hold: found out when somebody asks, which is less often."""
    k.held[0] = _union(k, LOAD, k.finished[LOAD], k.issued[LOAD], 0)
    last = k.issued[MATRIX]
    k.held[2] = _union(k, MATRIX, k.a_done, last, 0)
    k.held[3] = _union(k, MATRIX, k.b_done, last, 1)
    k.held[4] = _union(k, MATRIX, k.finished[MATRIX], last, 2)
    k.stale = 0


@borrowing
def _ports_free(k, unit, at):  # type: ignore[no-untyped-def]
    """Whether no port that a command claims is held by another stream."""
    for i in range(CLAIMS):
        claim = k.claim[unit, at, i]
        if claim:
            for other in range(_STREAMS):
                if other != _STREAM[unit] + i and k.held[other] & claim:
                    return False
    return True


@inlined
def _passed(k, u, end):  # type: ignore[no-untyped-def]
    """The first cycle in which the commands of a unit before number ``end`` have visibly finished.

    The last of them finishes last.
    """
    return k.finish[u, (end - 1) & SLOT] + 1


@inlined
def _earliest(k, s, u):  # type: ignore[no-untyped-def]
    """The first cycle in which the head of unit ``u`` may issue if its ports are free: the rule of issue.

    That is the latest of what it needs; FOREVER while one of these has no known end. Behind others of its unit it may
    have to wait until they, or so many of them, have finished, and until what they share is free.
    """
    begin, end = k.finished[u], k.issued[u]
    at = end & SLOT
    first = 0
    if begin < end:
        if k.alone[u, at]:
            first = _passed(k, u, end)
        elif end - begin >= k.limit[u]:
            first = _passed(k, u, end - k.limit[u] + 1)
        if u == MATRIX:
            first = max(first, k.preload_free - 1)
        elif u == LOAD:
            first = FOREVER if s.load_command >= 0 else max(first, s.load_idle)
        elif u == STORE:
            first = max(first, s.reader_idle)
    for v in range(UNITS):
        if k.finished[v] < k.target[u, at, v]:
            known = k.target[u, at, v] <= k.issued[v]
            first = max(first, _passed(k, v, k.target[u, at, v]) if known else FOREVER)
    return first


@borrowing
def choose(k, s, t):  # type: ignore[no-untyped-def]
    """The unit whose head issues in cycle ``t``, or -1; sets every unit's ``status``."""
    chosen = -1
    for turn in range(UNITS):
        u = _PRIORITY[turn]
        flying = k.finished[u] < k.issued[u]
        k.status[u] = BUSY if flying else EMPTY
        if k.issued[u] == k.pushed[u]:
            continue
        if _earliest(k, s, u) > t:
            if not flying:
                k.status[u] = WAITING
            continue
        if not flying:
            k.status[u] = PORTS
        if chosen < 0:
            if k.stale:
                _refresh(k)
            if _ports_free(k, u, k.issued[u] & SLOT):
                chosen = u
                k.status[u] = BUSY
    return chosen


@borrowing
def issue_command(p, k, s, u, t, table, stream, resolved, indices, starts, issue):  # type: ignore[no-untyped-def]
    """Issue the head of unit ``u`` in cycle ``t``: its claims, and its finish if that is known."""
    at = k.issued[u] & SLOT
    c = k.command[u, at]
    out = resolved[c]
    k.issued[u] += 1
    issue[c] = t
    if k.empty[u, at]:
        k.finish[u, at] = t + (p.load_zero, p.store_zero, p.matrix_zero, p.vector_zero, p.select_zero)[u]
        if u == MATRIX:
            k.a_end[at] = k.b_end[at] = t
        return
    for i in range(CLAIMS):  # some units have fewer claims
        if k.claim[u, at, i]:
            k.held[_STREAM[u] + i] |= k.claim[u, at, i]
    k.finish[u, at] = FOREVER
    start = t + p.unit_start
    if u == MATRIX:
        preload_free, b_end, k.stream_free, finish = matrix_times(
            p, start, out[_M], out[_N], out[_K], out[_FLAGS], out[_APART], k.stream_free)
        k.preload_free, k.finish[u, at] = preload_free + p.unit_report, finish + p.unit_report
        k.a_end[at], k.b_end[at] = k.stream_free + p.unit_report, b_end + p.unit_report
    elif u == VECTOR:
        k.finish[u, at] = p.unit_report + vector_finish(
            p, start, out[_OP], out[_FLAGS], out[_M], out[_N], out[_APART])
    elif u == SELECT:
        k.finish[u, at] = p.unit_report + select_finish(p, start, out[_OP], out[_FLAGS], out[_M], out[_N])
    elif u == LOAD:
        begin_load(p, s, start, at, table[stream[c, PLACE]], out, indices, starts[c], k.finish)
    else:
        begin_store(p, s, start, at, table[stream[c, PLACE]], out, indices, starts[c])


@borrowing
def _release(k, s, t):  # type: ignore[no-untyped-def]
    """The first cycle after ``t`` in which a port may be given back."""
    after = FOREVER
    for u in range(UNITS):
        if k.finished[u] < k.issued[u]:
            after = min(after, k.finish[u, k.finished[u] & SLOT] + 1)
    if k.a_done < k.issued[MATRIX]:
        after = min(after, k.a_end[k.a_done & SLOT])
    if k.b_done < k.issued[MATRIX]:
        after = min(after, k.b_end[k.b_done & SLOT])
    if s.reader_idle > t:
        after = min(after, s.reader_idle)
    return after


@borrowing
def next_stamp(k, s, t, busy):  # type: ignore[no-untyped-def]
    """The first cycle after ``t`` in which a head may issue, or the cause of a unit's cycles differs, all else equal.

    Stamps before a head's earliest cycle change nothing that anybody looks at. What is not known yet (finishes of
    loads, of stores) comes as an event of the mover, which ends the wait early. ``busy``: a command entered a queue or
    was issued in ``t``, so that ports may be free for another in the next cycle.
    """
    after, ports = FOREVER, False
    for u in range(UNITS):
        if k.finished[u] < k.issued[u]:
            after = min(after, _passed(k, u, k.issued[u]))
        if k.issued[u] < k.pushed[u]:
            earliest = _earliest(k, s, u)
            if earliest > t:
                after = min(after, earliest)
            else:
                ports = True
    if ports:
        return t + 1 if busy else min(after, _release(k, s, t))
    return after
