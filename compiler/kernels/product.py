"""One product from DRAM and back: tiles of A and B through rings of buffers, sums requantised, results stored.

Activations lie in DRAM as the device uses them, [column group][row][DIM]; an output has the layout of an input.
Weights lie tile by tile, in the order in which they are first used. Which tiles, in which order and what stays on the
device is a :class:`ProductMapping`; results never depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Item, Value, VirtualCommand, rotation
from gemmule.compiler.layout import MOST_DEPTH, WeightFormat
from gemmule.compiler.place import Cut, cut_off
from gemmule.config import Config
from gemmule.isa import MatrixFlag, RequantFlag, Unit, VOp
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import ceil_div

__all__ = [
    "A", "B", "C", "COLUMNS", "DATAFLOWS", "LOADED", "ORDERS", "PARAMETERS", "ROWS", "ProductMapping", "ProductShape",
    "banks_of", "check_product", "column_tiles", "panel_tiles", "product_items", "sums_slots", "tile_offsets",
]

A, B, PARAMETERS, C = "a", "b", "parameters", "c"
"""DRAM regions."""
LOADED = (A, B, PARAMETERS)
"""Those that no command writes, so that their loads may run ahead."""
DATAFLOWS = ("ws", "os")
ROWS, COLUMNS = ORDERS = ("rows", "columns")
"""The outer loop inside a panel: blocks of rows, or tiles of columns."""
DOUBLE = 2
"""Buffers of parameters and of results: one is in use while the next is filled."""
MOST_SIZE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ProductShape:
    """C[m, n] = requant(A[m, k] B[k, n])."""

    m: int
    k: int
    n: int
    weights: WeightFormat = WeightFormat()

    def __str__(self) -> str:
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.m * self.k * self.n


@dataclass(frozen=True, kw_only=True)
class ProductMapping:
    """Tiles in rows (m) and groups of DIM columns (n) or of DIM depth (k), their order, and the buffers they pass."""

    m: int
    n: int
    k: int
    order: str = ROWS
    """Which loop is the outer one within a panel; depth is always the innermost."""
    kept: str = ""
    """Operands whose tiles are not loaded again while a buffer still holds them: some of the letters ab."""
    across: bool = False
    """The same from one panel to the next, where otherwise each panel loads its own."""
    a_slots: int
    """Buffers of A tiles."""
    b_slots: int
    """Buffers of B tiles."""
    ahead: int
    """Loads that are dispatched beyond a queue's length before a product that stands in front of them."""
    panel: int
    """Column groups whose parameters are loaded together."""
    stage: int
    """Column groups of a buffer of results."""
    dataflow: str = "ws"
    """ws: weights stay in the mesh; os: sums do."""

    def describe(self, dim: int) -> str:
        """For people, sizes in rows and columns."""
        names = {A: f"A %s in {self.a_slots} buffer(s)", B: f"B %s in {self.b_slots}"}
        parts = [names[A] % ("kept" if A in self.kept else "streamed"),
                 (names[B] % "kept" if B in self.kept else names[B].replace(" %s", ""))]
        order = "" if self.order == ROWS else ", columns outside"
        return f"tiles {self.m} x {self.k * dim} x {self.n * dim}{order}, {', '.join(parts)}"


def check_product(config: Config, shape: ProductShape, dataflow: str) -> None:
    """Raises:
        CompileError: a size is out of range, or the device has no such mode.
    """
    for name, value in (("M", shape.m), ("K", shape.k), ("N", shape.n)):
        if not 1 <= value <= MOST_SIZE:
            raise CompileError(f"{name} must be from 1 to {MOST_SIZE}, not {value}")
    if shape.k >= MOST_DEPTH:
        raise CompileError(
            f"K must stay below {MOST_DEPTH} so that int32 sums cannot overflow, not {shape.k}: split it")
    if dataflow not in DATAFLOWS:
        raise CompileError(f"dataflow must be one of {', '.join(DATAFLOWS)}, not {dataflow!r}")
    if dataflow == "os" and not config.output_stationary:
        raise CompileError(f"the output-stationary dataflow needs a device with output_stationary, not {config.name}: "
                           "use ws, or a configuration that has output_stationary")
    if dataflow == "os" and (shape.weights.bits != 8 or config.spm_banks == 1):
        raise CompileError(
            "the output-stationary dataflow takes int8 weights and two scratchpad banks or more, not "
            f"int{shape.weights.bits} and {config.spm_banks}: use ws")
    shape.weights.check(config)
    most = 1 << min(config.address_bits, 32)  # an offset has 32 bits
    size = shape.m * shape.k + shape.k * shape.n + shape.m * shape.n
    if size >= most:
        raise CompileError(f"a product must fit {most} bytes of DRAM, not {shape} with {size}: use a smaller shape")


def banks_of(config: Config) -> dict[str, Bank]:
    """Bank class of each region's buffers; where banks are few, those that cost the mesh least share one."""
    if config.spm_banks >= 6:
        return {A: Bank.OPERAND, B: Bank.STREAM, PARAMETERS: Bank.STATE, C: Bank.RESULT}
    rest = Bank.STATE if config.spm_banks >= 4 else Bank.OPERAND
    return {A: Bank.OPERAND, B: Bank.STREAM, PARAMETERS: rest, C: rest}


def sums_slots(config: Config, rows: int) -> int:
    """Buffers for tiles of so many sums: in banks of their own, so that the mesh and the vector unit do not meet."""
    return max(DOUBLE, config.acc_banks // ceil_div(rows, config.acc_bank_rows))


def panel_tiles(n: int, panel: int, wide: int) -> list[list[Cut]]:
    """(first, count) of tiles of ``n`` column groups of ``wide``, panel by panel."""
    return [[(start + first, count) for first, count in cut_off(groups, n)] for start, groups in cut_off(wide, panel)]


def column_tiles(mapping: ProductMapping, wide: int) -> list[list[Cut]]:
    """The same of a mapping."""
    return panel_tiles(mapping.n, mapping.panel, wide)


def tile_offsets(config: Config, shape: ProductShape, mapping: ProductMapping) -> dict[tuple[int, int], int]:
    """Byte of region :data:`B` where each tile begins, by (first column group, first depth group)."""
    found, at = {}, 0
    for n0, groups in (tile for panel in column_tiles(mapping, ceil_div(shape.n, config.dim)) for tile in panel):
        for k0, deep in cut_off(ceil_div(shape.k, config.dim), mapping.k):
            found[n0, k0] = at
            at += groups * shape.weights.rows(config, deep) * config.dim
    return found


class _Ring:
    """Buffers of one operand, and which tile each holds."""

    def __init__(self, name: str, slots: int, rows: int, bank: Bank, align: int, *, kept: bool) -> None:
        self.slots = [At(Buffer(f"{name}{i}", rows, bank, align)) for i in range(slots)]
        self.held: list[tuple[int, int] | None] = [None] * slots
        self.kept, self.next = kept, 0

    def forget(self) -> None:
        """Load everything again."""
        self.held = [None] * len(self.slots)

    def find(self, tile: tuple[int, int]) -> tuple[At, bool]:
        """A buffer for the tile, and whether it must be loaded into it."""
        if self.kept and tile in self.held:
            return self.slots[self.held.index(tile)], False
        at, self.next = self.next, (self.next + 1) % len(self.slots)
        self.held[at] = tile
        return self.slots[at], True


@dataclass(frozen=True)
class _SumTile:
    """Results of one block of rows and one tile of columns."""

    m0: int
    rows: int
    n0: int
    groups: int


class _Kernel:
    def __init__(self, config: Config, shape: ProductShape, mapping: ProductMapping) -> None:
        self.config, self.shape, self.mapping, self.dim = config, shape, mapping, config.dim
        form, banks = shape.weights, banks_of(config)
        self.flags = frozenset(map(int, [
            *((MatrixFlag.OUTPUT_STATIONARY,) if mapping.dataflow == "os" else ()),
            *((MatrixFlag.B_INT4,) if form.bits == 4 else ()), *((MatrixFlag.GROUP_SCALES,) if form.group else ())]))
        self.depths = cut_off(ceil_div(shape.k, self.dim), mapping.k)
        self.offsets = tile_offsets(config, shape, mapping)
        self.a = _Ring("A", mapping.a_slots, mapping.m * mapping.k, banks[A], 1, kept=A in mapping.kept)
        self.b = _Ring("B", mapping.b_slots, mapping.n * form.rows(config, mapping.k), banks[B], config.preload,
                       kept=B in mapping.kept)
        self.parameters = [At(Buffer(f"parameters{i}", COLUMN_ROWS * mapping.panel, banks[PARAMETERS]))
                           for i in range(DOUBLE)]
        size = mapping.n * mapping.m
        self.sums = rotation([Buffer(f"sums{i}", size, Bank.ACCUMULATOR) for i in range(sums_slots(config, size))])
        self.results = [At(Buffer(f"results{i}", mapping.stage * mapping.m, banks[C])) for i in range(DOUBLE)]
        self.stored = 0

    def items(self) -> Iterator[Item]:
        """Everything, panel by panel."""
        tiles = list(self._tiles())
        staged, panel = 0, -1
        for sums, following in zip(tiles, [*islice(tiles, 1, None), None]):
            if sums.n0 // self.mapping.panel != panel:
                panel = sums.n0 // self.mapping.panel
                if not self.mapping.across:
                    self.a.forget()
                yield self._load_parameters(panel)
            acc, result = At(next(self.sums)), self.results[self.stored % DOUBLE]
            yield from self._multiply(sums, acc)
            yield self._requantise(sums, acc, result + staged * self.mapping.m)
            staged += sums.groups
            adjacent = following is not None and (following.m0, following.n0) == (sums.m0, sums.n0 + sums.groups)
            if following is None or not adjacent or staged + following.groups > self.mapping.stage:
                yield self._store(sums, staged, result)
                staged = 0

    def _tiles(self) -> Iterator[_SumTile]:
        """Tiles of results in the order in which they are computed."""
        blocks = cut_off(self.shape.m, self.mapping.m)
        for columns in column_tiles(self.mapping, ceil_div(self.shape.n, self.dim)):
            if self.mapping.order == ROWS:
                yield from (_SumTile(*block, *tile) for block in blocks for tile in columns)
            else:
                yield from (_SumTile(*block, *tile) for tile in columns for block in blocks)

    def _load_parameters(self, panel: int) -> VirtualCommand:
        first = panel * self.mapping.panel
        width = min(self.mapping.panel, ceil_div(self.shape.n, self.dim) - first)
        return self._load(PARAMETERS, f"parameters from column {first * self.dim}", self.parameters[panel % DOUBLE],
                          COLUMN_ROWS * first * self.dim, COLUMN_ROWS * width * self.dim)

    def _load(self, region: str, note: str, to: At, offset: int, size: int, rows: int = 1,
              stride: int = 0) -> VirtualCommand:
        """``rows`` of ``size`` bytes, ``stride`` apart; each to the rows behind those of the one before."""
        fields: dict[str, Value] = {"offset": offset, "stride": stride, "bytes": size, "row": to, "block_stride": 1,
                                    "rows": rows}
        if rows > 1:
            fields["row_stride"] = self.mapping.m
        return VirtualCommand(unit=Unit.LOAD, note=note, region=region, fields=fields)

    def _multiply(self, sums: _SumTile, acc: At) -> Iterator[Item]:
        """All depth of one tile of results, with the loads of what is not there."""
        shape, dim, m, n0 = self.shape, self.dim, self.mapping.m, sums.n0
        whole = sums.rows == shape.m  # then all groups lie one after another
        for k0, deep in self.depths:
            a, load_a = self.a.find((sums.m0, k0))
            if load_a:
                size = sums.rows * dim
                cut = (size * deep,) if whole else (size, deep, shape.m * dim)
                yield self._load(A, f"A rows {sums.m0}+{sums.rows} depth {k0 * dim}", a,
                                 (k0 * shape.m + sums.m0) * dim, *cut)
            b, load_b = self.b.find((n0, k0))
            depth = shape.weights.rows(self.config, deep)
            if load_b:
                yield self._load(B, f"B columns {n0 * dim} depth {k0 * dim}", b, self.offsets[n0, k0],
                                 sums.groups * depth * dim)
            yield VirtualCommand(
                unit=Unit.MATRIX, note=f"rows {sums.m0}+{sums.rows} columns {n0 * dim} depth {k0 * dim}",
                flags=self.flags | ({int(MatrixFlag.ACCUMULATE)} if k0 else set()), fields={
                    "a_row": a, "a_stride": m, "b_row": b, "b_stride": depth, "c_row": acc, "c_stride": m,
                    "m": sums.rows, "n": self._columns(sums), "k": min(deep * dim, shape.k - k0 * dim),
                    "group": shape.weights.tiles(self.config).bit_length() - 1})

    def _columns(self, sums: _SumTile) -> int:
        return min(sums.groups * self.dim, self.shape.n - sums.n0 * self.dim)

    def _requantise(self, sums: _SumTile, acc: At, to: At) -> VirtualCommand:
        panel, inside = divmod(sums.n0, self.mapping.panel)
        parameters = self.parameters[panel % DOUBLE] + COLUMN_ROWS * inside
        return VirtualCommand(unit=Unit.VECTOR, op=int(VOp.REQUANT), note=f"requantise columns {sums.n0 * self.dim}",
                    flags=frozenset({int(RequantFlag.COLUMN)}), fields={
                        "src0": acc, "src0_stride": self.mapping.m, "src1": parameters, "dst": to,
                        "dst_stride": self.mapping.m, "m": sums.rows, "n": self._columns(sums)})

    def _store(self, sums: _SumTile, groups: int, result: At) -> VirtualCommand:
        """``groups`` column groups of results, of which the last ones are ``sums``."""
        self.stored += 1
        dim, n0 = self.dim, sums.n0 + sums.groups - groups
        whole, size = sums.rows == self.shape.m, sums.rows * dim
        note = f"C rows {sums.m0}+{sums.rows} columns {n0 * dim}"
        return VirtualCommand(unit=Unit.STORE, note=note, region=C, fields={
            "offset": (n0 * self.shape.m + sums.m0) * dim, "stride": 0 if whole else self.shape.m * dim,
            "bytes": size * (groups if whole else 1), "row": result, "row_stride": self.mapping.m, "block_stride": 1,
            "rows": 1 if whole else groups})


def product_items(config: Config, shape: ProductShape, mapping: ProductMapping) -> Iterable[Item]:
    """Commands on virtual buffers, each load right before what needs it."""
    return _Kernel(config, shape, mapping).items()
