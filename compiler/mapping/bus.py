"""When the DRAM bus can have moved so many bytes: refreshes stand between them."""

from __future__ import annotations

from gemmule.config import Config

__all__ = ["byte_cycles", "refreshed"]


def byte_cycles(config: Config) -> float:
    """Cycles of the bus a byte."""
    return config.dram.beat_cycles / config.bus_bytes


def refreshed(config: Config, busy: float) -> float:
    """The first cycle at which the bus can have been busy for so many, refreshes between them."""
    dram, end = config.dram, busy
    if not dram.refresh_period:
        return end
    while (later := busy + dram.refresh_cycles * ((max(1, int(end)) - 1) // dram.refresh_period)) > end:
        end = later
    return end
