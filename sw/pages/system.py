"""The block diagram of the device, from its ports: what the memories and units of the RTL have is what is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.isa import Unit
from gemmule.resolve import STREAM_UNIT, STREAMS
from gemmule.sw.pages.ports import ports_of_block
from gemmule.sw.pages.svg import Drawing

__all__ = ["Path", "list_readers", "memory_paths", "system_svg"]

_STREAM_OF = {"load_r": "load.w", "matrix_read": "matrix.C", "matrix_write": "matrix.C"}
"""Ports whose stream has another name: an adding load and the matrix unit read what they write."""


@dataclass(frozen=True)
class Path:
    """One port of a memory: which stream of which unit moves rows there, and which way."""

    memory: str
    """``scratchpad`` or ``accumulator``."""
    port: str
    stream: str
    unit: Unit
    reads: bool

    @property
    def name(self) -> str:
        return f"{self.memory}.{self.port}"


def memory_paths() -> tuple[Path, ...]:
    """Every stream port of the two memories, as the RTL declares them."""
    found = []
    for memory in ("scratchpad", "accumulator"):
        for port, member in ports_of_block(memory).items():
            stream = _STREAM_OF.get(port) or next(
                name for name in STREAMS if name.lower() == port.replace("_", ".").lower())
            writes = "mask" in member.signature.members
            found.append(Path(memory, port, stream, Unit(STREAM_UNIT[STREAMS.index(stream)]), not writes))
    return tuple(found)


def list_readers() -> tuple[Unit, ...]:
    """Units that read index lists from the select unit."""
    return tuple(unit for unit in Unit if unit is not Unit.SELECT and "list" in ports_of_block(unit.label))


_UNIT_LINES = {
    Unit.LOAD: ("DRAM to memories:", "strided, gathered"),
    Unit.STORE: ("memories to DRAM:", "strided, scattered"),
    Unit.SELECT: ("argmax, top-K", "importance", "index lists", "predicates"),
    Unit.MATRIX: ("systolic mesh DIM x DIM", "weight-stationary and", "output-stationary,", "int8 and int4 weights"),
    Unit.VECTOR: ("requantisation, residual", "norms, softmax, RoPE", "tables, products", "row statistics"),
}
_BOXES = {  # x, y, width, height; load and store overlap in x so that each sees both memories
    Unit.LOAD: (190, 240, 150, 58), Unit.STORE: (250, 322, 150, 58), Unit.SELECT: (470, 240, 130, 140),
    Unit.MATRIX: (625, 240, 190, 140), Unit.VECTOR: (840, 240, 190, 140),
}
_FREE = {  # where streams may leave a unit's top and bottom
    Unit.LOAD: ((190, 300), (190, 250)), Unit.STORE: ((340, 410), (280, 400)),
}
_COMMAND = (  # the way of a command: title, lines
    ("fetch", ("bursts of", "commands")), ("resolve", ("lengths, rows,", "claims, faults")),
    ("dispatch", ("in order into", "unit queues")), ("issue, claims", ("waits, ports,", "priority")),
)
_ACC_Y, _SPM_Y, _BAR = 150, 450, 46


def _spread(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * (2 * i + 1) / (2 * count) for i in range(count)]


def _streams(d: Drawing) -> None:
    """Arrows between units and memories, spaced over what is free of a unit's edge."""
    paths = memory_paths()
    for unit, (x, y, width, height) in _BOXES.items():
        top, bottom = _FREE.get(unit, ((x, x + width), (x, x + width)))
        for memory, (low, high) in (("accumulator", top), ("scratchpad", bottom)):
            mine = [path for path in paths if (path.memory, path.unit) == (memory, unit)]
            for path, at in zip(mine, _spread(low, high, len(mine))):
                upper, kind = memory == "accumulator", "acc" if memory == "accumulator" else "spm"
                ends = [(at, _ACC_Y + _BAR), (at, y)] if upper else [(at, _SPM_Y), (at, y + height)]
                d.arrow(*(ends if path.reads else ends[::-1]), kind=kind, name=path.name)
                d.text(at + 4, (_ACC_Y + _BAR + 17) if upper else (_SPM_Y - 12), path.stream, "t l")


def system_svg() -> str:
    """The block diagram of the device."""
    d = Drawing(1080, 570, "Gemmule: blocks, streams and memory ports of the device")
    # The way of a command, from the host's start to a unit's start.
    y, height, middle = 36.0, 62.0, 67.0
    d.box(20, y, 100, height, "bus", name="host", title="host", lines=("writes registers", "gets interrupt"))
    d.box(180, y, 120, height, name="csr", title="csr, control", lines=("registers, start", "counters, watchdog"))
    d.arrow((120, middle - 9), (180, middle - 9), kind="bus", name="axi-lite")
    d.text(150, middle - 15, "AXI4-Lite", "t")
    d.arrow((180, middle + 13), (120, middle + 13), kind="bus", name="irq")
    d.text(150, middle + 25, "irq", "t")
    width, gap, x = 148, 32, 360.0
    d.arrow((300, middle), (x, middle), name="start")
    d.text(330, middle - 6, "start", "t")
    for i, (title, lines) in enumerate(_COMMAND):
        if i:
            d.arrow((x - gap, middle), (x, middle))
        if title == "resolve":
            d.line((240, y), (240, 18), (x + width / 2, 18))
            d.arrow((x + width / 2, 18), (x + width / 2, y), name="registers")
        d.box(x, y, width, height, name=title.partition(",")[0], title=title, lines=lines)
        x += width + gap
    d.text(416, 13, "length, base and limit registers", "t")
    # Units, in one frame: issue starts them all.
    frame = (160, 218, 900, 186)
    d.box(*frame, "frame", name="units", radius=8)
    d.text(421, frame[1] + frame[3] - 9, "five in-order units", "t")
    x -= gap + 14
    d.arrow((x, y + height), (x, frame[1]), both=True, name="unit-control")
    d.text(x - 8, 122, "start a command", "t r")
    d.text(x - 8, 135, "finish, release, predicates", "t r")
    # Memories.
    bar = _BOXES[Unit.VECTOR][0] + _BOXES[Unit.VECTOR][2] - 190 - 10
    d.box(190, _ACC_Y, bar, _BAR, "memory", name="accumulator", title="accumulator",
          lines=("banks of int32 rows of DIM, each with one read and one write port",))
    d.box(190, _SPM_Y, bar, _BAR, "memory", name="scratchpad", title="scratchpad",
          lines=("banks of int8 rows of DIM, each with one read and one write port",))
    # DRAM: fetch and load share the read port.
    d.box(20, 180, 70, 316, "bus", name="dram", title="DRAM", lines=("AXI4",))
    load, store = _BOXES[Unit.LOAD], _BOXES[Unit.STORE]
    y = load[1] + 29
    d.box(112, y - 22, 30, 44, name="read_arbiter", radius=3)
    d.text(127, y + 36, "read", "t")
    d.text(127, y + 47, "arbiter", "t")
    d.arrow((90, y), (112, y), kind="bus", name="axi-read")
    d.arrow((142, y), (load[0], y), kind="bus", name="read-load")
    d.arrow((127, y - 22), (127, 124), (416, 124), (416, 98), kind="bus", name="read-fetch")
    d.text(270, 118, "program", "t")
    d.arrow((store[0], store[1] + 42), (90, store[1] + 42), kind="bus", name="axi-write")
    d.text(104, y - 28, "R", "t")
    d.text(104, store[1] + 38, "W", "t")
    _streams(d)
    # Index lists: from the select unit to whoever gathers or scatters.
    select = _BOXES[Unit.SELECT]
    for unit in list_readers():
        x0, y0, wide, high = _BOXES[unit]
        d.arrow((select[0], y0 + high / 2 + 8), (x0 + wide, y0 + high / 2 + 8), kind="list", name=f"list.{unit.label}")
        d.text(select[0] - 6, y0 + high / 2 + 3, "index lists", "t r")
    for unit, (x0, y0, wide, high) in _BOXES.items():
        d.box(x0, y0, wide, high, "unit", name=unit.label, title=unit.label, lines=_UNIT_LINES[unit])
    d.text(190, 530, "Arrows at the memories are claim streams, one for each port of the RTL; different streams never "
           "hold one bank's port at a time.", "s l")
    d.text(190, 546, "matrix.C reads and writes (it adds in place); load.w reads where it adds.", "s l")
    return d.svg()
