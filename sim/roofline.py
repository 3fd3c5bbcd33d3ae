"""The memory roofline: what no schedule can beat."""

from __future__ import annotations

from gemmule.config import Config

__all__ = ["roofline_cycles"]


def roofline_cycles(size: int, config: Config) -> float:
    """Cycles to move ``size`` bytes at ``bus_bytes`` every ``beat_cycles`` outside refresh."""
    return size * config.dram.beat_cycles / (config.bus_bytes * (1.0 - config.dram.refresh_share))
