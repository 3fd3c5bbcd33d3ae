"""A simulation that fails makes pytest fail, whichever way it fails: its own exit status is 0 even then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.rtl
ROOT = Path(__file__).resolve().parents[2]
BENCH = """
import os
import signal
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def passes(dut):
    await Timer(10, unit="ns")

@cocotb.test()
async def planted(dut):
    await Timer(10, unit="ns")
    HOW
"""
FAULTS = {
    "a wrong value": "assert 1 + 1 == 3",
    "an end in the middle": "os._exit(0)",
    "a crash": "os.kill(os.getpid(), signal.SIGKILL)",
    "nothing": "pass",
}
TEST = """
import pytest
from tests.cocotb.runner import simulate
from tests.cocotb.test_benches import built

@pytest.mark.parametrize("bench", BENCHES)
def test_bench(bench, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    assert simulate(built("fetch"), bench, tmp_path).failures == {}

def test_no_test(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    assert simulate(built("fetch"), "bench_3", tmp_path, COCOTB_TEST_FILTER="none of them").failures == {}
"""


def test_a_failing_simulation_never_ends_with_exit_code_0(tmp_path: Path) -> None:
    for i, how in enumerate(FAULTS.values()):
        (tmp_path / f"bench_{i}.py").write_text(BENCH.replace("HOW", how))
    names = [f"bench_{i}" for i in range(len(FAULTS))]
    planted = tmp_path / "test_planted_benches.py"
    planted.write_text(TEST.replace("BENCHES", repr(names)).replace("FOLDER", repr(str(tmp_path))))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"),
         "--rootdir", str(tmp_path), str(planted)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, capture_output=True,
        text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:]
    failed = {line.rpartition("::")[2].partition(" ")[0] for line in done.stdout.splitlines() if line[:7] == "FAILED "}
    assert failed == {f"test_bench[{name}]" for name, how in zip(names, FAULTS) if how != "nothing"} | {"test_no_test"}
    assert "4 failed, 1 passed" in done.stdout
