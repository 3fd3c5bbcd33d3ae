"""FPGAs: what a part holds, where its multipliers and memories are, and how nextpnr is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmule.hw.flow.floorplan import Site, Sites

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """An FPGA: nextpnr's options, what the part holds, and the sites of its large cells."""

    part: str
    options: tuple[str, ...]
    comb: int
    ff: int
    sites: Sites

    @property
    def dsp(self) -> int:
        return len(self.sites["MULT18X18D"])

    @property
    def bram(self) -> int:
        return len(self.sites["DP16KD"])


def _sites(columns: tuple[int, ...], rows: tuple[int, ...], kind: str, places: Mapping[int, int]) -> tuple[Site, ...]:
    """Sites of blocks that stand at ``columns`` in ``rows``: in a block at its tile, by the number in their name."""
    return tuple(Site(x + tile, y, f"X{x + tile}/Y{y}/{kind}{number}")
                 for y in rows for x in columns for number, tile in places.items())


_ECP5_85K = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
"""Columns of DSP and block RAM, four sites each (Project Trellis' data base of the LFE5UM5G-85F)."""

TARGETS: Mapping[str, Target] = {
    "ecp5-85k": Target(
        "LFE5UM5G-85F, CABGA381, speed 8", ("--um5g-85k", "--package", "CABGA381", "--speed", "8"), 83640, 83640, {
            "MULT18X18D": _sites(_ECP5_85K, (10, 34, 58), "MULT18_", {0: 0, 1: 1, 4: 4, 5: 5}),
            "DP16KD": _sites(_ECP5_85K, (22, 46, 70, 82), "EBR", {0: 0, 1: 2, 2: 4, 3: 6}),
        }),
}
