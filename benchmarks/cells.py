"""The kept library of standard cells beside its publisher's figures and beside a second tool.

    python -m benchmarks.cells --out docs/results/cells.json

*publisher*: delays of three cells beside those of SkyWater's own library at the same corner, transition and load.
*chain*: nine gates in a row, by OpenSTA from the kept Liberty file and by ngspice from the transistors. Needs OpenSTA,
ngspice and the packages that `make cells` installs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import show, write
from gemmule.hw.flow.standard.cells import CELLS, PREFIX
from gemmule.hw.flow.standard.library import LIBRARIES
from gemmule.hw.flow.standard.spice import SLEW, VOLTS, Deck, models
from tests.hw.flow.test_standard_cells import PUBLISHED, delays

CHAIN = ("inv_1", "nand2_1", "nor2_1", "xor2_1", "a21oi_1", "buf_1", "mux2_1", "o21ai_1", "inv_2")
INPUTS = {"xor2_1": "A", "a21oi_1": "A1", "mux2_1": "A0", "o21ai_1": "A1"}
"""The input that the chain goes through; A of the others."""
TRANSITION_NS, LOAD_PF = 0.0531329, 0.01
GATES = {gate.name: gate for gate in CELLS}


def publisher() -> list[dict[str, Any]]:
    """Delays in ns, ours and the publisher's."""
    return [{"cell": cell, "from": pin, "edge": table.removeprefix("cell_"), "transition_ns": transition,
             "load_ff": load, "here_ns": round(ours[i + 1][j + 1], 4), "publisher_ns": theirs[i][j],
             "ratio": round(ours[i + 1][j + 1] / theirs[i][j], 3)}
            for (cell, pin, table), theirs in PUBLISHED.items() for ours in [delays(cell, pin, table)]
            for i, transition in enumerate((0.053, 0.122)) for j, load in enumerate((3.5, 9.1))]


def _sides(name: str) -> tuple[str, dict[str, int]]:
    pin = INPUTS.get(name, "A")
    return pin, dict(GATES[name].sensitive(pin)[0].others)


def by_sta() -> dict[str, float]:
    """ns from the chain's input to its output, by the output's edge."""
    cells = []
    for i, name in enumerate(CHAIN):
        pin, others = _sides(name)
        ports = {pin: f"n{i}", GATES[name].output: f"n{i + 1}", **{other: f"1'b{bit}" for other, bit in others.items()}}
        cells.append(f"{PREFIX}{name} g{i} ({', '.join(f'.{port}({net})' for port, net in ports.items())});")
    wires = ", ".join(f"n{i}" for i in range(1, len(CHAIN)))
    last = f"n{len(CHAIN)}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "chain.v").write_text(
            f"module chain (n0, {last}); input n0; output {last}; wire {wires};\n" + "\n".join(cells) + "\nendmodule\n")
        (Path(folder) / "chain.tcl").write_text(f"""read_liberty {LIBRARIES['sky130'].there()}
read_verilog chain.v
link_design chain
create_clock -name clock -period 100
set_input_delay 0 -clock clock n0
set_output_delay 0 -clock clock {last}
set_input_transition {TRANSITION_NS} n0
set_load {LOAD_PF} {last}
report_checks -rise_to {last} -digits 5
report_checks -fall_to {last} -digits 5
""")
        shown = subprocess.run(("sta", "-exit", "chain.tcl"), cwd=folder, capture_output=True, text=True, check=True)
    rise, fall = re.findall(r"^\s*([\d.]+)\s+data arrival time", shown.stdout, re.MULTILINE)[::1][:2]
    return {"rise": float(rise), "fall": float(fall)}


def by_spice() -> dict[str, float]:
    """The same by the transistors."""
    deck = Deck(models())
    deck.lines.append(f"Vdd vdd 0 {VOLTS}")
    ramp = TRANSITION_NS / SLEW
    deck.wave("n0", [(0, 0), (0.5, 0), (0.5 + ramp, VOLTS), (4, VOLTS), (4 + ramp, 0)])
    for i, name in enumerate(CHAIN):
        pin, others = _sides(name)
        deck.add(f"g{i}", name, {pin: f"n{i}", GATES[name].output: f"n{i + 1}", **{
            other: "vdd" if bit else "0" for other, bit in others.items()}},
            {f"n{i + 1}": LOAD_PF} if i + 1 == len(CHAIN) else {})
    inverting = sum(_inverts(name) for name in CHAIN) % 2 == 1
    for kind in ("rise", "fall"):
        edge = kind if not inverting else "fall" if kind == "rise" else "rise"
        deck.delay(kind, "n0", f"{edge}=1", f"n{len(CHAIN)}", f"{kind}=last")
    found = deck.run(8.0)
    return {kind: round(found[kind] * 1e9, 5) for kind in ("rise", "fall")}


def _inverts(name: str) -> bool:
    pin, _ = _sides(name)
    return GATES[name].sensitive(pin)[0].inverting


def main() -> None:
    """Print both tables and write them."""
    parser = argparse.ArgumentParser(description="Check the kept library of standard cells.")
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    published = publisher()
    sta, transistors = by_sta(), by_spice()
    chain = [{"edge": kind, "opensta_ns": sta[kind], "ngspice_ns": transistors[kind],
              "ratio": round(sta[kind] / transistors[kind], 3)} for kind in sta]
    show("beside the publisher", published)
    show(f"{len(CHAIN)} gates", chain)
    if out is not None:
        write(out, {"command": "python -m benchmarks.cells", "library": LIBRARIES["sky130"].title,
                    "publisher": published, "chain": chain})


if __name__ == "__main__":
    main()
