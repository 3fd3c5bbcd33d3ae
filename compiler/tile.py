"""Tile sizes of one product C = A B: brute force over everything that fits, by estimated cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import MOST_DEPTH, WeightFormat
from gemmule.compiler.place import Plan, cut_off, number
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import Timing, ceil_div, matrix_shape

__all__ = ["DATAFLOWS", "GemmPlan", "plan_gemm"]

DATAFLOWS = ("ws", "os")

MAX_SLOTS = 8
STAGE_BYTES = 4096
COMMAND_CYCLES = 4
"""Price of a command: fetch traffic, dispatch and issue."""
TRAFFIC_WEIGHT = 0.02
"""Price of DRAM time that hides behind the mesh: of nearly equal plans, take the one that moves less."""


@dataclass(frozen=True, kw_only=True)
class GemmPlan(Plan):
    """Tiles in rows (m) and groups of DIM columns (n) or depth (k); buffers ``a``, ``b``, ``stage``, ``parameters``."""

    m: int
    n: int
    k: int
    panel: int
    """Column groups whose parameters are resident."""
    stage: int
    """Column groups of a staging buffer."""
    resident: bool
    """A row block of A is loaded once and kept for all its columns."""
    cycles: float
    """Estimate that chose the tiles."""

    def describe(self, dim: int) -> str:
        kept = "kept" if self.resident else "streamed"
        return (f"tiles {self.m} x {self.k * dim} x {self.n * dim}, A {kept} in {len(self.slots('a'))} buffer(s), "
                f"B in {len(self.slots('b'))}, {self.cycles:,.0f} cycles without latencies")


@dataclass(frozen=True)
class _Banks:
    """First row and rows of each purpose."""

    a: tuple[int, int]
    b: tuple[int, int]
    stage: tuple[int, int]
    parameters: tuple[int, int]


def _splits(config: Config) -> Iterator[_Banks]:
    """A and B in different banks if there are two; results and parameters apart where there are enough."""
    bank, banks = config.spm_bank_rows, config.spm_banks
    if banks == 1:
        eighth = bank // 8
        yield _Banks((2 * eighth, 2 * eighth), (4 * eighth, 4 * eighth), (0, eighth), (eighth, eighth))
        return
    if banks >= 6:
        stage, parameters, first = (0, bank), (bank, bank), 2
    elif banks >= 4:
        stage, parameters, first = (0, bank // 2), (bank // 2, bank // 2), 1
    else:
        quarter = bank // 4
        yield _Banks((2 * quarter, bank - 2 * quarter), (bank, (banks - 1) * bank), (0, quarter),
                     (quarter, quarter))
        return
    for a in range(1, banks - first):
        b = ((first + a) * bank, (banks - first - a) * bank)
        yield _Banks((first * bank, a * bank), b, stage, parameters)


def _halvings(total: int, most: int) -> list[int]:
    """Sizes of nearly equal pieces of ``total``, at most ``most``, from one piece on, coarser each time."""
    sizes, pieces = [], max(1, ceil_div(total, most))
    while pieces <= total:
        sizes.append(ceil_div(total, pieces))
        pieces = pieces + 1 if pieces < 8 else pieces * 2
    return list(dict.fromkeys([*sizes, 1]))


def _estimate(config: Config, weights: WeightFormat, dataflow: str, m: int, k: int, n: int, tm: int, tk: int,
              tn: int, panel: int, resident: bool, a_slots: int) -> float:
    """Cycles: the larger of mesh and DRAM time, plus what does not overlap (m rows; k, n, tile groups)."""
    dim, rate = config.dim, config.bus_bytes / config.dram.beat_cycles  # bytes a cycle
    tiles, slot, _, _ = matrix_shape(
        dim, config.preload, Timing.of(config).matrix_rmw, tm, dim, dim, dataflow == "os", 0,
        int(weights.group > 0), 0, int(config.spm_banks == 1))
    slot *= tiles  # a tile of an output-stationary command has DIM rows
    blocks, deep, wide = ceil_div(m, tm), ceil_div(k, tk), ceil_div(n, tn)
    mesh = blocks * k * n * slot
    a_times = ceil_div(n, panel) if resident else wide
    b_rows = weights.rows(config, tk)
    traffic = dim * (a_times * m * k + m * n + blocks * deep * b_rows * n + COLUMN_ROWS * n)
    commands = blocks * wide * (2 * deep + 2)
    dram = (traffic + COMMAND_BYTES * commands) / rate / (1 - config.dram.refresh_share)
    first = dim * (tm * tk + b_rows * tn) / rate
    stall = (blocks * a_times - 1) * dim * tm * k / rate if resident and a_slots < 2 * deep else 0
    last = tn * (tm + 3) + (tk * tn * slot if dram > mesh else 0)
    hidden = TRAFFIC_WEIGHT * min(mesh, dram)
    return max(mesh, dram) + hidden + first + stall + last + COMMAND_CYCLES * commands


def plan_gemm(config: Config, m: int, k: int, n: int, weights: WeightFormat, dataflow: str) -> GemmPlan:
    """The cheapest tiles for C[m, n] = A[m, k] B[k, n].

    Raises:
        CompileError: a size is not positive, or the product cannot run on the config.
    """
    for name, value in (("M", m), ("K", k), ("N", n)):
        if not 1 <= value <= 1 << 20:
            raise CompileError(f"{name} must be from 1 to {1 << 20}, not {value}")
    if k >= MOST_DEPTH:
        raise CompileError(f"K must stay below {MOST_DEPTH} so that int32 sums cannot overflow, not {k}: split it")
    if dataflow not in DATAFLOWS:
        raise CompileError(f"dataflow must be one of {', '.join(DATAFLOWS)}, not {dataflow!r}")
    if dataflow == "os" and (weights.bits != 8 or config.spm_banks == 1):
        raise CompileError(
            "the output-stationary dataflow takes int8 weights and two scratchpad banks or more, not "
            f"int{weights.bits} and {config.spm_banks}: use ws")
    weights.check(config)
    acc_slots = config.acc_banks if config.acc_banks > 1 else 2
    acc_rows = config.acc_rows // acc_slots
    tiles = [_best(config, weights, dataflow, m, k, n, banks, acc_rows) for banks in _splits(config)]
    best = min((found for found in tiles if found), key=lambda found: found.cycles, default=None)
    if best is None:
        raise CompileError(
            f"no tile of {m}x{k}x{n} fits config {config.name!r} ({config.spm_banks} scratchpad banks of "
            f"{config.spm_bank_rows} rows, {config.acc_rows} accumulator rows): use larger memories")
    banks, a_tile, b_tile = best.banks, best.m * best.k, weights.rows(config, best.k) * best.n
    row = {
        **number("a", [banks.a[0] + i * a_tile for i in range(best.a_slots)]),
        **number("b", [banks.b[0] + i * b_tile for i in range(best.b_slots)]),
        **number("stage", [banks.stage[0] + i * best.stage * best.m for i in range(2)]),
        **number("parameters", [banks.parameters[0] + i * COLUMN_ROWS * best.panel for i in range(2)])}
    return GemmPlan(
        blocks=cut_off(m, best.m), row=row, accumulators=tuple(i * acc_rows for i in range(acc_slots)), m=best.m,
        n=best.n, k=best.k, panel=best.panel, stage=best.stage, resident=best.resident, cycles=best.cycles)


@dataclass(frozen=True, kw_only=True)
class _Tiles:
    """A choice of tiles for one split of the banks."""

    banks: _Banks
    m: int
    n: int
    k: int
    panel: int
    stage: int
    resident: bool
    a_slots: int
    b_slots: int
    cycles: float


def _best(config: Config, weights: WeightFormat, dataflow: str, m: int, k: int, n: int, banks: _Banks,
          acc_rows: int) -> _Tiles | None:
    """The cheapest tiles for one split of the banks; the first of equals."""
    dim, best = config.dim, None
    deep, wide = ceil_div(k, dim), ceil_div(n, dim)
    panel = min(wide, banks.parameters[1] // 2 // COLUMN_ROWS)
    for tm in _halvings(m, min(m, acc_rows, banks.stage[1] // 2)):
        for tn in _halvings(min(wide, panel), acc_rows // tm):
            stage = min(panel, max(tn, ceil_div(STAGE_BYTES, tm * dim)), banks.stage[1] // 2 // tm)
            stage -= stage % tn
            if not stage:
                continue
            for tk in _halvings(deep, min(deep, banks.a[1] // tm)):
                steps, depth = ceil_div(deep, tk), weights.rows(config, tk)
                if steps > 1 and tk % weights.tiles(config):
                    continue  # a tile begins with a scale of its own
                a_slots, b_slots = banks.a[1] // (tm * tk), banks.b[1] // (depth * tn)
                if b_slots < 2 or a_slots < min(2, steps):
                    continue
                resident = a_slots >= steps
                a_slots = min(a_slots, 2 * steps if resident else 4)
                cycles = _estimate(config, weights, dataflow, m, deep, wide, tm, tk, tn, panel, resident, a_slots)
                if best is None or cycles < best.cycles:
                    best = _Tiles(banks=banks, m=tm, n=tn, k=tk, panel=panel, stage=stage, resident=resident,
                                  a_slots=a_slots, b_slots=min(b_slots, MAX_SLOTS), cycles=cycles)
    return best
