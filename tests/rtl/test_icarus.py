"""The delivered Verilog in a second simulator, Icarus: the model's bytes, cycles and counters, in our own testbench."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow.combinational import settling
from gemmule.isa import COMMAND_BYTES, CONTROL, Command, MoveFlag, Unit, encode_program
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sim.rtl import device
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.verilog import verilog_path
from gemmule.sim.simulator import Simulator

from .icarus import build_icarus, compile_icarus, need_icarus

pytestmark = pytest.mark.rtl
TINY = load_config("tiny")
LOOP = """\
module {name}(x, q);
  input x;
  wire x;
  output q;
  wire q;
  reg [3:0] \\a$1 ;
  reg [3:0] b;
  always_comb begin
    \\a$1  = 4'h0;
    if (x) begin
      \\a$1 [1:0] = {{ b[3], x }};
    end
  end
  always_comb begin
    b = 4'h0;
    if (x) begin
      b[2] = \\a$1 [1];
      b[3] = \\a$1 [0];
    end
  end
  assign q = b[2];
endmodule
"""
"""Two blocks that read each other's vectors, though no bit depends on itself."""


COMMANDS = 52
"""Of a random program: by then every unit has had work, and bodies have repeated. The rest, which stores all memories,
takes longer."""


def short_program() -> Launch:
    case = generate(TINY, 13, 30, brief=True)
    every = dict.fromkeys((Unit.LOAD, Unit.MATRIX, Unit.VECTOR, Unit.SELECT), 1)
    rows = {"row_stride": 1, "block_stride": 1, "rows": 1, "waits": every}
    stores = [Command.make(Unit.STORE, offset=0, row=0, bytes=1024, **rows),
              Command.make(Unit.STORE, offset=2048, row=0, bytes=1024, flags=[MoveFlag.ACCUMULATOR], **rows)]
    units = {byte & 7 for byte in case.image[:COMMANDS * COMMAND_BYTES:COMMAND_BYTES]}
    assert units == {int(unit) for unit in (*Unit, CONTROL)}
    return replace(case, image=case.image[:COMMANDS * COMMAND_BYTES] + encode_program(stores))


@pytest.fixture(autouse=True)
def _icarus() -> None:
    need_icarus()


@pytest.mark.long
def test_random_program_has_the_cycles_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = short_program()
    verilog = verilog_path(TINY)
    built = build_icarus(TINY, [verilog], tmp_path, dram_bytes=len(case.dram))
    monkeypatch.setattr(device, "build_testbench", lambda *_, **__: built)
    with device.RtlDevice(TINY, dram_bytes=len(case.dram), watchdog=50_000) as rtl:
        report = cosim(case, Simulator(TINY, dram_bytes=len(case.dram)), rtl)
    assert report.ok, report.text
    assert 1500 < report.seen.cycles < 5000


def test_blocks_that_read_each_other_come_to_rest(tmp_path: Path) -> None:
    """As Yosys writes them they run for ever."""
    bench = "module bench;\n  reg x = 0;\n  wire q;\n  loop device(.x(x), .q(q));\n" \
            "  initial begin\n    #1 x = 1;\n    #1 $display(\"q is %b\", q);\n  end\nendmodule\n"
    raw = LOOP.format(name="loop")
    for text, rests in ((settling(raw), True), (raw, False)):
        source = tmp_path / "loop.sv"
        source.write_text(text + bench)
        said = compile_icarus([source], "bench", {}, tmp_path / "loop.vvp")
        assert ("sorry: constant selects" in said) == (not rests)
        command = ["vvp", "-n", str(tmp_path / "loop.vvp")]
        if rests:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
            assert done.stdout == "q is 1\n"
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, check=True, timeout=3)
