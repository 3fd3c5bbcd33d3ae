"""The space of a product's mappings as a model for CP-SAT: what fits, and the bound of cycles as integers.

It says what :class:`~gemmule.compiler.mapping.product.space.ProductSpace` and
:class:`~gemmule.compiler.mapping.product.bound.ProductBound` say; tests compare them point by point. Fractions of
cycles are rounded down, so its bound is at most theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gemmule.compiler.kernels.product import COLUMNS, DOUBLE, ORDERS, PARAMETERS, A, B, C, banks_of
from gemmule.compiler.mapping.product.space import ProductSpace
from gemmule.isa import COMMAND_BYTES
from gemmule.operands import COLUMN_ROWS
from gemmule.timing import ceil_div

if TYPE_CHECKING:  # an extra: there is a space without it
    from ortools.sat.python import cp_model

__all__ = ["SolverSpace", "product_model"]

LARGE = 1 << 45
"""No quantity of a product is larger."""


class SolverSpace(ProductSpace):
    """The space, for searches that solve it too."""

    def model(self) -> tuple[cp_model.CpModel, dict[str, Any], Any]:
        """For CP-SAT, see :mod:`gemmule.compiler.mapping.constraint`."""
        return product_model(self)


class _Model:
    """Variables that follow from others."""

    def __init__(self) -> None:
        from ortools.sat.python import cp_model

        self.m = cp_model.CpModel()

    def table(self, index: Any, values: Sequence[int], name: str) -> Any:
        """``values[index]``."""
        found = self.m.new_int_var(min(values), max(values), name)
        self.m.add_element(index, list(values), found)
        return found

    def times(self, a: Any, b: Any, name: str) -> Any:
        found = self.m.new_int_var(0, LARGE, name)
        self.m.add_multiplication_equality(found, [a, b])
        return found

    def whether(self, condition: Any, opposite: Any, name: str) -> Any:
        """A boolean that is true exactly if the condition holds."""
        found = self.m.new_bool_var(name)
        self.m.add(condition).only_enforce_if(found)
        self.m.add(opposite).only_enforce_if(~found)
        return found

    def every(self, parts: Sequence[Any], name: str) -> Any:
        """A boolean that is true exactly if all are."""
        found = self.m.new_bool_var(name)
        self.m.add_bool_and(parts).only_enforce_if(found)
        self.m.add_bool_or([found, *(~part for part in parts)])
        return found


def product_model(space: ProductSpace) -> tuple[cp_model.CpModel, dict[str, Any], Any]:
    """The model, index variables by axis, and the variable of the bound, which it minimises."""
    config, shape, axes, bound, dim = space.config, space.shape, space.axes, space.bound, space.config.dim
    x = _Model()
    at = {name: x.m.new_int_var(0, len(values) - 1, name) for name, values in axes.items()}
    sizes = {name: [int(value) for value in axes[name]] for name in ("m", "n", "k", "a_slots", "b_slots")}
    m, k, n, a_slots, b_slots = (x.table(at[name], sizes[name], f"{name} value")
                                 for name in ("m", "k", "n", "a_slots", "b_slots"))
    panel, wide, deep = space.panel, space.wide, space.deep
    cuts = {name: [bound.cut(*(size if part == name else 1 for part in "mnk"), panel) for size in sizes[name]]
            for name in "mnk"}

    def derived(name: str, value: Callable[[Any], int], label: str) -> Any:
        return x.table(at[name], [value(cut) for cut in cuts[name]], label)

    blocks = derived("m", lambda cut: len(cut.blocks), "blocks")
    columns = derived("n", lambda cut: cut.columns, "column tiles")
    smallest = derived("n", lambda cut: min(map(len, cut.panels)), "tiles of the smallest panel")
    tiles = x.table(at["n"], [ceil_div(panel, size) for size in sizes["n"]], "tiles of a panel")
    steps = derived("k", lambda cut: len(cut.depths), "steps")
    depth_rows = derived("k", lambda cut: cut.depth_rows, "rows of B at whole depth")
    tile_rows = x.table(at["k"], [shape.weights.rows(config, size) for size in sizes["k"]], "rows of a tile of B")
    panels = ceil_div(wide, panel)
    scale = shape.weights.tiles(config)
    for i, size in enumerate(sizes["k"]):
        if size < deep and size % scale:
            x.m.add(at["k"] != i)

    # Tiles of results: what fits the accumulator, staging, and what follows the last one.
    pairs, behind_of = [], {}
    for i, rows in enumerate(sizes["m"]):
        for j, groups in enumerate(sizes["n"]):
            if rows * groups <= space.sums_rows:
                cut = bound.cut(rows, groups, 1, panel)
                stage = space.stage(rows, groups)
                behind_of[i, j] = int(bound.behind(cut))
                pairs.append((i, j, DOUBLE * stage * rows, ceil_div(wide, stage), behind_of[i, j]))
    c_rows, runs, behind = (x.m.new_int_var(0, LARGE, name) for name in ("rows of results", "runs", "behind"))
    x.m.add_allowed_assignments([at["m"], at["n"], c_rows, runs, behind], pairs)

    # The scratchpad, each class of buffers in whole banks.
    a_rows = x.times(a_slots, x.times(m, k, "A tile"), "rows of A")
    b_tile = x.times(tile_rows, n, "B tile")
    b_rows = x.times(b_slots, b_tile, "rows of B")
    unit = config.spm_bank_rows if config.spm_banks > 1 else config.preload
    rows_of = {A: a_rows, B: b_rows, PARAMETERS: DOUBLE * COLUMN_ROWS * panel, C: c_rows}
    parts = []
    for bank in dict.fromkeys(banks_of(config).values()):
        taken = x.m.new_int_var(0, config.spm_rows // unit, f"banks of {bank.value}")
        x.m.add(unit * taken >= sum(rows_of[region] for region, its in banks_of(config).items() if its is bank))
        parts.append(taken)
    x.m.add(sum(parts) <= config.spm_rows // unit)

    # How often A and B are loaded.
    kept, across = x.m.new_bool_var("kept"), x.m.new_bool_var("across")
    x.m.add(at["kept"] == kept + across)
    x.m.add_implication(across, kept)
    outer = ORDERS.index(COLUMNS)
    outside = x.whether(at["order"] == outer, at["order"] == 1 - outer, "columns outside")
    x.m.add(blocks > 1).only_enforce_if(outside)
    x.m.add(tiles > 1).only_enforce_if(outside)
    a_tiles = x.times(blocks, steps, "A tiles")
    all_a = x.whether(a_slots >= a_tiles, a_slots < a_tiles, "all of A fits")
    row_a = x.whether(a_slots >= steps, a_slots < steps, "a block of A fits")
    period = x.m.new_int_var(1, wide, "period")
    x.m.add(period == 1).only_enforce_if(outside)
    x.m.add(period == smallest).only_enforce_if(~outside)
    b_tiles = x.times(period, steps, "B tiles")
    b_once = x.every([kept, x.whether(b_slots >= b_tiles, b_slots < b_tiles, "B fits")], "B once")
    a_once = x.every([kept, all_a, across], "A once")
    some_a = x.m.new_bool_var("A fits in some way")
    x.m.add_bool_or([all_a, x.every([row_a, ~outside], "outer A fits")]).only_enforce_if(some_a)
    x.m.add_bool_or([some_a, ~all_a])
    x.m.add_bool_or([some_a, ~row_a, outside])
    a_kept = x.every([kept, some_a, ~a_once], "A once a panel")
    a_times, b_times = x.m.new_int_var(1, wide, "A times"), x.m.new_int_var(1, shape.m, "B times")
    for condition, value in ((a_once, 1), (a_kept, panels)):
        x.m.add(a_times == value).only_enforce_if(condition)
    x.m.add(a_times == columns).only_enforce_if([~a_once, ~a_kept])
    x.m.add(b_times == 1).only_enforce_if(b_once)
    x.m.add(b_times == blocks).only_enforce_if(~b_once)

    # Mappings that differ in name only.
    gain_a, gain_b = (x.whether(times < most, times >= most, f"{name} gains") for name, times, most in (
        ("A", a_times, columns), ("B", b_times, blocks)))
    x.m.add_bool_or([~kept, gain_a, gain_b])
    x.m.add_implication(across, a_once)
    if panels == 1:
        x.m.add(across == 0)
    a_loads = x.times(a_times, a_tiles, "loads of A")
    b_loads = x.times(b_times, x.times(columns, steps, "steps of a block"), "loads of B")
    for slots, loads in (("a_slots", a_loads), ("b_slots", b_loads)):
        fewer = x.table(at[slots], [0, *(size + 1 for size in sizes[slots][:-1])], f"needed for {slots}")
        x.m.add(loads >= fewer)

    # The bound: the bus with refreshes, the bus and what follows the last load, the mesh.
    loaded = dim * (deep * shape.m * a_times + wide * x.times(b_times, depth_rows, "B rows loaded")
                    + COLUMN_ROWS * wide)
    sums = x.times(blocks, columns, "sums")
    commands = x.times(sums, steps, "products") + sums + panels + a_loads + b_loads + x.times(blocks, runs, "stores")
    beat, bus, latency = config.dram.beat_cycles, config.bus_bytes, config.dram.latency
    cycles = x.m.new_int_var(0, LARGE, "cycles")
    for name, moved, more in (("all", loaded + dim * shape.m * wide + COMMAND_BYTES * commands, 0),
                              ("loads", loaded, behind)):
        busy = x.m.new_int_var(0, LARGE, f"busy with {name}")
        x.m.add_division_equality(busy, beat * moved + bus * latency, bus)
        end: Any = busy
        for turn in range(2 if config.dram.refresh_period else 0):  # refreshes, and those that fall into these
            held = x.m.new_int_var(0, LARGE, f"refreshes of {name}, {turn}")
            x.m.add_division_equality(held, end - 1, config.dram.refresh_period)
            end = busy + config.dram.refresh_cycles * held
        x.m.add(cycles >= end + more)
    first = dim * (COLUMN_ROWS * panel + x.times(m, k, "first tile of A") + b_tile)
    started = x.m.new_int_var(0, LARGE, "started")
    x.m.add_division_equality(started, beat * first, bus)
    for i, dataflow in enumerate(axes["dataflow"]):
        one = [cut.mesh[str(dataflow)] // (wide * deep) for cut in cuts["m"]]
        chosen = x.whether(at["dataflow"] == i, at["dataflow"] != i, f"{dataflow} chosen")
        x.m.add(cycles >= latency + started + wide * deep * x.table(at["m"], one, f"mesh {dataflow}") + behind
                ).only_enforce_if(chosen)
    # Among equals, rather deep rings, and what the axis of the run-ahead has first.
    x.m.minimize(16 * cycles - at["a_slots"] - at["b_slots"] + 8 * at["ahead"])
    return x.m, at, cycles
