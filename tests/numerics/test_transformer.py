"""Norms, tables, online softmax and I-BERT's functions against float references with stated bounds."""

from __future__ import annotations

from math import erf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmule.numerics import requant_row, row_weights, softmax_reciprocal
from gemmule.numerics.ibert import (
    exp_constants,
    gelu_constants,
    i_exp,
    i_gelu,
    i_layernorm,
    i_softmax,
)
from gemmule.numerics.norm import norm_statistic, normalize
from gemmule.numerics.online import OnlineRow, online_softmax
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


@pytest.mark.parametrize("n", [5, 64, 1024])
def test_online_softmax_is_near_the_two_pass_one(n: int) -> None:
    rng = np.random.default_rng(n)
    t = (rng.normal(0, 1.44, (6, n)) * 1024).astype(np.int64)
    v = rng.integers(-128, 128, (n, 16))
    mask = rng.random((6, n)) < 0.8
    mask[:, 0] = True
    context, r, length = online_softmax(t, v, mask, 16)
    online = requant_row(context, r, length, 1 << 12, 12)
    best = np.where(mask, t, -(1 << 23)).max(axis=1)
    p = [row_weights(row[keep][None], top[None], np.array([keep.sum()])) for row, keep, top in zip(t, mask, best)]
    for i, (weights, total) in enumerate(p):
        exact = requant_row(weights @ v[mask[i]], *softmax_reciprocal(total), 1 << 12, 12)
        assert np.abs(online[i] - exact).max() <= 2


def test_online_rows_are_independent_and_empty_rows_are_zero() -> None:
    rng = np.random.default_rng(SEED)
    t, v = rng.integers(-9000, 9000, (4, 40)), rng.integers(-128, 128, (40, 8))
    mask = np.ones((4, 40), dtype=bool)
    mask[2] = False
    context, r, length = online_softmax(t, v, mask, 8)
    assert not context[2].any()
    assert (r[2], length[2]) == (0, 0)
    for i in (0, 1, 3):
        alone = online_softmax(t[i:i + 1], v, mask[i:i + 1], 8)
        assert np.array_equal(alone[0][0], context[i])
    hidden = t.copy()
    hidden[:, 9] = 12000  # a masked score counts as nothing
    mask[:, 9] = False
    assert np.array_equal(online_softmax(hidden, v, mask, 8)[0], online_softmax(t, v, mask, 8)[0])


def test_online_weights_fill_the_byte() -> None:
    state = OnlineRow.empty(1)
    weights, _ = state.block(np.array([[100, -5000]]), np.ones((1, 2), dtype=bool))
    assert 128 <= weights.max() <= 255


def test_ibert_reproduces_its_errors() -> None:
    scale = 2.0 ** -12
    q = -np.arange(0, 20 << 12)
    e = i_exp(q, exp_constants(scale)) * (0.35815147 * scale ** 2 / 2 ** 30)
    assert np.abs(e - np.exp(q * scale)).max() == pytest.approx(1.91e-3, rel=0.02)
    scale = 2.0 ** -14
    q = np.arange(-6 << 14, 6 << 14, 16)
    g = i_gelu(q, gelu_constants(scale)) * (scale * -0.2888 * scale ** 2 / 2 * 2 ** 14 / 2)
    assert np.abs(g - gelu(q * scale)).max() == pytest.approx(0.01815, rel=0.01)


def test_ibert_softmax_and_layernorm() -> None:
    rng = np.random.default_rng(SEED)
    q = rng.integers(-3000, 3000, (5, 20))
    scale = 1 / 1024
    exact = np.exp(q * scale) / np.exp(q * scale).sum(axis=1, keepdims=True)
    assert np.abs(i_softmax(q, exp_constants(scale)) / 256 - exact).max() <= 0.006
    x = rng.normal(0, 1000, (5, 768)).astype(int)
    y = i_layernorm(x) * 768 ** 0.5 / 2 ** 30
    assert np.abs(y - (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)).max() <= 1e-3
