"""How long a product will take on this computer, said before it takes long."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from gemmule.compiler.kernels.product import ProductShape
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.mapping.product.formula import by_formula
from gemmule.config import Config
from gemmule.io.progress import say, working
from gemmule.sw.device.backends import RTL_DRAM_BYTES
from gemmule.sw.errors import InputError
from gemmule.timing import ceil_div

__all__ = ["Estimate", "announce_tokens", "estimate", "patiently"]

COMMANDS_PER_TILE = 2.8
COMPILED_COMMANDS = 1500.0
"""Commands compiled and verified in a second, on one core of a common computer; all rates are rough."""
MODEL_MACS = 2e9
MODEL_COMMANDS = 1e5
RTL_CYCLES = 1e5
TOKEN_PARAMETERS = 7.0
"""Of a model that a cycle reads, autoregressive, on the slowest preset that runs it (a bus of 8 bytes)."""
HOST_BYTES = (9, 17, 17)
"""Host memory for each element of A, B, C: operands, their copies in float64, the DRAM."""
LONG = 20.0
"""Seconds from which a command says what to expect."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of compiling and of simulating, and the commands of the program."""

    compiling: float
    simulating: float
    commands: int

    @property
    def seconds(self) -> float:
        return self.compiling + self.simulating

    def announce(self, what: str, instead: str) -> None:
        """Say how long ``what`` takes and what to do ``instead``; nothing if it is quick."""
        if self.seconds >= LONG:
            running = f", simulating {_time(self.simulating)}" if self.simulating else ""
            say(f"{what}: about {_time(self.seconds)} on this computer (about {self.commands:,} commands; compiling "
                f"{_time(self.compiling)}{running}); {instead}")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else \
        f"{seconds / 3600:.1f} h"


def estimate(config: Config, shape: tuple[int, int, int], weights: WeightFormat, dataflow: str, *,
             backend: str | None = None, timing_only: bool = False) -> Estimate:
    """What compiling a product costs, and running it on ``backend`` (None: only compiled).

    Raises:
        CompileError: the shape does not fit.
        InputError: its data do not fit this computer's memory.
    """
    m, k, n = shape
    found = by_formula(config, ProductShape(m=m, k=k, n=n, weights=weights), dataflow)
    tile = found.mapping
    tiles = ceil_div(m, tile.m) * ceil_div(k, tile.k * config.dim) * ceil_div(n, tile.n * config.dim)
    commands = round(COMMANDS_PER_TILE * tiles) + 8
    simulating = 0.0
    if backend is not None:
        simulating = commands / MODEL_COMMANDS if timing_only else m * k * n / MODEL_MACS
        if backend == "rtl":
            simulating = found.cycles / RTL_CYCLES
            if m * k + k * n + m * n > RTL_DRAM_BYTES:
                raise InputError(f"--shape must fit the {RTL_DRAM_BYTES >> 20} MiB DRAM of --backend rtl, not "
                                 f"{m}x{k}x{n}: use --backend model or a smaller shape")
        if not timing_only:
            _check_memory(shape)
    return Estimate(commands / COMPILED_COMMANDS, simulating, commands)


def _check_memory(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    need = sum(bytes_each * size for bytes_each, size in zip(HOST_BYTES, (m * k, k * n, m * n)))
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > there:
        raise InputError(f"--shape must fit this computer's memory of {there >> 30} GiB, not {m}x{k}x{n} with about "
                         f"{need >> 30} GiB: use --timing-only or a smaller shape")


def announce_tokens(count: int, backend: str, parameters: int) -> None:
    """Say how long generating takes on RTL, with a target of so many parameters; nothing if it is quick."""
    seconds = count * parameters / TOKEN_PARAMETERS / RTL_CYCLES
    if backend == "rtl" and seconds >= LONG:
        say(f"{count} tokens on rtl: up to {_time(seconds)} on this computer; --backend model gives the same cycles in "
            "seconds")


def patiently(text: str, seconds: float) -> contextlib.AbstractContextManager[None]:
    """:func:`gemmule.io.progress.working` for what takes seconds; quiet for what does not."""
    return working(text) if seconds >= LONG / 4 else contextlib.nullcontext()
