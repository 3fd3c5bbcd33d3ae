"""Searches of a product's mapping: near the optimum, never worse than the formula, kept in the cache, right results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler.kernels.product import ProductMapping, ProductShape
from gemmule.compiler.mapping.found import FOLDER
from gemmule.compiler.mapping.mapper import Mapper
from gemmule.compiler.mapping.product.space import ProductSpace
from gemmule.compiler.search.product import SEARCHES, explained, product_cost, search_product
from gemmule.config import load_config
from gemmule.sim.simulator import Simulator
from gemmule.sw.workloads.programs import product

TINY = load_config("tiny")
SHAPE = ProductShape(m=6, k=9, n=14)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMMULE_CACHE", str(tmp_path))
    return tmp_path / FOLDER


def test_three_searches_agree_and_beat_the_formula(cache: Path) -> None:
    found = {method: search_product(TINY, SHAPE, ("ws",), method, None if method == "exhaustive" else 40)
             for method in SEARCHES}
    best = found["exhaustive"].cycles
    assert found["exhaustive"].certified
    for method, its in found.items():
        assert best <= its.cycles <= 1.02 * best, method
        assert its.cycles < its.first_cycles
        assert product_cost(TINY, SHAPE)(its.best) == its.cycles
        work = product(TINY, SHAPE.m, SHAPE.k, SHAPE.n, 3, mapping=its.best)
        simulator = Simulator(TINY, dram_bytes=len(work.case.dram))
        simulator.load(work.case)
        result = simulator.run()
        assert (result.fault, result.cycles) == (0, its.cycles)
        assert np.array_equal(work.program.read_output(simulator.read_dram), work.expected)
    # Pruning by bounds leaves out nothing that is better.
    space = ProductSpace(TINY, SHAPE, ("ws",))
    cost = product_cost(TINY, SHAPE)
    some = [point for i, point in enumerate(space.points()) if i % 40 == 0]
    assert min(map(cost, some)) >= best


def test_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search_product(TINY, SHAPE, ("ws",), "exhaustive", 5)
    monkeypatch.setattr(Mapper, "find", lambda *_: pytest.fail("searched again"))
    assert search_product(TINY, SHAPE, ("ws",), "exhaustive", 5) == first
    monkeypatch.undo()
    monkeypatch.setenv("GEMMULE_CACHE", str(cache.parent))
    file, = cache.iterdir()
    file.write_text(file.read_text()[:-40])
    assert search_product(TINY, SHAPE, ("ws",), "exhaustive", 5).best == first.best
    assert search_product(TINY, SHAPE, ("ws", "os"), "exhaustive", 5).trials != first.trials
    assert len(list(cache.iterdir())) == 2


def test_explained(cache: Path) -> None:
    found = search_product(TINY, SHAPE, ("ws",), "exhaustive", 40)
    lines = list(explained(found, ProductSpace(TINY, SHAPE, ("ws",))))
    assert lines[0].startswith("tried 40 mappings")
    assert lines[0].endswith("; others were not looked at")
    assert f"{found.first_cycles:,} cycles" in lines[1]
    assert lines[2].startswith(f"takes {found.cycles:,} cycles ({1 - found.cycles / found.first_cycles:.1%} fewer)")
    losers = lines[lines.index("the nearest losers, with what each must take at least, and for what:") + 1:]
    cycles = sorted(trial.cycles for trial in found.trials if trial.point != found.best)
    assert [int(line.split()[0].replace(",", "")) for line in losers] == cycles[:len(losers)]
    assert isinstance(found.best, ProductMapping)
