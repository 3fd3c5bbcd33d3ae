# amaranth: UnusedElaboratable=no
"""Cycles of each mode as numbers written by hand, and a bench that must fail."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.vector import Vector
from gemmule.isa import AddFlag as A
from gemmule.isa import ColumnFlag as C
from gemmule.isa import NormFlag as N
from gemmule.isa import ProductFlag as P
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S
from gemmule.isa import VOp
from gemmule.timing import Timing

from ..bench import run_bench
from .bench import make, play, small
from .reference import Device
from .trace import Command

# M = 6 rows, N = 21 columns at DIM 8: 3 column groups; issue to finish is reads + 11.
CASES = [
    (VOp.REQUANT, [], 0, 3 * 6),
    (VOp.REQUANT, [R.COLUMN], 0, 3 * (3 + 6)),
    (VOp.REQUANT, [R.BIAS], 0, 3 * (4 + 6)),
    (VOp.REQUANT, [R.COLUMN, R.BIAS], 0, 3 * (7 + 6)),
    (VOp.REQUANT, [R.ROW, R.COLUMN, R.BIAS], 0, 3 * (7 + 6)),
    (VOp.REQUANT, [R.CLAMP, R.LOOKUP], 0, 3 * 6),
    (VOp.REQUANT, [R.BIAS, R.WIDE], 0, 3 * (4 + 12)),
    (VOp.REQUANT, [R.RESIDUAL, R.RESCALE], 0, 3 * 12),
    (VOp.REQUANT, [R.COLUMN, R.BIAS, R.RESIDUAL, R.RESCALE], 0, 3 * (7 + 12)),
    (VOp.ROPE, [], 0, 3 * 24),
    (VOp.ROPE, [C.BIAS], 0, 3 * (4 + 24)),
    (VOp.ROPE, [C.COLUMN, C.BIAS], 0, 3 * (7 + 24)),
    (VOp.PRODUCT, [], 0, 3 * 6),
    (VOp.PRODUCT, [], 1, 3 * 12),
    (VOp.PRODUCT, [P.WIDE], 0, 3 * 12),
    (VOp.PRODUCT, [P.WIDE], 1, 3 * 24),
    (VOp.ADD, [], 0, 3 * 6),
    (VOp.ADD, [], 1, 3 * 12),
    (VOp.ADD, [A.RELU, A.LOOKUP], 1, 3 * 12),
    (VOp.ADD, [A.WIDE], 0, 3 * 12),
    (VOp.ADD, [A.WIDE], 1, 3 * 12),
    (VOp.NORM_APPLY, [], 0, 3 * (2 + 12)),
    (VOp.NORM_APPLY, [N.MEAN, N.BIAS, N.WIDE], 0, 3 * (6 + 12)),
    (VOp.TABLE, [], 0, 32),
    (VOp.WORD_TABLE, [], 0, 2 * 65),
]
# The same shape, with 2 dividers: issue to finish.
LATE = [
    (VOp.REQUANT, [R.WIDE, R.LOOKUP], 3 * 12 + 14),
    (VOp.REQUANT, [R.COLUMN, R.BIAS, R.WIDE, R.LOOKUP], 3 * (7 + 12) + 14),
    (VOp.REQUANT, [R.RESIDUAL, R.WIDE, R.LOOKUP], 3 * 12 + 11),
    (VOp.RESCALE, [], 18 + 7),
    (VOp.I_GELU, [], 18 + 14),
    (VOp.I_GELU, [C.COLUMN, C.BIAS], 3 * (7 + 6) + 14),
    (VOp.SOFTMAX_MAX, [S.TREE, S.CONTINUE], 18 + 14),
    (VOp.SOFTMAX_MAX, [S.ONLINE, S.CONTINUE], 18 + 14),
    (VOp.SOFTMAX_EXP, [S.ONLINE, S.CONTINUE, S.MORE], 18 + 14),
    (VOp.SOFTMAX_NORM, [], 18 + 14),
    (VOp.SOFTMAX_NORM, [S.CAUSAL, S.WIDE], 36 + 14),
    (VOp.SOFTMAX_EXP, [S.MORE], 18 + 14),
    (VOp.SOFTMAX_EXP, [S.CONTINUE, S.MORE, S.WIDE], 36 + 14),
    (VOp.SOFTMAX_EXP, [S.CONTINUE], 6 + 14 + 3 * 19),  # row 1 ready after 6, then rows 3 and 5 on its divider
    (VOp.SOFTMAX_EXP, [S.WIDE], 12 + 14 + 3 * 19),
    (VOp.ABSMAX, [], 6 + 14 + 3 * 19),
    (VOp.NORM_STAT, [], 12 + 14 + 3 * 36),
    (VOp.NORM_STAT, [N.MEAN], 12 + 14 + 4 + 3 * 36),
    (VOp.NORM_STAT, [N.MEAN, N.ROUND], 12 + 14 + 4 + 3 * 36),
]


EARLY = [(op, flags, apart, reads + 11) for op, flags, apart, reads in CASES]


@pytest.mark.parametrize("cases", [EARLY, [(op, flags, 0, cycles) for op, flags, cycles in LATE]])
def test_cycles(cases: list[tuple[VOp, list[int], int, int]]) -> None:
    config = small(8, 2)
    dut = Vector(config=config, timing=Timing.of(config))
    layout = vector_layout(config)
    device = Device(config, np.random.default_rng(1))

    async def bench(ctx) -> None:
        for op, flags, apart, wanted in cases:
            c = make(device, op, flags, m=6, n=21) | {"apart": apart}
            ctx.set(dut.control.command, layout.const(c))
            ctx.set(dut.control.start, 1)
            cycles = busy = 0
            while not ctx.get(dut.control.finish):
                await ctx.tick()
                ctx.set(dut.control.start, 0)
                cycles += 1
                busy += ctx.get(dut.r0.en) | ctx.get(dut.r1.en) | ctx.get(dut.acc.en)
            assert cycles == wanted, (op, flags, apart)
            if cases is EARLY:
                # the second cycle of these reads nothing
                silent = op in (VOp.REQUANT, VOp.ADD) and R.WIDE in flags and not apart
                assert busy == wanted - 11 - 18 * silent, (op, flags, apart)
            await ctx.tick()

    run_bench(dut, bench, cycles=5000)


class OtherBias(Device):
    """Adds 1 where the documents say nothing."""

    def scaled(self, c, n):
        acc, mult, shift = super().scaled(c, n)
        return acc + (c["flags"] >> R.BIAS & 1), mult, shift


def test_bench_sees_a_wrong_bias() -> None:
    def commands(device: Device) -> Iterator[Command]:
        c = make(device, VOp.REQUANT, [R.BIAS, R.WIDE], m=2, n=4)
        device.acc[:], device.spm[:512] = 100, 0
        yield c | {"mult": 1 << 15, "shift": 15}

    play(small(4, 1), 3, commands)
    with pytest.raises(AssertionError):
        play(small(4, 1), 3, commands, OtherBias)
