"""Delays, transitions, setup, capacitance, energy and leakage of cells, by simulation of their transistors.

Every gate: each input, under the assignment of the others that is slowest at a middle point, with five transition times
and five loads; a load is scaled by the drive of the cell. Setup of a flip-flop: the latest arrival of data that delays
the output by no more than 10 %, as the library's publisher has it. Hold times are not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.hw.flow.standard.cells import Gate, Sensitive
from gemmule.hw.flow.standard.spice import SLEW, VOLTS, Deck

__all__ = ["LOADS_PF", "SETUP_NS", "SLEWS_NS", "Arc", "FlipFlop", "Table", "FlipFlopEnergy", "arcs_of", "capacitances",
           "flip_flop_energy", "flip_flop_of", "leakage"]

SLEWS_NS = (0.01, 0.0531329, 0.122474, 0.282311, 0.650743)
LOADS_PF = (0.0005, 0.00346659, 0.00912787, 0.0240345, 0.0632852)
"""Of a cell of drive 1. Both are among the publisher's own, so that tables compare number by number."""
SETUP_NS = (0.01, 0.1, 0.5)
"""Transition times of clock and data."""
START = 0.2
HIGH = 6.5
"""ns from an edge to the opposite one: four transistors in series take five with the largest load."""
DEGRADED = 1.1
Table = list[list[float]]


@dataclass(frozen=True)
class Arc:
    """An input's effect on the output; tables by transition time and load, ns and pJ."""

    pin: str
    sense: str
    rise: Table
    fall: Table
    rise_transition: Table
    fall_transition: Table
    rise_energy: Table
    """From the supply while the output rises, less half of what the load takes (Liberty's internal power)."""
    fall_energy: Table


def _pulse(deck: Deck, net: str, slew: float) -> None:
    ramp = slew / SLEW
    deck.wave(net, [(0, 0), (START, 0), (START + ramp, VOLTS), (START + HIGH, VOLTS), (START + HIGH + ramp, 0)])


def _instance(deck: Deck, name: str, gate: Gate, pin: str, case: Sensitive, net: str, load: float) -> None:
    """One gate whose ``pin`` is driven, with delays ``d*``, transitions ``t*`` and charges ``q*`` of both edges."""
    output = f"o{name}"
    nets = {gate.output: output, pin: net, **{other: "vdd" if bit else "0" for other, bit in case.others.items()}}
    deck.add(name, gate.name, nets, {output: load})
    for kind, edge in (("rise", "fall=1" if case.inverting else "rise=1"),
                       ("fall", "rise=1" if case.inverting else "fall=1")):
        deck.delay(f"d{kind}{name}", net, edge, output, f"{kind}=1")
        deck.transition(f"t{kind}{name}", output, kind)
        begin = START + HIGH * ((kind == "rise") == case.inverting)
        deck.measure(f"q{kind}{name}", f"integ i(v{name}) from={begin}n to={begin + HIGH * 0.999}n")


def _slowest(gate: Gate, pin: str, found: dict[str, float], kind: str) -> Sensitive:
    cases = gate.sensitive(pin)
    return cases[max(range(len(cases)), key=lambda k: found[f"d{kind}{pin.lower()}{k}"])]


def arcs_of(gate: Gate, model: str) -> list[Arc]:
    """Every input's arc."""
    middle = Deck(model)
    middle.lines.append(f"Vdd vdd 0 {VOLTS}")
    _pulse(middle, "in", SLEWS_NS[2])
    for pin in gate.inputs:
        for k, case in enumerate(gate.sensitive(pin)):
            _instance(middle, f"{pin.lower()}{k}", gate, pin, case, "in", LOADS_PF[2] * gate.drive)
    found = middle.run(START + 2 * HIGH)
    grid = Deck(model)
    grid.lines.append(f"Vdd vdd 0 {VOLTS}")
    loads = [load * gate.drive for load in LOADS_PF]
    for i, slew in enumerate(SLEWS_NS):
        _pulse(grid, f"in{i}", slew)
    for pin in gate.inputs:
        for kind in ("rise", "fall"):
            case = _slowest(gate, pin, found, kind)
            for i in range(len(SLEWS_NS)):
                for j, load in enumerate(loads):
                    _instance(grid, f"{kind[0]}{pin.lower()}x{i}{j}", gate, pin, case, f"in{i}", load)
    found = grid.run(START + 2 * HIGH)

    def table(pin: str, what: str, kind: str) -> Table:
        return [[found[f"{what}{kind}{kind[0]}{pin.lower()}x{i}{j}"] for j in range(len(loads))]
                for i in range(len(SLEWS_NS))]

    def energy(pin: str, kind: str) -> Table:
        return [[-charge * VOLTS * 1e12 - loads[j] * VOLTS**2 / 2 for j, charge in enumerate(row)]
                for row in table(pin, "q", kind)]

    def nanoseconds(values: Table) -> Table:
        return [[value * 1e9 for value in row] for row in values]

    arcs = []
    for pin in gate.inputs:
        senses = {case.inverting for case in gate.sensitive(pin)}
        sense = "non_unate" if len(senses) > 1 else "negative_unate" if senses == {True} else "positive_unate"
        arcs.append(Arc(
            pin, sense, *(nanoseconds(table(pin, what, kind)) for what in "dt" for kind in ("rise", "fall")),
            *(energy(pin, kind) for kind in ("rise", "fall"))))
    return arcs


def _charges(deck: Deck, cell: str, pins: Sequence[str], others: dict[str, dict[str, int]], output: str) -> None:
    for pin in pins:
        name = f"c{pin.lower()}"
        _pulse(deck, name, SLEWS_NS[1])
        deck.add(f"x{name}", cell, {output: f"o{name}", pin: name, **{
            other: "vdd" if bit else "0" for other, bit in others[pin].items()}}, {f"o{name}": LOADS_PF[1]})
        for kind, begin in (("rise", START), ("fall", START + HIGH)):
            deck.measure(f"{kind}{name}", f"integ i(v{name}) from={begin}n to={begin + HIGH * 0.999}n")


def capacitances(cell: str, pins: Sequence[str], others: dict[str, dict[str, int]], output: str,
                 model: str) -> dict[str, float]:
    """Capacitance of each input in pF: charge of both edges over the voltage, in the mean."""
    deck = Deck(model)
    deck.lines.append(f"Vdd vdd 0 {VOLTS}")
    _charges(deck, cell, pins, others, output)
    found = deck.run(START + 2 * HIGH)
    return {pin: (abs(found[f"risec{pin.lower()}"]) + abs(found[f"fallc{pin.lower()}"])) / 2 / VOLTS * 1e12
            for pin in pins}


def leakage(gate: Gate, model: str) -> float:
    """Power at rest in nW, in the mean over all assignments of the inputs."""
    deck = Deck(model)
    deck.lines.append(f"Vdd vdd 0 {VOLTS}")
    states = list(gate.states())
    for k, state in enumerate(states):
        deck.add(f"s{k}", gate.name, {gate.output: f"os{k}", **{
            pin: "vdd" if bit else "0" for pin, bit in state.items()}}, {f"os{k}": LOADS_PF[0]})
        deck.measure(f"s{k}", f"avg i(vs{k}) from=1n to=2n")
    found = deck.run(2.0)
    return sum(abs(found[f"s{k}"]) for k in range(len(states))) / len(states) * VOLTS * 1e9


@dataclass(frozen=True)
class FlipFlopEnergy:
    """pJ from the supply at the middle transition time and the smallest load, the mean over both values."""

    clock_rise: float
    """Of an edge of the clock that changes nothing."""
    clock_fall: float
    data_rise: float
    """Of an edge of the data while the clock is low."""
    data_fall: float
    output: float
    """Of a rising clock that changes the output, beyond ``clock_rise``."""


@dataclass(frozen=True)
class FlipFlop:
    """Clock to output and setup, in ns."""

    rise: Table
    fall: Table
    rise_transition: Table
    fall_transition: Table
    rise_setup: Table
    """By transition time of the clock, then of the data."""
    fall_setup: Table
    energy: FlipFlopEnergy


PERIOD = 4.0
"""ns from the edge that brings the old value to the one that is measured."""


def _clocked(deck: Deck, name: str, cell: str, value: int, clock_slew: float, data_slew: float, arrival: float,
             load: float) -> None:
    """A flip-flop that holds ``1 - value``; ``value`` is there ``arrival`` ns before the second clock edge."""
    ramp, edge = clock_slew / SLEW, START + PERIOD
    old, new = (1 - value) * VOLTS, value * VOLTS
    deck.wave(f"k{name}", [(0, 0), (START, 0), (START + ramp, VOLTS), (START + PERIOD / 2, VOLTS),
                           (START + PERIOD / 2 + ramp, 0), (edge - ramp / 2, 0), (edge + ramp / 2, VOLTS)])
    half = data_slew / SLEW / 2
    deck.wave(f"i{name}", [(0, old), (edge - arrival - half, old), (edge - arrival + half, new)])
    deck.add(f"f{name}", cell, {"CLK": f"k{name}", "D": f"i{name}", "Q": f"q{name}"}, {f"q{name}": load})
    kind = "rise" if value else "fall"
    # The first edge brings the old value, whatever was there before: the last edge of the output counts.
    deck.delay(f"d{name}", f"k{name}", "rise=2", f"q{name}", f"{kind}=last")
    low, high = VOLTS * 0.2, VOLTS * 0.8
    first, last = (low, high) if value else (high, low)
    deck.measure(f"t{name}", f"trig v(q{name}) val={first} {kind}=last targ v(q{name}) val={last} {kind}=last")


def flip_flop_energy(cell: str, model: str) -> FlipFlopEnergy:
    """One flip-flop whose data stand still, and one whose data change before the third edge, for both values."""
    deck, ramp, second = Deck(model), SLEWS_NS[2] / SLEW, START + PERIOD
    third, change = second + PERIOD, second + PERIOD * 3 / 4
    load = LOADS_PF[0] * int(cell.rpartition("_")[2])
    deck.wave("k", [(0, 0), *(point for edge in (START, second, third) for point in (
        (edge, 0), (edge + ramp, VOLTS), (edge + PERIOD / 2, VOLTS), (edge + PERIOD / 2 + ramp, 0)))])
    for value in (0, 1):
        old = value * VOLTS
        for name, points in ((f"s{value}", [(0, old), (1, old)]),
                             (f"n{value}", [(0, old), (change, old), (change + ramp, VOLTS - old)])):
            deck.wave(f"d{name}", points)
            deck.add(name, cell, {"CLK": "k", "D": f"d{name}", "Q": f"q{name}"}, {f"q{name}": load})
        for name, supply, begin, end in (
                ("high", "s", second, PERIOD / 2), ("low", "s", second + PERIOD / 2, PERIOD / 2),
                ("data", "n", change, PERIOD / 4), ("edge", "n", third, PERIOD / 2)):
            deck.measure(f"{name}{value}", f"integ i(v{supply}{value}) from={begin - 0.05}n to={begin + end - 0.05}n")
    found = deck.run(third + PERIOD)
    taken = {name: [-found[f"{name}{value}"] * VOLTS * 1e12 for value in (0, 1)]
             for name in ("high", "low", "data", "edge")}
    mean = {name: sum(both) / 2 for name, both in taken.items()}
    rise, fall = taken["data"]
    return FlipFlopEnergy(mean["high"], mean["low"], rise, fall, mean["edge"] - mean["high"])


def flip_flop_of(cell: str, model: str) -> FlipFlop:
    """Clock to output, and setup by two rounds of ever finer arrivals."""
    until = START + PERIOD + 2.5
    drive = int(cell.rpartition("_")[2])
    deck = Deck(model)
    for value in (0, 1):
        for i, slew in enumerate(SLEWS_NS):
            for j, load in enumerate(LOADS_PF):
                _clocked(deck, f"{value}x{i}{j}", cell, value, slew, 0.05, 1.0, load * drive)
    found = deck.run(until)
    size = range(len(SLEWS_NS))

    def table(what: str, value: int) -> Table:
        return [[found[f"{what}{value}x{i}{j}"] * 1e9 for j in range(len(LOADS_PF))] for i in size]

    rise_setup, fall_setup = (_setup(cell, value, model, until) for value in (1, 0))
    return FlipFlop(table("d", 1), table("d", 0), table("t", 1), table("t", 0), rise_setup, fall_setup,
                    flip_flop_energy(cell, model))


def _setup(cell: str, value: int, model: str, until: float) -> Table:
    pairs = [(clock, data) for clock in SETUP_NS for data in SETUP_NS]
    least = dict.fromkeys(pairs, -0.6)  # too late
    most = dict.fromkeys(pairs, 1.0)  # early enough
    for _ in range(3):
        deck, tried = Deck(model), {}
        for p, (clock, data) in enumerate(pairs):
            span = most[clock, data] - least[clock, data]
            tried[clock, data] = [most[clock, data] - span * k / 8 for k in range(9)]
            for k, arrival in enumerate([1.2, *tried[clock, data]]):
                _clocked(deck, f"{p}x{k}", cell, value, clock, data, arrival, LOADS_PF[1])
        found = deck.run(until)
        for p, pair in enumerate(pairs):
            good = [found.get(f"d{p}x{k}", 9.0) < DEGRADED * found[f"d{p}x0"] for k in range(1, 10)]
            # Without the new value there is no late edge: what is found then is the first one, before the clock.
            good = [one and found.get(f"d{p}x{k}", -1.0) > 0 for k, one in enumerate(good, 1)]
            last = good.index(False) if False in good else len(good)
            most[pair] = tried[pair][max(0, last - 1)]
            least[pair] = tried[pair][min(last, 8)]
    return [[most[clock, data] for data in SETUP_NS] for clock in SETUP_NS]
