"""Loads and stores between issue and finish: the engine's bursts, one event each.

A load burst is an event in the cycle of its request; a store burst is one in the cycle in which its last
beat reaches the DRAM. Everything else about a burst (reads of memory, sending, chunk writes, responses)
follows from these cycles by arithmetic, so :func:`advance` serves burst after burst until the rest of
the device may change.
"""

from __future__ import annotations

import numpy as np

from gemmule.isa import TABLE_FIELDS, MoveFlag
from gemmule.resolve import OUT
from gemmule.sim.compiled import borrowing, inlined
from gemmule.sim.timing.dram import after_refresh, close, first_beat, serve
from gemmule.sim.timing.program import LOAD, STORE

__all__ = ["FOREVER", "MOVER", "advance", "begin_load", "begin_store", "reset_mover"]

FOREVER = 1 << 62
_BYTES, _STRIDE = TABLE_FIELDS.index("bytes"), TABLE_FIELDS.index("stride")
_FLAGS, _M, _ADDRESS, _JOINED = OUT["flags"], OUT["m"], OUT["address"], OUT["joined"]
_ZERO_FLAG, _BROADCAST_FLAG, _INDEXED_FLAG = int(MoveFlag.ZERO), int(MoveFlag.BROADCAST), int(MoveFlag.INDEXED)

_PATH = [(name, np.int64) for name in (
    "command",  # its place in the unit's queue; -1: generator or reader idle
    "start", "done", "bytes", "stride", "rows",  # DRAM row: address, bytes moved, size; rows left
    "base", "index",  # address of row 0; place in `indices` of the row's number, -1: rows in order
    "next",  # cycle of the next event
    "beats", "bursts",  # moved so far
)]
MOVER = np.dtype([
    *((f"load_{name}", kind) for name, kind in _PATH),
    ("load_idle", np.int64),  # first cycle in which issue sees the generator idle
    ("broadcast", np.int64),  # rows that each chunk is written to; 0: not a broadcast
    ("written", np.int64),  # cycle of the last chunk's write
    ("fills", np.int64),  # chunks written by ZERO loads
    ("requested", np.int64),
    # of the last read bursts, by number modulo 64
    ("last_beat", np.int64, 64),  # its cycle
    ("total", np.int64, 64),  # beats of the launch up to the burst's end
    ("awaited", np.int64),  # burst of the beat that the last request waited for
    *((f"store_{name}", kind) for name, kind in _PATH),
    ("read_from", np.int64),  # first cycle in which the reader may read
    ("reader_idle", np.int64),  # as issue sees it
    # Bursts planned (reads known), of these sent (send end known), of these arrived.
    ("planned", np.int64), ("sent", np.int64), ("arrived", np.int64),
    # of the last store bursts, by number modulo 4
    ("last_read", np.int64, 4), ("send_beats", np.int64, 4), ("address", np.int64, 4),
    ("ends", np.int64, 4),  # command that ends with this burst, or -1
    ("send_end", np.int64, 4),
    ("answer", np.int64, 16),  # cycle of the response, by number modulo 16
    ("changed", np.int64),  # first cycle that a burst has made such a one that the issue logic must look
])
"""State of the load generator, and of the store's reader and sender."""


@borrowing
def reset_mover(s):  # type: ignore[no-untyped-def]
    s.load_command = s.store_command = s.written = -1
    s.load_next = s.store_next = FOREVER
    s.last_beat[:] = -1
    s.send_end[:] = -1
    s.answer[:] = -1


@borrowing
def _burst(p, address, left):  # type: ignore[no-untyped-def]
    """(bytes, beats) of the burst that starts at ``address`` with ``left`` bytes of its row to go."""
    size = min(left, p.burst - (address & (p.burst - 1)))
    return size, ((address + size - 1) >> p.bus_shift) - (address >> p.bus_shift) + 1


@borrowing
def _window(p, s, t, number):  # type: ignore[no-untyped-def]
    """First cycle from ``t`` on with fewer than ``read_bursts`` load bursts and ``read_beats`` beats in flight.

    ``number`` bursts have been requested. Beats come in order, so the second limit waits for one of them.
    """
    last = number - p.read_bursts
    t = max(t, s.last_beat[last & 63] + 1)
    beat = s.total[(number - 1) & 63] - p.read_beats + 1
    if beat > s.total[last & 63]:  # it is none of those that the first limit has waited for
        burst = max(s.awaited, last + 1)
        while s.total[burst & 63] < beat:
            burst += 1
        s.awaited = burst
        t = max(t, s.last_beat[burst & 63] - (s.total[burst & 63] - beat) * p.beat_cycles + 1)
    return t


@borrowing
def begin_load(p, s, t, at, row, out, indices, index, finish):  # type: ignore[no-untyped-def]
    """A load, at place ``at`` of the queue, that starts in cycle ``t``; ``row`` is decoded, ``out`` resolved.

    An INDEXED command finds the numbers of its DRAM rows in ``indices`` from ``index`` on.
    """
    flags, size, rows = out[_FLAGS], row[_BYTES], out[_M]
    if flags >> _ZERO_FLAG & 1:
        chunks = rows * ((size + p.bus - 1) >> p.bus_shift)
        s.fills += chunks
        s.written = t + p.load_fill + chunks - 1
        finish[LOAD, at] = s.written + p.unit_report
        return
    if out[_JOINED]:
        size, rows = size * rows, 1
    s.load_command, s.load_start, s.load_done = at, out[_ADDRESS], 0
    s.load_bytes, s.load_stride, s.load_rows, s.broadcast = size, row[_STRIDE], rows, 0
    if flags >> _BROADCAST_FLAG & 1:
        s.load_rows, s.broadcast = 1, rows
    begin, s.load_index = t + p.load_first, -1
    if flags >> _INDEXED_FLAG & 1:
        s.load_base, s.load_index = s.load_start, index
        s.load_start += indices[index] * s.load_stride
        begin += p.index_cycles
    s.load_next = _window(p, s, begin, s.requested)


@borrowing
def _request(p, s, dram, indices, finish, until):  # type: ignore[no-untyped-def]
    """The load's bursts from that of ``load_next`` on, while they are requested before ``until``.

    The first cycle in which the rest of the device may differ by them: if the command ends, the one after. A
    memory-bound launch spends most of its time here: what a burst changes is kept in variables, which the compiler
    holds in registers as it cannot hold a record's fields.
    """
    t, number, written, done = s.load_next, s.requested, s.written, s.load_done
    row_start, rows, index, size, broadcast = s.load_start, s.load_rows, s.load_index, s.load_bytes, s.broadcast
    direction, free, refresh, next_refresh = dram.direction, dram.bus_free, dram.refresh, dram.next_refresh
    moved, changed = 0, FOREVER
    while t < until:
        at = row_start + done
        part, beats = _burst(p, at, size - done)
        start = first_beat(dram, p, t, at, free, p.turnaround if direction == 1 else 0)
        length = beats * p.beat_cycles
        start, refresh, next_refresh = after_refresh(p, start, length, refresh, next_refresh)
        direction, free = 0, start + length
        close(dram, p, at, free)
        end = free - p.beat_cycles
        s.last_beat[number & 63], s.total[number & 63] = end, s.total[(number - 1) & 63] + beats
        number += 1
        moved += beats
        first, offset = done == 0, row_start & (p.bus - 1)
        done += part
        row_ends = done == size
        after = t + 1
        if broadcast:
            # beats come at most as slowly as they are written, or the last one decides
            written = max(start + beats * broadcast, end + broadcast) + p.load_write - 1
            after = written + 1
        elif offset == 0:
            written = max(written + beats, end + p.load_write)
        else:
            # Chunk j ends with beat j + 1 if the row has it, so the last beat may complete two.
            row_beats = (offset + size + p.bus - 1) >> p.bus_shift
            row_chunks = (size + p.bus - 1) >> p.bus_shift
            extra = 1 if row_ends and row_beats == row_chunks else 0
            chunks = beats - (1 if first else 0) + extra
            late = 1 if extra and row_chunks > 1 else 0
            if chunks:
                written = max(written + chunks, end + p.load_write + late)
        if row_ends:
            done = 0
            rows -= 1
            if rows == 0:
                finish[LOAD, s.load_command] = written + p.unit_report
                s.load_command = -1
                changed = s.load_idle = t + 1 + p.unit_report
                t = FOREVER
                break
            if index < 0:
                row_start += s.load_stride
            else:
                index += 1
                row_start = s.load_base + indices[index] * s.load_stride
                after = t + p.index_cycles
        t = _window(p, s, after, number)
    s.load_beats += moved
    s.load_bursts += number - s.requested
    s.load_next, s.requested, s.written, s.load_done = t, number, written, done
    s.load_start, s.load_rows, s.load_index = row_start, rows, index
    dram.direction, dram.bus_free, dram.refresh, dram.next_refresh = direction, free, refresh, next_refresh
    return changed


@borrowing
def begin_store(p, s, t, at, row, out, indices, index):  # type: ignore[no-untyped-def]
    """A store that starts in cycle ``t``, with arguments as of :func:`begin_load`."""
    s.store_command, s.store_start, s.store_done = at, out[_ADDRESS], 0
    s.store_bytes, s.store_stride, s.store_rows = row[_BYTES], row[_STRIDE], out[_M]
    if out[_JOINED]:
        s.store_bytes, s.store_rows = s.store_bytes * s.store_rows, 1
    s.read_from, s.store_index = t + p.store_first, -1
    if out[_FLAGS] >> _INDEXED_FLAG & 1:
        s.store_base, s.store_index = s.store_start, index
        s.store_start += indices[index] * s.store_stride
        s.read_from += p.index_cycles
    s.reader_idle = FOREVER
    _plan(p, s, indices)


@borrowing
def _plan(p, s, indices):  # type: ignore[no-untyped-def]
    """Plan the reads of bursts that get a buffer, and the sending of the one that is next to arrive."""
    while True:
        if s.sent == s.arrived and s.sent < s.planned:
            b = s.sent & 3
            begin = max(s.last_read[b] + p.store_send, s.send_end[(b - 1) & 3] + 1)
            begin = max(begin, s.answer[(s.sent - p.write_bursts) & 15] + 1)
            s.store_next = s.send_end[b] = begin + s.send_beats[b] - 1
            s.sent += 1
        if s.store_command < 0 or s.planned - s.sent >= 2:
            return
        b = s.planned & 3
        at = s.store_start + s.store_done
        size, beats = _burst(p, at, s.store_bytes - s.store_done)
        s.address[b], s.send_beats[b], s.ends[b] = at, beats, -1
        s.last_read[b] = max(s.read_from, s.send_end[(b - 2) & 3] + 1) + beats - 1
        s.read_from = s.last_read[b] + 1
        s.planned += 1
        s.store_beats += beats
        s.store_bursts += 1
        s.store_done += size
        if s.store_done == s.store_bytes:
            s.store_done = 0
            s.store_rows -= 1
            if s.store_rows == 0:
                s.ends[b] = s.store_command
                s.reader_idle = s.read_from + p.unit_report
                s.store_command = -1
            elif s.store_index < 0:
                s.store_start += s.store_stride
            else:
                s.store_index += 1
                s.store_start = s.store_base + indices[s.store_index] * s.store_stride
                s.read_from = s.last_read[b] + p.index_cycles


@borrowing
def _arrive(p, s, dram, indices, finish):  # type: ignore[no-untyped-def]
    """The next store burst reaches the DRAM in ``store_next``. The first cycle that may differ by it."""
    b = s.arrived & 3
    end = serve(dram, p, s.store_next, s.address[b], s.send_beats[b], 1) + s.send_beats[b] * p.beat_cycles
    s.answer[s.arrived & 15] = end
    s.arrived += 1
    s.store_next = until = FOREVER
    if s.ends[b] >= 0:
        finish[STORE, s.ends[b]] = end + p.unit_report
        until = end + p.unit_report + 1
    reading = s.store_command >= 0
    _plan(p, s, indices)
    return min(until, s.reader_idle) if reading else until


@inlined
def advance(p, s, dram, indices, finish, until):  # type: ignore[no-untyped-def]
    """Serve all bursts with events before ``until``, the next cycle in which anything else may change.

    Returns ``until``, or an earlier cycle that a burst has made such a one. In one cycle a read is
    served before a write.
    """
    while True:
        if s.load_next <= s.store_next:
            if s.load_next >= until:
                return until
            changed = _request(p, s, dram, indices, finish, min(until, s.store_next + 1))
        else:
            if s.store_next >= until:
                return until
            changed = _arrive(p, s, dram, indices, finish)
        s.changed = min(s.changed, changed)
        until = min(until, changed)
