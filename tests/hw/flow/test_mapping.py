"""Products of the Gowin part: the multipliers that they become compute them."""

import random
import re
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from gemmule.hw.flow.mapping import MAPPINGS
from gemmule.hw.flow.tools import Tools

SHAPES = ((9, 8, True), (12, 12, True), (13, 12, True), (27, 18, True), (32, 17, True), (33, 30, True), (20, 3, True),
          (8, 8, False), (11, 11, False), (12, 12, False), (26, 17, False), (27, 18, False), (32, 32, False))
MODELS = """
module MULT12X12 (input signed [11:0] A, B, output signed [23:0] DOUT, input [1:0] CLK, CE, RESET);
    assign DOUT = A * B;
endmodule
module MULTALU27X18 (input signed [26:0] A, SIA, input signed [17:0] B, input [47:0] C, CASI, input [25:0] D,
                     input ACCSEL, PSEL, ASEL, PADDSUB, CSEL, CASISEL, input [1:0] ADDSUB, CLK, CE, RESET,
                     output signed [47:0] DOUT);
    parameter C_SEL = 1'b1;
    wire signed [47:0] product = A * B;
    assign DOUT = product + (C_SEL ? C : 48'b0);
endmodule
"""


class Products(Component):
    """A product of each shape."""

    def __init__(self) -> None:
        super().__init__({f"{port}{i}": flow(width) for i, (a, b, _) in enumerate(SHAPES)
                          for port, flow, width in (("a", In, a), ("b", In, b), ("y", Out, a + b))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for i, (_, _, signed) in enumerate(SHAPES):
            a, b = getattr(self, f"a{i}"), getattr(self, f"b{i}")
            m.d.comb += getattr(self, f"y{i}").eq(a.as_signed() * b.as_signed() if signed else a * b)
        return m


def edges(width: int) -> list[int]:
    return [0, 1, (1 << width) - 1, 1 << width - 1, (1 << width - 1) - 1]


def test_products_become_multipliers_that_compute_them(tmp_path: Path) -> None:
    seed = 7
    print(f"seed {seed}")
    draw = random.Random(seed)
    (tmp_path / "design.il").write_text(rtlil.convert(Products(), name="products", emit_src=False))
    (tmp_path / "models.v").write_text(MODELS)
    mapping = MAPPINGS["gowin"]
    for name, text in mapping.files.items():
        (tmp_path / name).write_text(text)
    expected, evals = [], []
    for turn in range(35):
        line = "eval"
        for i, (a, b, signed) in enumerate(SHAPES):
            left, right = (edges(width)[at] if turn < 25 else draw.getrandbits(width)
                           for width, at in ((a, turn // 5 % 5), (b, turn % 5)))
            line += f" -set a{i} {a}'b{left:0{a}b} -set b{i} {b}'b{right:0{b}b}"
            x, y = ((v - (1 << w) if signed and v >> w - 1 else v) for v, w in ((left, a), (right, b)))
            expected.append(x * y % (1 << a + b))
        evals.append(line + "".join(f" -show y{i}" for i in range(len(SHAPES))))
    script = ["read_rtlil design.il", *mapping.coarse("products"), "tee -q -o stat.txt stat",
              "delete =MULT12X12 =MULTALU27X18", "read_verilog models.v", "hierarchy -top products", "proc", "flatten",
              "opt_clean", *(f"tee -q -a values.txt {line}" for line in evals)]
    (tmp_path / "script.ys").write_text("\n".join(script) + "\n")
    Tools().run("yosys", ["-q", "-l", "log", "script.ys"], tmp_path, "log", lambda step: None)
    values = [int(bits, 2) for bits in re.findall(r"y\d+ = \d+'([01]+)", (tmp_path / "values.txt").read_text())]
    assert values == expected
    cells = {kind: int(n) for n, kind in re.findall(r"(\d+) +(\S+)$", (tmp_path / "stat.txt").read_text(), re.M)}
    assert (cells["MULT12X12"], cells["MULTALU27X18"]) == (13, 9)
