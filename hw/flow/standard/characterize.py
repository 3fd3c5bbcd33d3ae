"""The cells of the library into Liberty, from what their simulation gives.

    python -m gemmule.hw.flow.standard.characterize --out hw/flow/standard/sky130.lib

Cells that are done are kept in build/cells and not simulated again, until the cell, the models or this code change.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gemmule.hw.flow.standard import measure, spice
from gemmule.hw.flow.standard.cells import CELLS, FLIP_FLOPS, PREFIX, TIE, Gate
from gemmule.hw.flow.standard.layout import area_of, extracted
from gemmule.hw.flow.standard.measure import (
    LOADS_PF,
    SETUP_NS,
    SLEWS_NS,
    Table,
    arcs_of,
    capacitances,
    flip_flop_of,
    leakage,
)
from gemmule.hw.flow.standard.spice import VOLTS, models
from gemmule.io.files import write_atomically
from gemmule.io.progress import say

__all__ = ["flip_flop_text", "gate_text", "liberty_text"]


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
    energy = found.energy

    def power(rise: float, fall: float) -> str:
        return (f'rise_power (scalar) {{ values ("{rise:.4g}"); }} '
                f'fall_power (scalar) {{ values ("{fall:.4g}"); }}')

    delays = _tables({"cell_rise": found.rise, "cell_fall": found.fall, "rise_transition": found.rise_transition,
                      "fall_transition": found.fall_transition}, "delays", loads)
    return f"""  cell ({PREFIX}{cell}) {{
    area : {area_of(cell)};
    ff (IQ, IQN) {{ clocked_on : "CLK"; next_state : "D"; }}
    pin (CLK) {{ direction : input; clock : true; capacitance : {farads['CLK']:.4g};
      internal_power () {{ {power(energy.clock_rise, energy.clock_fall)} }}
    }}
    pin (D) {{ direction : input; capacitance : {farads['D']:.4g};
      timing () {{ related_pin : "CLK"; timing_type : setup_rising;
{setup}      }}
      internal_power () {{ {power(energy.data_rise, energy.data_fall)} }}
    }}
    pin (Q) {{ direction : output; function : "IQ"; max_capacitance : {loads[-1]:.4g};
      timing () {{ related_pin : "CLK"; timing_type : rising_edge; timing_sense : non_unate;
{delays}      }}
      internal_power () {{ related_pin : "CLK"; {power(energy.output, energy.output)} }}
    }}
  }}
"""


def _kept(folder: Path, cell: str, model: str, make: Callable[[], str]) -> str:
    """A cell's text from ``folder``, or made and put there."""
    source = "".join(Path(file).read_text() for file in (__file__, str(measure.__file__), str(spice.__file__)))
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
