"""Combinational blocks of the export: one assignment on each path, no part of a vector among what they read."""

import re

import pytest

from gemmule.hw.flow.combinational import settling

from .conftest import Device

WRITTEN = """\
module top(a, q);
  reg \\$auto$verilog_backend.cc:1:dump_module$9  = 0;
  input [7:0] a;
  wire [7:0] a;
  output [7:0] q;
  reg [7:0] q;
  reg \\$1 ;
  reg [3:0] part;
  reg [3:0] way = 4'h0;
  reg [5:0] sum;
  always_comb begin
    if (\\$auto$verilog_backend.cc:1:dump_module$9 ) begin end
    q = \\b[0] ;
    if (a[2]) begin
      q[3:0] = a[7:4];
    end
  end
  always_comb begin
    if (\\$auto$verilog_backend.cc:1:dump_module$9 ) begin end
    { way[3], way[1:0] } = 3'h0;
    if (\\$1 ) begin
      way[0] = 1'h1;
    end
  end
  always_comb begin
    if (\\$auto$verilog_backend.cc:1:dump_module$9 ) begin end
    (* full_case = 32'd1 *)
    casez (a[7:4])
      4'h0, 4'h1:
          part = a[3:0];
      4'h?:
          part = 4'h2;
    endcase
  end
  always_comb begin
    if (\\$auto$verilog_backend.cc:1:dump_module$9 ) begin end
    sum[2:1] = 2'h0;
    if (\\$1 ) begin
      begin
        sum[1] = 1'h1;
      end
    end
    begin
      begin
        sum[0] = way[3];
        sum[5:3] = way[2:0];
      end
    end
  end
  always_comb
    \\$1  = a[2];
  assign z = a[1];
endmodule
"""
SETTLING = """\
module top(a, q);
  input [7:0] a;
  wire [7:0] a;
  output [7:0] q;
  reg [7:0] q;
  reg \\$1 ;
  reg [3:0] part;
  reg [3:0] way = 4'h0;
  reg [5:0] sum;
  wire \\a[2:2]  = a[2];
  wire [3:0] \\a[7:4]  = a[7:4];
  reg [7:0] _chosen$q;
  always_comb begin
    _chosen$q = \\b[0] ;
    if (\\a[2:2] ) begin
      _chosen$q[3:0] = \\a[7:4] ;
    end
    q = _chosen$q;
  end
  reg [1:0] _chosen$way;
  reg [3:3] _chosen$way_;
  always_comb begin
    { _chosen$way_[3], _chosen$way[1:0] } = 3'h0;
    if (\\$1 ) begin
      _chosen$way[0] = 1'h1;
    end
    way[1:0] = _chosen$way;
    way[3] = _chosen$way_;
  end
  wire [3:0] \\a[3:0]  = a[3:0];
  always_comb begin
    (* full_case = 32'd1 *)
    casez (\\a[7:4] )
      4'h0, 4'h1:
          part = \\a[3:0] ;
      4'h?:
          part = 4'h2;
    endcase
  end
  wire \\way[3:3]  = way[3];
  wire [2:0] \\way[2:0]  = way[2:0];
  always_comb
    sum[0] = \\way[3:3] ;
  always_comb
    sum[5:3] = \\way[2:0] ;
  reg [2:1] _chosen$sum;
  always_comb begin
    _chosen$sum[2:1] = 2'h0;
    if (\\$1 ) begin
      begin
        _chosen$sum[1] = 1'h1;
      end
    end
    sum[2:1] = _chosen$sum;
  end
  always_comb
    \\$1  = \\a[2:2] ;
  assign z = a[1];
endmodule
"""
BLOCK = re.compile(r"^  always_comb(?: begin\n(?:   .*\n)*  end|\n.*)$", re.MULTILINE)


def test_rewriting() -> None:
    assert settling(WRITTEN) == SETTLING
    with pytest.raises(AssertionError, match="chosen"):
        settling(WRITTEN.replace("part", "_chosen$part"))


def faults(block: str) -> list[str]:
    """What is wrong with a block."""
    lines = [re.sub(r"\(\*.*\*\)", "", line).strip() for line in block.splitlines()]
    pairs = [(line.partition(" = ") if " = " in line else ("", "", line)) for line in lines]
    name = r"(?:\\\S+ ?|[A-Za-z_][\w$]*)"
    driven = {found for target, _, _ in pairs for found in re.findall(name, target)}
    signals = {name for name in driven if not name.startswith("_chosen$")}
    found = [f"drives {sorted(signals)}"] if len(signals) != 1 else []
    if len(driven) == 1 and not any("case" in line for line in lines) and sum(bool(pair[0]) for pair in pairs) != 1:
        found.append("assigns more than once")
    if any(re.search(r"(?:\\\S+ |(?<![\\\w$.:\]])[A-Za-z_][\w$]*)\[\d", read) for _, _, read in pairs):
        found.append("reads a part")
    return found


def test_blocks_of_the_device(device: Device) -> None:
    blocks = [found[0] for found in BLOCK.finditer(device.plain.text)]
    assert len(blocks) > 800
    for block in blocks:
        assert not faults(block), block
    assert "dump_module" not in device.plain.text
    assert faults("  always_comb begin\n    q = a;\n    if (b) begin\n      q = c;\n    end\n  end") == [
        "assigns more than once"]
    for read in ("\\$1 [3]", "{ a[1], b }"):
        assert faults(f"  always_comb\n    q = {read};") == ["reads a part"]
    assert faults("  always_comb begin\n    q = a;\n    b = a;\n  end")[0] == "drives ['b', 'q']"
