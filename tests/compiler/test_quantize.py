"""Ratios as multiplier and shift."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.quantize import to_mult_shift
from gemmule.numerics import requant


def test_mult_shift_keeps_sixteen_bits() -> None:
    ratios = np.concatenate([2.0 ** np.random.default_rng(3).uniform(-31, 15, 500), [1.0, 0.999999, 0.5]])
    mult, shift = to_mult_shift(ratios)
    assert ((mult >= 1 << 15) & (mult < 1 << 16) & (shift >= 0) & (shift <= 47)).all()
    assert np.abs(mult * 2.0 ** -shift / ratios - 1).max() <= 2.0 ** -16
    assert requant(np.array([1000]), *to_mult_shift(0.25))[0] == 250
    assert [int(v[0]) for v in to_mult_shift(0.0)] == [0, 0]
    with pytest.raises(CompileError, match="from 0 to 65535"):
        to_mult_shift(70000.0)


def test_ratios_that_underflow_are_zero() -> None:
    """Bits of the multiplier go first, then all of it; a shift stays one that the device has."""
    mult, shift = to_mult_shift(2.0 ** np.arange(-300.0, -31.0))
    assert ((shift >= 0) & (shift <= 47)).all()
    assert mult.tolist() == [0] * (300 - 47) + [1 << bits for bits in range(16)]
    assert (shift[mult == 0] == 0).all()
