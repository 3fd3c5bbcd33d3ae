"""DRAM rows of a load or store as its unit sees them: which ones are joined, and where each begins."""

from __future__ import annotations

import math

from gemmule.config import Config
from gemmule.isa import MoveFlag

__all__ = ["join", "may_join", "pitch", "spans"]

APART = 1 << MoveFlag.BROADCAST | 1 << MoveFlag.INDEXED
"""Flags of commands whose rows do not follow each other."""


def may_join(config: Config, c: dict[str, int]) -> bool:
    return not c["flags"] & APART and c["bytes"] % config.bus_bytes == 0


def join(config: Config, c: dict[str, int], grain: int) -> dict[str, int]:
    """The command with whole beats (and whole elements of ``grain`` bytes) in each row, and its rows joined."""
    size = math.lcm(grain, config.bus_bytes)
    c = c | {"bytes": -(-c["bytes"] // size) * size}
    return c | {"joined": 1, "stride": c["rows"] * c["bytes"]} if may_join(config, c) else c


def pitch(c: dict[str, int]) -> int:
    """Bytes from one DRAM row to the next."""
    return c["bytes"] if c.get("joined") else c["stride"]


def spans(c: dict[str, int], numbers: list[int]) -> list[tuple[int, int]]:
    """(address, bytes) of what is cut into bursts: rows with these numbers, or all of them together."""
    if c.get("joined"):
        return [(c["address"], c["rows"] * c["bytes"])]
    return [(c["address"] + number * c["stride"], c["bytes"]) for number in numbers]
