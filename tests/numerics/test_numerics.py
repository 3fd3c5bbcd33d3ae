"""Integer arithmetic against float references with stated bounds, and exact identities."""

from math import isqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule import numerics as nm


def test_rshr_is_half_up() -> None:
    assert nm.rshr(np.array([-3, -2, -1, 0, 1, 2, 3]), 1).tolist() == [-1, -1, 0, 0, 1, 1, 2]
    assert nm.rshr(7, 0) == 7


@given(st.integers(-2**31, 2**31 - 1), st.integers(2**15, 2**16 - 1), st.integers(0, 47))
def test_requant_is_one_rounding_of_the_exact_product(acc: int, mult: int, shift: int) -> None:
    exact = (2 * acc * mult + (1 << shift)) // (1 << (shift + 1))
    assert nm.requant(acc, mult, shift) == exact
    assert nm.requant(acc, mult, shift + 64) == exact
    assert nm.requant(acc, mult, 63) == nm.requant(acc, mult, 47)


def test_exp2_error() -> None:
    d = np.arange(0, 41 << 10)
    error = np.abs(nm.exp2(d) / 2**20 - 2.0 ** (-np.minimum(d, 40 << 10) / 1024))
    assert error.max() <= 1e-4
    near = d <= 4 << 10
    assert (error[near] / 2.0 ** (-d[near] / 1024)).max() <= 1e-4


@pytest.mark.parametrize(("length", "bound"), [(64, 0.02), (256, 0.02), (1024, 0.02), (4096, 0.025)])
def test_softmax_context_error(length: int, bound: float) -> None:
    """Relative RMS of the context on N(0,1) logits; normalised 8-bit weights lose 54-88 % at 1024-4096."""
    rng = np.random.default_rng(length)
    logits = rng.normal(size=(8, length))
    t = np.round(logits * np.log2(np.e) * 1024).astype(np.int64)
    value = rng.integers(-127, 128, (length, 32))
    count = nm.visible(8, length, causal=False)
    weights, total = nm.row_probabilities(t, nm.row_max(t, count), count)
    reciprocal, bits = nm.softmax_reciprocal(total)
    context = nm.requant_row(weights @ value, reciprocal, bits, 1 << 15, 15 - 8) / 256
    p = np.exp(logits - logits.max(1, keepdims=True))
    expected = (p / p.sum(1, keepdims=True)) @ value
    error = np.sqrt(((context - expected) ** 2).mean() / (expected ** 2).mean())
    print(f"length {length}: relative RMS {error:.4f}")
    assert error <= bound


def test_published_softmax_vector() -> None:
    """CMSIS-NN's softmax test vector (input scale from multiplier 1077952640, shift 19), int8 output."""
    x = np.array([[101, 49, 6, -34, -75], [-79, -38, 120, -55, 115]])
    per_step = 1077952640 / 2**31 * 2**19 / 2**26  # natural-log units per input step
    t = np.round(x * per_step * np.log2(np.e) * 1024).astype(np.int64)
    count = nm.visible(2, 5, causal=False)
    m = nm.row_max(t, count)
    total = nm.row_probabilities(t, m, count)[1]
    r, n = nm.softmax_reciprocal(total)
    p = nm.exp2(m[:, None] - t)
    out = np.minimum(255, nm.rshr(p * r[:, None], n[:, None] + 7)) - 128
    assert out.tolist() == [[-57, -70, -79, -86, -92], [-94, -88, -54, -91, -56]]


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_softmax_row_does_not_depend_on_masked_or_other_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    t = rng.integers(-20000, 20000, (3, 24))
    count = np.array([5, 24, 0])
    weights, total = nm.row_probabilities(t, nm.row_max(t, count), count)
    other = t.copy()
    other[0, 5:] = rng.integers(-20000, 20000, 19)
    other[1:] = rng.integers(-20000, 20000, (2, 24))
    again, total_again = nm.row_probabilities(other, nm.row_max(other, count), count)
    assert (again[0] == weights[0]).all()
    assert total_again[0] == total[0]
    assert (weights[0, 5:] == 0).all()
    assert total[2] == 0
    assert nm.softmax_reciprocal(total)[0][2] == 0


@given(st.integers(1, 2**37 - 1))
def test_reciprocal_range(total: int) -> None:
    r, n = nm.softmax_reciprocal(np.array([total]))
    assert 2**15 <= r[0] <= 2**16
    assert abs(r[0] * total / 2.0 ** (15 + n[0]) - 1) < 2**-15


@pytest.mark.parametrize("sigma", [2, 30, 2000, 9000])
def test_rms_error(sigma: int) -> None:
    x = np.clip(np.round(np.random.default_rng(sigma).normal(0, sigma, (16, 128))), -32768, 32767)
    x = x.astype(np.int64)
    s, r, h = nm.norm_statistic(x, 0, 0, mean=False)
    xh = nm.saturate(nm.rshr(128 * x * r[:, None], 22 + h[:, None]), 16) / 1024
    assert np.abs(xh - x / np.sqrt((x**2).mean(1, keepdims=True))).max() <= 6e-4
    assert np.abs(nm.normalize(x, s, r, h, np.full(128, 1024), 10 + 5) - np.clip(xh * 32, -128, 127)).max() <= 0.51


def test_rms_of_zero_and_full_scale() -> None:
    x = np.array([[0] * 4, [32767] * 4, [-32768] * 4])
    statistic = nm.norm_statistic(x, 0, 0, mean=False)
    assert (nm.normalize(x, *statistic, np.full(4, 1024), 20) == [[0] * 4, [1] * 4, [-1] * 4]).all()


def test_rope_error() -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(-127, 128, (16, 32))
    angle = np.repeat(rng.uniform(0, 7, (16, 16)), 2, axis=1)
    c, s = np.round(np.cos(angle) * 16384).astype(int), np.round(np.sin(angle) * 16384).astype(int)
    out = nm.rope(x, c, s, 14)
    even = x[:, 0::2] * np.cos(angle[:, 0::2]) - x[:, 1::2] * np.sin(angle[:, 0::2])
    assert np.abs(out[:, 0::2] - np.clip(even, -128, 127)).max() <= 0.52


def test_store_stage() -> None:
    table = np.arange(256, dtype=np.uint8)[::-1].copy()
    v = np.array([-40000, -5, 0, 5, 300])
    assert nm.requant_store(v).tolist() == [-128, -5, 0, 5, 127]
    assert nm.requant_store(v, wide=True).tolist() == [-32768, -5, 0, 5, 300]
    assert nm.requant_store(v, relu=True, residual=np.full(5, 32700)).tolist() == [32700, 32700, 32700, 32705, 32767]
    assert nm.requant_store(v, table=table).tolist() == [127, 4, -1, -6, -128]
    low, high = nm.split_planes(np.array([-2, 300, -32768]))
    assert nm.join_planes(low, high).tolist() == [-2, 300, -32768]


@given(st.integers(0, 2**63 - 1))
def test_bit_length(number: int) -> None:
    """Of any 63 bits, those that a float64 would round up to the next power among them."""
    near = [number, *(value for bits in range(64) for value in ((1 << bits) - 1, 1 << bits) if value < 1 << 63)]
    assert nm.fixed.bit_length(np.array(near)).tolist() == [value.bit_length() for value in near]


@given(st.integers(1, 400), st.integers(1, 32768), st.integers(0, 65535), st.integers(0, 44), st.booleans(),
       st.integers(0, 2**32))
def test_norm_statistic_is_that_of_exact_integers(columns: int, most: int, mult: int, shift: int, mean: bool,
                                                  seed: int) -> None:
    """Row by row as the docstring defines it, with integers of any length."""
    x = np.random.default_rng(seed).integers(-most, most, (5, columns))
    x[0] = 0
    x[1] = -most
    found = nm.norm_statistic(x, mult, shift, mean=mean)
    for row, *seen in zip(x.tolist(), *(part.tolist() for part in found), strict=True):
        s = sum(row) if mean else 0
        v = max(1, columns * sum(value * value for value in row) - s * s + (mult << min(shift, 40)))
        half = (v.bit_length() + 1) // 2 - 16
        assert seen == [s, (1 << 32) // isqrt(v * 4 ** 16 >> 2 * (half + 16)), half]


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_roots_of_all_mantissas_beside_squares(offset: int) -> None:
    """A row of one number x with epsilon v - x * x: V is v, a square or beside one."""
    root = np.arange((1 << 15) + 1, 1 << 16, 37)
    for value in (root * root + offset).tolist():
        _, r, half = nm.norm_statistic(np.zeros((1, 1), dtype=np.int64), value, 0, mean=False)
        assert (r[0], half[0]) == ((1 << 32) // isqrt(value), 0)
