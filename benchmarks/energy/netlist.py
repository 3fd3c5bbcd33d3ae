"""A flat netlist of standard cells and memory macros as arrays, for :mod:`.gates`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.energy.liberty import GATES, Cell
from gemmule.hw.flow.standard.cells import PREFIX, TIE
from gemmule.hw.flow.standard.spice import VOLTS

__all__ = ["MOST_INPUTS", "STEP_NS", "Memory", "Netlist", "read_netlist"]

MOST_INPUTS = 4
STEP_NS = 0.01
"""Resolution of delays."""
_INSTANCE = re.compile(r"^  (\S+) (\\\S+ |\w+) \(\n((?:    \..*\n)+)  \);", re.MULTILINE)
_PIN = re.compile(r"^    \.(\w+)\((.*)\),?$", re.MULTILINE)
_PORT = re.compile(r"^  (input|output) (?:\[(\d+):0\] )?(\S+);", re.MULTILINE)
_MACRO = re.compile(r"macro_(\d+)x(\d+)_(\d+)r(\d+)w(?:_\d+)?")


@dataclass(frozen=True)
class Memory:
    """A macro: nets of its ports, the lowest bit first."""

    name: str
    rows: int
    width: int
    ports: Mapping[str, np.ndarray]
    """RD_ADDR and RD_DATA [reads, bits], RD_EN and RD_SRST [reads], WR_ADDR, WR_DATA, WR_EN [writes, bits]."""


@dataclass(frozen=True)
class Netlist:
    """Gates by number, nets by number; energies in pJ."""

    nets: int
    zero: int
    one: int
    ports: Mapping[str, np.ndarray]
    """Nets of every port of the module, the lowest bit first."""
    inputs: np.ndarray
    """int32 [gates, MOST_INPUTS]: nets, ``zero`` where there are fewer."""
    function: np.ndarray
    """int32 [gates]: bit i is the output for inputs i."""
    output: np.ndarray
    delay: np.ndarray
    """int32 [gates]: steps, at least 1."""
    flip_flops: np.ndarray
    """int32 [flip-flops, 3]: data, output, delay."""
    memories: Sequence[Memory]
    rise: np.ndarray
    """float [nets]: taken from the supply when the net rises: of its driver and of flip-flops whose data it is."""
    fall: np.ndarray
    clock_pj: float
    """Of all flip-flops, a period: their inside and the charge of their clock inputs."""
    leakage_nw: float
    kinds: Mapping[str, int]
    """Cells by kind."""


class _Nets:
    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"1'h0": 0, "1'h1": 1}
        self.widths: dict[str, int] = {}

    def one(self, name: str) -> int:
        name = name.strip()
        return self.numbers.setdefault(name, len(self.numbers))

    def bits(self, text: str) -> list[int]:
        """Of an expression, the lowest bit first."""
        text = text.strip()
        if text.startswith("{"):
            return [net for part in reversed(text[1:-1].split(",")) for net in self.bits(part)]
        if found := re.fullmatch(r"(\S+?)\s*\[(\d+):(\d+)\]", text):
            return [self.one(f"{found[1]}[{i}]") for i in range(int(found[3]), int(found[2]) + 1)]
        if (width := self.widths.get(text)) is not None:
            return [self.one(f"{text}[{i}]") for i in range(width)]
        if found := re.fullmatch(r"(\d+)'[hb]([0-9a-f]+)", text):
            value = int(found[2], 16 if "h" in text else 2)
            return [value >> i & 1 for i in range(int(found[1]))]
        return [self.one(text)]


def _lookup(name: str) -> tuple[list[str], int]:
    """Input pins of a gate, and its output for each of their values."""
    gate = GATES[name]
    pins = gate.inputs
    value = sum(gate.value({pin: number >> i & 1 for i, pin in enumerate(pins)}) << number
                for number in range(1 << len(pins)))
    return pins, sum(value << (shift << len(pins)) for shift in range(1 << MOST_INPUTS - len(pins)))


def read_netlist(path: Path, cells: Mapping[str, Cell]) -> Netlist:
    """Read what :func:`gemmule.hw.flow.standard.mapped.map_cells` wrote."""
    text, nets = path.read_text(), _Nets()
    ports: dict[str, np.ndarray] = {}
    for _, high, name in _PORT.findall(text):
        nets.widths.update({name: int(high) + 1} if high else {})
    for _, _, name in _PORT.findall(text):
        ports[name] = np.array(nets.bits(name))
    lookups = {name: _lookup(name) for name in GATES}
    inputs, function, outputs, kinds, drivers = [], [], [], [], []
    flip_flops, memories, ties, counts = [], [], [], dict.fromkeys([*GATES, "macro"], 0)
    pad = [0] * MOST_INPUTS
    for kind, name, body in _INSTANCE.findall(text):
        pins = dict(_PIN.findall(body))
        counts[kind if kind.startswith(PREFIX) else "macro"] = counts.get(kind, 0) + 1
        if kind in lookups:
            names, table = lookups[kind]
            wired = [nets.one(pins[pin]) for pin in names]
            inputs.append((wired + pad)[:MOST_INPUTS])
            function.append(table)
            outputs.append(nets.one(pins[GATES[kind].output]))
            kinds.append(kind)
        elif kind == PREFIX + TIE:
            ties += [(nets.one(net), int(pin == "HI")) for pin, net in pins.items()]
        elif kind in cells:
            flip_flops.append((nets.one(pins["D"]), nets.one(pins["Q"])))
            drivers.append(kind)
        else:
            memories.append(_memory(name.strip(), kind, {pin: nets.bits(net) for pin, net in pins.items()}))
    count = len(nets.numbers)
    load = np.zeros(count)
    for kind in set(kinds):
        chosen = [i for i, other in enumerate(kinds) if other == kind]
        for place, pin in enumerate(lookups[kind][0]):
            np.add.at(load, [inputs[i][place] for i in chosen], cells[kind].capacitances[pin])
    for (data, _), kind in zip(flip_flops, drivers):
        load[data] += cells[kind].capacitances["D"]
    delay, rise, fall = np.ones(len(outputs), dtype=np.int32), np.zeros(count), np.zeros(count)

    def drive(kind: str, net: int) -> int:
        cell = cells[kind]
        rise[net] += np.interp(load[net], cell.loads, cell.rise)
        fall[net] += np.interp(load[net], cell.loads, cell.fall)
        return max(1, round(float(np.interp(load[net], cell.loads, cell.delay)) / STEP_NS))

    for i, (kind, net) in enumerate(zip(kinds, outputs)):
        delay[i] = drive(kind, net)
    registers = np.array([(data, net, drive(kind, net)) for (data, net), kind in zip(flip_flops, drivers)],
                         dtype=np.int32).reshape(-1, 3)
    for (data, _), kind in zip(flip_flops, drivers):
        rise[data] += cells[kind].data[0]
        fall[data] += cells[kind].data[1]
    clock = sum(cells[kind].clock + cells[kind].capacitances["CLK"] * VOLTS ** 2 for kind in drivers)
    leaks = sum(cells[kind].leakage_nw for kind in kinds)
    # Constant nets become the two constants.
    constant = np.arange(count)
    for net, value in ties:
        constant[net] = value
    made = constant[np.array(inputs, dtype=np.int32).reshape(-1, MOST_INPUTS)].astype(np.int32)
    registers[:, 0] = constant[registers[:, 0]]
    memories = [Memory(m.name, m.rows, m.width, {p: constant[n] for p, n in m.ports.items()}) for m in memories]
    return Netlist(count, 0, 1, ports, made, np.array(function, dtype=np.int32), np.array(outputs, dtype=np.int32),
                   delay, registers, memories, rise, fall, clock, leaks,
                   {kind: number for kind, number in counts.items() if number})


def _memory(name: str, kind: str, pins: Mapping[str, list[int]]) -> Memory:
    shape = _MACRO.fullmatch(kind)
    assert shape is not None, kind
    rows, width, reads, writes = map(int, shape.groups())
    count = {"RD": reads, "WR": writes}
    ports = {pin: np.array(nets).reshape(count[pin[:2]], -1) for pin, nets in pins.items() if not pin.endswith("CLK")}
    enables = ports["WR_EN"]  # each for as many bits, the lowest first
    ports["WR_EN"] = np.repeat(enables, width // enables.shape[1], axis=1)
    return Memory(name, rows, width, ports)
