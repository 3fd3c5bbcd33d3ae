"""The testbench around a device: its parameters, what it looks into, and its build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gemmule.config import Config
from gemmule.hw import tb
from gemmule.hw.flow.names import instances
from gemmule.hw.flow.verilog import TOP
from gemmule.sim.rtl.build import Build, build

__all__ = ["block_paths", "build_testbench", "capacity", "parameters_of"]

SHARED_DRAM_BYTES = 64 << 20
"""Room of the DRAM in every simulator that needs no more: smaller ones are a matter of its command line."""


def block_paths(verilog: str) -> dict[str, str]:
    """Paths of the blocks that the check of claims looks at, as macros for ``hw/tb/claims_check.sv``.

    Empty for a stand-in without such blocks.
    """
    found = {path.split(".")[-1].removeprefix("u_"): path for path, _ in instances(verilog, TOP)}
    return {name.upper(): f"{tb.TOP}.device.{found[name]}" for name in tb.CHECKED if name in found}


def capacity(dram_bytes: int) -> int:
    """Room in the simulator for so much DRAM; few sizes, because each one is a build of its own."""
    return max(SHARED_DRAM_BYTES, 1 << (dram_bytes - 1).bit_length())


def parameters_of(config: Config, dram_bytes: int, *, claims: bool = True) -> dict[str, int]:
    """Parameters of ``hw/tb/gemmule_tb.sv``; ``claims``: the device is no stand-in, so its claims are checked."""
    dram = config.dram
    parameters = {
        "ADDRESS_BITS": config.address_bits, "BUS_BYTES": config.bus_bytes,
        "DRAM_WORDS": dram_bytes // config.bus_bytes, "DRAM_LATENCY": dram.latency,
        "DRAM_BANKS": dram.banks, "DRAM_ROW_BYTES": dram.row_bytes, "DRAM_ROW_MISS": dram.row_miss,
        "DRAM_TURNAROUND": dram.turnaround, "DRAM_BEAT_CYCLES": dram.beat_cycles,
        "DRAM_REFRESH_CYCLES": dram.refresh_cycles, "DRAM_REFRESH_PERIOD": dram.refresh_period,
    }
    if claims:
        parameters |= {
            "SPM_BANKS": config.spm_banks, "SPM_BANK_ROWS": config.spm_bank_rows,
            "ACC_BANKS": config.acc_banks, "ACC_BANK_ROWS": config.acc_bank_rows,
        }
    return parameters


def build_testbench(config: Config, verilog: Path, *, dram_bytes: int, waves: bool = False,
                    train: Callable[[Build], None] | None = None, gated: bool = True) -> Build:
    """Simulator of the testbench around the device in ``verilog``, with room for ``dram_bytes`` or more.

    Started with ``+dram_words=``, it has no more than so many words of the bus.
    """
    macros = block_paths(verilog.read_text(encoding="utf-8"))
    parameters = parameters_of(config, capacity(dram_bytes), claims=bool(macros))
    return build([*tb.SOURCES, verilog], tb.TOP, parameters, name=config.name, waves=waves, train=train,
                 macros=macros, gated=gated)
