"""The device between a memory and a host that are not ours (cocotbext-axi); see ``bench_axi.py``."""

import json
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gemmule.config import load_config
from gemmule.sim.build import build
from gemmule.sim.cosim import verilog_path
from gemmule.sim.rtl import simulator_environment

pytestmark = [pytest.mark.rtl, pytest.mark.slow]
BENCH = Path(__file__).with_name("bench_axi.py")
TESTS = {"random_program": 9, "axi_error": 6, "registers": 2, "interrupt": 1, "corrupt_memory": 1}
"""Every test of the bench, and how many variants it has."""


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    config = load_config("tiny")
    verilog = verilog_path(config)
    ports = json.loads(verilog.with_name("manifest.json").read_text())["ports"]
    public = tmp_path_factory.mktemp("axi") / "public.vlt"
    public.write_text("`verilator_config\n" + "".join(
        f'public_flat_rw -module "gemmule" -var "{name}"\n' for name in ports))
    return build([public, verilog], "gemmule", {}, name="tiny-axi").executable


def simulate(executable, folder, **settings):
    """Run the bench; for each test its variants, and for each variant its failure or None."""
    environment = simulator_environment(folder)
    environment |= {"COCOTB_TEST_MODULES": "bench_axi", "COCOTB_TOPLEVEL": "gemmule", **settings}
    environment["PYTHONPATH"] = f"{BENCH.parent}:{environment['PYTHONPATH']}"
    log = folder / "simulator.log"
    with log.open("wb") as output:
        subprocess.run([str(executable)], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                       stdout=output, stderr=subprocess.STDOUT, timeout=300, check=False)
    results = folder / "results.xml"
    assert results.is_file(), log.read_text()[-2000:]
    outcome = {}
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.get("name")
        failed = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        text = None if failed is None else f"{failed.tag}: {failed.attrib} {failed.text or ''}; log: {log}"
        outcome.setdefault(name.partition("/")[0], {})[name] = text
    return outcome


@pytest.fixture(scope="module")
def outcome(executable, tmp_path_factory):
    return simulate(executable, tmp_path_factory.mktemp("bench"))


def test_the_list_is_complete(outcome):
    assert {name: len(variants) for name, variants in outcome.items()} == TESTS


@pytest.mark.parametrize("name", TESTS)
def test_bench(outcome, name):
    assert {variant: text for variant, text in outcome[name].items() if text} == {}


def test_one_wrong_byte_fails_the_bench(executable, tmp_path):
    settings = {"COCOTB_TEST_FILTER": "random_program/seed=1/stalls=none", "BENCH_MUTANT": "expected"}
    seen = simulate(executable, tmp_path, **settings)["random_program"]
    assert len(seen) == 1
    assert "1 DRAM bytes differ; first at" in next(iter(seen.values()))
