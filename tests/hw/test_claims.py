"""Claims: queues of held ports per stream, and the conflict check between streams."""

import random
from collections import deque

import pytest

from gemmule.config import Config
from gemmule.hw.claims import Claims, StreamClaims, claim_depths
from gemmule.hw.testing import rejection, run_bench
from gemmule.resolve import STREAMS
from gemmule.timing import Timing

CONFIG = Config(spm_banks=2, acc_banks=1)  # few ports, many conflicts


def union(masks) -> int:
    value = 0
    for mask in masks:
        value |= mask
    return value


def test_all_streams_random() -> None:
    rng = random.Random(7)
    print("seed 7")
    dut = Claims(config=CONFIG)
    depths = claim_depths(CONFIG, Timing.of(CONFIG))
    outcomes = [0, 0]

    async def bench(ctx):
        held = {name: deque() for name in STREAMS}
        for cycle in range(1500):
            want = [rng.getrandbits(6) & rng.getrandbits(6) & rng.getrandbits(6) for _ in STREAMS]
            ctx.set(dut.want, want)
            free = ctx.get(dut.free)
            push = release = 0
            for s, name in enumerate(STREAMS):
                others = union(union(held[other]) for other in STREAMS if other != name)
                assert (free >> s & 1) == (want[s] & others == 0), (cycle, name)
                outcomes[free >> s & 1] += 1
            for s, name in enumerate(STREAMS):
                drop = bool(held[name]) and rng.random() < 0.4
                if drop:
                    release |= 1 << s
                if len(held[name]) - drop < depths[name] and rng.random() < 0.4:
                    push |= 1 << s
                if drop:
                    held[name].popleft()
                if push >> s & 1:
                    held[name].append(want[s])
            ctx.set(dut.push, push)
            ctx.set(dut.release, release)
            clear = rng.random() < 0.01
            ctx.set(dut.clear, clear)
            if clear:
                for queue in held.values():
                    queue.clear()
            await ctx.tick()

    run_bench(dut, bench)
    assert min(outcomes) > 500, outcomes


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
def test_stream_visible_next_cycle(depth: int) -> None:
    dut = StreamClaims(bits=8, depth=depth)

    async def bench(ctx):
        for i in range(depth):
            assert ctx.get(dut.held) == (1 << i) - 1
            ctx.set(dut.push, 1)
            ctx.set(dut.mask, 1 << i)
            await ctx.tick()
        ctx.set(dut.push, 0)
        ctx.set(dut.release, 1)
        for i in range(depth):  # oldest first
            assert ctx.get(dut.held) == (1 << depth) - (1 << i)
            await ctx.tick()
        ctx.set(dut.release, 0)
        assert ctx.get(dut.held) == 0

    run_bench(dut, bench)


def test_depth_is_checked() -> None:
    assert "not 0" in rejection(lambda: StreamClaims(bits=4, depth=0))
