"""The mapping of a product by search, from the cache folder where the same search was made before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from gemmule.compiler.kernels.product import ProductMapping, ProductShape, check_product
from gemmule.compiler.mapping import constraint, exhaustive, feedback
from gemmule.compiler.mapping.found import found_before
from gemmule.compiler.mapping.mapper import Found, Mapper, Search
from gemmule.compiler.mapping.product.model import SolverSpace
from gemmule.compiler.mapping.product.space import ProductSpace
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.product import compile_product
from gemmule.config import Config
from gemmule.sim.simulator import Simulator

__all__ = ["SEARCHES", "explained", "product_cost", "search_product"]

SEARCHES: dict[str, Search[ProductMapping]] = {
    "exhaustive": exhaustive.search, "optuna": feedback.search, "cp-sat": constraint.search}
NEAREST = 5
"""Losers that are told one by one."""
NAMES = tuple(field.name for field in fields(ProductMapping))


class _ProductCost:
    """Cycles of a product's mappings, timing only."""

    def __init__(self, config: Config, shape: ProductShape) -> None:
        self.config, self.shape, self.simulator = config, shape, Simulator(config, dram_bytes=1)

    def __call__(self, mapping: ProductMapping) -> int:
        shape = self.shape
        program = compile_product(self.config, shape.m, shape.k, shape.n, weights=shape.weights, mapping=mapping,
                                  checked=False)
        self.simulator.load(program.launch("cost", NO_DRAM, program.registers()))
        return int(self.simulator.run(timing_only=True).cycles)


def product_cost(config: Config, shape: ProductShape) -> _ProductCost:
    """What a mapping costs: cycles from DRAM and back; CompileError where it does not fit."""
    return _ProductCost(config, shape)


def search_product(config: Config, shape: ProductShape, dataflows: tuple[str, ...], method: str,
                   most: int | None = None, *, kept: bool = True) -> Found[ProductMapping]:
    """The best mapping that ``method``, one of :data:`SEARCHES`, finds; never worse than the formula's.

    ``most``: mappings to simulate; by default as many as the search takes. ``kept``: what was found before for the same
    product, device, search and sources is taken from the cache folder, and this is put there.

    Raises:
        CompileError: a size is out of range, nothing fits, or the search's package is not installed.
    """
    for dataflow in dataflows:
        check_product(config, shape, dataflow)
    def find() -> Found[ProductMapping]:
        space = SolverSpace(config, shape, dataflows)
        found = Mapper(space, product_cost(config, shape)).find(SEARCHES[method], most)
        assert found is not None  # the formula's mapping fits, or it would have raised
        return found

    return found_before(config, (shape, dataflows, method, most), ProductMapping, find) if kept else find()


def explained(found: Found[ProductMapping], space: ProductSpace) -> Iterator[str]:
    """What was tried, what won, and why the rest lost, in lines for people."""
    dim, best = space.config.dim, found.cycles
    costed = [trial for trial in found.trials if trial.cycles is not None]
    yield (f"tried {len(costed):,} mappings on the simulator; {found.pruned:,} more could not win by what the mesh and "
           f"the bus must do at least{'' if found.certified else '; others were not looked at'}")
    if found.first_cycles is not None:
        yield f"the formula's: {found.first_cycles:,} cycles: {space.first().describe(dim)}"
    yield (f"takes {best:,} cycles ({1 - best / found.first_cycles:.1%} fewer): " if found.first_cycles else
           f"takes {best:,} cycles: ") + found.best.describe(dim)
    yield "the best with another choice of one thing, of those tried:"
    for name in NAMES:
        fewest: dict[Any, int] = {}
        for trial in costed:
            value = getattr(trial.point, name)
            fewest[value] = min(fewest.get(value, trial.cycles or 0), trial.cycles or 0)
        others = sorted((cycles, str(value)) for value, cycles in fewest.items() if value != getattr(found.best, name))
        if others:
            told = ", ".join(f"{value or 'nothing'} +{cycles / best - 1:.1%}" for cycles, value in others[:NEAREST])
            yield f"  {name} {getattr(found.best, name)}: {told}"
    yield "the nearest losers, with what each must take at least, and for what:"
    losers = [trial for trial in costed if trial.point != found.best]
    for trial in sorted(losers, key=lambda trial: trial.cycles or 0)[:NEAREST]:
        reason, least = space.bound.largest(trial.point)
        differing = [name for name in NAMES if getattr(trial.point, name) != getattr(found.best, name)]
        told = ", ".join(f"{name} {getattr(trial.point, name) or 'nothing'}" for name in differing)
        yield f"  {trial.cycles:,} (at least {least:,} for {reason}): {told}"
