"""Cutting, rounding, placing."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.layout import pack_groups, unpack_groups
from gemmule.compiler.place import Cursor, Plan, cut_evenly, cut_off, number, place_regions, round_up
from gemmule.config import load_config

BASE = load_config("base")


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


def test_regions_take_fresh_banks_while_there_are_enough() -> None:
    bank = BASE.spm_bank_rows
    assert place_regions(BASE, [[("a", 3), ("b", 5)], [("c", bank + 1)], [("d", 1)]]) == {
        "a": 0, "b": 4, "c": bank, "d": 3 * bank}
    # Nine groups, eight banks: one after another, at multiples of preload.
    found = place_regions(BASE, [[(str(i), 3)] for i in range(9)], first=7)
    assert found == {str(i): 8 + 4 * i for i in range(9)}
    assert place_regions(BASE, [[("a", 9)]], first=4, last=12) is None


def test_slots_of_a_plan() -> None:
    at = Cursor(5)
    plan = Plan(blocks=((0, 4),), row={"q": 1} | number("ring", [at.take(3) for _ in range(11)]), accumulators=(0,))
    assert plan.slots("ring") == tuple(range(5, 38, 3))
    assert plan.slots("q") == ()


def test_groups_round_trip() -> None:
    values = np.random.default_rng(1).integers(-128, 128, (2, 5, 7)).astype(np.int8)
    packed = pack_groups(values, 4)
    assert packed.shape == (2, 2, 5, 4)
    assert np.array_equal(packed[1, 1, :, :3].view(np.int8), values[1, :, 4:])
    assert not packed[:, 1, :, 3].any()
    assert np.array_equal(unpack_groups(packed.view(np.int8), 7), values)
