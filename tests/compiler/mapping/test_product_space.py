"""The space of a product's mappings: what it says fits, compiles; bounds are below the cycles; CP-SAT says the same."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from ortools.sat.python import cp_model

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.product import ProductMapping, ProductShape
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.mapping.product.model import product_model
from gemmule.compiler.mapping.product.space import ProductSpace, dataflows_of
from gemmule.compiler.programs.product import compile_product
from gemmule.compiler.search.product import product_cost
from gemmule.config import Config, load_config

ONE_BANK = Config(name="one", dim=8, bus_bytes=4, spm_kib=8, spm_banks=1, acc_kib=2, acc_banks=2, preload=2)
TINY = load_config("tiny")
SLOW = Config(**(TINY.model_dump() | {"name": "slow", "dram": TINY.dram.model_dump() | {"beat_cycles": 4}}))
CASES = {
    "tiny": (TINY, ProductShape(m=20, k=33, n=50)),
    "wide": (TINY, ProductShape(m=6, k=9, n=300)),
    "grouped": (TINY, ProductShape(m=9, k=40, n=30, weights=WeightFormat(4, 8))),
    "slow": (SLOW, ProductShape(m=40, k=30, n=30)),
    "one bank": (ONE_BANK, ProductShape(m=30, k=50, n=70)),
    "edge": (load_config("edge"), ProductShape(m=17, k=100, n=90)),
    "base": (load_config("base"), ProductShape(m=1, k=200, n=400)),
}


def _choices(space: ProductSpace, count: int) -> list[dict[str, int | str]]:
    chance = random.Random(7)
    return [{name: chance.choice(values) for name, values in space.axes.items()} for _ in range(count)]


@pytest.mark.parametrize("name", CASES)
def test_points_fit_and_no_bound_is_above_the_cycles(name: str) -> None:
    config, shape = CASES[name]
    space = ProductSpace(config, shape, dataflows_of(config, shape))
    cost, found, tight = product_cost(config, shape), 0, 0.0
    for choice in _choices(space, 4000):
        point = space.point(choice)
        if point is not None:
            cycles, bound = cost(point), space.bound(point)
            assert bound <= cycles, point
            tight = max(tight, bound / cycles)
            found += 1
        if found == 16:
            break
    assert found == 16
    assert tight > 0.5  # it says something
    assert space.bound(space.first()) <= cost(space.first())


def test_what_does_not_fit_does_not_compile() -> None:
    config, shape = TINY, ProductShape(m=40, k=60, n=120)
    space, refused = ProductSpace(config, shape, ("ws",)), 0
    for a_slots in (1, 4, 16):
        for b_slots in (2, 8, 20):
            mapping = ProductMapping(m=10, n=4, k=5, a_slots=a_slots, b_slots=b_slots, ahead=8, panel=20, stage=4)
            try:
                compile_product(config, shape.m, shape.k, shape.n, mapping=mapping, checked=False)
            except CompileError:
                refused += 1
                assert not space.fits(mapping)
            else:
                assert space.fits(mapping)
    assert 0 < refused < 9


@pytest.mark.parametrize("name", ["tiny", "wide", "grouped", "one bank", "edge"])
def test_the_model_of_cp_sat_says_the_same(name: str) -> None:
    """Of random choices the same are points, with the same bound but for rounding."""
    config, shape = CASES[name]
    space = ProductSpace(config, shape, dataflows_of(config, shape))
    choices = [choice for choice in _choices(space, 400) if space.point(choice) is not None][:12]
    choices += [choice for choice in _choices(space, 60) if space.point(choice) is None][:12]
    for choice in choices:
        model, at, bound = product_model(space)
        for axis, values in space.axes.items():
            model.add(at[axis] == values.index(choice[axis]))
        solver, point = cp_model.CpSolver(), space.point(choice)
        status = solver.solve(model)
        assert (status == cp_model.OPTIMAL) == (point is not None), choice
        if point is not None:
            least = space.bound(point) - 2 - config.dram.refresh_cycles
            assert least <= solver.value(bound) <= space.bound(point), choice


def test_points_are_all_different_and_each_is_near_itself() -> None:
    config, shape = CASES["wide"]
    space = ProductSpace(config, shape, ("ws",))
    points = list(islice(space.points(), 3000))
    assert len(set(points)) == len(points) > 100
    for choice in _choices(space, 50):
        near = space.near(choice)
        assert near is not None
        assert space.fits(near)
        assert space.point(choice) in (None, near)
