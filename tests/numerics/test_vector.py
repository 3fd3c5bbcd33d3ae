"""Result stage and sum of two operands: exact integer identities, float references with stated bounds."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gemmule import numerics as nm

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
