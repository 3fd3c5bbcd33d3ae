"""Result stage, sum of two operands, softmax in pieces: exact integer identities, float references with bounds."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gemmule import numerics as nm
from gemmule.numerics import softmax as sm

BYTE = st.integers(-128, 127)
MULT = st.integers(0, 65535)
WORD = st.integers(-(1 << 31), (1 << 31) - 1)


@given(BYTE, BYTE, MULT, MULT, st.integers(0, 63))
@example(-128, -128, 65535, 65535, 0)
@example(127, -128, 65535, 65535, 1)
def test_add_is_one_rounding_of_the_exact_sum(a: int, b: int, mult_a: int, mult_b: int, shift: int) -> None:
    used = min(shift, 47)
    exact = (2 * (a * mult_a + b * mult_b) + (1 << used)) >> (used + 1)
    assert nm.add(np.array([a]), np.array([b]), mult_a, mult_b, shift).tolist() == [exact]
    assert nm.add(b, a, mult_b, mult_a, shift + 64) == exact


def test_add_of_int8_arrays_does_not_wrap() -> None:
    a = np.array([-128, 127], dtype=np.int8)
    assert nm.add(a, a, 65535, 65535, 0).tolist() == [-16776960, 16645890]


@pytest.mark.parametrize("ratio", [1.0, 0.31, 1 / 300])
def test_add_error_against_float(ratio: float) -> None:
    """Scales of any ratio: the larger one has a mantissa of 16 bits, so half an LSB and little more."""
    a, b = (x.ravel() for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    scale_a, scale_b, shift = 0.6137, 0.6137 * ratio, 16
    out = nm.add(a, b, round(scale_a * 2**shift), round(scale_b * 2**shift), shift)
    error = np.abs(out - (a * scale_a + b * scale_b)).max()
    assert 0.49 < error <= 0.5 + 2 * 128 * 2.0**-17


HALF = st.integers(-(1 << 15), (1 << 15) - 1)


@given(HALF, HALF, MULT, st.integers(0, 63))
@example(-32768, -32768, 65535, 0)
@example(-32768, 32767, 65535, 0)
def test_product_of_words_is_one_rounding_of_the_exact_product(a: int, b: int, mult: int, shift: int) -> None:
    used = min(shift, 47)
    exact = (2 * a * b * mult + (1 << used)) >> (used + 1)
    operands = np.array([a], dtype=np.int16), np.array([b], dtype=np.int16)
    assert nm.product(*operands, mult, shift, bits=16).tolist() == [min(max(exact, -32768), 32767)]
    assert nm.product(*operands, mult, shift).tolist() == [min(max(exact, -128), 127)]


@given(WORD, BYTE, BYTE, st.booleans())
def test_limits_are_the_upper_one_of_the_lower_one(v: int, low: int, high: int, relu: bool) -> None:
    wanted = min(max(min(max(max(v, 0) if relu else v, -128), 127), low), high)
    value = np.array([v])
    assert nm.requant_store(value, relu=relu, limits=(low, high)).tolist() == [wanted]
    table = np.arange(256, dtype=np.uint8) ^ 0x5A
    byte = (wanted & 255) ^ 0x5A
    signed = byte - 256 if byte > 127 else byte
    assert nm.requant_store(value, relu=relu, limits=(low, high), table=table).tolist() == [signed]


def test_limits_by_hand() -> None:
    v = np.array([-40000, -5, 0, 5, 300])
    assert nm.requant_store(v, limits=(-128, 127)).tolist() == nm.requant_store(v).tolist() == [-128, -5, 0, 5, 127]
    assert nm.requant_store(v, limits=(-3, 4)).tolist() == [-3, -3, 0, 4, 4]
    assert nm.requant_store(v, limits=(4, -3)).tolist() == [-3] * 5  # wrong way round: the upper one
    assert nm.requant_store(v, relu=True, limits=(-20, -10)).tolist() == [-10] * 5
    assert nm.requant_store(v, wide=True, limits=(-3, 4)).tolist() == [-32768, -5, 0, 5, 300]
    assert nm.requant_store(v, residual=np.zeros(5), limits=(-3, 4)).tolist() == [-32768, -5, 0, 5, 300]


@given(WORD, st.integers(-32768, 32767), MULT, st.integers(0, 63), st.booleans())
@example(1 << 30, -16385, 65535, 0, False)
def test_rescaled_residual_saturates_once(v: int, residual: int, mult: int, shift: int, relu: bool) -> None:
    """Terms far beyond int16 may cancel: only their sum is limited."""
    used = min(shift, 47)
    rescaled = (2 * residual * mult + (1 << used)) >> (used + 1)
    total = (max(v, 0) if relu else v) + rescaled
    out = nm.requant_store(np.array([v]), relu=relu, residual=nm.requant(np.array([residual]), mult, shift))
    assert out.tolist() == [min(max(total, -32768), 32767)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 30), st.sampled_from(["none", "causal", "tree"]))
def test_softmax_in_two_pieces_is_one(seed: int, rows: int, columns: int, mask: str) -> None:
    """Masks, maxima and sums of the pieces are those of the whole row; ``after`` may be less than the new tokens."""
    rng = np.random.default_rng(seed)
    t = rng.integers(-4000, 4000, (rows, columns))
    bitmaps = rng.integers(0, 256, (rows, 2)).astype(np.uint8)

    def seen(n: int, after: int) -> np.ndarray:
        if mask == "tree":
            return sm.tree_mask(bitmaps, rows, n, after)
        return np.arange(n) < sm.visible(rows, n, mask == "causal", after)[:, None]

    cut = int(rng.integers(0, columns + 1))
    parts = seen(cut, columns - cut), seen(columns - cut, 0)
    whole = seen(columns, 0)
    if mask == "causal":  # rows that see nothing are clipped at 0
        assert (np.concatenate(parts, axis=1) == whole).all()
    for row, column in np.ndindex(rows, columns):
        token = column - (columns - rows)
        wanted = {"none": True, "causal": token <= row,
                  "tree": token < 0 or bool(int(bitmaps[row, token // 8]) >> token % 8 & 1)}[mask]
        assert whole[row, column] == wanted
        assert parts[column >= cut][row, column - (cut if column >= cut else 0)] == wanted
    maximum = sm.row_max(t, whole)
    first = sm.row_max(t[:, :cut], parts[0])
    assert (sm.row_max(t[:, cut:], parts[1], first) == maximum).all()
    for wide in (False, True):
        weights, total = sm.row_probabilities(t, maximum, whole, wide=wide)
        low, sums = sm.row_probabilities(t[:, :cut], maximum, parts[0], wide=wide)
        high, sums = sm.row_probabilities(t[:, cut:], maximum, parts[1], wide=wide, before=sums)
        assert (np.concatenate([low, high], axis=1) == weights).all()
        assert (sums == total).all()


@pytest.mark.parametrize("wide", [False, True])
def test_normalized_weights_against_float(wide: bool) -> None:
    """Half an LSB of rounding, 2**-15 of the reciprocal, 1e-4 of the largest weight of the exponential."""
    rng = np.random.default_rng(5)
    one = 65536 if wide else 256
    for columns, spread in ((1, 0), (7, 3000), (300, 9000), (2000, 300)):
        t = rng.integers(-spread, spread + 1, (20, columns))
        count = np.full(20, columns)
        maximum = sm.row_max(t, count)
        _, total = sm.row_probabilities(t, maximum, count)
        out = sm.row_normalized(t, maximum, count, *sm.softmax_reciprocal(total), wide=wide)
        exact = np.exp2((t - maximum[:, None]) / 1024)
        share = exact / exact.sum(axis=1, keepdims=True)
        top = share.max(axis=1, keepdims=True)
        bound = 0.5 + one * (2.0**-15 + 2e-4) * top
        assert (np.abs(out - np.minimum(share * one, one - 1)) <= bound).all()
        assert out.max() <= one - 1
    empty = sm.row_normalized(t, maximum, count, np.full(20, 32768), np.zeros(20, dtype=np.int64), wide=wide)
    assert not empty.any()


@given(st.integers(0, 1 << 31))
@example(1 << 31)
@example(0)
@example(65535)
@example(65536)
def test_own_scale_multiplies_by_the_magnitude(largest: int) -> None:
    """The upper 16 bits of A, truncated: within 2**-15 of it, exact up to 16 bits."""
    r, length = (int(v[0]) for v in sm.own_scale(np.array([largest])))
    exact = r * 2.0 ** (-3 - length) * 2**19
    assert exact <= largest < exact * (1 + 2.0**-15) or exact == largest == 0
    assert r < 1 << 16
    assert exact == largest or largest >= 1 << 16
    acc = np.array([[largest // 2, -largest], [-1, 0]], dtype=np.int64)
    assert sm.row_absmax(acc).tolist() == [largest, 1]
