"""SpAtten's published schedules on this device, by shape: what cascade pruning does to a token's attention.

Schedules of the released workloads (repository mit-han-lab/spatten, commit a0f1388: GPT-2 small and medium, wikitext2)
at 1,024 cached rows. Queries, keys and values are random, so only numbers of rows, bytes and cycles mean anything. Rows
leave and values are chosen by the select unit (:mod:`gemmule.compiler.kernels.attention.importance.cascade`); a layer
has the first heads, as many as the schedule says. The baseline is this device's own int8 attention over all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.importance.cascade import CascadeSchedule
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.cascade import CascadeProgram, compile_cascade
from gemmule.config import Config
from gemmule.isa import MoveFlag, Unit
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.choosing import top_k_cycles
from gemmule.sw.studies import Row, Study

__all__ = ["SCHEDULES", "STUDY", "Attended", "ScheduleRow", "attend", "spatten_rows"]

LENGTH, HEAD_DIM = 1024, 64


def _schedule(heads: int, keys: tuple[int, ...], share: float, kept_heads: tuple[int, ...] | None = None,
              ) -> CascadeSchedule:
    return CascadeSchedule(
        length=LENGTH, heads=heads, head_dim=HEAD_DIM, kept_keys=keys, last=1,
        kept_values=tuple(int(share * count) for count in keys), kept_heads=kept_heads or (heads,) * len(keys))


SCHEDULES = {
    "gpt2-medium": (_schedule(16, (1024,) * 2 + (921,) + (819,) * 2 + (614,) * 6 + (307,) * 13, 0.3,
                              (16,) * 16 + (13,) * 6 + (10,) * 2), 8.96),
    "gpt2-small": (_schedule(12, (921, 716) + (204,) * 4 + (102,) * 6, 0.2), 28.9),
}
"""Schedules, and by how much SpAtten's bytes fall against float32 (K and V of 12 and 8, or 6 + 4 bits)."""


@dataclass(frozen=True, kw_only=True)
class ScheduleRow(Row):
    """With what ``--json`` tells of a schedule."""

    schedule: str
    length: int
    rows_ratio: float
    bytes_ratio: float
    attention_cycles_ratio: float
    rows_fetched: int
    top_k_cycles: int
    top_k_exposed: int
    published_bytes_ratio: float


@dataclass(frozen=True)
class Attended:
    """A program's run."""

    program: CascadeProgram
    result: Result

    @property
    def rows(self) -> int:
        """Rows of keys and values that its loads bring."""
        indexed = any(MoveFlag.INDEXED in command.flags for command in self.program.commands)
        return sum(command.fields["rows_cap"] for command in self.program.commands
                   if command.unit is Unit.LOAD and command.fields["bytes"] == self.program.schedule.head_dim
                   and (MoveFlag.INDEXED in command.flags) == indexed)


def attend(config: Config, schedule: CascadeSchedule, *, lists: bool, seed: int = 0) -> Attended:
    """Attention of one random row on the device.

    Raises:
        CompileError: it does not fit the configuration.
    """
    program, random = compile_cascade(config, schedule, lists=lists), np.random.default_rng(seed)
    one = (schedule.layers, schedule.heads, schedule.head_dim)
    every = (*one[:2], schedule.length, schedule.head_dim)
    device = Simulator(config, dram_bytes=program.size)
    device.write_dram(0, program.fill(*(random.integers(-128, 128, shape).astype(np.int8)
                                        for shape in (one, every, every))))
    device.load(program.launch("cascade", NO_DRAM, program.registers()))
    result = device.run()
    if result.fault:
        raise CompileError(f"attention with cascade pruning faults in command {result.fault_index}: the compiler is "
                           "wrong")
    return Attended(program, result)


def spatten_rows(config: Config) -> Iterator[Row]:
    """Cycles by schedule, then how much of TOP_K is hidden."""
    for name, (schedule, published) in SCHEDULES.items():
        dense, pruned = (attend(config, schedule, lists=lists) for lists in (False, True))
        rows, size = dense.rows / pruned.rows, dense.result.dram_bytes["load"] / pruned.result.dram_bytes["load"]
        cycles = dense.result.cycles / pruned.result.cycles
        every, exposed = top_k_cycles([pruned.result], pruned.program.commands)
        shared: dict[str, Any] = {
            "schedule": name, "length": schedule.length, "rows_ratio": rows, "bytes_ratio": float(size),
            "attention_cycles_ratio": cycles, "rows_fetched": pruned.rows, "top_k_cycles": every,
            "top_k_exposed": exposed, "published_bytes_ratio": published}
        what = f"{name}, shape only"
        yield ScheduleRow(setting=f"{what}: rows of K and V", published=None, here=rows, unit="times fewer", **shared,
                          why=f"{pruned.rows:,} of {dense.rows:,} rows, those of the schedule; heads count too")
        yield ScheduleRow(setting=f"{what}: bytes, int8", published=None, here=float(size), unit="times fewer",
                          **shared, why="all loads of the attention, queries too, against the same device without "
                                        "pruning")
        yield ScheduleRow(setting=f"{what}: bytes against float32", published=published, here=4 * float(size),
                          unit="times fewer", **shared,
                          why="SpAtten stores K and V in 12 and 8 bits, or 6 and 4 more where the largest probability "
                              "is small; here 8 bits always, so this column compares formats too")
        yield ScheduleRow(setting=f"{what}: attention", published=None, here=cycles, unit="times fewer cycles",
                          **shared, why=f"{pruned.result.cycles:,} of {dense.result.cycles:,} cycles: rows of a "
                                        "list are apart in DRAM, so more of them open a row, and short gathers do not "
                                        "hide how they begin")
        yield ScheduleRow(setting=f"{what}: TOP_K hidden", published=None, here=1 - exposed / max(1, every),
                          unit="share", **shared,
                          why=f"{exposed:,} of {every:,} cycles of TOP_K have no command of another unit beside them")


def _run(config: Config) -> list[Row]:
    return list(spatten_rows(config))


STUDY = Study("SpAtten's cascade pruning of tokens, heads and values, by shape", "SpAtten, HPCA 2021, and its released "
              "workloads", "base", _run)
