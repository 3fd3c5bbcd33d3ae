"""Attention with cascade pruning as a program: one row through all layers, from DRAM and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.importance.cascade import (
    CONTEXTS,
    KEYS,
    QUERIES,
    VALUES,
    CascadeSchedule,
    Scales,
    cascade_items,
)
from gemmule.compiler.kernels.virtual import Buffer
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.entry import Entry, Lowered, straight
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.program import FixedProgram, ReadDram
from gemmule.compiler.programs.linker import Linker
from gemmule.config import Config

__all__ = ["CascadeProgram", "compile_cascade"]


@dataclass(frozen=True, kw_only=True)
class CascadeProgram(FixedProgram):
    """Regions ``keys``, ``values``, ``queries``, ``contexts``."""

    schedule: CascadeSchedule
    scales: Scales

    def fill(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """DRAM content: int8 [layers, heads, head_dim], and [layers, heads, rows, head_dim] of keys and values.

        Raises:
            CompileError: an operand has another shape.
        """
        schedule, dram = self.schedule, np.zeros(self.size, dtype=np.uint8)
        one = (schedule.layers, schedule.heads, schedule.head_dim)
        every = (*one[:2], schedule.length, schedule.head_dim)
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        for region, value, shape in ((QUERIES, queries, one), (KEYS, keys, every), (VALUES, values, every)):
            if value.shape != shape:
                raise CompileError(f"{region} must have shape {shape}, not {value.shape}")
            self.put(dram, region, np.ascontiguousarray(value, dtype=np.int8).reshape(-1).view(np.uint8))
        return dram

    def contexts(self, read_dram: ReadDram) -> np.ndarray:
        """int8 [layers, heads, head_dim], 0 of heads that a layer does not have."""
        schedule = self.schedule
        found = self.read(read_dram, CONTEXTS).view(np.int8)
        return found.reshape(schedule.layers, schedule.heads, schedule.head_dim)


class CascadeEntry(Entry[CascadeProgram]):
    """No loops, so there are no turns."""

    name, turns = "attention with cascade pruning", ()

    def __init__(self, config: Config, schedule: CascadeSchedule, scales: Scales, lists: bool) -> None:
        super().__init__(config)
        self.cut, self.scales, self.lists = schedule, scales, lists

    def lower(self) -> Lowered:
        return straight(cascade_items(self.config, self.cut, self.scales, lists=self.lists))

    def allocate(self) -> Mapping[Buffer, int]:
        return allocate(self.scheduled.items, self.config, apart=self.config.spm_banks > 1)

    def regions(self) -> Mapping[str, int]:
        one = self.cut.layers * self.cut.heads * self.cut.head_dim
        return {QUERIES: one, CONTEXTS: one, KEYS: one * self.cut.length, VALUES: one * self.cut.length}

    def build(self) -> CascadeProgram:
        return CascadeProgram(**self.standing({register: region for region, register in self.bases.items()}),
                              schedule=self.cut, scales=self.scales)


SCALES = Scales()


def compile_cascade(config: Config, schedule: CascadeSchedule, *, scales: Scales = SCALES,
                    lists: bool = True) -> CascadeProgram:
    """Compile attention of one row by a schedule. Not ``lists``: of all rows, as a device without pruning does it.

    Raises:
        CompileError: it does not fit the configuration.
    """
    entry = CascadeEntry(config, schedule if lists else schedule.dense, scales, lists)
    run(entry, "lower", "waits")
    linker = Linker(config)
    linker.add(entry)
    return linker.link(entry, linker.table(0))
