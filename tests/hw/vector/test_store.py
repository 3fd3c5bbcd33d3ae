# amaranth: UnusedElaboratable=no
"""Vector unit: bias, limits, rescaled residual, sum and product of two operands, with the extremes of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from gemmule.isa import AddFlag as A
from gemmule.isa import ProductFlag as P
from gemmule.isa import RequantFlag as R
from gemmule.isa import Unit, VOp, legal_flags

from ...thinned import thinned
from .bench import make, play, scale, shape, small
from .reference import Device
from .trace import Command, parameter_rows

TOP, BOTTOM = (1 << 31) - 1, -(1 << 31)


def plane_rows(device: Device, row: int, values: np.ndarray, planes: int, step: int = 1) -> None:
    """Write one row of integers as byte planes."""
    for i in range(planes):
        device.spm[row + i * step] = values >> 8 * i & 255


def test_every_legal_combination() -> None:
    """REQUANT, PRODUCT, ROPE and ADD with all sets of flags that the instruction set allows."""
    cases = [(op, flags) for op in (VOp.REQUANT, VOp.PRODUCT, VOp.ROPE, VOp.ADD)
             for size in range(9) for flags in combinations(range(8), size)
             if legal_flags(Unit.VECTOR, op, sum(1 << f for f in flags))]
    assert len(cases) == 256 - 32 + 2 + 4 + 8  # REQUANT lacks CLAMP with WIDE and without RESIDUAL

    def commands(device: Device) -> Iterator[Command]:
        device.rng.shuffle(cases)
        yield make(device, VOp.TABLE, m=1, n=1)
        for i, (op, flags) in enumerate(cases):
            if i % 32 == 0:  # fresh reciprocals in both contexts
                for context in range(2):
                    yield scale(device, make(device, VOp.SOFTMAX_EXP, m=3, n=5)) | {"context": context}
            m, n = int(device.rng.integers(1, 3)), int(device.rng.integers(1, device.dim + 2))
            c = make(device, op, flags, m=m, n=n)
            yield c if op in (VOp.ADD, VOp.PRODUCT) else scale(device, c)

    play(small(4, 2), 71, commands)


@pytest.mark.parametrize(("op", "flags"), thinned([VOp.REQUANT, VOp.ROPE], [
    [R.BIAS], [R.COLUMN, R.BIAS], [R.ROW, R.COLUMN, R.BIAS, R.WIDE]]))
def test_bias_wraps(op: VOp, flags: list[R]) -> None:
    """Sums beyond int32 on both sides, a different bias in every column, groups without a gap between them."""
    flags = [f for f in flags if op is VOp.REQUANT or f in (R.COLUMN, R.BIAS)]

    def commands(device: Device) -> Iterator[Command]:
        for m in (1, 2, 5):
            c = make(device, op, flags, m=m, n=4 * device.dim)
            p = parameter_rows(c)
            edges = np.array([TOP, BOTTOM, 1, -1, TOP - 1, 0, BOTTOM + 1, 1 << 30])
            bias = device.rng.choice(edges, (4, device.dim))
            for g in range(4):
                plane_rows(device, c["src1"] + (g + 1) * p - 4, bias[g], 4)
            span = slice(c["src0"], c["src0"] + 4 * c["src0_stride"])
            device.acc[span] = device.rng.choice(edges, device.acc[span].shape)
            yield c | {"mult": 1 << 15, "shift": 15 + 24}

    play(small(8, 1), 73, commands)


def test_limits() -> None:
    """Every order of the two limits, equal ones and the ends of int8; before the byte table, after ReLU."""
    limits = [(-128, 127), (0, 6), (-7, -7), (127, -128), (5, -5), (127, 127), (-128, -128), (-1, 0), (60, 20)]

    def commands(device: Device) -> Iterator[Command]:
        for i, (low, high) in enumerate(limits):
            for flags in ([], [R.RELU], [R.LOOKUP], [R.RELU, R.LOOKUP, R.BIAS]):
                if R.LOOKUP in flags:
                    yield make(device, VOp.TABLE, m=1, n=1)
                c = make(device, VOp.REQUANT, [R.CLAMP, *flags], m=1 + i % 3, n=11)
                span = slice(c["src0"], c["src0"] + 3 * c["src0_stride"])
                device.acc[span] = device.rng.integers(-200, 201, device.acc[span].shape)
                c |= {"mult": 1 << 15, "shift": 15, "aux": (high & 255) << 8 | (low & 255)}
                if R.BIAS not in flags:
                    value = int(device.acc[c["src0"], 0])  # multiplier 1
                    wanted = min(max(min(max(value, 0 if R.RELU in flags else -128), 127), low), high)
                    wanted = device.table[wanted & 255] if R.LOOKUP in flags else wanted & 255
                    assert device.run(c)[c["dst"]][0] == wanted
                yield c

    play(small(4, 1), 79, commands)


def test_rescaled_residual_cancels() -> None:
    """Both terms beyond 24 bits with a small sum; terms of one sign; every shift, also above 47."""
    def commands(device: Device) -> Iterator[Command]:
        extremes = np.array([-32768, 32767, -1, 0, 1, -32767])
        for i in range(40):
            m, n = shape(device.rng, device.dim)
            flags = [R.RESIDUAL, R.RESCALE, *([R.RELU] if i % 4 == 3 else []), *([R.WIDE] if i % 3 == 0 else [])]
            c = make(device, VOp.REQUANT, flags, m=m, n=n)
            shift2 = i + 10 if i > 30 else i % 12
            c |= {"aux": 65535 - i % 2, "mult": 65535 - i % 2, "shift": shift2, "shift2": shift2}
            for g in range(-(-n // device.dim)):
                for row in range(m):
                    residual = device.rng.integers(-32768, 32768, device.dim)
                    edge = device.rng.random(device.dim) < 0.3
                    residual[edge] = device.rng.choice(extremes, int(edge.sum()))
                    plane_rows(device, c["dst"] + g * c["dst_stride"] + row, residual, 2, c["dst_stride"] // 2)
                    near = -residual + device.rng.integers(-1, 2, device.dim)
                    wild = device.rng.random(device.dim) < 0.3
                    near[wild] = device.rng.choice([BOTTOM, TOP, 32768, -32769, 1 << 20], int(wild.sum()))
                    device.acc[c["src0"] + g * c["src0_stride"] + row] = near
            yield c

    play(small(4, 1), 83, commands)


def test_sum_of_two_operands() -> None:
    """Extremes of operands, multipliers and shifts, in every mode, together and apart."""
    def commands(device: Device) -> Iterator[Command]:
        yield make(device, VOp.TABLE, m=1, n=1)
        device.spm[:256] = device.rng.choice([0, 1, 127, 128, 129, 255], (256, device.dim))
        for i, mults in enumerate([(65535, 65535), (0, 65535), (65535, 0), (0, 0), (3, 5), (1, 65535), (40000, 20000)]):
            for flags in ([], [A.WIDE], [A.RELU], [A.LOOKUP], [A.RELU, A.WIDE], [A.RELU, A.LOOKUP]):
                m, n = shape(device.rng, device.dim)
                c = make(device, VOp.ADD, flags, m=m, n=n)
                c |= {"mult": mults[0], "aux": mults[1], "apart": (i + len(flags)) % 2}
                if i == 4:  # every bit of the sum is stored
                    c["shift"] = 0
                elif i < 4:
                    c["shift"] = [0, 9, 17, 24, 47, 48, 63][int(device.rng.integers(7))]
                yield c

    play(small(4, 1), 89, commands)


def test_product_of_words() -> None:
    """Extremes of operands, multipliers and shifts, results on both sides of every limit, odd strides, in place."""
    edges = np.array([-32768, 32767, -32767, 0, 1, -1, 128, -128, 127, -129, 255, 256])
    near = np.array([*range(-32780, -32760), *range(32760, 32775), 127, 128, 129, -128, -129])

    def commands(device: Device) -> Iterator[Command]:
        for i in range(36):
            m, n = shape(device.rng, device.dim)
            c = make(device, VOp.PRODUCT, [P.WIDE], m=m, n=n) | {"apart": i % 2}
            c |= {"src0_stride": c["src0_stride"] + i % 3 % 2, "aux": c["aux"] + i % 5 % 2}
            by_one = i % 4 < 2  # a number next to a limit, by 1
            if by_one:
                c |= {"mult": 1 << i % 4, "shift": i % 4}
            elif i > 30:
                c |= {"mult": 65535, "shift": [0, 15, 47, 63][i % 4]}
            for name, stride in (("src0", c["src0_stride"]), ("src1", c["aux"])):
                for g in range(-(-n // device.dim)):
                    for row in range(m):
                        values = device.rng.choice(edges, device.dim)
                        if by_one:
                            halves = device.rng.choice(near, device.dim) // 2
                            values = np.full(device.dim, 2) if name == "src1" else halves
                        plane_rows(device, c[name] + g * stride + row, values, 2, stride // 2)
            if i % 9 == 8:
                c |= {"dst": c["src0"], "dst_stride": c["src0_stride"]}
            yield c

    play(small(4, 1), 101, commands)


@pytest.mark.parametrize(("op", "flags"), [(VOp.PRODUCT, []), (VOp.PRODUCT, [P.WIDE]), (VOp.ADD, [])])
def test_same_rows_twice(op: VOp, flags: list[P]) -> None:
    """Both operands in the same rows, which must be apart: a square, and a doubling."""
    def commands(device: Device) -> Iterator[Command]:
        for n in (1, 4, 9):
            c = make(device, op, flags, m=5, n=n) | {"apart": 1}
            yield c | {"src1": c["src0"], "aux": c["src0_stride"] if op is VOp.PRODUCT else c["mult"]}

    play(small(4, 1), 97, commands)
