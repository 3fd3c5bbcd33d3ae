"""Starts the cocotb benches of this folder: one build and one simulation for each unit, and for the whole."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.timing import Timing

from .runner import build_unit, simulate

pytestmark = pytest.mark.rtl
BENCHES = {
    "csr": "csr", "fetch": "fetch", "scratchpad": "memory", "accumulator": "memory", "load": "load", "store": "store",
    "matrix": "matrix", "vector": "vector", "dispatch": "dispatch", "issue_logic": "issue", "control": "control",
    "select": "select", "gemmule": "gemmule",
}
"""Unit of ``gemmule.hw.flow.verilog.UNITS`` and its bench, ``bench_<name>.py``."""


SHORT = {"fetch", "load"}
"""Run by `make test`. Stronger tests of the other units are in tests/hw; these show that benches of all kinds work."""


def built(name):
    return build_unit(name, load_config("tiny"), waves=bool(os.environ.get("GEMMULE_WAVES")))


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.long)
                                  for name in BENCHES])
def test_bench(name, tmp_path):
    outcome = simulate(built(name), f"bench_{BENCHES[name]}", tmp_path)
    source = (Path(__file__).parent / f"bench_{BENCHES[name]}.py").read_text()
    assert set(outcome.tests) == set(re.findall(r"^@cocotb\.test.*?^async def (\w+)", source, re.DOTALL | re.MULTILINE))
    assert outcome.failures == {}


def test_programs_on_the_whole_device(tmp_path):
    """What of the whole device's bench `make test` runs: a random program under pauses of the memory and of the host.

    Registers, interrupt and faults of the bus are those of tests/hw/device and tests/equivalence/test_bus.py.
    """
    outcome = simulate(built("gemmule"), "bench_gemmule", tmp_path, COCOTB_TEST_FILTER="random_program")
    assert set(outcome.tests) == {"random_program"}
    assert outcome.failures == {}


@pytest.mark.long
def test_further_variants_of_the_registers(tmp_path):
    outcome = simulate(built("csr"), "bench_csr", tmp_path, COCOTB_TEST_FILTER="parameters", BENCH_VARIANTS="rest")
    assert {name: len(variants) for name, variants in outcome.tests.items()} == {"parameters": 2}
    assert outcome.failures == {}


@pytest.mark.long
def test_further_variants_of_the_whole_device(tmp_path):
    settings = {"COCOTB_TEST_FILTER": "random_program|axi_error|memory_stops|registers", "BENCH_VARIANTS": "rest"}
    outcome = simulate(built("gemmule"), "bench_gemmule", tmp_path, **settings)
    assert {name: len(variants) for name, variants in outcome.tests.items()} == {
        "random_program": 3, "axi_error": 3, "memory_stops": 4, "registers": 1}
    assert outcome.failures == {}


@pytest.mark.long  # a wrong bit on the bus, in bench_gemmule, shows the same
def test_one_wrong_byte_fails_the_bench(tmp_path):
    settings = {"COCOTB_TEST_FILTER": "random_program/seed=2/stalls=often", "BENCH_MUTANT": "expected"}
    outcome = simulate(built("gemmule"), "bench_gemmule", tmp_path, **settings)
    assert list(outcome.failures) == ["random_program/seed=2/stalls=often"]
    assert "1 DRAM bytes differ; first at" in outcome.failures.popitem()[1]


def test_one_late_cycle_fails_the_bench(tmp_path):
    """The unit with one constant changed: its bench of latencies, and no other test, fails."""
    tiny = load_config("tiny")
    late = build_unit("fetch", tiny, replace(Timing.of(tiny), fetch_start=2))
    outcome = simulate(late, "bench_fetch", tmp_path)
    assert set(outcome.failures) == {"latency", "full_rate"}
