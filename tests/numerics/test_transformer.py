"""Norms, tables and I-BERT's functions against float references with stated bounds."""

from __future__ import annotations

from math import erf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmule.numerics.fixed import rshr
from gemmule.numerics.ibert import (
    GELU_SCALE,
    exp_constants,
    gelu_constants,
    i_exp,
    i_gelu,
    i_gelu_unit,
    i_layernorm,
)
from gemmule.numerics.norm import norm_fraction, norm_statistic, normalize
from gemmule.numerics.table import byte_table, interpolate, word_table

SEED = 11


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x / 2 ** 0.5))


@pytest.mark.parametrize("sigma", [2, 30, 2000])
@pytest.mark.parametrize("mean", [False, True], ids=["rms", "layer"])
def test_norm_error(sigma: int, mean: bool) -> None:
    x = np.clip(np.random.default_rng(SEED).normal(sigma / 3, sigma, (16, 768)).round(), -32768, 32767).astype(int)
    y = normalize(x, *norm_statistic(x, 0, 0, mean=mean), np.full(768, 1 << 10), 0, bits=32) / (1 << 20)
    centred = x - x.mean(axis=1, keepdims=True) if mean else x
    exact = centred / np.sqrt((centred ** 2).mean(axis=1, keepdims=True))
    assert np.abs(y - exact).max() <= 6e-4


@pytest.mark.parametrize(("n", "bound"), [(1024, 6e-4), (1025, 1.2e-3), (4096, 1.2e-3), (4097, 2.3e-3), (8192, 2.3e-3)])
@pytest.mark.parametrize("mean", [False, True], ids=["rms", "layer"])
def test_an_outlier_of_a_long_row_does_not_clip(n: int, bound: float, mean: bool) -> None:
    """Nearly all power in one column: sqrt(n) deviations."""
    x = np.random.default_rng(SEED).integers(-3, 4, (2, n))
    x[:, 5] = 30000, -30000
    fraction = norm_fraction(n)
    y = normalize(x, *norm_statistic(x, 0, 0, mean=mean), np.full(n, 1 << fraction), 0, bits=32) / (1 << 2 * fraction)
    centred = x - x.mean(axis=1, keepdims=True) if mean else x
    exact = centred / np.sqrt((centred ** 2).mean(axis=1, keepdims=True))
    assert np.abs(exact).max() > 0.99 * n ** 0.5
    assert (np.abs(y - exact) <= bound + 8e-5 * np.abs(exact)).all()


@given(st.integers(-3000, 3000), st.integers(0, 2 ** 32 - 1))
def test_layernorm_ignores_a_constant(offset: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(-500, 500, (2, 24))
    gamma, beta = np.full(24, 700), np.full(24, 12345)
    plain, moved = (normalize(v, *norm_statistic(v, 3, 2, mean=True), gamma, 9, beta=beta) for v in (x, x + offset))
    assert np.array_equal(plain, moved)


def test_constant_rows_and_beta() -> None:
    x = np.full((1, 8), 77)
    beta = np.arange(8) * 100
    assert normalize(x, *norm_statistic(x, 0, 0, mean=True), np.full(8, 1000), 2, beta=beta).tolist() == [
        [min(127, (100 * i + 2) // 4) for i in range(8)]]


def test_tables() -> None:
    x = np.arange(-128, 128)
    for function in (gelu, np.tanh, lambda v: v / (1 + np.exp(-v))):
        table = byte_table(function, 1 / 16, 1 / 20)
        got = table[x & 255].astype(np.int8)
        exact = np.clip(function(x / 16) * 20, -128, 127)
        assert np.abs(got - exact).max() <= 0.5
    x = np.arange(-32768, 32768)
    for bound, function in ((8, gelu), (8, lambda v: v / (1 + np.exp(-v))), (16, gelu)):
        scale = bound / 32768
        exact = function(x * scale) / scale
        assert np.abs(interpolate(x, word_table(function, scale, scale)) - np.clip(exact, -32768, 32767)).max() <= 2


def test_ibert_reproduces_its_errors() -> None:
    scale = 2.0 ** -12
    q = -np.arange(0, 20 << 12)
    e = i_exp(q, exp_constants(scale)) * (0.35815147 * scale ** 2 / 2 ** 30)
    assert np.abs(e - np.exp(q * scale)).max() == pytest.approx(1.91e-3, rel=0.02)
    scale = 2.0 ** -14
    q = np.arange(-6 << 14, 6 << 14, 16)
    g = i_gelu(q, gelu_constants(scale)) * (scale * -0.2888 * scale ** 2 / 2 * 2 ** 14 / 2)
    assert np.abs(g - gelu(q * scale)).max() == pytest.approx(0.01815, rel=0.01)


def test_ibert_layernorm() -> None:
    rng = np.random.default_rng(SEED)
    x = rng.normal(0, 1000, (5, 768)).astype(int)
    y = i_layernorm(x) * 768 ** 0.5 / 2 ** 30
    assert np.abs(y - (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)).max() <= 1e-3


@pytest.mark.parametrize("n", [1, 2, 16, 64, 100, 768, 1000, 1024, 3000, 4096])
@pytest.mark.parametrize(("centre", "sigma"), [(0, 3), (200, 300), (20000, 2000), (-32000, 900)])
def test_rounded_mean(n: int, centre: int, sigma: int) -> None:
    """I-BERT's mean where 1 / n is exact; elsewhere 1 / n has 16 bits: the mean is up to 2**-16 of itself off."""
    x = np.clip(np.random.default_rng(SEED).normal(centre, sigma, (40, n)).round(), -32768, 32767).astype(int)
    shift = 15 + (n - 1).bit_length()
    mult = round(2 ** shift / n)
    s, _, _ = norm_statistic(x, mult, shift, mean=True, round_mean=True)
    mean = x.mean(axis=1)
    assert not (s % n).any()
    if n & (n - 1) == 0:
        assert np.array_equal(s // n, np.floor(mean + 0.5))
    assert np.abs(s / n - mean).max() <= 0.5 + np.abs(mean).max() * 2.0 ** -16
    assert np.array_equal(norm_statistic(x, 0, 0, mean=True)[0], x.sum(axis=1))


@given(st.integers(0, 2 ** 32 - 1), st.integers(1, 48))
def test_rounded_mean_variance_is_about_that_mean(seed: int, n: int) -> None:
    """V is n * sum (x - mu)**2, as I-BERT's: the reciprocal root is that of the centred row without a mean."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-32768, 32768, (3, n)) >> int(rng.integers(0, 14))
    shift = 15 + (n - 1).bit_length()
    s, r, h = norm_statistic(x, round(2 ** shift / n), shift, mean=True, round_mean=True)
    for i in range(3):
        centred = x[i] - s[i] // n
        value = max(1, n * int((centred.astype(object) ** 2).sum()))
        # 1 / sqrt(V) is r * 2**-(32 + 16 + h) * 2**16, r and the root truncated.
        assert r[i] * value ** 0.5 / 2.0 ** (32 + h[i]) == pytest.approx(1, abs=8e-5)


@pytest.mark.parametrize(("sigma", "bound"), [(2, 6e-4), (30, 6e-4), (2000, 6e-4)])
def test_rounded_mean_layernorm_is_ibert_layernorm(sigma: int, bound: float) -> None:
    """n = 1024: the same mean, so the results differ by the root's and the result's rounding alone."""
    x = np.random.default_rng(SEED).normal(sigma / 3, sigma, (16, 1024)).round().astype(int)
    statistic = norm_statistic(x, 32768, 25, mean=True, round_mean=True)
    y = normalize(x, *statistic, np.full(1024, 1 << 10), 0, bits=32) / (1 << 20)
    centred = x - np.floor(x.mean(axis=1, keepdims=True) + 0.5)
    exact = centred / np.sqrt((centred ** 2).mean(axis=1, keepdims=True))
    assert np.abs(y - exact).max() <= bound
    # I-BERT's own root is floor(sqrt(sum of squares)): its error is what is left.
    root = np.sqrt((centred ** 2).sum(axis=1, keepdims=True))
    assert (np.abs(i_layernorm(x) * 32 / 2 ** 30 - y) <= bound + np.abs(exact) / (root - 1)).all()


def test_i_gelu_unit() -> None:
    x = np.arange(-32768, 32768)
    b, c, one = gelu_constants(GELU_SCALE)
    assert (b, c, one) == (-1812, -3630804, -222)
    wide = -i_gelu(x, gelu_constants(GELU_SCALE))
    value, exact = x * GELU_SCALE, gelu(x * GELU_SCALE)
    error = np.abs(wide * (GELU_SCALE * 0.2888 / 128) - exact)
    # erf has 7.8 bits on this scale: 0.0182 of the polynomial, the rest from truncating erf, which grows with |x|.
    assert 0.024 < error[np.abs(value) <= 8].max() <= 0.026
    assert error.max() <= 0.11
    for shift in (0, 9, 12, 15, 47, 63):
        assert np.array_equal(i_gelu_unit(x, shift), np.clip(rshr(wide, min(shift, 47)), -128, 127))
    # A step of the result at shift 12 is 2**12 * GELU_SCALE * 0.2888 / 128 = 0.01276.
    step = 2 ** 12 * GELU_SCALE * 0.2888 / 128
    near = np.abs(exact) < 1.5
    assert (np.abs(i_gelu_unit(x, 12) * step - exact) <= error + step / 2 + 1e-9)[near].all()
