"""The testbench of co-simulation under Icarus Verilog, for the tests that run exported files there."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gemmule.config import Config
from gemmule.hw import tb
from gemmule.sim.rtl.build import Build
from gemmule.sim.rtl.testbench import block_paths, parameters_of

__all__ = ["build_icarus", "compile_icarus", "need_icarus"]


def need_icarus() -> None:
    """Skip where Icarus is not installed: it is a system package, which set-up cannot bring.

    With GEMMULE_ICARUS=required, as ``.ci/run`` sets it once it has installed Icarus, that is a failure.
    """
    if shutil.which("iverilog") is None:
        needed = os.environ.get("GEMMULE_ICARUS") == "required"
        assert not needed, "iverilog must be on PATH (Debian: apt-get install iverilog)"
        pytest.skip("iverilog is not on PATH (Debian: apt-get install iverilog)")


def compile_icarus(sources: Sequence[Path], top: str, parameters: dict[str, int], out: Path,
                   macros: dict[str, str] | None = None) -> str:
    """Compile ``sources`` to ``out``; what Icarus said."""
    settings = out.with_suffix(".f")
    settings.write_text("+timescale+1ns/1ps\n")
    done = subprocess.run(
        ["iverilog", "-g2012", "-s", top, "-o", str(out), "-c", str(settings),
         *(f"-D{name}={value}" for name, value in (macros or {}).items()),
         *(f"-P{top}.{name}={value}" for name, value in parameters.items()), *map(str, sources)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def build_icarus(config: Config, verilog: Sequence[Path], folder: Path, *, dram_bytes: int) -> Build:
    """The testbench around exported Verilog, as something that :class:`gemmule.sim.rtl.device.RtlDevice` runs."""
    import cocotb_tools.config

    text = "\n".join(path.read_text() for path in verilog)
    compile_icarus([*tb.SOURCES, *verilog], tb.TOP, parameters_of(config, dram_bytes), folder / "bench.vvp",
                   block_paths(text))
    executable = folder / tb.TOP
    entry = cocotb_tools.config.lib_name_path("vpi", "icarus")
    executable.write_text("#!/bin/sh\n" + shlex.join(["exec", "vvp", "-n", "-m", str(entry), str(folder / "bench.vvp")])
                          + ' "$@"\n')
    executable.chmod(0o755)
    return Build(folder, executable, waves=False)
