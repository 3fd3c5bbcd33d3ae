"""Programs of attention alone: the plan's blocks of queries, operands in DRAM, their content and the result.

Operands lie in DRAM as the device uses them, [head][column group][row][DIM].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import Regions, pack_groups, unpack_groups
from gemmule.compiler.place import Plan, round_up
from gemmule.compiler.program import FixedProgram, ReadDram
from gemmule.config import Config
from gemmule.isa import MAX_LENGTH, Command, Unit

__all__ = ["OPERANDS", "SLOTS", "AttentionPlan", "AttentionProgram", "check_scalings", "check_sizes", "move_groups",
           "place_operands"]

SLOTS = 4
"""Accumulator slots: two blocks of scores, two of contexts."""
OPERANDS = ("q", "k", "v", "context")
"""DRAM regions by base register."""


@dataclass(frozen=True, kw_only=True)
class AttentionPlan(Plan):
    """Blocks of queries; accumulator slots of scores and of contexts. Its user says where buffers stand (``row``)."""

    queries: int
    keys: int
    head_dim: int
    causal: bool
    flight: int
    """Blocks in flight together."""
    probability_rows: int
    """Scratchpad rows of one block's probabilities."""

    def seen(self, first: int, rows: int) -> int:
        """Keys that some row of a block of queries sees: the others are skipped."""
        return self.keys - self.queries + first + rows if self.causal else self.keys

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one head's two products, over the keys that blocks see."""
        return 2 * self.head_dim * sum(rows * self.seen(first, rows) for first, rows in self.blocks)


def check_sizes(sizes: Mapping[str, int], causal: bool) -> None:
    """Refuse sizes (by name, among them queries and keys) that no plan can have; raises CompileError."""
    for name, value in sizes.items():
        if not 1 <= value <= MAX_LENGTH:
            raise CompileError(f"{name} must be from 1 to {MAX_LENGTH}, not {value}")
    if causal and sizes["queries"] > sizes["keys"]:
        raise CompileError(
            f"causal attention takes at most as many queries as keys = {sizes['keys']}, not {sizes['queries']}")


def move_groups(unit: Unit, note: str, *, base: int, offset: int, pitch: int, rows: int, groups: int, row: int,
                stride: int, dim: int) -> Command:
    """Move ``rows`` of each column group: [group][pitch rows][dim] in DRAM, ``stride`` rows apart in the scratchpad."""
    if pitch == rows == stride:
        return Command.make(unit, note=note, base=base, offset=offset, bytes=groups * rows * dim, row=row,
                            block_stride=1, rows=1)
    return Command.make(unit, note=note, base=base, offset=offset, stride=pitch * dim, bytes=rows * dim, row=row,
                        row_stride=stride, block_stride=1, rows=groups)


@dataclass(frozen=True, kw_only=True)
class AttentionProgram(FixedProgram):
    """Compiled attention; regions ``q``, ``k``, ``v``, ``context``."""

    heads: int
    plan: AttentionPlan

    @property
    def macs(self) -> int:
        return self.heads * self.plan.macs

    def fill(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        """DRAM content (uint8, at ``base_address``) for int8 q [heads, queries, head_dim], k and v with keys rows."""
        dram, plan = np.zeros(self.size, dtype=np.uint8), self.plan
        for name, value, rows in (("q", q, plan.queries), ("k", k, plan.keys), ("v", v, plan.keys)):
            if value.shape != (self.heads, rows, plan.head_dim):
                raise CompileError(f"{name} must have shape {(self.heads, rows, plan.head_dim)}, not {value.shape}")
            self.put(dram, name, pack_groups(value, self.config.dim))
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        return dram

    def read_output(self, read_dram: ReadDram) -> np.ndarray:
        """int8 context [heads, queries, head_dim], read with ``read_dram(address, bytes)``."""
        grouped = self.read(read_dram, "context").reshape(self.heads, -1, self.plan.queries, self.config.dim)
        return unpack_groups(grouped, self.plan.head_dim).view(np.int8)


def check_scalings(heads: int, score: np.ndarray, scale: np.ndarray) -> None:
    """Refuse scalings that are not [heads, 2]; raises CompileError."""
    if heads < 1 or score.shape != (heads, 2) or scale.shape != (heads, 2):
        raise CompileError(f"score and scale must have shape {(max(heads, 1), 2)}, not {score.shape} and {scale.shape}")


def place_operands(config: Config, heads: int, plan: AttentionPlan, program_bytes: int) -> Regions:
    """The program and the four operands in DRAM."""
    regions = Regions(config)
    regions.reserve("program", program_bytes)
    for name in OPERANDS:
        rows = plan.keys if name in "kv" else plan.queries
        regions.reserve(name, heads * round_up(plan.head_dim, config.dim) * rows)
    return regions
