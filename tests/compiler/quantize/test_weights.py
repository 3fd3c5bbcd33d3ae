"""Codes of weights: their ranges by bits, scales by group, and an error that falls with every bit."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.quantize.weights import MOST_SCALE, codes


def restored(weight: np.ndarray, bits: int, group: int) -> np.ndarray:
    found = codes(weight, np.ones(weight.shape[1]), None, bits=bits, group=group)
    low, high = found.codes.min(), found.codes.max()
    most = (1 << bits - 1) - 1
    assert -most - (bits < 8) <= low
    assert high <= most
    values = found.codes * found.step[:, None]
    if found.scales is None:
        return np.asarray(values)
    assert found.scales.min() >= 1
    assert found.scales.max() <= MOST_SCALE
    return np.asarray(values * np.repeat(found.scales.T, group, axis=1)[:, :weight.shape[1]])


@pytest.mark.parametrize("group", [0, 16, 32])
def test_each_bit_tells(group: int) -> None:
    weight = np.random.default_rng(4).standard_normal((24, 80)) * np.geomspace(0.5, 4, 80)
    errors = [float(((restored(weight, bits, group if bits < 8 else 0) - weight) ** 2).mean()) for bits in (8, 4, 3)]
    assert errors[0] < errors[1] / 4
    assert 2 * errors[1] < errors[2] < 16 * errors[1]


def test_smaller_groups_are_closer() -> None:
    weight = np.random.default_rng(5).standard_normal((16, 128)) * np.repeat([1, 9, 2, 5], 32)
    errors = [float(((restored(weight, 3, group) - weight) ** 2).mean()) for group in (32, 128, 0)]
    assert errors[0] < errors[1] < 1.0001 * errors[2]
