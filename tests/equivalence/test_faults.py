"""Every fault code reached in the RTL, and after a reset the next program is exact; one simulation for all."""

from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.csr import WATCHDOG_CYCLES, Control, Csr
from gemmule.isa import Command, Unit, encode_program
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

pytestmark = [pytest.mark.rtl, pytest.mark.slow]
TINY = load_config("tiny")
AFTER = generate(TINY, 990, 40, brief=True)
SIZE = len(AFTER.dram)
MOVE = {"bytes": 4, "rows": 1, "row_stride": 1, "block_stride": 1, "stride": 4}
BROKEN = {
    "illegal": Command.make(Unit.SELECT, op=31),
    "rows": Command.make(Unit.LOAD, **(MOVE | {"row": TINY.spm_rows})),
    "limit": Command.make(Unit.STORE, **(MOVE | {"offset": SIZE - 3})),
    "align": Command.make(Unit.LOAD, **(MOVE | {"bytes": 6, "flags": [0]})),
}
"""Faults that are found while a command is resolved."""


@pytest.fixture(scope="module")
def rtl():
    with RtlDevice(TINY, watchdog=2_000_000) as device:
        yield device


def program(*commands):
    """A case on AFTER's DRAM."""
    registers = np.zeros(32, dtype=np.int64), np.full(32, SIZE, dtype=np.int64), np.zeros(16, dtype=np.int64)
    case = replace(AFTER, name="fault", image=encode_program(commands))
    return replace(case, bases=registers[0], limits=registers[1], lengths=registers[2])


GOOD = [Command.make(Unit.LOAD, **(MOVE | {"offset": 256 * i, "row": i})) for i in range(6)]
STORE = Command.make(Unit.STORE, **(MOVE | {"offset": 8192}), waits={Unit.LOAD: 1})


@pytest.mark.parametrize("fault", FAULTS[1:])
def test_fault_and_what_comes_after(rtl, fault):
    model = Simulator(TINY, dram_bytes=SIZE)
    if fault in BROKEN:
        report = cosim(program(*GOOD, BROKEN[fault], STORE), model, rtl)
        assert report.ok, report.text
        seen = report.seen
        assert seen.fault_index == 6
    else:
        rtl.write_register(Csr.WATCHDOG, 700)
        if fault == "axi":
            rtl.set_axi_error(512)
        else:
            rtl.set_stall(255)
        seen = cosim(program(*GOOD, STORE), model, rtl).seen
        rtl.set_axi_error(None)
        rtl.set_stall(0)
        assert seen.fault_index <= 7
        assert seen.finish[-1] == -1 or fault == "axi"
        if fault == "watchdog":
            assert 700 < seen.cycles < 720  # nothing, or one request, was taken
    assert FAULTS[seen.fault] == fault
    rtl.write_register(Csr.CONTROL, Control.RESET)
    rtl.reset()  # the bus too: the watchdog leaves requests behind
    fresh = Simulator(TINY, dram_bytes=SIZE)
    for case in (wipe(TINY, SIZE), AFTER):
        report = cosim(case, fresh, rtl)
        assert report.ok, report.text


def test_every_code_is_tested():
    assert (*BROKEN, "axi", "watchdog") == FAULTS[1:]
    assert WATCHDOG_CYCLES == 1048576
