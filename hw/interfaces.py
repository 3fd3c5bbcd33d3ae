"""Signatures between blocks: memory ports, resolved commands, unit control, AXI.

Memory reads have one cycle of latency: an address given with ``en`` in cycle x returns data in
x + 1. Nothing here has backpressure except AXI: port claims, granted at issue, keep streams apart.
"""

from __future__ import annotations

from enum import IntEnum

from amaranth.hdl import Array, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.isa import LENGTHS, MAX_LENGTH, MatrixFlag, MoveFlag, Unit, field_bits

__all__ = [
    "AccRead", "AccWrite", "ENTRY_BITS", "FREE", "ListRead", "SpmRead", "SpmWrite", "UnitControl", "axi_read",
    "axi_write", "matrix_layout", "move_layout", "part", "read_request", "select_layout", "shared_bit",
    "vector_layout",
]

ROW_BITS = field_bits(Unit.LOAD, "row")
LENGTH_BITS = MAX_LENGTH.bit_length()
ENTRY_BITS = field_bits(Unit.LOAD, "list")
"""The number of an entry of the index lists, or of a key; an entry itself has ``index_bits``."""
COUNT_BITS = 24
"""Width of dispatched and finished counters."""
FREE = {"no_rw_check": 1}
"""Attributes of a memory whose users never need what a row holds that is written in the cycle of its read."""


def part(value: Value, index: Value, width: int) -> Value:
    """Part ``index`` (modulo the number of parts, a power of two) of ``value``, ``width`` bits."""
    bits = exact_log2(len(value) // width)
    parts = Array(value[i:i + width] for i in range(0, len(value), width))  # a choice, where word_select shifts
    return parts[index[:bits]] if bits else value


def shared_bit(*flags: IntEnum) -> int:
    """The bit that a flag of several operations has in all of them, for hardware that serves them alike.

    Raises:
        ValueError: they stand at different bits.
    """
    if len(set(map(int, flags))) != 1:
        raise ValueError(f"flags must share one bit, not {', '.join(map(repr, flags)) or 'none'}")
    return int(flags[0])


def SpmRead(config: Config, rows: int = 1) -> wiring.Signature:
    """Scratchpad read stream, seen from the reader; ``rows`` aligned rows come back at once."""
    return wiring.Signature({
        "en": Out(1),
        "row": Out(ROW_BITS),
        "data": In(rows * config.dim * 8),
    })


def SpmWrite(config: Config) -> wiring.Signature:
    """Scratchpad write stream, seen from the writer; ``mask`` has one bit per lane (byte)."""
    return wiring.Signature({
        "en": Out(1),
        "row": Out(ROW_BITS),
        "mask": Out(config.dim),
        "data": Out(config.dim * 8),
    })


def AccRead(config: Config) -> wiring.Signature:
    """Accumulator read stream, seen from the reader: one row of int32 lanes."""
    return wiring.Signature({
        "en": Out(1),
        "row": Out(ROW_BITS),
        "data": In(config.dim * 32),
    })


def AccWrite(config: Config) -> wiring.Signature:
    """Accumulator write stream, seen from the writer; ``mask`` has one bit per lane (int32)."""
    return wiring.Signature({
        "en": Out(1),
        "row": Out(ROW_BITS),
        "mask": Out(config.dim),
        "data": Out(config.dim * 32),
    })


def _fields(unit: Unit, *names: str) -> dict[str, int]:
    """Fields that a unit gets as they stand in the command, with their widths."""
    return {name: field_bits(unit, name) for name in names}


def _lengths(unit: Unit) -> dict[str, int]:
    """The unit's resolved lengths."""
    return dict.fromkeys(LENGTHS[unit], LENGTH_BITS)


def move_layout(config: Config) -> data.StructLayout:
    """Resolved load or store: DRAM address and first row are final, ``rows`` is a length.

    ``joined``: the DRAM rows are one long row, and ``stride`` is its bytes.
    """
    return data.StructLayout({
        "zero": 1, "joined": 1, "flags": len(MoveFlag), "address": config.address_bits, **_lengths(Unit.LOAD),
        **_fields(Unit.LOAD, "bytes", "list", "row", "row_stride", "block_stride"),
        "last_index": config.index_bits, "stride": max(field_bits(Unit.LOAD, "stride"), config.address_bits),
    })


def matrix_layout(config: Config) -> data.StructLayout:
    """Resolved matrix command."""
    return data.StructLayout({
        "zero": 1, "flags": len(MatrixFlag), **_lengths(Unit.MATRIX),
        **_fields(Unit.MATRIX, "a_row", "a_stride", "b_row", "b_stride", "c_row", "c_stride", "group"), "apart": 1,
    })


def vector_layout(config: Config) -> data.StructLayout:
    """Resolved vector command."""
    return data.StructLayout({
        "zero": 1, **_fields(Unit.VECTOR, "op", "flags"), **_lengths(Unit.VECTOR),
        **_fields(Unit.VECTOR, "src0", "src0_stride", "src1", "aux", "dst", "dst_stride", "mult", "shift", "shift2",
                  "context", "period"),
        "apart": 1, "after": LENGTH_BITS,
    })


def select_layout(config: Config) -> data.StructLayout:
    """Resolved select command."""
    return data.StructLayout({
        "zero": 1, **_fields(Unit.SELECT, "op", "flags"), **_lengths(Unit.SELECT),
        **_fields(Unit.SELECT, "src0", "src0_stride", "dst", "aux", "shift", "number"),
        "first": config.index_bits,
    })


def ListRead(config: Config) -> wiring.Signature:
    """Read stream of the list memory, seen from the reader: data one cycle after ``en``."""
    return wiring.Signature({"en": Out(1), "entry": Out(ENTRY_BITS), "data": In(config.index_bits)})


def UnitControl(layout: data.StructLayout, streams: int) -> wiring.Signature:
    """Between issue logic and a unit, seen from the issue logic.

    Members
    -------
    start: Out(1)
        High in the start cycle t, with ``command``; the unit latches both at the end of t.
    command: Out(layout)
        Resolved command at the head of the unit's queue (valid also before ``start``).
    ready: In(1)
        The unit could take a command of non-zero length in this cycle. (The issue logic itself counts
        commands in flight, limits them, and holds back commands that run alone.)
    finish: In(1)
        High in cycle f for one cycle per command, in order.
    release: In(streams)
        Bit i high in cycle x: the oldest claim of the unit's stream i is no longer held in x + 1.
        Zero-length commands hold no claims and release nothing.
    """
    return wiring.Signature({
        "start": Out(1),
        "command": Out(layout),
        "ready": In(1),
        "finish": In(1),
        "release": In(streams),
    })


def axi_read(config: Config) -> wiring.Signature:
    """AXI4 read channels seen from the manager (one ID, INCR bursts, full-width beats)."""
    return wiring.Signature({
        "arvalid": Out(1), "arready": In(1), "araddr": Out(config.address_bits), "arlen": Out(8),
        "rvalid": In(1), "rready": Out(1), "rdata": In(config.bus_bytes * 8), "rresp": In(2),
        "rlast": In(1),
    })


def axi_write(config: Config) -> wiring.Signature:
    """AXI4 write channels seen from the manager."""
    return wiring.Signature({
        "awvalid": Out(1), "awready": In(1), "awaddr": Out(config.address_bits), "awlen": Out(8),
        "wvalid": Out(1), "wready": In(1), "wdata": Out(config.bus_bytes * 8),
        "wstrb": Out(config.bus_bytes), "wlast": Out(1),
        "bvalid": In(1), "bready": Out(1), "bresp": In(2),
    })


def read_request(config: Config) -> wiring.Signature:
    """One requester of DRAM reads, seen from the requester.

    A request, once offered, is held until ``req_ready``. Beats come in request order and need no
    ready: whoever requests has room.
    """
    return wiring.Signature({
        "req_valid": Out(1), "req_ready": In(1), "req_addr": Out(config.address_bits),
        "req_len": Out(8),
        "beat_valid": In(1), "beat_data": In(config.bus_bytes * 8), "beat_last": In(1),
        "beat_resp": In(2),
    })
