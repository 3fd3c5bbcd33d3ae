"""The slowest paths of a routed design, by the pair of units that they begin and end in.

nextpnr reports one path a clock. Its SDF file (``--sdf``) has what that one is made of: the delay of every wire and
through every cell, from clock to output, and the setup of every input. From these the latest arrival at every
register, for each unit that a path to it may begin in, is one walk over the netlist in the direction of the data.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Delays", "Pair", "delays_of", "slowest"]

_WIRE = re.compile(r"\(INTERCONNECT (\S+) (\S+) (.*)\)$")
_ARC = re.compile(r"\(IOPATH (\S+) (\S+) (.*)\)$")
_CHECK = re.compile(r"\(SETUPHOLD \(posedge (\S+)\) \(\w+ (\S+)\) \(([^)]*)\)")


@dataclass(frozen=True)
class Pair:
    """The slowest path from a register of one unit to one of another, or of the same."""

    start_unit: str
    end_unit: str
    ns: float
    """Clock to output, cells, wires and setup, as nextpnr's Fmax has them."""
    mhz: float
    cells: int
    """Combinational cells on the path; two of a carry chain in one carry cell count once for each arc."""
    routing_ns: float
    start: str
    end: str


@dataclass(frozen=True)
class Delays:
    """A design's timing arcs, in ps; pins are ``cell/port``."""

    wires: dict[str, list[tuple[str, float]]] = field(default_factory=lambda: defaultdict(list))
    """Output pin to the input pins that it drives."""
    arcs: dict[str, list[tuple[str, float]]] = field(default_factory=lambda: defaultdict(list))
    """Input pin to outputs of its cell."""
    launches: dict[str, float] = field(default_factory=dict)
    """Output pin of a register to its delay from the clock."""
    setups: dict[str, float] = field(default_factory=dict)
    """Input pin of a register."""


def _latest(text: str) -> float:
    """The largest of an SDF delay's values."""
    return max(map(float, re.findall(r"[^\s():]+", text)))


def delays_of(lines: Iterable[str]) -> Delays:
    """Read an SDF file as nextpnr writes it, one entry a line."""
    found, cell = Delays(), ""
    paths: list[tuple[str, str, float]] = []  # of this cell
    clocks: set[str] = set()

    def close() -> None:
        for start, end, ps in paths:
            if start in clocks:
                found.launches[f"{cell}/{end}"] = ps
            else:
                found.arcs[f"{cell}/{start}"].append((f"{cell}/{end}", ps))
        paths.clear()
        clocks.clear()

    for raw in lines:
        line = raw.strip().replace("\\", "")
        if wire := _WIRE.match(line):
            found.wires[wire[1]].append((wire[2], _latest(wire[3])))
        elif arc := _ARC.match(line):
            paths.append((arc[1], arc[2], _latest(arc[3])))
        elif check := _CHECK.match(line):
            clocks.add(check[2])
            found.setups[f"{cell}/{check[1]}"] = _latest(check[3])
        elif line.startswith("(INSTANCE"):
            close()
            cell = line.removeprefix("(INSTANCE").removesuffix(")").strip()
    close()
    return found


@dataclass(frozen=True, order=True)
class _Path:
    ps: float
    wires: float
    cells: int
    start: str

    def on(self, *, wire: float = 0, cell: float = 0, cells: int = 0) -> _Path:
        return _Path(self.ps + wire + cell, self.wires + wire, self.cells + cells, self.start)


def slowest(delays: Delays, unit: Callable[[str], str]) -> Sequence[Pair]:
    """The slowest path of every pair of units, slowest first.

    Parameters
    ----------
    unit: which unit a cell belongs to.
    """
    before: defaultdict[str, int] = defaultdict(int)  # arcs into an output pin that have not been walked
    for sinks in delays.wires.values():
        for pin, _ in sinks:
            for output, _ in delays.arcs.get(pin, ()):
                before[output] += 1
    arrivals: defaultdict[str, dict[str, _Path]] = defaultdict(dict)  # at an output pin, by the unit of the start
    worst: dict[tuple[str, str], tuple[_Path, str]] = {}
    for pin, ps in delays.launches.items():
        cell = pin.rpartition("/")[0]
        arrivals[pin][unit(cell)] = _Path(ps, 0, 0, cell)
    ready = [pin for pin in delays.wires if not before[pin]]
    while ready:
        pin = ready.pop()
        arrived = arrivals.pop(pin, {})
        for sink, wire in delays.wires.get(pin, ()):
            if sink in delays.setups:
                cell = sink.rpartition("/")[0]
                end_unit = unit(cell)
                for start_unit, path in arrived.items():
                    ended = path.on(wire=wire, cell=delays.setups[sink])
                    if (start_unit, end_unit) not in worst or worst[start_unit, end_unit][0] < ended:
                        worst[start_unit, end_unit] = ended, cell
            for output, ps in delays.arcs.get(sink, ()):
                there = arrivals[output]
                for start_unit, path in arrived.items():
                    later = path.on(wire=wire, cell=ps, cells=1)
                    if start_unit not in there or there[start_unit] < later:
                        there[start_unit] = later
                before[output] -= 1
                if not before[output]:
                    ready.append(output)
    return [Pair(start_unit, end_unit, round(path.ps / 1000, 2), round(1e6 / path.ps, 1), path.cells,
                 round(path.wires / 1000, 2), path.start, end)
            for (start_unit, end_unit), (path, end) in sorted(worst.items(), key=lambda item: -item[1][0].ps)]
