"""Selection against stable argsort, for every edge that has gone wrong elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmule.numerics.select import (
    IMPORTANCE_MAX,
    KEY_BITS,
    accumulate_importance,
    argmax_rows,
    importance_keys,
    radix_threshold,
    top_k,
)

TOP = (1 << KEY_BITS) - 1


def _golden(keys: np.ndarray, k: int) -> np.ndarray:
    return np.sort(np.argsort(-keys, kind="stable")[:k])


@pytest.mark.parametrize("keys", [
    [0], [TOP], [5] * 17, [TOP] * 16 + [0], list(range(33)), list(range(33, 0, -1)), [0x800000, 0x7fffff] * 5,
    [1, TOP, 1, TOP, 1],
], ids=["one", "top", "equal", "mostly top", "up", "down", "middle", "pairs"])
def test_edges(keys: list[int]) -> None:
    values = np.array(keys, dtype=np.int64)
    for k in range(len(keys) + 2):
        assert np.array_equal(top_k(values, k), _golden(values, k)), k


@given(st.lists(st.integers(0, TOP) | st.integers(0, 3), min_size=1, max_size=80), st.integers(0, 90))
def test_stable_argsort(keys: list[int], k: int) -> None:
    values = np.array(keys, dtype=np.int64)
    assert np.array_equal(top_k(values, k), _golden(values, k))


@given(st.lists(st.integers(0, TOP), min_size=2, max_size=40), st.data())
def test_pieces_give_the_same_survivors(keys: list[int], data: st.DataObject) -> None:
    """Survivors of one piece, followed by the next piece, keep the k best of all (any vocabulary size)."""
    values = np.array(keys, dtype=np.int64)
    k, cut = data.draw(st.integers(1, len(keys))), data.draw(st.integers(1, len(keys) - 1))
    first = top_k(values[:cut], k)
    both = np.concatenate((first, np.arange(cut, len(keys))))
    assert np.array_equal(both[top_k(values[both], k)], _golden(values, k))


def test_threshold_counts_the_equal_keys_that_stay() -> None:
    keys = np.array([9, 7, 7, 7, 1])
    assert radix_threshold(keys, 1) == (9, 1)
    assert radix_threshold(keys, 3) == (7, 2)
    assert radix_threshold(keys, 5) == (1, 1)


def test_argmax_takes_the_lowest_index() -> None:
    index, value = argmax_rows(np.array([[3, 9, 9], [-1, -1, -5]]))
    assert index.tolist() == [1, 0]
    assert value.tolist() == [9, -1]


def test_importance_saturates_whatever_the_order() -> None:
    rng = np.random.default_rng(3)
    start = np.array([0, IMPORTANCE_MAX - 5, 17])
    weights = rng.integers(0, 65536, (9, 3))
    whole = accumulate_importance(start, weights)
    steps = start
    for row in weights[::-1]:
        steps = accumulate_importance(steps, row[None])
    assert np.array_equal(whole, steps)
    assert whole[1] == IMPORTANCE_MAX
    assert whole[2] == 17 + weights[:, 2].sum()


def test_importance_keys() -> None:
    """Shifted, limited to 24 bits; guarded positions at both ends have the largest key, and may overlap."""
    importance = np.array([1, 2**32 - 1, 2**25, 7, 0, 256])
    most = (1 << 24) - 1
    assert importance_keys(importance, 0, 0, 0).tolist() == [1, most, most, 7, 0, 256]
    assert importance_keys(importance, 8, 0, 0).tolist() == [0, most, 1 << 17, 0, 0, 1]
    assert importance_keys(importance, 63, 0, 0).tolist() == [0, 1, 0, 0, 0, 0]
    assert importance_keys(importance, 8, 1, 2).tolist() == [most, most, 1 << 17, 0, most, most]
    assert importance_keys(importance, 0, 4, 4).tolist() == [most] * 6
    assert importance[0] == 1
