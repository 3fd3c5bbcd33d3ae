"""Rows of a pass and the cache: their forms, and each rule refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.ir import Cache, Graph, Rows

from .test_graph import graph


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# Rows ---------------------------------------------------------------------------------------------


def test_chain() -> None:
    rows = Rows.chain([5, 6, 7], 10)
    assert len(rows) == 3
    assert rows.positions.tolist() == [10, 11, 12]
    assert rows.mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert {rows.tokens.dtype, rows.positions.dtype, rows.sequences.dtype} == {np.dtype(np.int64)}


def test_ragged() -> None:
    rows = Rows.ragged([[1, 2], [3], [4, 5]], [0, 7, 2])
    assert rows.positions.tolist() == [0, 1, 7, 2, 3]
    assert rows.sequences.tolist() == [0, 0, 1, 2, 2]
    assert rows.mask.astype(int).tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]


def test_tree() -> None:
    rows = Rows.tree([1, 2, 3, 4], [-1, 0, 0, 2], 5)
    assert rows.positions.tolist() == [5, 6, 6, 7]
    assert rows.mask.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]


def test_visible() -> None:
    rows = Rows.ragged([[1], [2, 3]], [9, 4])
    own, cached = ints(1, 2), ints(0, 2, 3)
    assert rows.visible(own, cached, None).astype(int).tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert rows.visible(own, cached, 3).astype(int).tolist() == [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert rows.visible(own, cached, 1).astype(int).tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert rows.visible(ints(0), ints(), None).tolist() == [[True]]


TRUE = np.ones((2, 2), dtype=bool)


@pytest.mark.parametrize(("changes", "says"), [
    ({"tokens": ints(1)}, "equally long, not 1, 2, 2"), ({"positions": ints(1, 2, 3)}, "equally long, not 2, 3, 2"),
    ({"sequences": ints(0)}, "equally long"), ({"mask": np.ones((2, 3), bool)}, "equally long"),
    ({"tokens": ints(-1, 0)}, "must be at least 0"), ({"positions": ints(0, -5)}, "must be at least 0"),
    ({"mask": np.array([[True, False], [True, False]])}, "row 1 must see itself"),
    ({"sequences": ints(0, 1)}, "a row must see no row of another sequence"),
    ({"tokens": ints(), "positions": ints(), "sequences": ints(), "mask": np.ones((0, 0), bool)}, "at least one row"),
])
def test_rows_refused(changes: dict[str, np.ndarray], says: str) -> None:
    fields: dict[str, Any] = {"tokens": ints(1, 2), "positions": ints(0, 1), "sequences": ints(0, 0), "mask": TRUE}
    Rows(**fields)
    with pytest.raises(CompileError, match=says):
        Rows(**fields | changes)


@pytest.mark.parametrize(("make", "says"), [
    (lambda: Rows.chain([]), "at least one row"), (lambda: Rows.ragged([[], []], [0, 0]), "at least one row"),
    (lambda: Rows.ragged([], []), "at least one sequence"), (lambda: Rows.ragged([[1]], [0, 1]), "not 2 of 1"),
    (lambda: Rows.tree([1, 2], [0, 0], 0), "the parent of node 0 must be a node before it, or -1, not 0"),
    (lambda: Rows.tree([1, 2], [-1, -2], 0), "the parent of node 1 must be a node before it, or -1, not -2"),
    (lambda: Rows.tree([1], [-1, 0], 0), "each of 1 nodes must have a parent, not 2"),
    (lambda: Rows.tree([1, 2], [-1], 0), "each of 2 nodes must have a parent, not 1"),
    (lambda: Rows.chain([1], -1), "must be at least 0"),
])
def test_forms_refused(make: Any, says: str) -> None:
    with pytest.raises(CompileError, match=says):
        make()


# Cache --------------------------------------------------------------------------------------------


@pytest.fixture
def one() -> Graph:
    """A graph with one attention node of 8 columns of keys."""
    return graph()


def filled(one: Graph, count: int = 4) -> Cache:
    """Keys 0, 1, .. and values -0, -1, .. of one sequence from position 10."""
    cache = Cache(one)
    numbers = np.repeat(np.arange(count, dtype=np.float32)[:, None], 8, 1)
    cache.extend("context", 0, numbers, -numbers)
    cache.advance(Rows.chain([0] * count, 10))
    return cache


def keys(cache: Cache, sequence: int = 0) -> list[float]:
    empty = np.zeros((0, 8), np.float32)
    found, values = cache.extend("context", sequence, empty, empty)
    assert np.array_equal(found, -values)
    return found[:, 0].tolist()


def test_a_pass_extends_and_advances(one: Graph) -> None:
    cache = filled(one)
    assert (cache.length(), cache.positions().tolist(), keys(cache)) == (4, [10, 11, 12, 13], [0, 1, 2, 3])
    assert cache.length(7) == 0
    new = np.full((1, 8), 9, np.float32)
    found, values = cache.extend("context", 0, new, -new)
    assert found.shape == values.shape == (5, 8)
    assert found.dtype == np.float32
    assert cache.length() == 4, "the pass has not ended"
    cache.advance(Rows.chain([1], 14))
    assert cache.positions().tolist() == [10, 11, 12, 13, 14]


def test_keep_and_truncate(one: Graph) -> None:
    cache = filled(one)
    cache.keep([3, 1])
    assert (cache.positions().tolist(), keys(cache)) == ([13, 11], [3, 1])
    cache.truncate(1)
    assert (cache.positions().tolist(), keys(cache)) == ([13], [3])
    cache.truncate(0)
    assert cache.length() == 0
    cache.keep([])
    for wrong in ([0], [-1]):
        with pytest.raises(CompileError, match="cached rows are 0 to -1, not"):
            cache.keep(wrong)


@pytest.mark.parametrize("length", [-1, 5])
def test_truncate_refused(one: Graph, length: int) -> None:
    with pytest.raises(CompileError, match=f"a cache of 4 rows can be cut to 0 to as many, not {length}"):
        filled(one).truncate(length)


@pytest.mark.parametrize("slots", [[4], [0, -1], [2, 9]])
def test_keep_refused(one: Graph, slots: list[int]) -> None:
    cache = filled(one)
    with pytest.raises(CompileError, match=f"cached rows are 0 to 3, not {min(slots)} to {max(slots)}"):
        cache.keep(slots)
    assert keys(cache) == [0, 1, 2, 3]


def test_forks_go_their_own_ways(one: Graph) -> None:
    cache = filled(one)
    cache.fork(0, 5)
    cache.truncate(2, 5)
    new = np.full((1, 8), 7, np.float32)
    cache.extend("context", 5, new, -new)
    cache.advance(Rows.ragged([[], [], [], [], [], [3]], [0, 0, 0, 0, 0, 12]))
    assert (keys(cache), keys(cache, 5)) == ([0, 1, 2, 3], [0, 1, 7])
    assert cache.positions(5).tolist() == [10, 11, 12]
    assert cache.positions().tolist() == [10, 11, 12, 13]
