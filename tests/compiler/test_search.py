"""Of several mappings the one of the fewest cycles is taken; answers are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.passes.notes import Notes
from gemmule.compiler.search.cost import cost
from gemmule.compiler.search.decoder import compile_best, default_effort
from gemmule.config import load_config
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench

SIZES = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=2, vocab=61)
SEED = 20261124


@pytest.mark.parametrize("preset", ["edge", "base"])
def test_the_best_of_some(preset: str) -> None:
    config, network, notes = load_config(preset), random_network(SIZES, SEED), Notes()
    best = compile_best(network, config, effort=3, rows=4, notes=notes)
    cycles = [tried.cycles for tried in notes.tried if tried.cycles is not None]
    assert len(cycles) == 3
    unsure = 1.01  # waits between the turns of a body are not in what is compared
    assert cost(best) <= min(cycles) * unsure
    assert cost(best) <= cost(compile_network(network, config, rows=4)) * unsure
    bench = Bench(best, network)
    for tokens in ([1, 2, 3], [4], [5, 6, 7, 8]):
        bench.chain(tokens)


def test_effort_of_one_is_the_first_that_fits() -> None:
    config, network = load_config("base"), random_network(SIZES, SEED)
    assert compile_best(network, config, effort=1, rows=2).image == compile_network(network, config, rows=2).image


def test_refuses_no_effort() -> None:
    with pytest.raises(CompileError, match="effort must be at least 1 mapping, not 0"):
        compile_best(random_network(SIZES, SEED), load_config("base"), effort=0, rows=2)


def test_effort_by_size() -> None:
    large = replace(SIZES, hidden=1024, inner=4096, layers=4, vocab=61)
    assert default_effort(random_network(SIZES, SEED).graph) > 1
    assert default_effort(random_network(large, SEED, weights=False).graph) == 1
