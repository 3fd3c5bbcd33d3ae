"""Builds one unit's exported Verilog with Verilator and runs a cocotb bench on it."""

import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from gemmule.config import Config
from gemmule.hw.flow.verilog import UNITS, verilog_of
from gemmule.sim.rtl.build import Build, build, build_root, fingerprint
from gemmule.sim.rtl.process import simulator_environment
from gemmule.timing import Timing

__all__ = ["Outcome", "Unit", "build_unit", "simulate"]

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


@dataclass(frozen=True)
class Unit:
    """A built unit and what its bench must know."""

    build: Build
    config: str
    inputs: str
    """Names of its input ports, with commas between."""


def build_unit(unit: str, config: Config, timing: Timing | None = None, *, waves: bool = False) -> Unit:
    """Simulator of one entry of ``gemmule.hw.flow.verilog.UNITS``; only its ports are visible (this is much faster)."""
    made = verilog_of(UNITS[unit](config, timing or Timing.of(config)), unit)
    text, ports = made.text, made.ports
    public = "`verilator_config\n" + "".join(
        f'public_flat_rw -module "{unit}" -var "{name}"\n' for name, port in ports.items() if port["width"])
    folder = build_root() / f"{config.name}-{unit}-verilog-{fingerprint([text.encode()])}"
    folder.mkdir(parents=True, exist_ok=True)
    sources = [folder / "public.vlt", folder / f"{unit}.sv"]
    inputs = ",".join(name for name, port in ports.items() if port["direction"] == "input")
    for path, content in zip(sources, (public, text)):
        if not path.is_file() or path.read_text() != content:
            path.write_text(content)
    return Unit(build(sources, unit, {}, name=f"{config.name}-{unit}", waves=waves), config.name, inputs)


@dataclass(frozen=True)
class Outcome:
    """What one simulation did: for each test its variants, and for each variant its failure or None."""

    tests: dict[str, dict[str, str | None]]
    log: Path

    @property
    def failures(self) -> dict[str, str]:
        return {variant: text for variants in self.tests.values() for variant, text in variants.items() if text}


def simulate(unit: Unit, bench: str, folder: Path, **settings: str) -> Outcome:
    """Run every test of module ``bench`` (a file of this folder) in one simulation.

    Parameters
    ----------
    unit: from :func:`build_unit`; the bench sees its preset as ``GEMMULE_CONFIG``.
    bench: module name, such as ``bench_load``.
    folder: for results, log and waveform (``dump.fst``).
    settings: further environment variables, such as ``COCOTB_TEST_FILTER``.

    A simulation that ends early, in whatever way, or runs no test fails here. How long it takes by the clock does not
    matter: the limit of the test that runs it counts its processor time.
    """
    executable = unit.build.executable
    environment = simulator_environment(folder) | {
        "COCOTB_TEST_MODULES": bench, "COCOTB_TOPLEVEL": executable.name, "GEMMULE_CONFIG": unit.config,
        "GEMMULE_INPUTS": unit.inputs, **settings}
    environment["PYTHONPATH"] = f"{FOLDER}:{ROOT}:{environment['PYTHONPATH']}"
    log = folder / f"{bench}.log"
    with log.open("wb") as output:
        done = subprocess.run([str(executable), *(["--trace"] if unit.build.waves else [])], cwd=folder,
                              env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                              check=False)
    results = folder / "results.xml"
    assert results.is_file(), log.read_text()[-3000:]
    assert done.returncode == 0, f"exit status {done.returncode}; log: {log}"
    tests: dict[str, dict[str, str | None]] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.get("name") or ""
        failed = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        text = None if failed is None else f"{failed.tag}: {failed.attrib} {failed.text or ''}; log: {log}"
        tests.setdefault(name.partition("/")[0], {})[name] = text
    assert tests, f"no test ran; log: {log}"
    return Outcome(tests, log)
