"""One product from DRAM and back: int8 C = requant(A B) with a multiplier and shift per column.

Activations lie in DRAM as the device uses them, [column group][row][DIM]; an output has the
layout of an input. Weights are cut into tiles and packed in the order in which they stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.layout import Regions, WeightFormat, pack_columns, pack_groups, unpack_groups
from gemmule.compiler.place import Cut, cut_off
from gemmule.compiler.program import FixedProgram, ReadDram
from gemmule.compiler.schedule import place_waits
from gemmule.compiler.tile import GemmPlan, plan_gemm
from gemmule.config import Config
from gemmule.isa import Command, MatrixFlag, RequantFlag, Unit, VOp, encode_program
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import ceil_div

__all__ = ["GemmProgram", "check_size", "compile_gemm"]

INT8 = WeightFormat()
OPERANDS = ("a", "b", "parameters", "c")
"""DRAM regions by base register."""
BASE_A, BASE_B, BASE_PARAMETERS, BASE_C = range(len(OPERANDS))


@dataclass(frozen=True, kw_only=True)
class GemmProgram(FixedProgram):
    """A compiled product; regions ``a``, ``b``, ``parameters``, ``c``."""

    m: int
    k: int
    n: int
    plan: GemmPlan
    weights: WeightFormat

    @property
    def macs(self) -> int:
        return self.m * self.k * self.n

    @property
    def roofline_bytes(self) -> int:
        """Weights as stored (with scales), column parameters, inputs and outputs, each moved once."""
        scales = ceil_div(self.k, self.weights.group) * self.n if self.weights.group else 0
        stored = ceil_div(self.k * self.weights.bits, 8) * self.n + scales
        return stored + COLUMN_ROWS * self.n + self.m * self.k + self.m * self.n

    @property
    def dram_bytes(self) -> int:
        """Bytes that the program's loads and stores move, and the program itself."""
        moves = (c.fields for c in self.commands if c.unit in (Unit.LOAD, Unit.STORE))
        return len(self.image) + sum(f["bytes"] * f["rows_cap"] for f in moves)

    def utilization(self, cycles: int) -> float:
        """Multiply-accumulates over what the mesh could do in ``cycles``."""
        return self.macs / (cycles * self.config.dim ** 2)

    def fill(self, a: np.ndarray, b: np.ndarray, mult: np.ndarray, shift: np.ndarray,
             scales: np.ndarray | None = None) -> np.ndarray:
        """DRAM content (uint8, at ``base_address``) for A[m, k], B[k, n] int8, mult and shift [n].

        With int4 weights B holds -8 .. 7; with groups ``scales`` [ceil(k / group), n] holds 1 .. 15.
        """
        groups = ceil_div(self.k, self.weights.group) if self.weights.group else 0
        if (scales is None) == (groups > 0):
            raise CompileError(f"scales must be {'given' if groups else 'left out'} for {self.weights}")
        for name, value, size in (("A", a, (self.m, self.k)), ("B", b, (self.k, self.n)),
                                  ("mult", mult, (self.n,)), ("shift", shift, (self.n,)),
                                  ("scales", scales, (groups, self.n))):
            if value is not None and value.shape != size:
                raise CompileError(f"{name} must have shape {size}, not {value.shape}")
        dim, plan = self.config.dim, self.plan
        dram = np.zeros(self.size, dtype=np.uint8)
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        self.put(dram, "a", pack_groups(a, dim))
        self.put(dram, "parameters", pack_columns(mult, shift, dim))
        tiles = []
        for n0, wide in _columns(plan, self.n, dim):
            for k0, deep in cut_off(ceil_div(self.k, dim), plan.k):
                columns = slice(n0 * dim, (n0 + wide) * dim)
                part = None
                if scales is not None:
                    step = self.weights.tiles(self.config)
                    part = scales[k0 // step:ceil_div(k0 + deep, step), columns]
                tile = b[k0 * dim:(k0 + deep) * dim, columns]
                tiles.append(self.weights.pack(self.config, tile, part, deep).reshape(-1))
        self.put(dram, "b", np.concatenate(tiles))
        return dram

    def read_output(self, read_dram: ReadDram) -> np.ndarray:
        """int8 C [m, n], read with ``read_dram(address, bytes)``."""
        grouped = self.read(read_dram, "c").reshape(-1, self.m, self.config.dim)
        return unpack_groups(grouped, self.n).view(np.int8)


def _columns(plan: GemmPlan, n: int, dim: int) -> list[Cut]:
    """(first, count) of every column tile in groups: panels, tiles within."""
    return [(panel + first, count) for panel, groups in cut_off(ceil_div(n, dim), plan.panel)
            for first, count in cut_off(groups, plan.n)]


class _Emitter:
    """Commands of one product; loads are emitted as soon as the slot that they fill is free."""

    def __init__(self, config: Config, m: int, k: int, n: int, plan: GemmPlan, weights: WeightFormat,
                 dataflow: str) -> None:
        self.m, self.k, self.n, self.plan, self.dim = m, k, n, plan, config.dim
        self.config, self.weights = config, weights
        self.flags = {
            *((MatrixFlag.OUTPUT_STATIONARY,) if dataflow == "os" else ()),
            *((MatrixFlag.B_INT4,) if weights.bits == 4 else ()),
            *((MatrixFlag.GROUP_SCALES,) if weights.group else ()),
        }
        self.group = weights.tiles(config).bit_length() - 1
        self.commands: list[Command] = []
        self.loads: list[tuple[Command, str]] = []
        self.done = {""}
        self.emitted = self.a_count = self.b_count = 0
        self.depth_tiles = cut_off(ceil_div(k, self.dim), plan.k)
        self.columns = _columns(plan, n, self.dim)
        self.a, self.b, self.parameters = (plan.slots(name) for name in ("a", "b", "parameters"))

    def _load(self, after: str, note: str, **fields: Any) -> None:
        self.loads.append((Command.make(Unit.LOAD, note=note, **fields), after))

    def _load_a(self, m0: int, rows: int, tile: int) -> int:
        """Queue a tile of A; returns its number."""
        k0, groups = self.depth_tiles[tile]
        number, slots = self.a_count, self.a
        self.a_count += 1
        whole = rows == self.m  # then all groups lie one after another
        size = rows * self.dim
        self._load(f"a {number - len(slots)}" if number >= len(slots) else "",
                   f"A rows {m0}+{rows} depth {k0 * self.dim}", base=BASE_A,
                   offset=(k0 * self.m + m0) * self.dim, stride=0 if whole else self.m * self.dim,
                   bytes=size * (groups if whole else 1), row=slots[number % len(slots)],
                   row_stride=self.plan.m, block_stride=1, rows=1 if whole else groups)
        return number

    def _pump(self) -> None:
        while self.emitted < len(self.loads) and self.loads[self.emitted][1] in self.done:
            self.commands.append(self.loads[self.emitted][0])
            self.emitted += 1

    def _plan_loads(self) -> list[tuple[int, int, int, int, list[tuple[int, int, bool]]]]:
        """Queue every load in the order of use; the products as (m0, rows, n0, groups, steps).

        A step is (A tile number, B tile number, last use of the A tile).
        """
        plan, dim = self.plan, self.dim
        work: list[tuple[int, int, int, int, list[tuple[int, int, bool]]]] = []
        offset_of, at = {}, 0
        for n0, groups in self.columns:
            for k0, deep in self.depth_tiles:
                offset_of[n0, k0] = at
                at += groups * self.weights.rows(self.config, deep) * dim
        for panel, (first, width) in enumerate(cut_off(ceil_div(self.n, dim), plan.panel)):
            self._load(f"panel {panel - 2}" if panel >= 2 else "", f"parameters from column {first * dim}",
                       base=BASE_PARAMETERS, offset=COLUMN_ROWS * first * dim, bytes=COLUMN_ROWS * width * dim,
                       row=self.parameters[panel % 2], block_stride=1, rows=1)
            inside = [c for c in self.columns if first <= c[0] < first + width]
            for m0, rows in plan.blocks:
                kept: list[int] = []
                for index, (n0, groups) in enumerate(inside):
                    steps = []
                    for tile, (k0, deep) in enumerate(self.depth_tiles):
                        if index == 0 or not plan.resident:
                            kept = [*kept[:tile], self._load_a(m0, rows, tile), *kept[tile + 1:]]
                        number, slots = self.b_count, self.b
                        self.b_count += 1
                        self._load(f"b {number - len(slots)}" if number >= len(slots) else "",
                                   f"B columns {n0 * dim} depth {k0 * dim}", base=BASE_B,
                                   offset=offset_of[n0, k0],
                                   bytes=groups * self.weights.rows(self.config, deep) * dim,
                                   row=slots[number % len(slots)], block_stride=1, rows=1)
                        last = index == len(inside) - 1 or not plan.resident
                        steps.append((kept[tile], number, last))
                    work.append((m0, rows, n0, groups, steps))
        return work

    def _store(self, m0: int, rows: int, n0: int, groups: int, stage: int) -> None:
        whole, size = rows == self.m, rows * self.dim
        self.commands.append(Command.make(
            Unit.STORE, note=f"C rows {m0}+{rows} columns {n0 * self.dim}", base=BASE_C,
            offset=(n0 * self.m + m0) * self.dim, stride=0 if whole else self.m * self.dim,
            bytes=size * (groups if whole else 1), row=stage, row_stride=self.plan.m, block_stride=1,
            rows=1 if whole else groups))

    def emit(self) -> list[Command]:
        """All commands in program order, without waits."""
        plan, dim = self.plan, self.dim
        work = self._plan_loads()
        self._pump()
        staged = buffers = 0
        for index, (m0, rows, n0, groups, steps) in enumerate(work):
            acc = plan.accumulators[index % len(plan.accumulators)]
            columns = min(groups * dim, self.n - n0 * dim)
            for step, (a, b, last) in enumerate(steps):
                k0, deep = self.depth_tiles[step]
                self.commands.append(Command.make(
                    Unit.MATRIX, note=f"rows {m0}+{rows} columns {n0 * dim} depth {k0 * dim}",
                    a_row=self.a[a % len(self.a)], a_stride=plan.m,
                    b_row=self.b[b % len(self.b)], b_stride=self.weights.rows(self.config, deep),
                    c_row=acc, c_stride=plan.m, m=rows, n=columns, k=min(deep * dim, self.k - k0 * dim),
                    group=self.group, flags=self.flags | ({MatrixFlag.ACCUMULATE} if step else set())))
                self.done |= {f"b {b}"} | ({f"a {a}"} if last else set())
                self._pump()
            panel, inside = divmod(n0, plan.panel)
            stage = plan.row[f"stage{buffers % 2}"]
            self.commands.append(Command.make(
                Unit.VECTOR, op=VOp.REQUANT, note=f"requantise columns {n0 * dim}", src0=acc,
                src0_stride=plan.m, src1=self.parameters[panel % 2] + COLUMN_ROWS * inside,
                dst=stage + staged * plan.m, dst_stride=plan.m, m=rows, n=columns,
                flags=(RequantFlag.COLUMN,)))
            staged += groups
            following = work[index + 1] if index + 1 < len(work) else None
            apart = following is None or following[0] != m0 or following[2] != n0 + groups
            if apart or following is None or staged + following[3] > plan.stage:
                self._store(m0, rows, n0 + groups - staged, staged, stage)
                staged, buffers = 0, buffers + 1
            if following is None or following[2] // plan.panel != panel:
                self.done.add(f"panel {panel}")
                self._pump()
        return self.commands


def check_size(config: Config, m: int, k: int, n: int) -> None:
    """Raises:
        CompileError: A, B and C have more bytes than an offset or an address can tell apart.
    """
    most = 1 << min(config.address_bits, 32)  # an offset has 32 bits
    if m * k + k * n + m * n >= most:
        raise CompileError(
            f"a product must fit {most} bytes of DRAM, not {m}x{k}x{n} with "
            f"{m * k + k * n + m * n}: use a smaller shape")


def compile_gemm(config: Config, m: int, k: int, n: int, base_address: int = 0, *,
                 weights: WeightFormat = INT8, dataflow: str = "ws") -> GemmProgram:
    """Compile C[m, n] = requant(A[m, k] B[k, n]) for any sizes of at least 1.

    Raises:
        CompileError: a size is out of range, or the config cannot hold one tile.
    """
    plan, dim = plan_gemm(config, m, k, n, weights, dataflow), config.dim
    check_size(config, m, k, n)
    commands = place_waits(_Emitter(config, m, k, n, plan, weights, dataflow).emit(), config, {})
    image = encode_program(commands)
    deep, wide = ceil_div(k, dim), ceil_div(n, dim)
    regions = Regions(config)
    regions.reserve("program", len(image))
    regions.reserve("a", deep * m * dim)
    regions.reserve("b", sum(weights.rows(config, tiles) for _, tiles in cut_off(deep, plan.k)) * wide * dim)
    regions.reserve("parameters", COLUMN_ROWS * wide * dim)
    regions.reserve("c", wide * m * dim)
    program = GemmProgram(
        config=config, image=image, commands=tuple(commands), base_address=base_address, size=regions.size,
        symbols=regions.symbols(base_address), bases=dict(enumerate(OPERANDS)), m=m, k=k, n=n, plan=plan,
        weights=weights)
    return program.verified(program.registers())
