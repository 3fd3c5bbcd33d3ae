"""Rows into a mesh edge, plain and transposed, block after block."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.hw.matrix.edge import Edge

from ..bench import rejection, run_bench


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_blocks_of_both_kinds(lanes):
    """Element (k, i) of a plain row k, and (i, k) of a transposed one, leaves lane i in k + 1 + i."""
    print("seed", seed := lanes)
    rng = np.random.default_rng(seed)
    kinds = rng.permutation([0, 0, 0, 1, 1, 1, 2, 2, 2])  # plain, serial, idle
    blocks = rng.integers(0, 1 << 12, (len(kinds), lanes, lanes))
    expected = {}
    for j, (kind, block) in enumerate(zip(kinds, blocks, strict=True)):
        seen = block if kind == 0 else block.T & 255
        if kind != 2:
            expected |= {(j * lanes + k + 1 + i, i): int(seen[k, i]) for k in range(lanes) for i in range(lanes)}
    expected = {key: value for key, value in expected.items() if key[0] < len(kinds) * lanes}
    edge = Edge(lanes=lanes, width=12, serial=8)

    async def bench(ctx):
        for t in range(len(kinds) * lanes):
            j, k = divmod(t, lanes)
            ctx.set(edge.row, blocks[j, k].tolist())
            ctx.set(edge.transpose, int(kinds[j] == 1))
            ctx.set(edge.load, int(kinds[j] != 2))
            ctx.set(edge.index, k)
            for i in range(lanes):
                if (t, i) in expected:
                    assert ctx.get(edge.o[i]) == expected.pop((t, i)), (t, i)
            await ctx.tick()

    run_bench(edge, bench)
    assert not expected


def test_rejects_more_serial_bits_than_lanes_have():
    assert "not 9" in rejection(lambda: Edge(lanes=4, width=8, serial=9))
