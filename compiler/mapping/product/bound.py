"""Cycles below which no program of a product's mapping can be: what the mesh and the DRAM bus must do at least.

Each term leaves out what may overlap, so it is a bound, not an estimate; tests hold it against the simulator.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

from gemmule.compiler.kernels.product import COLUMNS, A, B, ProductMapping, ProductShape, panel_tiles
from gemmule.compiler.mapping.bus import byte_cycles, refreshed
from gemmule.compiler.place import Cut, cut_off
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import Timing, ceil_div, matrix_shape

__all__ = ["ProductBound", "Tiles"]


@dataclass(frozen=True)
class Tiles:
    """What follows from the sizes of tiles alone."""

    blocks: tuple[Cut, ...]
    panels: list[list[Cut]]
    depths: tuple[Cut, ...]
    columns: int
    """Tiles of columns."""
    depth_rows: int
    """Scratchpad rows of a column group of B at whole depth."""
    mesh: dict[str, int]
    """By dataflow: cycles in which the mesh streams. All commands follow one another."""


class ProductBound:
    """A lower bound of cycles for every mapping of a product on a device."""

    def __init__(self, config: Config, shape: ProductShape) -> None:
        self.config, self.shape, self.dim = config, shape, config.dim
        self.deep, self.wide = ceil_div(shape.k, config.dim), ceil_div(shape.n, config.dim)
        self.byte = byte_cycles(config)
        """Cycles a byte."""
        self._rmw = int(Timing.of(config).matrix_rmw)
        self.cut = cache(self._cut)

    def _cut(self, m: int, n: int, k: int, panel: int) -> Tiles:
        blocks, depths, panels = cut_off(self.shape.m, m), cut_off(self.deep, k), panel_tiles(n, panel, self.wide)
        sizes = [Counter(count for _, count in cuts) for cuts in (
            blocks, [tile for tiles in panels for tile in tiles], depths)]
        mesh = dict.fromkeys(("ws", "os"), 0)
        for rows, times in sizes[0].items():
            for width, wide_times in sizes[1].items():
                for depth, deep_times in sizes[2].items():
                    for dataflow in mesh:
                        tiles, slot, _, _ = matrix_shape(
                            self.dim, self.config.preload, self._rmw, rows, width * self.dim, depth * self.dim,
                            dataflow == "os", 0, int(self.shape.weights.group > 0), 0, int(self.config.spm_banks == 1))
                        mesh[dataflow] += times * wide_times * deep_times * int(tiles * slot)
        depth_rows = sum(self.shape.weights.rows(self.config, count) for _, count in depths)
        return Tiles(blocks, panels, depths, sum(map(len, panels)), depth_rows, mesh)

    def loads(self, cut: Tiles, order: str, kept: str, across: bool, slots: tuple[int, int]) -> tuple[int, int]:
        """How often all of A and all of B are loaded at least; ``slots`` of both rings, the rest as in a mapping.

        Tiles come again and again in one order, so a ring has them all if all fit, and else none.
        """
        blocks, steps, panels = len(cut.blocks), len(cut.depths), len(cut.panels)
        a_times, b_times = cut.columns, blocks
        if A in kept:
            if slots[0] >= blocks * steps:
                a_times = 1 if across else panels
            elif order != COLUMNS and slots[0] >= steps:
                a_times = panels
        if B in kept:
            period = 1 if order == COLUMNS else min(map(len, cut.panels))  # the smallest panel may fit alone
            b_times = 1 if slots[1] >= period * steps else blocks
        return a_times, b_times

    def behind(self, cut: Tiles) -> float:
        """Cycles behind the last product: its results are requantised and stored."""
        last = cut.blocks[-1][1] * cut.panels[-1][-1][1]
        return last + self.dim * last * self.byte

    def __call__(self, mapping: ProductMapping) -> int:
        """Cycles that a program of this mapping takes at least."""
        return self.largest(mapping)[1]

    def largest(self, mapping: ProductMapping) -> tuple[str, int]:
        """The same, and for what."""
        dim, byte, shape = self.dim, self.byte, self.shape
        cut = self.cut(mapping.m, mapping.n, mapping.k, mapping.panel)
        blocks, steps = len(cut.blocks), len(cut.depths)
        slots = (mapping.a_slots, mapping.b_slots)
        a_times, b_times = self.loads(cut, mapping.order, mapping.kept, mapping.across, slots)
        loaded = dim * (a_times * self.deep * shape.m + (b_times * cut.depth_rows + COLUMN_ROWS) * self.wide)
        commands = blocks * cut.columns * (steps + 1) + len(cut.panels) + steps * (
            a_times * blocks + b_times * cut.columns) + blocks * ceil_div(self.wide, mapping.stage)
        behind = self.behind(cut)
        latency = self.config.dram.latency
        stored = dim * shape.m * self.wide + COMMAND_BYTES * commands
        first = dim * (COLUMN_ROWS * min(self.wide, mapping.panel) + cut.blocks[0][1] * cut.depths[0][1]
                       + shape.weights.rows(self.config, cut.depths[0][1]) * cut.panels[0][0][1])
        cycles, reason = max((refreshed(self.config, latency + byte * (loaded + stored)), "the bus"),
                             (refreshed(self.config, latency + byte * loaded) + behind,
                              "loads and what follows the last"),
                             (latency + byte * first + cut.mesh[mapping.dataflow] + behind, "the mesh"))
        return reason, int(cycles)
