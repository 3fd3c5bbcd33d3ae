"""The timing engine: docs/timing.md, event-driven and compiled, one call a launch.

The loop visits only cycles in which a register may change. Each visit first brings time-stamped
state (finishes, releases, beats) up to cycle ``t``, then takes every decision from it, then applies
them: the same two-phase rule as the RTL. A visit that changed something is followed by ``t + 1``;
otherwise the next one is the earliest time stamp ahead. Visiting a cycle too many is harmless.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numba import njit

from gemmule import resolve as _resolve
from gemmule import timing as _timing
from gemmule.isa import TABLE_FIELDS
from gemmule.resolve import OUT
from gemmule.sim import dram as _dram
from gemmule.sim import engine_units as _units
from gemmule.sim.dram import serve
from gemmule.sim.engine_units import chunk, matrix_times, resolve_row, vector_finish

__all__ = ["BUSY", "EMPTY", "PORTS", "WAITING", "launch"]

BUSY, EMPTY, WAITING, PORTS = range(4)
"""Where a unit's cycles go: a command in flight, nothing queued, waits unmet, ports or issue slot taken."""

_FOREVER = 1 << 62
_LOAD, _STORE, _MATRIX, _VECTOR = range(4)
_WAIT0, _BYTES, _STRIDE = (TABLE_FIELDS.index(name) for name in ("wait_load", "bytes", "stride"))
_FAULT, _UNIT, _OP, _FLAGS, _ZERO = (OUT[name] for name in ("fault", "unit", "op", "flags", "zero"))
_M, _N, _K, _ADDRESS, _CLAIM = (OUT[name] for name in ("m", "n", "k", "address", "claim0"))


@njit
def _prepare(table, bases, limits, lengths, cfg, resolved, order, first, target):  # type: ignore[no-untyped-def]
    """Resolve in program order up to a fault; per-unit command lists and wait targets.

    ``order[first[u] + i]`` is the unit's i-th command. Returns the number of good commands.
    """
    count = len(table)
    good = count
    for i in range(count):
        resolve_row(table[i], bases, limits, lengths, cfg, resolved[i])
        if resolved[i, _FAULT]:
            good = i
            break
    dispatched = np.zeros(5, dtype=np.int64)
    for i in range(good):
        dispatched[resolved[i, _UNIT]] += 1
    for u in range(4):
        first[u + 1] = first[u] + dispatched[u]
        dispatched[u] = 0
    for i in range(good):
        for u in range(4):
            distance = table[i, _WAIT0 + u]
            target[i, u] = dispatched[u] - distance + 1 if distance else 0
        unit = resolved[i, _UNIT]
        order[first[unit] + dispatched[unit]] = i
        dispatched[unit] += 1
    return good


@njit
def _held(resolved, order, begin, end, claim):  # type: ignore[no-untyped-def]
    """Ports held by one stream over its unit's commands begin .. end - 1."""
    mask = 0
    for i in range(begin, end):
        mask |= resolved[order[i], _CLAIM + claim]
    return mask


@njit
def _simulate(  # type: ignore[no-untyped-def]
    table, bases, limits, lengths, cfg, p, program, resolved, issue, finish, spent, traffic,
):
    count = len(table)
    order = np.zeros(count, dtype=np.int64)
    first = np.zeros(5, dtype=np.int64)
    target = np.zeros((count, 4), dtype=np.int64)
    good = _prepare(table, bases, limits, lengths, cfg, resolved, order, first, target)
    enter = np.zeros(count, dtype=np.int64)  # cycle from which a command is visible in the fetch queue
    # per unit, as positions in `order`: next to push, to issue, to finish
    pushed, issued, finished = first[:4].copy(), first[:4].copy(), first[:4].copy()
    held = np.zeros(8, dtype=np.int64)
    status = np.zeros(4, dtype=np.int64)
    state = np.array([0, -1])
    open_row, bank_end = np.full(p.banks, -1), np.zeros(p.banks, dtype=np.int64)

    t = requested = taken = 0
    decode = -1  # command in the decode register
    fault_seen = last = 0
    # matrix
    preload_free = stream_free = 0
    a_end, a_done = np.zeros(16, dtype=np.int64), first[_MATRIX]
    # load generator; last beats of its bursts in flight
    load = -1
    load_row = load_done = load_from = 0
    beat, beat_head, beat_tail = np.zeros(64, dtype=np.int64), 0, 0
    # store: bursts are planned (reader), sent, arrive, are answered; two buffers by parity
    store = -1
    store_row = store_done = store_from = 0
    reader_idle = 0
    planned = sent = arrived = answered = 0
    plan_read, plan_beats = np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64)
    plan_address, plan_last = np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64)
    send_end, answer = np.full(2, -1), np.zeros(16, dtype=np.int64)

    while True:
        # time stamps that have passed
        for u in range(4):
            changed = False
            while finished[u] < issued[u] and finish[order[finished[u]]] < t:
                finished[u] += 1
                changed = True
            if changed:
                if u == _LOAD:
                    held[0] = _held(resolved, order, finished[u], issued[u], 0)
                elif u == _MATRIX:
                    held[4] = _held(resolved, order, finished[u], issued[u], 2)
                elif u == _VECTOR:
                    held[5] = held[6] = held[7] = 0
        if a_done < issued[_MATRIX] and a_end[a_done & 15] <= t:
            while a_done < issued[_MATRIX] and a_end[a_done & 15] <= t:
                a_done += 1
            held[2] = _held(resolved, order, a_done, issued[_MATRIX], 0)
        if t >= preload_free:
            held[3] = 0
        if t >= reader_idle:
            held[1] = 0
        while beat_head < beat_tail and beat[beat_head & 63] < t:
            beat_head += 1
        while answered < arrived and answer[answered & 15] < t:
            answered += 1
        complete = True
        for u in range(4):
            complete = complete and finished[u] == first[u + 1]
        if complete and (good == count or fault_seen):
            break

        # decisions: issue
        chosen = -1
        for turn in range(4):
            u = (_MATRIX, _VECTOR, _LOAD, _STORE)[turn]
            flying = issued[u] - finished[u]
            status[u] = BUSY if flying else EMPTY
            if issued[u] == pushed[u]:
                continue
            c = order[issued[u]]
            if flying:
                if resolved[c, _ZERO] or u == _VECTOR:
                    continue
                if u == _MATRIX and (t < preload_free or flying >= p.matrix_commands):
                    continue
                if u == _LOAD and (load >= 0 or flying >= p.load_commands):
                    continue
                if u == _STORE and (t < reader_idle or flying >= p.store_commands):
                    continue
            met = True
            for w in range(4):
                met = met and finished[w] - first[w] >= target[c, w]
            if not met:
                if not flying:
                    status[u] = WAITING
                continue
            stream = 0 if u == _LOAD else 1 if u == _STORE else 2 if u == _MATRIX else 5
            free = True
            for i in range(3):
                claim = resolved[c, _CLAIM + i]
                if claim:
                    for s in range(8):
                        free = free and (s == stream + i or held[s] & claim == 0)
            if not flying:
                status[u] = PORTS
            if free and chosen < 0:
                chosen = u
                status[u] = BUSY
        # decisions: push, take, requests
        push = 0 <= decode < good
        if push:
            u = resolved[decode, _UNIT]
            push = pushed[u] - issued[u] < p.unit_queue
        take = taken < requested and enter[taken] <= t and (decode < 0 or push)
        fetch = False
        ahead = 0
        if requested < count and t >= p.fetch_start:
            at = program + 32 * requested
            ahead = chunk(p, at, 32 * (count - requested)) // 32
            fetch = p.fetch_queue - (requested - taken) >= ahead
        request = load >= 0 and not fetch and t >= load_from and beat_tail - beat_head < p.read_bursts
        send = False
        if sent < planned:
            earliest = max(plan_read[sent & 3] + p.store_send, send_end[1 - (sent & 1)] + 1)
            send = t >= earliest and sent - answered < p.write_bursts
        acted = chosen >= 0 or push or take or fetch or send

        # read requests reach the DRAM, then the write whose last beat is sent
        if fetch:
            at = program + 32 * requested
            beats = (at + 32 * ahead - 1) // p.bus - at // p.bus + 1
            start = serve(state, open_row, bank_end, p, t, at, beats, 0)
            for i in range(ahead):
                enter[requested + i] = start + (at + 32 * i + 31) // p.bus - at // p.bus + 1
            requested += ahead
            traffic[0] += 32 * ahead
            traffic[3] += 1
        elif request:
            at = resolved[load, _ADDRESS] + load_row * table[load, _STRIDE] + load_done
            size = chunk(p, at, table[load, _BYTES] - load_done)
            beats = (size + p.bus - 1) // p.bus
            start = serve(state, open_row, bank_end, p, t, at, beats, 0)
            beat[beat_tail & 63] = start + beats - 1
            beat_tail += 1
            load_done += size
            traffic[1] += size
            traffic[4] += 1
            if load_done == table[load, _BYTES]:
                load_done = 0
                load_row += 1
                if load_row == resolved[load, _M]:
                    finish[load] = start + beats - 1 + p.load_write
                    load = -1
            # a request that fills the window changes nothing before the window opens again
            acted = acted or load < 0 or beat_tail - beat_head < p.read_bursts
        if send:
            send_end[sent & 1] = t + plan_beats[sent & 3] - 1
            sent += 1
        if arrived < sent:
            b = arrived & 3
            if send_end[arrived & 1] == t:
                acted = True
                start = serve(state, open_row, bank_end, p, t, plan_address[b], plan_beats[b], 1)
                answer[arrived & 15] = start + plan_beats[b]
                if plan_last[b] >= 0:
                    finish[plan_last[b]] = start + plan_beats[b]
                arrived += 1

        # dispatch
        if push:
            pushed[resolved[decode, _UNIT]] += 1
            decode = -1
        if take:
            decode = taken
            taken += 1
            if decode == good:
                fault_seen = t + 1

        # issue
        if chosen >= 0:
            u = chosen
            c = order[issued[u]]
            issued[u] += 1
            issue[c] = t
            if resolved[c, _ZERO]:
                finish[c] = t + (p.load_zero, p.store_zero, p.matrix_zero, p.vector_zero)[u]
                if u == _MATRIX:
                    a_end[(issued[u] - 1) & 15] = t
            elif u == _MATRIX:
                preload_free, stream_free, finish[c] = matrix_times(
                    p, t, resolved[c, _M], resolved[c, _N], resolved[c, _K], stream_free)
                a_end[(issued[u] - 1) & 15] = stream_free
                held[2] |= resolved[c, _CLAIM]
                held[3] = resolved[c, _CLAIM + 1]
                held[4] |= resolved[c, _CLAIM + 2]
            elif u == _VECTOR:
                finish[c] = vector_finish(
                    p, t, resolved[c, _OP], resolved[c, _FLAGS], resolved[c, _M], resolved[c, _N])
                held[5], held[6], held[7] = (
                    resolved[c, _CLAIM], resolved[c, _CLAIM + 1], resolved[c, _CLAIM + 2])
            elif u == _LOAD:
                load, load_row, load_done, load_from = c, 0, 0, t + p.load_first
                held[0] |= resolved[c, _CLAIM]
            else:
                store, store_row, store_done, store_from = c, 0, 0, t + p.store_first
                held[1] = resolved[c, _CLAIM]
                reader_idle = _FOREVER

        # plan the reads of bursts that have a buffer
        while store >= 0 and planned - sent < 2:
            b = planned & 3
            at = resolved[store, _ADDRESS] + store_row * table[store, _STRIDE] + store_done
            size = chunk(p, at, table[store, _BYTES] - store_done)
            plan_address[b], plan_beats[b], plan_last[b] = at, (size + p.bus - 1) // p.bus, -1
            plan_read[b] = max(store_from, send_end[planned & 1] + 1) + plan_beats[b] - 1
            store_from = plan_read[b] + 1
            traffic[2] += size
            traffic[5] += 1
            planned += 1
            store_done += size
            if store_done == table[store, _BYTES]:
                store_done = 0
                store_row += 1
                if store_row == resolved[store, _M]:
                    plan_last[b] = store
                    reader_idle = plan_read[b] + 1
                    store = -1

        # next cycle in which anything can happen
        after = t + 1
        if not acted:
            after = _FOREVER
            if t < p.fetch_start:
                after = p.fetch_start
            if taken < requested and enter[taken] > t:
                after = min(after, enter[taken])
            for u in range(4):
                if finished[u] < issued[u]:
                    after = min(after, finish[order[finished[u]]] + 1)
            if a_done < issued[_MATRIX]:
                after = min(after, a_end[a_done & 15])
            if preload_free > t:
                after = min(after, preload_free)
            if reader_idle > t:
                after = min(after, reader_idle)
            if load >= 0:
                if load_from > t:
                    after = min(after, load_from)
                if beat_head < beat_tail:
                    after = min(after, beat[beat_head & 63] + 1)
            if sent < planned:
                earliest = max(plan_read[sent & 3] + p.store_send, send_end[1 - (sent & 1)] + 1)
                if earliest > t:
                    after = min(after, earliest)
                if answered < arrived:
                    after = min(after, answer[answered & 15] + 1)
            if arrived < sent:
                after = min(after, send_end[arrived & 1])
            if after >= _FOREVER or after <= t:
                return -1, 0, -1  # no progress: an error of this file
        for u in range(4):
            spent[u, status[u]] += after - t
        t = after

    for i in range(good):
        last = max(last, finish[i])
    cycles = max(last, fault_seen) + p.done
    for u in range(4):
        spent[u, EMPTY] += cycles - t
    for i in range(good, count):
        finish[i] = -1
    return (cycles, resolved[good, _FAULT], good) if good < count else (cycles, 0, -1)


def _entry():  # type: ignore[no-untyped-def]
    # numba's cache looks only at the cached function's own file; the stamp, a closure cell and thus
    # part of the cache's key, stands for everything that is compiled into it.
    files = (__file__, _dram.__file__, _units.__file__, _resolve.__file__, _timing.__file__)
    text = b"".join(Path(file).read_bytes() for file in files) + repr((TABLE_FIELDS, OUT)).encode()
    stamp = int(hashlib.sha256(text).hexdigest()[:12], 16)

    @njit(cache=True)
    def launch(  # type: ignore[no-untyped-def]
        table, bases, limits, lengths, cfg, p, program, resolved, issue, finish, spent, traffic,
    ):
        """Run one launch; fills ``resolved``, ``issue``, ``finish``, ``spent``, ``traffic``.

        Arrays are int64: ``issue`` filled with -1, ``finish`` with 2**62 by the caller, ``spent``
        [4 units, 4 states], ``traffic`` [program, load, store bytes; then bursts]. Returns
        (cycles, fault code, index of the faulting command or -1).
        """
        assert stamp >= 0
        return _simulate(
            table, bases, limits, lengths, cfg, p, program, resolved, issue, finish, spent, traffic)

    return launch


launch = _entry()
