# amaranth: UnusedElaboratable=no
"""Vector unit: every operation bit for bit and cycle for cycle, with the memories in the bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gemmule.hw.vector.vector import Vector
from gemmule.isa import AddFlag as A
from gemmule.isa import ColumnFlag as C
from gemmule.isa import NormFlag as N
from gemmule.isa import ProductFlag as P
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S
from gemmule.isa import VOp
from gemmule.timing import Timing, serial_finish

from ...thinned import some
from .bench import legal, make, operations, play, scale, shape, small
from .reference import Device
from .trace import Command

REQUANT_FLAGS = [
    [], [R.RELU], [R.WIDE], [R.RESIDUAL], [R.LOOKUP], [R.ROW], [R.COLUMN], [R.COLUMN, R.RELU, R.LOOKUP],
    [R.COLUMN, R.WIDE], [R.COLUMN, R.RESIDUAL, R.RELU], [R.COLUMN, R.ROW], [R.ROW, R.RESIDUAL],
    [R.RESIDUAL, R.WIDE, R.LOOKUP], [R.ROW, R.LOOKUP, R.RELU], [R.WIDE, R.RELU],
]


def test_requant() -> None:
    def commands(device: Device) -> Iterator[Command]:
        for repeat in range(3):
            for flags in REQUANT_FLAGS if repeat == 0 else [each for each in REQUANT_FLAGS if R.ROW in each]:
                m, n = shape(device.rng, device.dim)
                if R.LOOKUP in flags:
                    yield make(device, VOp.TABLE, m=1, n=1)
                if R.ROW in flags:
                    exp = scale(device, make(device, VOp.SOFTMAX_EXP, m=m, n=n))
                    yield exp
                c = scale(device, make(device, VOp.REQUANT, flags, m=m, n=n))
                if R.ROW in flags:
                    c["context"] = exp["context"]
                    c["shift"] = [0, 63, int(device.rng.integers(16, 40))][repeat]
                yield c

    play(small(4, 1), 11, commands)


@pytest.mark.parametrize("dividers", some([2, 1]))
def test_softmax(dividers: int) -> None:
    def commands(device: Device) -> Iterator[Command]:
        for i in range(7):
            m, n = shape(device.rng, device.dim) if i else (16, 7)
            c = scale(device, make(device, VOp.SOFTMAX_MAX, [S.CAUSAL] if i % 2 else [], m=m, n=n))
            yield c
            yield c | {"op": int(VOp.SOFTMAX_EXP)}
            yield make(device, VOp.REQUANT, [R.ROW], m=m, n=5) | {"context": c["context"]}

    play(small(4, dividers), 21, commands)


@pytest.mark.parametrize("dividers", some([1, 2]))
def test_rms(dividers: int) -> None:
    def commands(device: Device) -> Iterator[Command]:
        for i in range(7):
            m, n = shape(device.rng, device.dim) if i else (16, 6)
            c = make(device, VOp.NORM_STAT, m=m, n=n)
            c["src0"] = min(c["src0"], 60)
            if i in (2, 3):  # V = 1 and a small V
                device.spm[:150] = i - 2
                c["mult"] = 0
            if i == 4:  # the largest squares
                device.spm[:c["src0"] + c["src0_stride"] // 2] = 0
                device.spm[c["src0"] + c["src0_stride"] // 2:150] = 128
            if i == 5:  # epsilon alone, its shift limited to 40
                device.spm[:150] = 0
                c |= {"mult": 1, "shift": 63}
            yield c
            device.spm[:150] = device.rng.integers(0, 256, (150, device.dim))  # other rows, same statistics
            use = make(device, VOp.NORM_APPLY, m=m, n=n)
            yield use | {"src0": c["src0"], "src0_stride": c["src0_stride"], "context": c["context"]}

    play(small(4, dividers), 31, commands)


def test_rope_product_table() -> None:
    def commands(device: Device) -> Iterator[Command]:
        for i in range(8):
            m, n = shape(device.rng, device.dim)
            yield scale(device, make(device, VOp.ROPE, [C.COLUMN] if i % 2 else [], m=m, n=n))
            m, n = shape(device.rng, device.dim)
            yield make(device, VOp.PRODUCT, [P.WIDE] if i % 4 == 3 else [], m=m, n=n)
            if i % 3 == 0:
                yield make(device, VOp.TABLE, range(8), m=7, n=3)

    play(small(4, 2), 41, commands)


@pytest.mark.parametrize(("dim", "passes", "count", "comparison_modes"), some([
    (2, 1, 25, True), (4, 2, 20, True), (8, 4, 12, True), (4, 1, 60, True), (8, 2, 30, False)], 3))
def test_random_mix(dim: int, passes: int, count: int, comparison_modes: bool) -> None:
    """Any operation after any other with any flags, stale contexts included."""
    def commands(device: Device) -> Iterator[Command]:
        ops = operations(comparison_modes)
        for _ in range(count):
            op = ops[int(device.rng.integers(0, len(ops)))]
            m, n = shape(device.rng, device.dim)
            c = make(device, op, legal(device, op), m=m, n=n)
            yield scale(device, c) if op in (VOp.REQUANT, VOp.ROPE, VOp.I_GELU, VOp.NORM_APPLY) else c

    play(small(dim, 2, comparison_modes=comparison_modes, passes=passes), 51, commands)


@pytest.mark.long
@pytest.mark.parametrize(("dim", "m", "comparison_modes"), [(16, 3, False), (32, 1, True)])
def test_large_dim(dim: int, m: int, comparison_modes: bool) -> None:
    """Every operation and mode once, with a last column group that is cut."""
    def commands(device: Device) -> Iterator[Command]:
        n = dim + 5
        for op in operations(comparison_modes):
            yield make(device, op, m=m, n=n)
        for op, flags in ((VOp.NORM_STAT, [N.MEAN]), (VOp.NORM_APPLY, [N.MEAN, N.BIAS, N.WIDE]),
                          (VOp.SOFTMAX_MAX, [S.TREE]), (VOp.SOFTMAX_EXP, [S.TREE, S.WIDE]),
                          (VOp.SOFTMAX_EXP, [S.CAUSAL, S.CONTINUE, S.MORE]), (VOp.SOFTMAX_NORM, [S.TREE, S.WIDE])):
            yield make(device, op, flags, m=m, n=n) | {"context": 0}
        for flags in ([R.WIDE, R.LOOKUP], [R.COLUMN, R.BIAS, R.CLAMP, R.LOOKUP], [R.ROW, R.RESIDUAL],
                      [R.BIAS, R.RESIDUAL, R.RESCALE]):
            yield scale(device, make(device, VOp.REQUANT, flags, m=m, n=n))
        yield make(device, VOp.ADD, [A.WIDE], m=m, n=n)
        yield make(device, VOp.PRODUCT, [P.WIDE], m=m, n=n)
        yield scale(device, make(device, VOp.ROPE, [C.COLUMN, C.BIAS], m=m, n=n))

    play(small(dim, 4, comparison_modes=comparison_modes), 61, commands)


def test_constants() -> None:
    config = small(4, 1)
    assert Timing.of(config).vector_write == 11
    with pytest.raises(ValueError, match="softmax_serial must be 19, as built, not 20"):
        Vector(config=config, timing=replace(Timing.of(config), softmax_serial=20))


@pytest.mark.parametrize(("rows", "dividers", "period", "cycle"), [
    (1, 4, 1, 1 + 14 + 19), (5, 2, 3, 3 + 14 + 3 * 19), (3, 4, 30, 90 + 14 + 19)])
def test_serial_finish(rows: int, dividers: int, period: int, cycle: int) -> None:
    """One row; a divider with three rows in a row; rows that come more slowly than they are divided."""
    assert serial_finish(period + 14, period, rows, dividers, 19) == cycle


def test_i_gelu() -> None:
    """Every range of the polynomial, with parameters of columns, at shifts that saturate and that do not."""
    def commands(device: Device) -> Iterator[Command]:
        for i in range(8):
            m, n = shape(device.rng, device.dim)
            flags = [f for k, f in enumerate((C.COLUMN, C.BIAS)) if i >> k & 1]
            c = scale(device, make(device, VOp.I_GELU, flags, m=m, n=n))
            yield c | {"shift2": [0, 8, 14, 17, 19, 22, 47, 63][i]}
            device.acc[:, :] = device.rng.integers(-4000, 4000, device.acc.shape)
            yield make(device, VOp.I_GELU, m=m, n=n) | {"mult": 1, "shift": 0, "shift2": 13 + i % 4}

    play(small(4, 1), 71, commands)
