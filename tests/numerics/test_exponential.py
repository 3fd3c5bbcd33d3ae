"""The three exponentials: exact identities, errors against float, range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmule.numerics.exponential import EXP2_TABLE, EXPONENTIAL, I_EXP_SCALE, exp2, i_exp_probabilities, softermax
from gemmule.numerics.ibert import exp_constants, i_exp

D = np.arange(0, 41 << 10)
ONE = 1 << 20


@pytest.mark.parametrize("kind", range(3))
def test_every_kind_falls_from_one_to_zero(kind: int) -> None:
    p = EXPONENTIAL[kind](D)
    assert p[0] == ONE
    assert np.diff(p).max() <= 0
    assert p.min() >= 0
    assert EXPONENTIAL[kind](np.array([-(1 << 24), -1, 1 << 24])).tolist() == [ONE, ONE, 0]


@pytest.mark.parametrize("kind", [0, 2])
def test_base_two_kinds_are_exact_at_whole_octaves(kind: int) -> None:
    octaves = np.arange(21)
    assert EXPONENTIAL[kind](octaves << 10).tolist() == [ONE >> n for n in range(21)]


def test_softermax_meets_the_fine_table_at_its_four_corners() -> None:
    corners = np.arange(40) << 8
    assert np.array_equal(softermax(corners), exp2(corners))
    assert EXP2_TABLE[::8].tolist() == [65536, 55109, 46341, 38968, 32768]


def test_softermax_error() -> None:
    exact = 2.0 ** (-D / 1024)
    error = np.abs(softermax(D) / ONE - exact)
    # A chord of 2**-x over a quarter octave lies at most (ln 2 / 4)**2 / 8 of it too high; two roundings.
    assert (error - 1.0 / ONE <= 0.004 * exact).all()
    near = D <= 4 << 10
    assert 0.0035 < (error / exact)[near].max() <= 0.004


def test_i_exp_error() -> None:
    error = np.abs(i_exp_probabilities(D) / ONE - np.exp(-D * I_EXP_SCALE))
    assert 1.9e-3 < error.max() <= 1.93e-3


def test_i_exp_is_ibert_truncated() -> None:
    constants = exp_constants(I_EXP_SCALE)
    assert constants == (-425, 1659, ONE)
    # I-BERT keeps 30 fractional bits below c.
    assert np.array_equal(i_exp_probabilities(D), i_exp(-D, constants) >> 30)


@given(st.integers(0, 2), st.integers(0, 1 << 24), st.integers(0, 1 << 24))
def test_no_kind_rises(kind: int, a: int, b: int) -> None:
    low, high = EXPONENTIAL[kind](np.array([max(a, b), min(a, b)]))
    assert 0 <= low <= high <= ONE
