"""Random single commands. They need not be legal; the builder in ``generate.py`` drops those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.isa import MAX_LENGTH, Command, Dyn, MatrixFlag, MoveFlag, Unit, VOp
from gemmule.sim.fuzz.draw import HOLLOW, NEAR, TARGETS, Draw, Note, sets_of
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.fuzz.select import draw_select
from gemmule.sim.fuzz.vector import draw_vector

__all__ = ["draw_command"]

LONG = 1 << 16
"""Bytes of a row whose number of blocks has more bits than any other length."""


def draw_command(draw: Draw) -> tuple[Command, Sequence[Note]]:
    """A command and what it sets up."""
    draw.asked = 0
    if not draw.hollow and draw.chance(0.003):
        draw.hollow = HOLLOW
    if draw.storm:
        draw.asked = 1
        return draw.storm.pop(), ()
    unit = Unit(draw.integer(0, len(Unit) - 1) if draw.hollow else int(draw.random.choice(len(Unit), p=draw.weights)))
    if draw.wished is not None:
        unit = Unit.VECTOR if isinstance(draw.wished, VOp) else Unit.SELECT
        if draw.chance(0.05):  # may be that it cannot be
            draw.wish = None
    draw.unit = unit
    if unit is Unit.VECTOR:
        return draw_vector(draw)
    if unit is Unit.SELECT:
        return draw_select(draw)
    return (_matrix(draw) if unit is Unit.MATRIX else _move(draw, unit)), ()


def _move(draw: Draw, unit: Unit) -> Command:
    config = draw.config
    flags: frozenset[int] = draw.choice(sets_of(config, unit)) if draw.chance(0.7) else frozenset()
    words = MoveFlag.ACCUMULATOR in flags and MoveFlag.NARROW not in flags
    width, element = (4 * config.dim, 4) if words else (config.dim, 1)
    rows, size = _move_size(draw, unit, flags, width, element)
    grain = config.bus_bytes if draw.chance(0.4) else 1
    stride = -(-size // grain) * grain + grain * draw.choice([0, 0, 1, draw.integer(0, 64)])
    least = max(config.bus_bytes, element)
    if draw.chance(0.15):  # rows that may be joined
        size = stride = -(-size // least) * least
        if unit is Unit.LOAD and size and config.beats_bind and draw.chance(0.2):  # of more beats than may be in flight
            rows = (config.read_beats + config.burst_beats) * config.bus_bytes // size + draw.integer(1, 9)
    row_stride, block_stride = _layout(draw, rows, max(1, -(-size // width)))
    # Many short rows, all from one row of the memory: they fill the write channel.
    round_trip = (config.dram.latency + 10) / config.write_bursts
    if unit is Unit.STORE and (many := draw.long(Frame(config, 0).target // 2 // least, round_trip)):
        rows, size = many, draw.integer(1, min(least, width) // element) * element
        stride, row_stride = least + (size == least), 0  # joined they were one
    values: dict[str, Any] = {
        **_move_dram(draw, unit, flags, stride, element, aligned=grain == config.bus_bytes),
        "bytes": size, "row_stride": row_stride,
        "row": 0 if size >= LONG else draw.row("acc" if MoveFlag.ACCUMULATOR in flags else "spm"),
        "block_stride": block_stride, "list": draw.run(config.list_entries, rows),
    }
    row = Dyn.DST if unit is Unit.LOAD else Dyn.SRC0
    dyn = draw.dynamic(*draw.choice([(row, values, "row")] * 2 + [(Dyn.SRC1, values, "list")]))
    return Command.make(unit, flags=flags, dyn=dyn, rows=draw.length(rows), **values)


def _move_size(draw: Draw, unit: Unit, flags: frozenset[int], width: int, element: int) -> tuple[int, int]:
    """Rows, and bytes of each: short ones mostly, for DRAM is slow, and the other units are to keep up with it."""
    config = draw.config
    rows = draw.size(3) if draw.chance(0.2) else draw.size(1) and draw.integer(1, 4)
    most = 4 * width if draw.chance(0.8) else max(width, 3 * config.burst_bytes)
    size = 0 if draw.chance(0.03) else draw.integer(1, most // element) * element
    if draw.chance(0.3):
        size = -(-size // width) * width
    if unit is Unit.LOAD and rows and draw.chance(0.15):  # more bursts than may be in flight
        rows, size = config.read_bursts + draw.integer(1, 24), draw.integer(1, width // element) * element
        if draw.chance(0.05) and MoveFlag.ACCUMULATOR not in flags:  # legal where the scratchpad holds it
            rows, size = 1, LONG + draw.integer(0, 4 * width)
    return rows, size


def _layout(draw: Draw, rows: int, blocks: int) -> tuple[int, int]:
    """Distances of rows and of blocks in the memory."""
    layout = draw.choice(["rows", "blocks", "free", "powers"])
    found: tuple[int, int] = {
        "rows": (1, rows + draw.integer(0, 3)), "blocks": (blocks, 1),
        "free": (draw.integer(1, 2 * blocks), draw.integer(1, 2 * max(rows, 1))),
        "powers": (1 << draw.integer(0, 8), 1 << draw.integer(0, 8)),
    }[layout]
    return found


def _move_dram(draw: Draw, unit: Unit, flags: frozenset[int], stride: int, element: int, *,
               aligned: bool) -> dict[str, int]:
    """Where in DRAM the rows lie; stores go above what loads read."""
    bus, last_index, most = draw.config.bus_bytes, 0, (1 << draw.config.index_bits) - 1
    if MoveFlag.INDEXED in flags:
        last_index = draw.integer(0, 40)
        if unit is Unit.LOAD and draw.chance(0.4):  # every index counts that 16 bits hold, or that there is
            stride = draw.choice([0, 1, 1])
            last_index = draw.choice([MAX_LENGTH, draw.integer(0, MAX_LENGTH)])
            if not stride or draw.chance(0.3):  # far rows are seldom in DRAM
                last_index = draw.choice([most, draw.integer(0, most)])
    near = unit is Unit.LOAD and draw.chance(0.9)
    base, offset = draw.base(NEAR) if near else draw.base(TARGETS), draw.integer(0, 4096)
    if near and 0 in draw.moved and draw.chance(0.3):  # which sees everything
        base = 0
    if last_index >= MAX_LENGTH:  # where so many rows fit best
        base = min(NEAR, key=lambda register: int(draw.bases[register]))
    if element > 1 and draw.chance(0.5):
        offset += -(int(draw.bases[base]) + offset) % element
    if aligned or MoveFlag.BROADCAST in flags:
        offset += -(int(draw.bases[base]) + offset) % bus
    return {"base": base, "offset": offset, "stride": stride, "last_index": last_index}


def _matrix(draw: Draw) -> Command:
    preload, dim = draw.config.preload, draw.config.dim
    flags = _matrix_flags(draw)
    reuse = MatrixFlag.REUSE in flags
    m = draw.size(2 if draw.chance(0.6) else 4)
    n, k = (draw.size(1 if reuse or draw.chance(0.2) else 4 * draw.roomy) for _ in range(2))
    depth, group = -(-k // dim), draw.integer(0, 2) if draw.chance(0.7) else draw.integer(0, 15)
    b_lines = n if MatrixFlag.B_TRANSPOSED in flags else k
    if MatrixFlag.B_INT4 in flags:
        b_lines = -(-b_lines // 2)
    if MatrixFlag.GROUP_SCALES in flags and k:
        b_lines = depth * dim // 2 + (depth - 1 >> group) + 1
    a_row = draw.row()
    b_row = draw.partner(a_row, 0.0 if MatrixFlag.OUTPUT_STATIONARY in flags else draw.share)
    values: dict[str, Any] = {
        "a_row": a_row, "a_stride": draw.stride(k if MatrixFlag.A_TRANSPOSED in flags else m),
        "b_row": b_row // preload * preload, "b_stride": -(-draw.stride(b_lines) // preload) * preload,
        "c_row": draw.row("acc"), "c_stride": draw.stride(m), "group": group,
    }
    # A very long sum takes the same tiles of A and B again and again.
    if MatrixFlag.B_TRANSPOSED in flags and MatrixFlag.A_TRANSPOSED not in flags and m and n and (
            depth := draw.long(MAX_LENGTH, 3 * (-(-n // dim)) * max(m, dim) / dim)):
        k, values["a_stride"], values["b_stride"] = depth, 0, 0
    dyn = draw.dynamic(*draw.choice([
        (Dyn.SRC0, values, "a_row"), (Dyn.SRC1, values, "b_row"), (Dyn.DST, values, "c_row")]))
    return Command.make(
        Unit.MATRIX, flags=flags, dyn=dyn, m=draw.length(m), n=draw.length(n), k=draw.length(k), **values)


def _matrix_flags(draw: Draw) -> frozenset[int]:
    """A legal set, of a dataflow that the program likes."""
    point, kind = float(draw.random.random()), None
    if point < draw.output and draw.config.output_stationary:
        kind = MatrixFlag.OUTPUT_STATIONARY
    elif point < draw.output + draw.reuse:
        kind = MatrixFlag.REUSE
    special, wanted = {MatrixFlag.OUTPUT_STATIONARY, MatrixFlag.REUSE}, {kind} if kind is not None else set()
    found: frozenset[int] = draw.choice(
        [flags for flags in sets_of(draw.config, Unit.MATRIX) if flags & special == wanted])
    return found
