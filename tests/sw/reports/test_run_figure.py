"""A run as a picture: units over time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.isa import Unit
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.timeline import Timeline, timeline_of
from gemmule.sw.reports.figures import busy_shares, run_figure
from gemmule.sw.reports.trace import slices
from gemmule.sw.workloads.programs import product

TINY = load_config("tiny")


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    """Two launches of a product, the host's work before each."""
    work = product(TINY, 20, 33, 17, 1)
    device = Simulator(TINY, dram_bytes=len(work.case.dram))
    device.load(work.case)
    result = device.run()
    return timeline_of("product", [result, result], work.program.commands, TINY)


def _result(issue: list[int], finish: list[int]) -> Result:
    return Result(cycles=40, units=np.full(len(issue), Unit.LOAD), issue=np.array(issue), finish=np.array(finish))


def test_slices_do_not_overlap() -> None:
    """A command is drawn from its issue or the end of those before it; one that ended before them has no cycles."""
    mine, starts, ends = slices(_result([1, 4, 6, 21], [10, 8, 15, 30]), Unit.LOAD)
    assert (mine.tolist(), starts.tolist(), ends.tolist()) == ([0, 1, 2, 3], [0, 10, 10, 20], [10, 10, 15, 30])
    assert [len(part) for part in slices(_result([1], [2]), Unit.STORE)] == [0, 0, 0]


def test_shares_add_up_to_the_busy_cycles(timeline: Timeline) -> None:
    launch = TINY.host.launch_cycles
    last = timeline[-1]
    edges = np.linspace(0, last.start + launch + last.result.cycles, 38)
    shares = busy_shares(timeline, TINY, edges)
    assert list(shares) == [unit.label for unit in Unit]
    for unit in Unit:
        _, starts, ends = slices(last.result, unit)
        assert (shares[unit.label] * np.diff(edges)).sum() == pytest.approx(2 * (ends - starts).sum())
        assert shares[unit.label].min() >= 0
        assert shares[unit.label].max() <= 1 + 1e-9
    before = busy_shares(timeline, TINY, np.array([0, launch, last.start, last.start + launch]))
    assert all(part[0] == part[2] == 0 for part in before.values())  # while the host works


def test_equal_runs_are_equal_files(timeline: Timeline, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        run_figure(tmp_path / name, "20x33x17 on tiny", timeline, TINY)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert len((tmp_path / "a.svg").read_bytes()) > 10_000
