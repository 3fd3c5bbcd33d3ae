"""Memories of a design that become macros of a standard-cell process: which ones, and a Liberty file of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gemmule.hw.flow.standard.library import MacroModel

__all__ = ["LEAST_BITS", "Macro", "liberty_of", "macros_of"]

LEAST_BITS = 2048
"""Smaller memories are flip-flops, as are memories that are read without a clock."""
_CELL = re.compile(r"^  cell \$mem_v2 (\S+)\n(.*?)^  end\n", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"parameter \\(\w+) (?:\d+')?([01]+|\d+)$", re.MULTILINE)
_PORTS = {"RD_CLK": "RD_PORTS", "RD_EN": "RD_PORTS", "RD_ARST": "RD_PORTS", "RD_SRST": "RD_PORTS",
          "RD_ADDR": "RD_ADDR", "RD_DATA": "RD_DATA", "WR_CLK": "WR_PORTS", "WR_EN": "WR_EN",
          "WR_ADDR": "WR_ADDR", "WR_DATA": "WR_DATA"}


_ENABLES = re.compile(r"connect \\WR_EN \{ (.*) \}$", re.MULTILINE)
_PART = re.compile(r"(\S+)(?: \[(\d+)(?::(\d+))?\])?")


@dataclass(frozen=True)
class Macro:
    """A memory's shape: ``rows`` of ``width`` bits with ``reads`` and ``writes`` ports; ``enables``: of a write port,
    each of as many bits."""

    rows: int
    width: int
    abits: int
    reads: int
    writes: int
    enables: int = 1

    @property
    def name(self) -> str:
        parts = f"_{self.enables}" if self.enables > 1 else ""
        return f"macro_{self.rows}x{self.width}_{self.reads}r{self.writes}w{parts}"

    @property
    def bits(self) -> int:
        return self.rows * self.width

    @property
    def copies(self) -> int:
        """Macros with one port of each kind that it takes."""
        return max(1, self.reads) * max(1, self.writes)

    def widths(self) -> dict[str, int]:
        """Bits of every port, as Yosys' ``$mem_v2`` has them."""
        count = {"RD_PORTS": self.reads, "WR_PORTS": self.writes, "RD_ADDR": self.reads * self.abits,
                 "WR_ADDR": self.writes * self.abits, "WR_EN": self.writes * self.enables,
                 "RD_DATA": self.reads * self.width,
                 "WR_DATA": self.writes * self.width}
        return {port: count[kind] for port, kind in _PORTS.items()}


def _bits_of(joined: str) -> list[str]:
    """The bits of a concatenation in RTLIL, the highest first, where each part is one bit or says which it takes."""
    found: list[str] = []
    for name, high, low in _PART.findall(joined):
        found += [f"{name} [{bit}]" for bit in range(int(high), int(low or high) - 1, -1)] if high else [name]
    return found


def _one_each(bits: Sequence[str], writes: int) -> list[str]:
    """Of enables, one for each bit of every write port: the fewest that do, each for as many bits."""
    width = len(bits) // writes
    for count in range(1, width + 1):
        size = width // count
        if width % count == 0 and all(bits[i] == bits[i - i % size] for i in range(len(bits))):
            return list(bits[::size])
    return list(bits)


def macros_of(text: str, least_bits: int = LEAST_BITS) -> tuple[str, Sequence[Macro]]:
    """RTLIL of collected memories in which those of at least ``least_bits`` are cells of their own.

    A memory with a port that is read without a clock stays, and so does one that is never written: a ROM is logic.
    A macro has an enable for each unit that is written as a whole, so that mapping sees how far an enable goes.
    What a macro reads in the cycle of a write to the same row is left to the macro: bypasses are not counted.

    Returns:
        The RTLIL, with an empty module for every shape, and the macro of each cell that was replaced.
    """
    found: list[Macro] = []

    def replace(cell: re.Match[str]) -> str:
        values = dict(_NUMBER.findall(cell[2]))
        rows, width, abits, reads, writes = (
            int(values[name]) for name in ("SIZE", "WIDTH", "ABITS", "RD_PORTS", "WR_PORTS"))
        joined = _ENABLES.search(cell[2])
        bits = _bits_of(joined[1]) if joined else []
        each = _one_each(bits, writes) if writes and len(bits) == width * writes else []  # else one a bit, as it is
        macro = Macro(rows, width, abits, reads, writes, len(each) // writes if each else width)
        clocked = values["RD_CLK_ENABLE"].count("1") >= macro.reads
        if macro.bits < least_bits or not macro.writes or not macro.reads or not clocked:
            return cell[0]
        found.append(macro)
        body = _ENABLES.sub(lambda _: f"connect \\WR_EN {{ {' '.join(each)} }}", cell[2]) if each else cell[2]
        kept = "".join(line + "\n" for line in body.splitlines() if not line.lstrip().startswith("parameter"))
        return f"  cell \\{macro.name} {cell[1]}\n{kept}  end\n"

    changed = _CELL.sub(replace, text)
    modules = []
    for macro in dict.fromkeys(found):
        wires = "".join(
            f"  wire width {width} {'output' if port == 'RD_DATA' else 'input'} {place} \\{port}\n"
            for place, (port, width) in enumerate(macro.widths().items(), 1))
        modules.append(f"attribute \\blackbox 1\nmodule \\{macro.name}\n{wires}end\n")
    return changed + "".join(modules), found


def liberty_of(macros: Sequence[Macro], model: MacroModel) -> str:
    """A Liberty file with one cell a shape: area, setup of every input, clock to output."""
    shapes = dict.fromkeys(macros)
    widths = sorted({width for macro in shapes for width in macro.widths().values()})
    types = "".join(f"""  type (bus_{width}) {{
    base_type : array; data_type : bit; bit_width : {width}; bit_from : {width - 1}; bit_to : 0; downto : true;
  }}
""" for width in widths)
    return f"""library (macros) {{
  delay_model : table_lookup; time_unit : "1ns"; voltage_unit : "1V"; current_unit : "1uA";
  pulling_resistance_unit : "1kohm"; leakage_power_unit : "1nW"; capacitive_load_unit (1, pf);
  slew_lower_threshold_pct_rise : 20; slew_upper_threshold_pct_rise : 80;
  slew_lower_threshold_pct_fall : 20; slew_upper_threshold_pct_fall : 80;
  input_threshold_pct_rise : 50; input_threshold_pct_fall : 50;
  output_threshold_pct_rise : 50; output_threshold_pct_fall : 50;
{types}{"".join(_cell(macro, model) for macro in shapes)}}}
"""


def _cell(macro: Macro, model: MacroModel) -> str:
    groups = []
    for port, width in macro.widths().items():
        clock = f"{port[:2]}_CLK" + ("[0]" if macro.widths()[f"{port[:2]}_CLK"] > 1 else "")
        output = port == "RD_DATA"
        pin = [f"direction : {'output' if output else 'input'};", *([] if output else ["capacitance : 0.01;"])]
        if port.endswith("_CLK"):
            pin.append("clock : true;")
        elif output:
            pin.append(f'timing () {{ related_pin : "{clock}"; timing_type : rising_edge;'
                       + _scalars(model.access_ns, "cell_rise", "cell_fall")
                       + _scalars(0.1, "rise_transition", "fall_transition") + " }")
        else:
            pin.append(f'timing () {{ related_pin : "{clock}"; timing_type : setup_rising;'
                       + _scalars(model.setup_ns, "rise_constraint", "fall_constraint") + " }")
        group = f"bus ({port}) {{ bus_type : bus_{width};" if width > 1 else f"pin ({port}) {{"
        groups.append(f"    {group} {' '.join(pin)} }}\n")
    area = model.area(macro.bits, macro.copies)
    return f"  cell ({macro.name}) {{\n    area : {area:.0f};\n    is_macro_cell : true;\n{''.join(groups)}  }}\n"


def _scalars(value: float, *names: str) -> str:
    return "".join(f' {name} (scalar) {{ values ("{value:.3f}"); }}' for name in names)
