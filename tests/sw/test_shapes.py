"""Trees of a fixed shape: the best of all trees by size and depth, for made-up accuracies and costs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gemmule.sw.benches.ranks import Ranks
from gemmule.sw.decoding.adaptive.shapes import Place, best_shape, drawn, likeliest_places
from gemmule.sw.decoding.tree import Tree

SEED = 20261127


def every_tree(ranks: int, most: int, levels: int) -> Iterator[frozenset[Place]]:
    """Every tree of up to so many candidates, each place behind its parent."""
    known = {frozenset[Place]()}
    front = known
    for _ in range(most):
        front = {tree | {place} for tree in front for parent in ((), *tree) if len(parent) < levels
                 for rank in range(ranks) if (place := (*parent, rank)) not in tree}
        known = known | front
    yield from known


def chance(place: Place, ranks: list[float]) -> float:
    return float(np.prod([ranks[rank] for rank in place]))


@pytest.mark.parametrize("case", range(6))
def test_no_tree_is_better(case: int) -> None:
    random = np.random.default_rng((SEED, case))
    print(f"seed {SEED}, case {case}")
    ranks = sorted((random.random(3) * 0.7).tolist(), reverse=True)
    rows = np.concatenate([[1.0], 1.0 + np.cumsum(random.random(5) * random.choice([0.01, 0.2]))]).tolist()
    level = float(random.choice([0.0, 0.05, 0.4]))
    found = best_shape(ranks, 5, lambda count: rows[count - 1], lambda levels: levels * level)
    best = max((1 + sum(chance(place, ranks) for place in tree)) / (
        rows[len(tree)] + level * max(map(len, tree), default=0)) for tree in every_tree(3, 5, 5))
    assert found.tokens / found.cycles == pytest.approx(best)
    assert found.tokens == pytest.approx(1 + sum(chance(place, ranks) for place in found.places))
    for number, place in enumerate(found.places):
        assert len(place) == 1 or place[:-1] in found.places[:number], "parents come first"


def test_levels_that_cost_make_trees_flat() -> None:
    ranks = [0.6, 0.2, 0.1]
    free = best_shape(ranks, 7, lambda rows: 1.0)
    paid = best_shape(ranks, 7, lambda rows: 1.0, lambda levels: 0.3 * levels)
    assert free.levels > paid.levels
    assert len(free.places) == 7
    assert best_shape(ranks, 7, lambda rows: 1.0 if rows == 1 else 9.0).places == ()
    assert best_shape([], 7, lambda rows: 1.0).places == ()


def test_places_are_the_likeliest() -> None:
    places = likeliest_places([0.5, 0.3, 0.0], 6, 2)
    assert [place for place, _ in places] == [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    assert [round(share, 3) for _, share in places] == [0.5, 0.3, 0.25, 0.15, 0.15, 0.09]
    assert drawn([(0,), (1,), (0, 1)]) == ["1", "  2", "2"]


@pytest.mark.parametrize("ranks", [[0.2, 0.3], [1.2], [-0.1]])
def test_accuracies_that_are_none(ranks: list[float]) -> None:
    with pytest.raises(ValueError, match="accuracies of ranks must be from 0 to 1 and fall, not"):
        best_shape(ranks, 3, lambda rows: 1.0)


def test_ranks_are_counted_behind_accepted_candidates() -> None:
    ranks = Ranks()
    ranks.add(Tree([5, 6, 7, 8, 9], [-1, 0, 1, 1, 0]), [0, 1, 3])
    assert (ranks.tried, ranks.right) == ([2, 2], [1, 1])
    ranks.add(Tree([5, 6, 7], [-1, 0, 1]), [0])
    assert (ranks.tried, ranks.right) == ([3, 2], [1, 1])
    assert ranks.shares() == [1 / 3, 1 / 3], "no rank counts as more often right than the one before"
