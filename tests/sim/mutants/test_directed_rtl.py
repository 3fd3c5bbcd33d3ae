"""The directed checks on the device as it is: they tell faults that no program shows, so the RTL must pass them."""

import pytest

from gemmule.config import load_config
from gemmule.sim.mutants.directed import directed
from gemmule.sim.mutants.leaps import leap_checks
from gemmule.sim.mutants.registers import register_checks
from gemmule.sim.mutants.setup import Setup
from gemmule.sim.rtl.device import RtlDevice

pytestmark = pytest.mark.rtl
TINY = load_config("tiny")


def _failures(checks):
    with RtlDevice(TINY) as rtl:
        return {check.name: found for check in checks if (found := check.run(rtl))}


def test_registers():
    setup = Setup.make(TINY, 1, 10)
    assert _failures(setup.fresh(check) for check in register_checks(setup)) == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_all(seed):
    # Those need a netlist whose counts can be set.
    leaps = {check.name for check in leap_checks(Setup.make(TINY, seed, 10))}
    checks = [check for group in directed(TINY, seed) for check in group]
    assert _failures(check for check in checks if check.name not in leaps) == {}
