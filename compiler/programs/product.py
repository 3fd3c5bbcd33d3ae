"""A product as a program: int8 C = requant(A B) with a multiplier and shift per column, from DRAM and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.product import (
    LOADED,
    PARAMETERS,
    A,
    B,
    C,
    ProductMapping,
    ProductShape,
    check_product,
    column_tiles,
    product_items,
)
from gemmule.compiler.kernels.virtual import Buffer
from gemmule.compiler.layout import WeightFormat, pack_columns, pack_groups, unpack_groups
from gemmule.compiler.mapping.product.formula import by_formula
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.entry import Entry, Lowered, Scheduled, straight
from gemmule.compiler.passes.hoist import HoistRule, hoist
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.place import cut_off
from gemmule.compiler.program import FixedProgram, ReadDram
from gemmule.compiler.programs.linker import Linker
from gemmule.config import Config
from gemmule.isa import Unit
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import ceil_div

__all__ = ["INT8", "ProductProgram", "compile_product"]

INT8 = WeightFormat()


@dataclass(frozen=True, kw_only=True)
class ProductProgram(FixedProgram):
    """A compiled product; regions ``a``, ``b``, ``parameters``, ``c``."""

    shape: ProductShape
    mapping: ProductMapping
    estimate: float | None
    """Cycles without latencies for which the formula chose the mapping; None of a mapping that was given."""

    def describe(self) -> str:
        """The mapping, for people."""
        expected = "" if self.estimate is None else f", {self.estimate:,.0f} cycles without latencies"
        return self.mapping.describe(self.config.dim) + expected

    @property
    def roofline_bytes(self) -> int:
        """Weights as stored (with scales), column parameters, inputs and outputs, each moved once."""
        m, k, n, weights = self.shape.m, self.shape.k, self.shape.n, self.shape.weights
        scales = ceil_div(k, weights.group) * n if weights.group else 0
        return ceil_div(k * weights.bits, 8) * n + scales + COLUMN_ROWS * n + m * k + m * n

    @property
    def dram_bytes(self) -> int:
        """Bytes that the program's loads and stores move, and the program itself."""
        moves = (c.fields for c in self.commands if c.unit in (Unit.LOAD, Unit.STORE))
        return len(self.image) + sum(f["bytes"] * f["rows_cap"] for f in moves)

    def utilization(self, cycles: int) -> float:
        """Multiply-accumulates over what the mesh could do in ``cycles``."""
        return self.shape.macs / (cycles * self.config.dim ** 2)

    def fill(self, a: np.ndarray, b: np.ndarray, mult: np.ndarray, shift: np.ndarray,
             scales: np.ndarray | None = None) -> np.ndarray:
        """DRAM content (uint8, at ``base_address``) for A[m, k], B[k, n] int8, mult and shift [n].

        With int4 weights B holds -8 .. 7; with groups ``scales`` [ceil(k / group), n] holds 1 .. 15.

        Raises:
            CompileError: an operand has another shape, or there are scales and no groups, or the reverse.
        """
        shape, weights, dim = self.shape, self.shape.weights, self.config.dim
        groups = ceil_div(shape.k, weights.group) if weights.group else 0
        if (scales is None) == (groups > 0):
            raise CompileError(f"scales must be {'given' if groups else 'left out'} for {weights}")
        for name, value, size in (("A", a, (shape.m, shape.k)), ("B", b, (shape.k, shape.n)),
                                  ("mult", mult, (shape.n,)), ("shift", shift, (shape.n,)),
                                  ("scales", scales, (groups, shape.n))):
            if value is not None and value.shape != size:
                raise CompileError(f"{name} must have shape {size}, not {value.shape}")
        dram = np.zeros(self.size, dtype=np.uint8)
        self.put(dram, "program", np.frombuffer(self.image, dtype=np.uint8))
        self.put(dram, A, pack_groups(a, dim))
        self.put(dram, PARAMETERS, pack_columns(mult, shift, dim))
        tiles = []
        for n0, wide in (tile for panel in column_tiles(self.mapping, ceil_div(shape.n, dim)) for tile in panel):
            for k0, deep in cut_off(ceil_div(shape.k, dim), self.mapping.k):
                columns = slice(n0 * dim, (n0 + wide) * dim)
                part = None
                if scales is not None:
                    step = weights.tiles(self.config)
                    part = scales[k0 // step:ceil_div(k0 + deep, step), columns]
                tile = b[k0 * dim:(k0 + deep) * dim, columns]
                tiles.append(weights.pack(self.config, tile, part, deep).reshape(-1))
        self.put(dram, B, np.concatenate(tiles))
        return dram

    def read_output(self, read_dram: ReadDram) -> np.ndarray:
        """int8 C [m, n], read with ``read_dram(address, bytes)``."""
        grouped = self.read(read_dram, C).reshape(-1, self.shape.m, self.config.dim)
        return unpack_groups(grouped, self.shape.n).view(np.int8)


class ProductEntry(Entry[ProductProgram]):
    """A product cut by a mapping; it has no loops, so there are no turns."""

    name, turns = "a product", ()

    def __init__(self, config: Config, shape: ProductShape, cut: ProductMapping, estimate: float | None) -> None:
        super().__init__(config)
        self.shape, self.cut, self.estimate = shape, cut, estimate

    def lower(self) -> Lowered:
        return straight(product_items(self.config, self.shape, self.cut))

    def schedule(self) -> Scheduled:
        (written,) = self.lowered.before
        items = hoist(written, self.config, HoistRule(regions=LOADED, ahead=self.cut.ahead, behind_stores=True))
        return Scheduled(items, [items])

    def allocate(self) -> Mapping[Buffer, int]:
        return allocate(self.scheduled.items, self.config, apart=self.config.spm_banks > 1)

    def regions(self) -> Mapping[str, int]:
        shape, dim = self.shape, self.config.dim
        deep, wide = ceil_div(shape.k, dim), ceil_div(shape.n, dim)
        depth_rows = sum(shape.weights.rows(self.config, tiles) for _, tiles in cut_off(deep, self.cut.k))
        rows = {A: deep * shape.m, B: depth_rows * wide, PARAMETERS: COLUMN_ROWS * wide, C: wide * shape.m}
        return {region: count * dim for region, count in rows.items()}

    def build(self) -> ProductProgram:
        bases = {register: region for region, register in self.bases.items()}
        return ProductProgram(**self.standing(bases), shape=self.shape, mapping=self.cut, estimate=self.estimate)


def compile_product(config: Config, m: int, k: int, n: int, base_address: int = 0, *, weights: WeightFormat = INT8,
                    dataflow: str = "ws", mapping: ProductMapping | None = None,
                    checked: bool = True) -> ProductProgram:
    """Compile C[m, n] = requant(A[m, k] B[k, n]) for any sizes of at least 1.

    ``mapping``: by default the formula's for ``dataflow``. Without ``checked`` nothing is verified: for timing.

    Raises:
        CompileError: a size is out of range, or the config cannot hold one tile, or not the mapping's tiles.
    """
    shape = ProductShape(m=m, k=k, n=n, weights=weights)
    estimate = None
    if mapping is None:
        found = by_formula(config, shape, dataflow)
        mapping, estimate = found.mapping, found.cycles
    check_product(config, shape, mapping.dataflow)
    entry = ProductEntry(config, shape, mapping, estimate)
    run(entry, "lower", "waits")
    linker = Linker(config)
    linker.add(entry)
    return linker.link(entry, linker.table(base_address), last="verify" if checked else "link")
