"""The two back ends behind one interface: the exact model, and the RTL under Verilator."""

from __future__ import annotations

from typing import Protocol

from gemmule.config import Config
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sw.limits import BACKENDS

__all__ = ["RTL_DRAM_BYTES", "Device", "DeviceError", "open_device"]

RTL_DRAM_BYTES, MOST_RTL_DRAM_BYTES = 64 << 20, 1 << 30
"""One size for nearly all, so that one build serves them; published models take a build with more, up to so much."""


class DeviceError(RuntimeError):
    """A launch that ended with a fault, or a back end that cannot be opened."""


class Device(Protocol):
    """What a host sees: DRAM, and a launch that runs a program to its interrupt."""

    config: Config

    def write_dram(self, address: int, data: bytes) -> None: ...

    def read_dram(self, address: int, size: int) -> bytes: ...

    def load(self, launch: Launch) -> None: ...

    def run(self) -> Result: ...

    def close(self) -> None: ...


def open_device(backend: str, config: Config, dram_bytes: int) -> Device:
    """A fresh device with zeroed DRAM of ``dram_bytes``.

    Raises:
        DeviceError: the back end is unknown, or its DRAM is smaller.
    """
    if backend == "model":
        from gemmule.sim.simulator import Simulator

        return Simulator(config, dram_bytes=dram_bytes)
    if backend == "rtl":
        from gemmule.sim.rtl.device import RtlDevice

        if dram_bytes > MOST_RTL_DRAM_BYTES:
            raise DeviceError(f"--backend rtl has up to {MOST_RTL_DRAM_BYTES:,} bytes of DRAM, not {dram_bytes:,}; use "
                              "--backend model")
        return RtlDevice(config, dram_bytes=max(RTL_DRAM_BYTES, 1 << (dram_bytes - 1).bit_length()))
    raise DeviceError(f"--backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
