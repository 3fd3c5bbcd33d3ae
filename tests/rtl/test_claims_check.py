"""The testbench's check of claims: silent for the device as it is, loud for one with a hull that is too small."""

import re
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.rtl.device import RtlDevice, RtlError
from gemmule.sim.rtl.testbench import block_paths
from gemmule.sim.rtl.verilog import verilog_path

TINY = load_config("tiny")
STUB = Path(__file__).with_name("stub.sv")
HULLS = "spm0", "spm1", "spm2", "acc0", "acc2", "angles"
"""Masks of banks in hw/command/banks.py."""
RULE = "access to a bank whose port its stream does not hold"
COMMANDS = 80


def with_planted_hulls(verilog: str) -> str:
    """The Verilog, with an argument +hull=<name> that takes the last bank from that hull's mask."""
    start = verilog.index("\nmodule gemmule_core_dispatch_resolve_banks(")
    end = verilog.index("\nendmodule", start)
    text = verilog[start:end]
    for name in HULLS:
        found = re.search(rf"^  assign {name}_banks = (\S+) \[{TINY.spm_banks - 1}:0\];$", text, re.MULTILINE)
        assert found, name
        line = re.search(rf"^  assign {re.escape(found[1])}  = (.*);$", text, re.MULTILINE)  # what all users look at
        assert line, name
        text = text.replace(line[0], f"""  reg {name}_small = 0;
  initial {name}_small = $test$plusargs("hull={name}");
  wire [15:0] {name}_whole = {line[1]};
  assign {found[1]} = {name}_small ? {name}_whole & ({name}_whole >> 1) : {name}_whole;""")
    return verilog[:start] + text + verilog[end:]


def test_the_blocks_are_found():
    """Without them the check would be left out."""
    text = verilog_path(TINY).read_text(encoding="utf-8")
    paths = block_paths(text)
    assert paths.keys() == {"CLAIMS", "SCRATCHPAD", "ACCUMULATOR"}
    for path in paths.values():
        for block in path.split(".")[2:]:
            assert re.search(rf"^  gemmule_\w+ {block} \($", text, re.MULTILINE), block
    assert block_paths(STUB.read_text(encoding="utf-8")) == {}


@pytest.mark.rtl
def test_a_hull_without_its_last_bank_is_caught(tmp_path):
    """The same programs run without a word as long as no hull is wrong."""
    assert TINY.acc_banks == TINY.spm_banks
    verilog = tmp_path / "gemmule.sv"
    verilog.write_text(with_planted_hulls(verilog_path(TINY).read_text(encoding="utf-8")), encoding="utf-8")
    cases = [generate(TINY, seed, COMMANDS) for seed in range(10)]

    def run(*arguments: str) -> None:
        with RtlDevice(TINY, verilog=verilog, watchdog=1_000_000, arguments=arguments) as device:
            for case in cases:
                device.load(case)
                device.run()

    run()
    for hull in HULLS:
        with pytest.raises(RtlError, match=RULE):
            run(f"+hull={hull}")
