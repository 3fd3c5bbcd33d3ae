"""The memory roofline: what no schedule can beat."""

from __future__ import annotations

from gemmule.config import Config

__all__ = ["refresh_share", "roofline_cycles"]


def refresh_share(config: Config) -> float:
    """Part of all cycles in which the DRAM refreshes."""
    dram = config.dram
    return dram.refresh_cycles / dram.refresh_period if dram.refresh_period else 0.0


def roofline_cycles(size: int, config: Config) -> float:
    """Cycles to move ``size`` bytes at ``bus_bytes`` every ``beat_cycles`` outside refresh."""
    return size * config.dram.beat_cycles / (config.bus_bytes * (1.0 - refresh_share(config)))
