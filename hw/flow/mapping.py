"""Mapping to a family's cells: the steps of Yosys' ``synth_ecp5`` and ``synth_gowin``, and the multipliers of GW5A.

``synth_gowin`` makes multipliers for older families only. Here products become MULT12X12 and MULTALU27X18 before adders
are looked for, as ``synth_gowin`` does it for those. Both multiply signed numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["MAPPINGS", "Ecp5", "Gowin"]


@dataclass(frozen=True)
class Ecp5:
    """Lattice's ECP5."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the script reads, in the work folder."""

    @staticmethod
    def run(top: str, steps: str) -> str:
        return f"synth_ecp5 -top {top} -run {steps}"

    def coarse(self, top: str) -> Sequence[str]:
        """Up to memories in one piece."""
        return [self.run(top, "begin:map_ram")]

    def fine(self, top: str) -> Sequence[str]:
        """Up to gates."""
        return [self.run(top, "map_ram:map_luts")]

    def last(self, top: str, routed: bool) -> Sequence[str]:
        """LUTs; with names for cells, which take minutes to find, where a path's ends are shown."""
        return [self.run(top, "map_luts:" if routed else "map_luts:check")]


def _multiplier(name: str, a: int, b: int, cell: str) -> str:
    """What :file:`mul2dsp.v` leaves of a product, as a cell of the part."""
    return (f"module \\$__{name} (input [{a - 1}:0] A, input [{b - 1}:0] B, output [Y_WIDTH-1:0] Y);\n"
            f"    parameter A_WIDTH = {a};\n    parameter B_WIDTH = {b};\n    parameter Y_WIDTH = {a + b};\n"
            "    parameter A_SIGNED = 1;\n    parameter B_SIGNED = 1;\n"
            f"{cell}\nendmodule\n")


_SMALL = _multiplier("MUL12X12", 12, 12, """    wire [23:0] product;
    assign Y = product;
    MULT12X12 cell (.A(A), .B(B), .DOUT(product), .CLK(2'b0), .CE(2'b0), .RESET(2'b0));""")
_LARGE = _multiplier("MUL27X18", 27, 18, """    wire [47:0] product;
    assign Y = product;
    MULTALU27X18 #(.C_SEL(1'b0)) cell (
        .A(A), .B(B), .DOUT(product), .C(48'b0), .D(26'b0), .SIA(27'b0), .CASI(48'b0), .ACCSEL(1'b0), .PSEL(1'b0),
        .ASEL(1'b0), .PADDSUB(1'b0), .CSEL(1'b0), .CASISEL(1'b0), .ADDSUB(2'b0), .CLK(2'b0),
        .CE(2'b0), .RESET(2'b0));""")


@dataclass(frozen=True)
class Gowin:
    """Gowin's GW5A."""

    files: Mapping[str, str] = field(default_factory=lambda: {"multipliers.v": _SMALL + _LARGE})

    @staticmethod
    def run(top: str, steps: str) -> str:
        return f"synth_gowin -noiopads -family gw5a -top {top} -run {steps}"

    @staticmethod
    def products(name: str, a: int, b: int, least: int) -> Sequence[str]:
        """Products whose wider factor has ``least`` bits or more, in pieces of ``a`` x ``b`` bits at most."""
        return (f"techmap -map +/mul2dsp.v -D DSP_A_MAXWIDTH={a} -D DSP_B_MAXWIDTH={b} -D DSP_A_MINWIDTH={least} "
                f"-D DSP_B_MINWIDTH=4 -D DSP_SIGNEDONLY=1 -D DSP_NAME=$__{name}",
                "chtype -set $mul t:$__soft_mul")  # those that are left

    def coarse(self, top: str) -> Sequence[str]:
        return [
            self.run(top, "begin:coarse"), "proc", "flatten", "tribuf -logic", "deminout", "opt_expr", "opt_clean",
            "opt -nodffe -nosdff", "fsm", "opt", "wreduce", "peepopt", "opt_clean", "share",
            *self.products("MUL27X18", 27, 18, 13), *self.products("MUL12X12", 12, 12, 4),
            "techmap -map multipliers.v", "alumacc", "opt", "memory -nomap", "opt_clean"]

    def fine(self, top: str) -> Sequence[str]:
        return [self.run(top, "map_ram:map_luts")]

    def last(self, top: str, routed: bool) -> Sequence[str]:
        pads = [f"iopadmap -bits -inpad IBUF O:I -outpad OBUF I:O {top}"] if routed else []
        return [self.run(top, "map_luts:map_cells"), *pads, self.run(top, "map_cells:")]


MAPPINGS: Mapping[str, Ecp5 | Gowin] = {"ecp5": Ecp5(), "gowin": Gowin()}
