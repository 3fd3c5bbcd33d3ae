"""Register of read requests: order, stability, full rate, and what a start drops."""

from __future__ import annotations

import random

import pytest

from gemmule.config import load_config
from gemmule.hw.device.request_register import RequestRegister

from ..bench import run_bench

TINY = load_config("tiny")


@pytest.mark.parametrize(("offers", "ready"), [(1.0, 1.0), (0.6, 0.4), (1.0, 0.5), (0.3, 1.0)])
def test_random(offers: float, ready: float) -> None:
    """Whoever offers may change what is not accepted; what the bus sees stands until it is accepted or cleared."""
    rng, dut = random.Random(3), RequestRegister(config=TINY)
    print("seed", 3)

    async def bench(ctx) -> None:
        held: tuple[int, int] | None = None
        passed = cleared = 0
        for _ in range(800):
            offer = (rng.randrange(1 << 20), rng.randrange(4)) if rng.random() < offers else None
            taken, clear = rng.random() < ready, rng.random() < 0.03
            ctx.set(dut.offered.req_valid, offer is not None)
            ctx.set(dut.offered.req_addr, offer[0] if offer else rng.getrandbits(20))
            ctx.set(dut.offered.req_len, offer[1] if offer else rng.getrandbits(2))
            ctx.set(dut.read.req_ready, taken)
            ctx.set(dut.clear, clear)
            assert ctx.get(dut.read.req_valid) == (held is not None)
            if held:
                assert (ctx.get(dut.read.req_addr), ctx.get(dut.read.req_len)) == held
            room = held is None or taken
            assert ctx.get(dut.offered.req_ready) == room
            passed += held is not None and taken
            if room:
                held = offer
            if clear:
                cleared += held is not None
                held = None
            beat = rng.getrandbits(32), rng.randrange(2), rng.randrange(4), rng.randrange(2)
            for name, value in zip(("beat_data", "beat_last", "beat_resp", "beat_valid"), beat):
                ctx.set(getattr(dut.read, name), value)
                assert ctx.get(getattr(dut.offered, name)) == value
            await ctx.tick()
        assert passed > 100
        assert cleared
        assert offers < 1 or ready < 1 or passed > 740, "one request a cycle"

    run_bench(dut, bench)
