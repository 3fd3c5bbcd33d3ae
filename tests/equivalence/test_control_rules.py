"""The programs with control commands notice every rule that reads differently, with the model itself to compare with.

Against the RTL they do so in ``test_mutants.py``; here a rule without a program that shows it is found without one.
"""

import pytest

from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.timing import Timing

from .control_rules import CONTROL_RULES
from .mutant_control import bodies
from .mutant_programs import SMALL
from .mutation import mutated

pytestmark = pytest.mark.slow

Record = tuple[Result, bytes]
CASES = bodies(SMALL)


@pytest.fixture(scope="module")
def right() -> list[Record]:
    model, out = Simulator(SMALL, dram_bytes=1 << 20), []
    for case in CASES:
        model.load(case)
        out.append((model.run(), bytes(model.read_dram(0, len(case.dram)))))
    return out


def differs(right: list[Record], kind: type[Simulator], timing: Timing | None = None) -> str:
    """The first program that shows a difference; empty: none."""
    model = kind(SMALL, timing, dram_bytes=1 << 20)
    for case, (result, dram) in zip(CASES, right, strict=True):
        model.load(case)
        try:
            seen = model.run()
        except (RuntimeError, IndexError) as error:  # the engine's own check, or beyond an array
            return f"{case.name}: {error}"
        if difference := result.first_difference(seen):
            return f"{case.name}: {difference}"
        if bytes(model.read_dram(0, len(case.dram))) != dram:
            return f"{case.name}: bytes"
    return ""


def test_without_a_mutant_nothing_differs(right: list[Record]) -> None:
    with mutated("gemmule.sim.timing.front", "__all__ = ", "__all__= ") as model:
        assert differs(right, model) == ""


@pytest.mark.long  # the RTL's records, which the model equals, show the same rules in test_mutants.py
@pytest.mark.parametrize("rule", CONTROL_RULES)
def test_rules(right: list[Record], rule: str) -> None:
    module, old, new = CONTROL_RULES[rule]
    with mutated(f"gemmule.{module}", old, new) as model:
        assert differs(right, model)


@pytest.mark.parametrize("step", [-1, 1])
def test_constant(right: list[Record], step: int) -> None:
    timing = Timing.of(SMALL)
    assert differs(right, Simulator, Timing(**(vars(timing) | {"control": timing.control + step})))
