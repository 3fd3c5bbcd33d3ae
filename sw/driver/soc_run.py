"""The small system: a RISC-V core of the package sentinel-cpu beside the device, whose firmware is the driver."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gemmule.config import Config
from gemmule.sim.rtl.build import Build, build
from gemmule.sim.rtl.verilog import verilog_path
from gemmule.sw.driver.bench import DRIVER, FOLDER, BenchError, bench_files, output_of
from gemmule.sw.driver.header import HEADER_NAME, header_text
from gemmule.sw.errors import InputError

__all__ = ["SOC_FOLDER", "SocRun", "build_soc", "firmware", "run_soc"]

SOC_FOLDER = Path(__file__).with_name("soc")
COMPILER = "riscv64-unknown-elf-gcc"
FLAGS = ("-march=rv32i", "-misa-spec=2.2", "-mabi=ilp32", "-std=gnu99", "-Os", "-Wall", "-Wextra", "-Werror",
         "-ffreestanding", "-nostdlib", "-fno-tree-loop-distribute-patterns", "-Wl,--no-warn-rwx-segments")
"""Of the firmware: integer instructions alone, the registers of interrupts included."""
FIRMWARE = ("start.S", "soc_main.c", "soc.ld")
CORE = "sentinel-cpu"


@dataclass(frozen=True)
class SocRun:
    """What the system's UART said.

    Attributes:
        device_cycles: of all launches, as the device counts them.
        cycles: of the clock from reset to the end: the core's work too.
        interrupts: that the core took.
    """

    tokens: list[int]
    launches: int
    device_cycles: int
    cycles: int
    interrupts: int


def _core(folder: Path) -> Path:
    """The core's Verilog, as its package makes it."""
    path = folder / "sentinel.v"
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "sentinel_cpu.gen", "-o", str(path)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"soc: {CORE} {version(CORE)} made no Verilog: {(done.stderr.splitlines() or ['?'])[-1]}")
    return path


def _check() -> None:
    try:
        version(CORE)
    except PackageNotFoundError:
        raise InputError(f"--soc needs the RISC-V core of the package {CORE}: install the extra soc "
                         "(pip install -e '.[soc]')") from None
    if shutil.which(COMPILER) is None:
        raise InputError(f"--soc needs {COMPILER} on PATH: install it (Debian: apt-get install "
                         "gcc-riscv64-unknown-elf)")


def build_soc(config: Config) -> Build:
    """The system's simulator, built once for each configuration.

    Raises:
        InputError: the core's package or the compiler is missing.
        BuildError, CacheError: as of :func:`gemmule.sim.rtl.build.build`.
    """
    _check()
    bench = SOC_FOLDER / "soc_bench.cpp"
    host = [*(one for one in bench_files(config) if one[0].name in (HEADER_NAME, "gemmule_dram.hpp")),
            (bench, bench.read_bytes())]
    with tempfile.TemporaryDirectory() as folder:
        return build([SOC_FOLDER / "soc.sv", _core(Path(folder)), verilog_path(config)], "soc",
                     {"ADDRESS_BITS": config.address_bits, "BUS_BYTES": config.bus_bytes},
                     name=f"{config.name}-soc", host=host)


def firmware(config: Config, folder: Path, tokens: int) -> Path:
    """The firmware that generates up to so many tokens, compiled in ``folder``: words in hexadecimal, one a line.

    Raises:
        BenchError: the compiler refused it.
    """
    for source, names in ((FOLDER, DRIVER), (SOC_FOLDER, FIRMWARE)):
        for name in names:
            shutil.copyfile(source / name, folder / name)
    (folder / HEADER_NAME).write_text(header_text(config))
    sources = [name for name in (*FIRMWARE, *DRIVER) if name.endswith((".S", ".c"))]
    output_of([COMPILER, *FLAGS, f"-DSOC_TOKENS={tokens}", "-T", "soc.ld", *sources, "-lgcc", "-o", "firmware.elf"],
              folder)
    output_of([COMPILER.replace("gcc", "objcopy"), "-O", "binary", "firmware.elf", "firmware.bin"], folder)
    content = (folder / "firmware.bin").read_bytes()
    content += bytes(-len(content) % 4)
    words = (int.from_bytes(content[at:at + 4], "little") for at in range(0, len(content), 4))
    path = folder / "firmware.hex"
    path.write_text("".join(f"{word:08x}\n" for word in words))
    return path


def run_soc(found: Build, config: Config, image: Path, *, tokens: int) -> SocRun:
    """Boot the system with a decoder image in its flash; it prints up to so many tokens.

    Raises:
        BenchError: the compiler, the firmware or the driver failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = firmware(config, Path(folder), tokens)
        said = output_of([str(found.executable), f"+firmware={path}", str(image.resolve())])
    numbers = re.search(r"launches (\d+), device cycles (\d+), interrupts (\d+)\ncycles (\d+)\n$", said)
    if numbers is None:
        raise BenchError(f"soc: its UART must end with numbers, not {said[-60:]!r}")
    launches, device_cycles, interrupts, cycles = map(int, numbers.groups())
    return SocRun([int(token) for token in re.findall(r"^token (\d+): ", said, re.MULTILINE)], launches,
                  device_cycles, cycles, interrupts)
