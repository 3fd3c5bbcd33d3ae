"""Delays, transitions, setup, capacitance and energy of the library's cells, from their transistors, into Liberty.

    python -m gemmule.hw.flow.standard.characterize --out hw/flow/standard/sky130.lib

Cells that are done are kept in build/cells and not simulated again, until the cell, the models or this file change.

Every gate: each input, under the assignment of the others that is slowest at a middle point, with five transition times
and five loads; a load is scaled by the drive of the cell. Setup of a flip-flop: the latest arrival of data that delays
the output by no more than 10 %, as the library's publisher has it. Hold times are not found.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmule.hw.flow.standard import spice
from gemmule.hw.flow.standard.cells import CELLS, FLIP_FLOPS, PREFIX, TIE, Gate, Sensitive
from gemmule.hw.flow.standard.layout import area_of, extracted
from gemmule.hw.flow.standard.spice import SLEW, VOLTS, Deck, models
from gemmule.io.files import write_atomically
from gemmule.io.progress import say

__all__ = ["LOADS_PF", "SLEWS_NS", "Arc", "FlipFlop", "Table", "arcs_of", "flip_flop_of", "liberty_text"]

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
class FlipFlop:
    """Clock to output and setup, in ns."""

    rise: Table
    fall: Table
    rise_transition: Table
    fall_transition: Table
    rise_setup: Table
    """By transition time of the clock, then of the data."""
    fall_setup: Table
    energy: float
    """pJ of a clock edge with new data, at the smallest load."""


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
    deck.measure(f"e{name}", f"integ i(vf{name}) from={edge - ramp}n to={edge + 1.4}n")


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
    energy = sum(-found[f"e{value}x00"] for value in (0, 1)) / 2 * VOLTS * 1e12
    return FlipFlop(table("d", 1), table("d", 0), table("t", 1), table("t", 0), rise_setup, fall_setup, energy)


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


def _values(table: Iterable[Iterable[float]]) -> str:
    rows = ('"' + ", ".join(f"{value:.4g}" for value in row) + '"' for row in table)
    return f"values ({', '.join(rows)});"


def _axis(values: Iterable[float]) -> str:
    return '("' + ", ".join(f"{value:.6g}" for value in values) + '");'


def _tables(names: dict[str, Table], template: str, loads: Sequence[float]) -> str:
    axes = f"index_1 {_axis(SLEWS_NS)} index_2 {_axis(loads)}"
    return "".join(f"        {name} ({template}) {{ {axes} {_values(table)} }}\n" for name, table in names.items())


def gate_text(gate: Gate, model: str) -> str:
    """A gate's cell in Liberty."""
    arcs = arcs_of(gate, model)
    others = {pin: dict(gate.sensitive(pin)[0].others) for pin in gate.inputs}
    farads = capacitances(gate.name, gate.inputs, others, gate.output, model)
    loads = [load * gate.drive for load in LOADS_PF]
    pins = "".join(f"    pin ({pin}) {{ direction : input; capacitance : {farads[pin]:.4g}; }}\n"
                   for pin in gate.inputs)
    timing = "".join(
        f'      timing () {{ related_pin : "{arc.pin}"; timing_sense : {arc.sense};\n' + _tables({
            "cell_rise": arc.rise, "cell_fall": arc.fall, "rise_transition": arc.rise_transition,
            "fall_transition": arc.fall_transition}, "delays", loads) + "      }\n"
        f'      internal_power () {{ related_pin : "{arc.pin}";\n' + _tables({
            "rise_power": arc.rise_energy, "fall_power": arc.fall_energy}, "energies", loads) + "      }\n"
        for arc in arcs)
    return (f"  cell ({PREFIX}{gate.name}) {{\n    area : {area_of(gate.name)};\n"
            f"    cell_leakage_power : {leakage(gate, model):.4g};\n{pins}"
            f'    pin ({gate.output}) {{ direction : output; function : "{gate.function}"; '
            f"max_capacitance : {loads[-1]:.4g};\n{timing}    }}\n  }}\n")


def flip_flop_text(cell: str, model: str) -> str:
    """A flip-flop's cell in Liberty."""
    found = flip_flop_of(cell, model)
    loads = [load * int(cell.rpartition("_")[2]) for load in LOADS_PF]
    farads = capacitances(cell, ["CLK", "D"], {"CLK": {"D": 0}, "D": {"CLK": 0}}, "Q", model)
    setup = "".join(f"        {name} (setups) {{ {_values(table)} }}\n" for name, table in (
        ("rise_constraint", found.rise_setup), ("fall_constraint", found.fall_setup)))
    delays = _tables({"cell_rise": found.rise, "cell_fall": found.fall, "rise_transition": found.rise_transition,
                      "fall_transition": found.fall_transition}, "delays", loads)
    return f"""  cell ({PREFIX}{cell}) {{
    area : {area_of(cell)};
    ff (IQ, IQN) {{ clocked_on : "CLK"; next_state : "D"; }}
    pin (CLK) {{ direction : input; clock : true; capacitance : {farads['CLK']:.4g}; }}
    pin (D) {{ direction : input; capacitance : {farads['D']:.4g};
      timing () {{ related_pin : "CLK"; timing_type : setup_rising;
{setup}      }}
    }}
    pin (Q) {{ direction : output; function : "IQ"; max_capacitance : {loads[-1]:.4g};
      timing () {{ related_pin : "CLK"; timing_type : rising_edge; timing_sense : non_unate;
{delays}      }}
      internal_power () {{ related_pin : "CLK"; rise_power (scalar) {{ values ("{found.energy:.4g}"); }}
        fall_power (scalar) {{ values ("{found.energy:.4g}"); }} }}
    }}
  }}
"""


def _kept(folder: Path, cell: str, model: str, make: Callable[[], str]) -> str:
    """A cell's text from ``folder``, or made and put there."""
    source = Path(__file__).read_text() + Path(spice.__file__).read_text()
    key = hashlib.sha256(f"{source}{extracted(cell).text}{model}".encode()).hexdigest()
    place = folder / f"{cell}-{key[:16]}.lib"
    if not place.is_file():
        say(f"characterize: {cell}")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(place, make())
    return place.read_text()


def liberty_text(folder: Path, gates: Sequence[Gate] = CELLS, flip_flops: Sequence[str] = FLIP_FLOPS) -> str:
    """The whole Liberty file; ``folder`` keeps the cells that are done.

    Raises:
        SynthError: ngspice or a package is missing, or ngspice failed.
    """
    model = models()
    cells = [_kept(folder, gate.name, model, functools.partial(gate_text, gate, model)) for gate in gates]
    cells += [_kept(folder, cell, model, functools.partial(flip_flop_text, cell, model)) for cell in flip_flops]
    head = "".join(f"""  lu_table_template ({name}) {{ variable_1 : {first}; variable_2 : {second};
    index_1 {_axis(rows)} index_2 {_axis(columns)} }}
""" for name, first, second, rows, columns in (
        ("delays", "input_net_transition", "total_output_net_capacitance", SLEWS_NS, LOADS_PF),
        ("setups", "related_pin_transition", "constrained_pin_transition", SETUP_NS, SETUP_NS)))
    head += f"""  power_lut_template (energies) {{ variable_1 : input_transition_time;
    variable_2 : total_output_net_capacitance; index_1 {_axis(SLEWS_NS)} index_2 {_axis(LOADS_PF)} }}
"""
    return f"""/* sky130_fd_sc_hd, tt, 1.8 V, 25 C: made by hw/flow/standard/characterize.py with ngspice. */
library (sky130_fd_sc_hd__tt) {{
  delay_model : table_lookup; time_unit : "1ns"; voltage_unit : "1V"; current_unit : "1uA";
  pulling_resistance_unit : "1kohm"; leakage_power_unit : "1nW"; capacitive_load_unit (1, pf);
  nom_process : 1; nom_voltage : {VOLTS}; nom_temperature : 25;
  slew_lower_threshold_pct_rise : 20; slew_upper_threshold_pct_rise : 80;
  slew_lower_threshold_pct_fall : 20; slew_upper_threshold_pct_fall : 80;
  input_threshold_pct_rise : 50; input_threshold_pct_fall : 50;
  output_threshold_pct_rise : 50; output_threshold_pct_fall : 50;
  operating_conditions (tt) {{ process : 1; voltage : {VOLTS}; temperature : 25; }}
  default_operating_conditions : tt;
{head}{"".join(cells)}  cell ({PREFIX}{TIE}) {{
    area : {area_of(TIE)};
    pin (HI) {{ direction : output; function : "1"; }}
    pin (LO) {{ direction : output; function : "0"; }}
  }}
}}
"""


def main() -> None:
    """Write the Liberty file."""
    parser = argparse.ArgumentParser(description="Characterise standard cells with ngspice.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", type=Path, default=Path("build/cells"), help="where cells that are done are kept")
    arguments = parser.parse_args()
    write_atomically(arguments.out, liberty_text(arguments.parts))


if __name__ == "__main__":
    main()
