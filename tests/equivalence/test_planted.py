"""Planted faults that the fuzzer once passed: a program with a fixed seed, as ``gemmule fuzz`` draws it, finds each.
Hulls that are too small stand in the same device, whose simulator is built for these tests alone: they are long.

Where other draws need other seeds: ``python -m tests.equivalence.find_planted``.
"""

import json
from pathlib import Path

import pytest

from gemmule.sim.fuzz.generate import generate
from gemmule.sim.rtl.device import RtlDevice, RtlError
from gemmule.sim.simulator import Simulator

from .find_planted import COMMANDS, FOUND, TINY, notices, outcome, planted_verilog
from .mutation import mutated
from .planted import HULLS, MODEL, RTL

SEEDS = json.loads(FOUND.read_text(encoding="utf-8"))


@pytest.mark.parametrize("fault", MODEL)
def test_model(fault: str) -> None:
    case = generate(TINY, SEEDS["model"][fault][0], COMMANDS)
    right = outcome(case, Simulator)
    with mutated(*MODEL[fault]) as wrong:
        assert outcome(case, wrong) != right


@pytest.fixture(scope="module")
def verilog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_verilog(tmp_path_factory.mktemp("planted"))


@pytest.mark.rtl
@pytest.mark.long
@pytest.mark.parametrize("fault", RTL)
def test_rtl(fault: str, verilog: Path) -> None:
    """The last program finds the fault; without it the same device is exact."""
    first, last = SEEDS["rtl"][fault]
    number = list(RTL).index(fault) + 1
    assert notices(verilog, 0, first, last) == [True] * (last - first + 1)
    assert notices(verilog, number, first, last) == [True] * (last - first) + [False]


@pytest.mark.rtl
@pytest.mark.long
def test_a_hull_without_its_last_bank_is_caught(verilog: Path) -> None:
    """By the testbench's check of claims. The same programs run without a word as long as no hull is wrong."""
    assert TINY.acc_banks == TINY.spm_banks
    cases = [generate(TINY, seed, 80) for seed in range(10)]

    def run(*arguments: str) -> None:
        with RtlDevice(TINY, verilog=verilog, watchdog=1_000_000, arguments=arguments) as device:
            for case in cases:
                device.load(case)
                device.run()

    run()
    for hull in HULLS:
        with pytest.raises(RtlError, match="access to a bank whose port its stream does not hold"):
            run(f"+hull={hull}")


def test_every_fault_is_found_within_200_programs() -> None:
    assert {where: list(faults) for where, faults in SEEDS.items()} == {"model": list(MODEL), "rtl": list(RTL)}
    assert all(2000 <= first <= last < 2200 for faults in SEEDS.values() for first, last in faults.values())
