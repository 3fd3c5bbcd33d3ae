"""Mapping of a product by formula: everything that fits, by estimated cycles. No program is made or simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.product import A, ProductMapping, ProductShape, check_product
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import Timing, ceil_div, matrix_shape

__all__ = ["MOST_SLOTS", "STAGE_BYTES", "Estimated", "accumulator_rows", "by_formula", "halvings", "mesh_slot"]

MOST_SLOTS = 8
STAGE_BYTES = 4096
COMMAND_CYCLES = 4
"""Price of a command: fetch traffic, dispatch and issue."""
TRAFFIC_WEIGHT = 0.02
"""Price of DRAM time that hides behind the mesh: of nearly equal mappings, take the one that moves less."""


@dataclass(frozen=True)
class Estimated:
    """A mapping and the cycles for which it was chosen, without latencies."""

    mapping: ProductMapping
    cycles: float


@dataclass(frozen=True)
class _Room:
    """Scratchpad rows for each purpose."""

    a: int
    b: int
    stage: int
    parameters: int


def _rooms(config: Config) -> Iterator[_Room]:
    """A and B in different banks if there are two; results and parameters apart where there are enough."""
    bank, banks = config.spm_bank_rows, config.spm_banks
    if banks == 1:
        eighth = bank // 8
        yield _Room(2 * eighth, 4 * eighth, eighth, eighth)
        return
    if banks < 4:
        quarter = bank // 4
        yield _Room(bank - 2 * quarter, (banks - 1) * bank, quarter, quarter)
        return
    stage, first = (bank, 2) if banks >= 6 else (bank // 2, 1)
    for a in range(1, banks - first):
        yield _Room(a * bank, (banks - first - a) * bank, stage, stage)


def halvings(total: int, most: int) -> list[int]:
    """Sizes of nearly equal pieces of ``total``, at most ``most``, from one piece on, coarser each time."""
    sizes, pieces = [], max(1, ceil_div(total, most))
    while pieces <= total:
        sizes.append(ceil_div(total, pieces))
        pieces = pieces + 1 if pieces < 8 else pieces * 2
    return list(dict.fromkeys([*sizes, 1]))


def mesh_slot(config: Config, shape: ProductShape, dataflow: str, rows: int) -> int:
    """Cycles of the mesh for ``rows`` rows of one tile of DIM x DIM weights."""
    dim = config.dim
    tiles, slot, _, _ = matrix_shape(
        dim, config.preload, Timing.of(config).matrix_rmw, rows, dim, dim, dataflow == "os", 0,
        int(shape.weights.group > 0), 0, int(config.spm_banks == 1))
    return slot * tiles  # a tile of an output-stationary command has DIM rows


def accumulator_rows(config: Config) -> int:
    """Of one tile of results, so that the next one's sums stand elsewhere."""
    return config.acc_rows // max(2, config.acc_banks)


def _estimate(config: Config, shape: ProductShape, mapping: ProductMapping, slot: int) -> float:
    """Cycles: the larger of mesh and DRAM time, plus what does not overlap; ``slot`` as of :func:`mesh_slot`."""
    dim, rate = config.dim, config.bus_bytes / config.dram.beat_cycles  # bytes a cycle
    m, k, n = shape.m, ceil_div(shape.k, dim), ceil_div(shape.n, dim)
    tm, tk, tn, kept = mapping.m, mapping.k, mapping.n, A in mapping.kept
    blocks, deep, wide = ceil_div(m, tm), ceil_div(k, tk), ceil_div(n, tn)
    mesh = blocks * k * n * slot
    a_times = ceil_div(n, mapping.panel) if kept else wide
    b_rows = shape.weights.rows(config, tk)
    traffic = dim * (a_times * m * k + m * n + blocks * deep * b_rows * n + COLUMN_ROWS * n)
    commands = blocks * wide * (2 * deep + 2)
    dram = (traffic + COMMAND_BYTES * commands) / rate / (1 - config.dram.refresh_share)
    first = dim * (tm * tk + b_rows * tn) / rate
    stall = (blocks * a_times - 1) * dim * tm * k / rate if kept and mapping.a_slots < 2 * deep else 0
    last = tn * (tm + 3) + (tk * tn * slot if dram > mesh else 0)
    hidden = TRAFFIC_WEIGHT * min(mesh, dram)
    return max(mesh, dram) + hidden + first + stall + last + COMMAND_CYCLES * commands


def by_formula(config: Config, shape: ProductShape, dataflow: str) -> Estimated:
    """The mapping of the fewest estimated cycles; the first of equals.

    Raises:
        CompileError: a size is out of range, or the product cannot run on the config.
    """
    check_product(config, shape, dataflow)
    slot = cache(partial(mesh_slot, config, shape, dataflow))
    best = min((Estimated(mapping, _estimate(config, shape, mapping, slot(mapping.m))) for room in _rooms(config)
                for mapping in _fitting(config, shape, dataflow, room)), key=lambda found: found.cycles, default=None)
    if best is None:
        raise CompileError(
            f"no tile of {shape} fits config {config.name!r} ({config.spm_banks} scratchpad banks of "
            f"{config.spm_bank_rows} rows, {config.acc_rows} accumulator rows): use larger memories")
    return best


def _fitting(config: Config, shape: ProductShape, dataflow: str, room: _Room) -> Iterator[ProductMapping]:
    """Tiles for which there is room, blocks of rows outside."""
    dim, weights = config.dim, shape.weights
    deep, wide, acc_rows = ceil_div(shape.k, dim), ceil_div(shape.n, dim), accumulator_rows(config)
    panel = min(wide, room.parameters // 2 // COLUMN_ROWS)
    for tm in halvings(shape.m, min(shape.m, acc_rows, room.stage // 2)):
        for tn in halvings(min(wide, panel), acc_rows // tm):
            stage = min(panel, max(tn, ceil_div(STAGE_BYTES, tm * dim)), room.stage // 2 // tm)
            stage -= stage % tn
            if not stage:
                continue
            for tk in halvings(deep, min(deep, room.a // tm)):
                steps = ceil_div(deep, tk)
                if steps > 1 and tk % weights.tiles(config):
                    continue  # a tile begins with a scale of its own
                a_slots, b_slots = room.a // (tm * tk), room.b // (weights.rows(config, tk) * tn)
                if b_slots < 2 or a_slots < min(2, steps):
                    continue
                kept = a_slots >= steps
                yield ProductMapping(
                    m=tm, n=tn, k=tk, kept=A if kept else "", a_slots=min(a_slots, 2 * steps if kept else 4),
                    b_slots=min(b_slots, MOST_SLOTS), ahead=config.unit_queue + config.load_commands, panel=panel,
                    stage=stage, dataflow=dataflow)
