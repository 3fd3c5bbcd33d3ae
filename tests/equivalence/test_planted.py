"""Planted faults that the fuzzer once passed: a program with a fixed seed, as ``gemmule fuzz`` draws it, finds each."""

from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.hw.flow.verilog import generate as generate_verilog
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

from .mutation import mutated
from .planted import MODEL, RTL, planted_rtl, with_choice

TINY = load_config("tiny")
COMMANDS = 300
"""What ``gemmule fuzz`` draws by itself."""
FOUND = {
    "norm sum of 24 bits": 2013, "norm squares of 40 bits": 2076, "softmax sum of 30 bits": 2039,
    "importance up to 2**28": 2001, "gather index 65535": 2112, "narrow store of INT_MIN": 2000,
    "refresh boundary of writes": 2020,
}
"""The first seed from 2000 on whose program finds a fault of the model."""
RTL_FOUND = {
    "narrow store of INT_MIN": (2000, 2000), "forwarding by 6 bits of the row": (2022, 2022),
    "negative tie of a wide result at shift 1": (2036, 2042), "norm sum of 24 bits": (2013, 2013),
    "norm squares of 40 bits": (2064, 2065),
}
"""Of the RTL, first and last seed of as many programs as it takes: some need what the ones before left behind."""


def outcome(case: Launch, kind: type[Simulator]) -> tuple[object, bytes]:
    """Cycles of every command and all DRAM bytes."""
    model = kind(TINY, dram_bytes=len(case.dram))
    model.load(case)
    result = model.run()
    return (result.cycles, result.issue.tolist(), result.finish.tolist()), model.read_dram(0, len(case.dram))


@pytest.mark.parametrize("fault", MODEL)
def test_model(fault: str) -> None:
    case = generate(TINY, FOUND[fault], COMMANDS)
    right = outcome(case, Simulator)
    with mutated(*MODEL[fault]) as wrong:
        assert outcome(case, wrong) != right


@pytest.fixture(scope="module")
def verilog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All faults in one device."""
    path: Path = tmp_path_factory.mktemp("planted") / "gemmule.sv"
    with planted_rtl():
        text = generate_verilog(TINY, path.parent).read_text(encoding="utf-8")
    path.write_text(with_choice(text), encoding="utf-8")
    return path


@pytest.mark.rtl
@pytest.mark.parametrize("fault", RTL)
def test_rtl(fault: str, verilog: Path) -> None:
    """The last program finds the fault; without it the same device is exact."""
    first, last = RTL_FOUND[fault]
    for number in (0, list(RTL).index(fault) + 1):
        model = Simulator(TINY, dram_bytes=1 << 20)
        with RtlDevice(TINY, verilog=verilog, watchdog=1_000_000, dram_bytes=1 << 20,
                       arguments=[f"+planted={number}"]) as device:
            found = [cosim(generate(TINY, seed, COMMANDS), model, device).ok for seed in range(first, last + 1)]
        assert found == [True] * (last - first) + [number == 0]
