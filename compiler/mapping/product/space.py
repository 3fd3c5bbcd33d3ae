"""The space of a product's mappings, as data: tiles, loop order, what is kept, rings, run-ahead, dataflow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from gemmule.compiler.kernels.product import (
    COLUMNS,
    DATAFLOWS,
    DOUBLE,
    ORDERS,
    PARAMETERS,
    ROWS,
    A,
    B,
    C,
    ProductMapping,
    ProductShape,
    banks_of,
)
from gemmule.compiler.mapping.mapper import Assignment
from gemmule.compiler.mapping.product.bound import ProductBound
from gemmule.compiler.mapping.product.formula import STAGE_BYTES, by_formula, halvings
from gemmule.config import Config
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import ceil_div

__all__ = ["ProductSpace", "dataflows_of"]

STREAMED, PANEL, ACROSS = KEPT = ("streamed", "panel", "across")
"""Tiles are loaded each time, or kept while a ring holds them: within a panel, or from one panel to the next."""
A_SLOTS = (1, 2, 4, 8)
B_SLOTS = (2, 4, 8)


def dataflows_of(config: Config, shape: ProductShape) -> tuple[str, ...]:
    """Those that the device has for these weights."""
    both = config.output_stationary and shape.weights.bits == 8 and config.spm_banks > 1
    return DATAFLOWS if both else DATAFLOWS[:1]


@dataclass(frozen=True)
class ProductSpace:
    """Mappings of one product on one device."""

    config: Config
    shape: ProductShape
    dataflows: tuple[str, ...]

    @cached_property
    def bound(self) -> ProductBound:
        """Cycles below which a mapping cannot be."""
        return ProductBound(self.config, self.shape)

    @property
    def deep(self) -> int:
        """Groups of DIM of the depth."""
        return ceil_div(self.shape.k, self.config.dim)

    @property
    def wide(self) -> int:
        """Groups of DIM columns."""
        return ceil_div(self.shape.n, self.config.dim)

    @property
    def sums_rows(self) -> int:
        """Accumulator rows of a tile at most: half of all, in whole banks."""
        banks = self.config.acc_banks
        return self.config.acc_rows // 2 if banks == 1 else banks // 2 * self.config.acc_bank_rows

    @cached_property
    def panel(self) -> int:
        """Column groups of a panel: two panels' parameters in a bank, or in a part of it where banks are few."""
        share = {1: 8, 2: 4, 3: 4, 4: 2, 5: 2}.get(self.config.spm_banks, 1)
        return min(self.wide, self.config.spm_bank_rows // share // DOUBLE // COLUMN_ROWS)

    @cached_property
    def axes(self) -> dict[str, tuple[int | str, ...]]:
        """What may be chosen, by name."""
        config = self.config
        return {
            "m": tuple(halvings(self.shape.m, min(self.shape.m, self.sums_rows))),
            "n": tuple(halvings(self.panel, self.sums_rows)),
            "k": tuple(halvings(self.deep, self.deep)),
            "order": ORDERS, "kept": KEPT, "a_slots": A_SLOTS, "b_slots": B_SLOTS,
            "ahead": (config.unit_queue + config.load_commands, 0), "dataflow": self.dataflows}

    def point(self, choice: Assignment) -> ProductMapping | None:
        """The mapping of one value from each axis; None where it does not fit, or differs from another in name only."""
        c = {name: int(value) for name, value in choice.items() if isinstance(value, int)}
        m, n, k, slots = c["m"], c["n"], c["k"], (c["a_slots"], c["b_slots"])
        order, keeps = str(choice["order"]), choice["kept"] != STREAMED
        if not self.cuts(m, n, k) or not self._is_itself(m, n, k, order, str(choice["kept"]), slots):
            return None
        found = ProductMapping(
            m=m, n=n, k=k, order=order, kept=A + B if keeps else "", across=choice["kept"] == ACROSS, a_slots=slots[0],
            b_slots=slots[1], ahead=c["ahead"], panel=self.panel, stage=self.stage(m, n),
            dataflow=str(choice["dataflow"]))
        return found if self.fits(found) else None

    def near(self, choice: Assignment) -> ProductMapping | None:
        """The same, or where there is no such point, one that keeps less, or has smaller rings or narrower tiles."""
        axes, taken = self.axes, dict(choice)
        orders, keeps = [choice["order"], ROWS], KEPT[KEPT.index(str(choice["kept"]))::-1]
        narrower = axes["n"][axes["n"].index(choice["n"]):]
        rings = [(a, b) for a in A_SLOTS[A_SLOTS.index(int(choice["a_slots"]))::-1]
                 for b in B_SLOTS[B_SLOTS.index(int(choice["b_slots"]))::-1]]
        for n, order, kept, (a_slots, b_slots) in product(narrower, dict.fromkeys(orders), keeps, rings):
            taken |= {"n": n, "order": order, "kept": kept, "a_slots": a_slots, "b_slots": b_slots}
            if (found := self.point(taken)) is not None:
                return found
        return None

    def points(self) -> Iterator[ProductMapping]:
        """All mappings of the space."""
        tiles = ("m", "n", "k")
        others = [name for name in self.axes if name not in tiles]
        for sizes in product(*(self.axes[name] for name in tiles)):
            if self.cuts(*map(int, sizes)):
                for values in product(*(self.axes[name] for name in others)):
                    found = self.point(dict(zip((*tiles, *others), (*sizes, *values))))
                    if found is not None:
                        yield found

    def cuts(self, m: int, n: int, k: int) -> bool:
        """Whether tiles of these sizes fit the accumulator, and begin with a scale of their own."""
        return m * n <= self.sums_rows and (k == self.deep or not k % self.shape.weights.tiles(self.config))

    def stage(self, m: int, n: int) -> int:
        """Column groups of a buffer of results: whole tiles, some kilobytes of them."""
        return max(1, min(self.panel, STAGE_BYTES // (m * self.config.dim)) // n) * n

    @property
    def coarse(self) -> tuple[str, ...]:
        """Axes on which the bound depends most."""
        return ("m", "n", "k", "order", "kept", "dataflow")

    def first(self) -> ProductMapping:
        """The formula's."""
        return min((by_formula(self.config, self.shape, dataflow) for dataflow in self.dataflows),
                   key=lambda found: found.cycles).mapping

    def rows(self, mapping: ProductMapping) -> dict[str, int]:
        """Scratchpad rows of each region's buffers."""
        depth = self.shape.weights.rows(self.config, mapping.k)
        align = self.config.preload
        return {A: mapping.a_slots * mapping.m * mapping.k,
                B: mapping.b_slots * ceil_div(depth * mapping.n, align) * align,
                PARAMETERS: DOUBLE * COLUMN_ROWS * mapping.panel, C: DOUBLE * mapping.stage * mapping.m}

    def fits(self, mapping: ProductMapping) -> bool:
        """Whether the scratchpad takes all, each bank class in banks of its own where there are several."""
        config, rows, banks = self.config, self.rows(mapping), banks_of(self.config)
        unit = config.spm_bank_rows if config.spm_banks > 1 else config.preload
        need = dict.fromkeys(banks.values(), 0)
        for region, count in rows.items():
            need[banks[region]] += count
        return sum(ceil_div(count, unit) * unit for count in need.values()) <= config.spm_rows

    def _is_itself(self, m: int, n: int, k: int, order: str, kept: str, slots: tuple[int, int]) -> bool:
        """Whether no mapping of other values does the same."""
        cut, loads = self.bound.cut(m, n, k, self.panel), self.bound.loads
        blocks, steps = len(cut.blocks), len(cut.depths)
        if order == COLUMNS and (blocks == 1 or self.panel <= n):
            return False  # there is only one order
        keeps = "" if kept == STREAMED else A + B
        times = loads(cut, order, keeps, kept == ACROSS, slots)
        if kept == PANEL and times == loads(cut, order, "", False, slots) or (
                kept == ACROSS and times == loads(cut, order, keeps, False, slots)):
            return False
        return not (_idle(slots[0], A_SLOTS, times[0] * blocks * steps)
                    or _idle(slots[1], B_SLOTS, times[1] * steps * cut.columns))


def _idle(slots: int, choices: tuple[int, ...], loads: int) -> bool:
    """Whether fewer slots would already take every tile that is ever loaded."""
    at = choices.index(slots)
    return at > 0 and choices[at - 1] >= loads
