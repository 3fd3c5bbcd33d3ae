"""Cutting, rounding, packing."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.layout import pack_groups, unpack_groups
from gemmule.compiler.place import cut_evenly, cut_off, round_up


@pytest.mark.parametrize(("total", "pieces"), [(1, 1), (10, 3), (128, 4), (7, 7), (100, 9)])
def test_even_cuts_cover_all_and_differ_by_one(total: int, pieces: int) -> None:
    cuts = cut_evenly(total, pieces)
    assert len(cuts) == pieces
    assert [first for first, _ in cuts] == [sum(size for _, size in cuts[:i]) for i in range(pieces)]
    sizes = {size for _, size in cuts}
    assert sum(size for _, size in cuts) == total
    assert max(sizes) - min(sizes) <= 1


def test_cut_off_and_round_up() -> None:
    assert cut_off(10, 4) == ((0, 4), (4, 4), (8, 2))
    assert cut_off(3, 4) == ((0, 3),)
    assert [round_up(value, 8) for value in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_groups_round_trip() -> None:
    values = np.random.default_rng(1).integers(-128, 128, (2, 5, 7)).astype(np.int8)
    packed = pack_groups(values, 4)
    assert packed.shape == (2, 2, 5, 4)
    assert np.array_equal(packed[1, 1, :, :3].view(np.int8), values[1, :, 4:])
    assert not packed[:, 1, :, 3].any()
    assert np.array_equal(unpack_groups(packed.view(np.int8), 7), values)
