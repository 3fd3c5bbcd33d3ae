"""The testbench in C++: the driver on this host, its registers and DRAM those of the verilated device."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmule.config import Config
from gemmule.csr import COUNTERS
from gemmule.hw.flow.verilog import TOP
from gemmule.sim.errors import SimulationError
from gemmule.sim.rtl.build import Build, build
from gemmule.sim.rtl.verilog import verilog_path
from gemmule.sw.driver.header import HEADER_NAME, header_text

__all__ = ["BENCH", "DRIVER", "FOLDER", "WAITS", "BenchError", "BenchRun", "bench_files", "build_bench",
           "output_of", "run_bench"]

FOLDER = Path(__file__).with_name("c")
DRIVER = ("gemmule_driver.h", "gemmule_driver.c", "gemmule_decoder.h", "gemmule_decoder.c")
"""The driver's files: all that a target needs besides the header and its port."""
BENCH = ("gemmule_dram.hpp", "gemmule_bench.cpp")
WAITS = ("irq", "poll")
"""How the driver learns that a launch has ended."""


class BenchError(SimulationError):
    """The testbench failed; its line says why."""


@dataclass(frozen=True)
class BenchRun:
    """What the driver saw.

    Attributes:
        tokens: generated.
        device_cycles: of all launches, as the register says.
        cycles: of the clock from reset to the end: the host's accesses and its polling too.
        last_launch: its cycles and counters by name.
    """

    tokens: list[int]
    launches: int
    device_cycles: int
    cycles: int
    last_launch: dict[str, int]


def bench_files(config: Config) -> list[tuple[Path, bytes]]:
    """Name and text of every file that the bench is compiled from, the header included."""
    return [(Path(HEADER_NAME), header_text(config).encode()),
            *((FOLDER / name, (FOLDER / name).read_bytes()) for name in (*DRIVER, *BENCH))]


def build_bench(config: Config) -> Build:
    """The testbench around the device's Verilog, built once for each configuration.

    Raises:
        BuildError, CacheError: as of :func:`gemmule.sim.rtl.build.build`.
    """
    return build([verilog_path(config)], TOP, {}, name=f"{config.name}-driver", host=bench_files(config))


def run_bench(found: Build, image: Path, *, tokens: int, wait: str = "irq") -> BenchRun:
    """Decode so many tokens behind the image's prompt.

    Raises:
        BenchError: the driver or the bench refused; with its line.
    """
    told = output_of([str(found.executable), str(image), "--wait", wait, "--tokens", str(tokens)])
    seen = json.loads(told)
    assert list(seen["last_launch"])[1:] == list(COUNTERS), "the header names all counters"
    return BenchRun(**seen)


def output_of(command: Sequence[str], folder: Path | None = None) -> str:
    """What a program writes, which runs in ``folder``.

    Raises:
        BenchError: it failed; with its last line.
    """
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        line = done.stderr.strip().splitlines()
        raise BenchError(line[-1] if line else f"bench: {command[0]} ended with code {done.returncode}")
    return done.stdout
