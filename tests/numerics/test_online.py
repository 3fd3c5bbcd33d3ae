"""Online softmax: running maximum in octaves, error of the context, independence of rows and masked columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gemmule.numerics import requant_row, softmax_reciprocal
from gemmule.numerics.exponential import EXPONENTIAL
from gemmule.numerics.online import online_softmax, prefixed_softmax, rescale
from gemmule.numerics.softmax import EMPTY, octave_max, row_max, row_probabilities

LOW, HIGH = -(1 << 23), (1 << 23) - 1
SEED = 11


def _octave(scores: list[int], before: int = EMPTY) -> tuple[int, int]:
    high, rise = octave_max(np.array([scores], dtype=np.int64).reshape(1, -1), np.array([len(scores)]),
                            np.array([before]))
    return int(high[0]), int(rise[0])


@pytest.mark.parametrize(("scores", "before", "maximum", "rise"), [
    ([], EMPTY, EMPTY, 0), ([], 5 << 10, 5 << 10, 0),  # nothing visible
    ([0], EMPTY, 0, 40), ([1], EMPTY, 1024, 40), ([-1], EMPTY, 0, 40), ([-1024], EMPTY, -1024, 40),
    ([-1023, 7], 1024, 1024, 0), ([1025], 1024, 2048, 1), ([40 << 10], 0, 40 << 10, 40), ([41 << 10], 0, 41 << 10, 40),
    ([39 << 10], 0, 39 << 10, 39), ([HIGH], EMPTY, 8191 << 10, 40), ([HIGH], 8191 << 10, 8191 << 10, 0),
    ([HIGH], 8190 << 10, 8191 << 10, 1), ([LOW], EMPTY, LOW, 0), ([LOW + 1], EMPTY, -8191 << 10, 1),
    ([LOW], -8000 << 10, -8000 << 10, 0),
])
def test_octave_max(scores: list[int], before: int, maximum: int, rise: int) -> None:
    assert _octave(scores, before) == (maximum, rise)


@given(st.lists(st.integers(LOW, HIGH), max_size=6), st.integers(-8192, 8191))
@example([HIGH], -8192)
@example([LOW], -8192)
def test_octave_max_is_the_next_octave_in_24_bits(scores: list[int], octave: int) -> None:
    maximum, rise = _octave(scores, octave << 10)
    assert maximum % 1024 == 0
    assert LOW <= maximum <= HIGH
    assert octave << 10 <= maximum
    # Not below a score but where 24 bits end, and less than an octave above all of them unless it was before.
    assert maximum >= max(scores, default=LOW) or maximum == 8191 << 10
    assert maximum == octave << 10 or maximum - max(scores) < 1024
    assert rise == min((maximum >> 10) - octave, 40)


@pytest.mark.parametrize("kind", range(3))
def test_a_rise_of_forty_octaves_leaves_nothing(kind: int) -> None:
    """So that limiting the rise to 40 loses nothing: sums of 37 bits and int32 contexts are 0 by then."""
    assert rescale(np.array([(1 << 37) - 1, -(1 << 31), (1 << 31) - 1]), np.full(3, 40)).tolist() == [0, 0, 0]
    t = np.array([[0, 50 << 10]])
    v = np.array([[100], [-7]])
    context, r, length = online_softmax(t, v, np.ones((1, 2), dtype=bool), 1, kind=kind)
    alone, r_alone, length_alone = online_softmax(t[:, 1:], v[1:], np.ones((1, 1), dtype=bool), 1, kind=kind)
    assert (context[0, 0], r[0], length[0]) == (alone[0, 0], r_alone[0], length_alone[0])


def test_by_hand() -> None:
    """Three blocks of one column: scores of 1, 2.5 and 0 octaves."""
    t = np.array([[1024, 2560, 0]])
    context, r, length = online_softmax(t, np.array([[16], [-8], [4]]), np.ones((1, 3), dtype=bool), 1)
    # Octave 1: p = 2**20 (weight 255). Octave 3, a rise of 2: p = 2**-0.5 = 46341 / 2**16, weight 181.
    # Score 0 lies 3 octaves below: p = 2**17, weight 32.
    total = (1 << 18) + 46341 * 16 + (1 << 17)
    assert context.tolist() == [[(255 * 16 >> 2) + 181 * -8 + 32 * 4]]
    assert length.tolist() == [total.bit_length()]
    assert r.tolist() == [(1 << 15 + total.bit_length()) // total]


def _float_context(t: np.ndarray, v: np.ndarray) -> np.ndarray:
    p = np.exp2((t - t.max(axis=1, keepdims=True)) / 1024)
    return p / p.sum(axis=1, keepdims=True) @ v


@pytest.mark.parametrize("block", [16, 64, 256])
@pytest.mark.parametrize("n", [64, 256, 1024, 4096])
def test_context_error(n: int, block: int) -> None:
    rng = np.random.default_rng(n)
    t = np.round(rng.normal(size=(16, n)) * np.log2(np.e) * 1024).astype(np.int64)
    v = rng.integers(-128, 128, (n, 32))
    context, r, length = online_softmax(t, v, np.ones_like(t, dtype=bool), block)
    exact = _float_context(t, v)
    error = np.sqrt((((context * (r * 2.0 ** (12 - 15 - length))[:, None]) - exact) ** 2).mean() / (exact ** 2).mean())
    print(f"{n} columns in blocks of {block}: relative RMS {error:.4f}")
    assert error <= 0.036


@pytest.mark.parametrize("block", [1, 16, 100])
@pytest.mark.parametrize("n", [5, 64, 1024, 4096])
def test_near_the_two_pass_one(n: int, block: int) -> None:
    """Within two LSB of V, masked columns and all."""
    rng = np.random.default_rng(n)
    t = (rng.normal(0, 1.44, (6, n)) * 1024).astype(np.int64)
    v = rng.integers(-128, 128, (n, 16))
    mask = rng.random((6, n)) < 0.8
    mask[:, 0] = True
    online = requant_row(*online_softmax(t, v, mask, block), 1 << 12, 12)
    weights, total = row_probabilities(t, row_max(t, mask), mask)
    assert np.abs(online - requant_row(weights @ v, *softmax_reciprocal(total), 1 << 12, 12)).max() <= 2


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99])
def test_what_a_prefix_leaves_of_the_others(share: float) -> None:
    """It takes most of the attention and has values of 0: 8 bits still tell the others apart, which two passes do not.
    """
    rng = np.random.default_rng(SEED)
    t = np.round(rng.normal(size=(16, 129)) * np.log2(np.e) * 1024).astype(np.int64)
    others = np.log2(np.exp2(t[:, 1:] / 1024).sum(axis=1))
    t[:, 0] = np.round((others + np.log2(max(share, 1e-9) / (1 - share))) * 1024)
    v = rng.integers(-128, 128, (129, 32))
    v[0] = 0
    exact, seen = _float_context(t, v), np.ones_like(t, dtype=bool)
    weights, total = row_probabilities(t, row_max(t, seen), seen)
    errors = []
    for context, r, length in (prefixed_softmax(t, v, seen, 1), (weights @ v, *softmax_reciprocal(total))):
        found = context * (r * 2.0 ** (12 - 15 - length))[:, None]
        errors.append(float(np.sqrt(((found - exact) ** 2).mean() / (exact ** 2).mean())))
    print(f"a prefix with {share:.0%}: relative RMS {errors[0]:.4f}, in two passes {errors[1]:.4f}")
    assert errors[0] <= 0.025
    assert share < 0.9 or errors[1] > 4 * errors[0]


def test_a_prefix_by_hand() -> None:
    """The others' maximum is 1024, an octave; the prefix is three octaves above, so their sums are shifted by three."""
    t, v = np.array([[4096, 1024, 0]]), np.array([[10], [64], [-64]])
    context, r, length = prefixed_softmax(t, v, np.ones((1, 3), dtype=bool), 1)
    one = 1 << 20
    total = (one + one // 2 >> 3) + one
    assert context.tolist() == [[(255 * 64 - 128 * 64 + 4 >> 3) + 255 * 10]]
    assert length.tolist() == [total.bit_length()]
    assert r.tolist() == [(1 << 15 + total.bit_length()) // total]


@settings(max_examples=60)
@given(st.integers(0, 2 ** 32 - 1), st.integers(1, 12), st.integers(0, 2))
def test_a_row_depends_on_its_visible_columns_alone(seed: int, block: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 33))
    t, v = rng.integers(LOW, HIGH + 1, (3, n)) >> int(rng.integers(0, 14)), rng.integers(-128, 128, (n, 4))
    mask = rng.random((3, n)) < rng.choice([0.0, 0.3, 1.0], (3, 1))
    whole = online_softmax(t, v, mask, block, kind=kind)
    hidden, hidden_v = np.where(mask, t, rng.integers(LOW, HIGH + 1, t.shape)), v.copy()
    hidden_v[~mask.any(axis=0)] = 77
    for i in range(3):
        alone = online_softmax(hidden[i:i + 1], hidden_v, mask[i:i + 1], block, kind=kind)
        for got, wanted in zip(alone, whole):
            assert np.array_equal(got[0], wanted[i])
    for i in np.flatnonzero(~mask.any(axis=1)):
        assert not whole[0][i].any()
        assert (whole[1][i], whole[2][i]) == (0, 0)


def test_the_block_size_is_architectural() -> None:
    """Blocks give different bits: the sum and the context are rounded at every rise."""
    rng = np.random.default_rng(SEED)
    t, v = rng.integers(-6000, 6000, (8, 64)), rng.integers(-128, 128, (64, 8))
    found = [online_softmax(t, v, np.ones_like(t, dtype=bool), block)[0] for block in (8, 16, 64)]
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])
    assert np.array_equal(found[2], online_softmax(t, v, np.ones_like(t, dtype=bool), 1000)[0])


@pytest.mark.parametrize("kind", range(3))
def test_one_block_is_the_two_pass_softmax_below_a_whole_octave(kind: int) -> None:
    rng = np.random.default_rng(SEED + kind)
    t, v = rng.integers(-9000, 9000, (5, 30)), rng.integers(-128, 128, (30, 8))
    seen = np.full(5, 30)
    octave = -(-t.max(axis=1) // 1024) * 1024
    weights, total = row_probabilities(t, octave, seen, kind=kind)
    context, r, length = online_softmax(t, v, np.ones_like(t, dtype=bool), 30, kind=kind)
    assert np.array_equal(context, weights @ v)
    assert np.array_equal((r, length), softmax_reciprocal(total))
    assert np.array_equal(total, EXPONENTIAL[kind](octave[:, None] - t).sum(axis=1))


def test_weights_of_the_largest_column_fill_the_byte() -> None:
    t = np.arange(-4096, 4096, 7)[:, None]
    maximum, _ = octave_max(t, np.ones(len(t), dtype=np.int64))
    weights, _ = row_probabilities(t, maximum, np.ones(len(t), dtype=np.int64))
    assert weights.min() >= 128
    assert weights.max() == 255


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 40))
def test_rescale_is_one_rounding(value: int, rise: int) -> None:
    assert rescale(np.array([value]), np.array([rise])).tolist() == [2 * value + (1 << rise) >> rise + 1]
