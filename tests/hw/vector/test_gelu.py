"""I_GELU's factor of a lane against numerics.ibert: every operand that is not clipped, and clipped ones."""

from __future__ import annotations

import numpy as np

from gemmule.hw.vector.gelu import GeluFactor
from gemmule.numerics.ibert import GELU_SCALE, gelu_constants, i_gelu

from ..bench import run_bench


def test_factor() -> None:
    """Operand times factor is the GELU of the paper with the sign turned; two stages, one operand a cycle."""
    operands = [*range(-1830, 1831), *range(-32768, 32768, 997), 32767]
    expected = (-i_gelu(np.array(operands), gelu_constants(GELU_SCALE))).tolist()
    dut = GeluFactor()
    got = []

    async def bench(ctx):
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        for i in range(len(operands) + 1):
            ctx.set(dut.enable, (i < len(operands)) | (i > 0) << 1)
            ctx.set(dut.x, operands[i] if i < len(operands) else 77)
            await ctx.tick()
            if i:
                assert ctx.get(dut.held) == operands[i - 1]
                got.append(ctx.get(dut.held) * ctx.get(dut.factor))
        ctx.set(dut.enable, 0)
        ctx.set(dut.x, 5)
        await ctx.tick()
        assert ctx.get(dut.held) == operands[-1]
        ctx.set(dut.clear, 1)
        await ctx.tick()
        assert (ctx.get(dut.held), ctx.get(dut.factor)) == (0, 0)

    run_bench(dut, bench, cycles=5000)
    assert got == expected
