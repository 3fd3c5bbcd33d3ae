"""The mesh alone: skewed edges by hand, both preload directions, tiles without gaps."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.config import load_config
from gemmule.hw.matrix.mesh import Mesh
from gemmule.hw.matrix.skew import Skew, Stairs

from ..bench import run_bench


def small(dim, preload):
    return load_config({"dim": dim, "bus_bytes": 2, "spm_kib": 1, "acc_kib": 1, "spm_banks": 2,
                        "acc_banks": 1, "preload": preload, "burst_bytes": 32})


@pytest.mark.parametrize("reverse", [False, True])
def test_skew(reverse):
    skew = Skew(lanes=4, shape=5, reverse=reverse)
    rng = np.random.default_rng(3)
    items = rng.integers(0, 32, (40, 4))

    async def bench(ctx):
        for t, item in enumerate(items):
            ctx.set(skew.i, item.tolist())
            for lane in range(4):
                past = t - (3 - lane if reverse else lane)
                assert ctx.get(skew.o[lane]) == (items[past, lane] if past >= 0 else 0)
            await ctx.tick()

    run_bench(skew, bench)


def test_stairs():
    delays = [0, 2, 3, 5]
    stairs = Stairs(delays=delays)
    bits = np.random.default_rng(4).integers(0, 2, 60)

    async def bench(ctx):
        for t, bit in enumerate(bits):
            ctx.set(stairs.i, int(bit))
            seen = ctx.get(stairs.o)
            assert [seen >> i & 1 for i in range(4)] == [bits[t - d] if t >= d else 0 for d in delays]
            await ctx.tick()

    run_bench(stairs, bench)


@pytest.mark.parametrize(("dim", "preload"), [(2, 1), (4, 1), (4, 2), (4, 4)])
def test_tiles_without_gaps(dim, preload):
    """Tile j+1 is injected from tile j's first stream cycle on; rows stream in every cycle."""
    print("seed", seed := 100 * dim + preload)
    rng = np.random.default_rng(seed)
    tiles, slot, items = 8, dim // preload + 1, dim // preload
    weights = rng.integers(-128, 128, (tiles, dim, dim))  # [tile, k, n]
    rows = rng.integers(-128, 256, (tiles, slot, dim))  # [tile, m, k]
    directions = rng.permutation([0, 1] * (tiles // 2))
    edge = {}  # (port, lane, cycle) -> value

    first = items  # stream of tile 0
    for j in range(tiles):
        start = first + j * slot
        inject = start - items if j == 0 else start - slot
        matrix = weights[j].T if directions[j] else weights[j]
        for i in range(items):
            for lane in range(dim):
                group = [int(v) & 255 for v in matrix[i * preload:(i + 1) * preload, lane]]
                edge["weights", lane, inject + i + lane] = int.from_bytes(bytes(group), "little")
        port = "capture_column" if directions[j] else "capture_row"
        for lane in range(dim):
            edge[port, lane, inject + lane // preload + lane] = 1
            edge["swap", lane, start + lane - 1] = 1
            for r in range(slot):
                edge["a", lane, start + r + lane] = int(rows[j, r, lane])

    expected = {}  # (cycle, column) -> sum
    for j in range(tiles):
        product = rows[j] @ weights[j]
        for r in range(slot):
            for c in range(dim):
                expected[first + j * slot + r + dim + c, c] = product[r, c]

    mesh = Mesh(config=small(dim, preload))

    async def bench(ctx):
        for t in range(first + tiles * slot + 2 * dim):
            for port in ("swap", "end", "capture_row", "capture_column"):
                ctx.set(getattr(mesh, port), sum(edge.get((port, i, t), 0) << i for i in range(dim)))
            for port, low, high in (("a", -128, 256), ("weights", 0, 1 << 8 * preload)):
                for i in range(dim):  # idle lanes carry garbage
                    ctx.set(getattr(mesh, port)[i], edge.get((port, i, t), int(rng.integers(low, high))))
            for c in range(dim):
                if (t, c) in expected:
                    assert ctx.get(mesh.sums[c]) == expected.pop((t, c)), (t, c)
            await ctx.tick()

    run_bench(mesh, bench)
    assert not expected


@pytest.mark.parametrize("dim", [2, 4, 8])
def test_blocks_without_gaps(dim):
    """Output-stationary: blocks of one or more tiles follow each other; sums leave while the next ones grow."""
    print("seed", seed := 7 * dim)
    rng = np.random.default_rng(seed)
    depths = [1, 2, 1, 3, 1]
    edge, expected = {}, {}
    at = 1
    for lane in range(dim):  # whatever the sums were before
        edge["end", lane, at - 1 + lane] = 1
    for depth in depths:
        a = rng.integers(-128, 256, (dim, depth * dim))  # [m, k]
        b = rng.integers(-128, 128, (depth * dim, dim))  # [k, n]
        for k in range(depth * dim):
            for lane in range(dim):
                edge["a", lane, at + k + lane] = int(a[lane, k])
                edge["weights", lane, at + k + lane] = int(b[k, lane]) & 255
        at += depth * dim
        for lane in range(dim):
            edge["end", lane, at - 1 + lane] = 1
        c = a @ b
        expected |= {(at + dim + r + n, n): int(c[r, n]) for r in range(dim) for n in range(dim)}

    mesh = Mesh(config=small(dim, 2))

    async def bench(ctx):
        ctx.set(mesh.outputs, 1)
        for t in range(at + 3 * dim):
            ctx.set(mesh.end, sum(edge.get(("end", i, t), 0) << i for i in range(dim)))
            for i in range(dim):
                ctx.set(mesh.a[i], edge.get(("a", i, t), int(rng.integers(-128, 256))))
                ctx.set(mesh.weights[i], edge.get(("weights", i, t), 0) | int(rng.integers(0, 256)) << 8)
            for c in range(dim):
                if (t, c) in expected:
                    assert ctx.get(mesh.sums[c]) == expected.pop((t, c)), (t, c)
            await ctx.tick()

    run_bench(mesh, bench)
    assert not expected
