"""Read arbiter: order, priority, stability and routing against a queue of accepted requests."""

from __future__ import annotations

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.device.read_arbiter import ReadArbiter

from ..bench import run_bench

TINY = load_config("tiny")


class Requester:
    """Offers random requests, holds each until accepted."""

    def __init__(self, port, rng: random.Random, share: float) -> None:
        self.port, self.rng, self.share = port, rng, share
        self.offer: tuple[int, int] | None = None
        self.accepted = 0

    def drive(self, ctx, allowed: bool) -> None:
        if self.offer is None and allowed and self.rng.random() < self.share:
            self.offer = self.rng.randrange(1 << 20) * 4, self.rng.randrange(2)
        ctx.set(self.port.req_valid, self.offer is not None)
        if self.offer:
            ctx.set(self.port.req_addr, self.offer[0])
            ctx.set(self.port.req_len, self.offer[1])


@pytest.mark.parametrize("ready_share", [0.3, 0.7, 1.0])
def test_random(ready_share: float) -> None:
    config, rng = TINY, random.Random(7)
    dut = ReadArbiter(config=config)
    capacity = {"fetch": config.fetch_queue, "load": config.read_bursts}

    async def bench(ctx) -> None:
        requesters = {name: Requester(getattr(dut, name), rng, 0.5) for name in capacity}
        pending: list[tuple[str, int, int]] = []  # owner, beats left, cycle of acceptance
        stalled = None
        contested = overtaken = 0
        for cycle in range(1500):
            for name, requester in requesters.items():
                requester.drive(ctx, sum(p[0] == name for p in pending) < capacity[name])
            ready = rng.random() < ready_share
            ctx.set(dut.axi.arready, ready)
            beat = bool(pending) and pending[0][2] < cycle and rng.random() < 0.9
            word, resp = rng.randrange(1 << 32), rng.randrange(4)
            ctx.set(dut.axi.rvalid, beat)
            ctx.set(dut.axi.rdata, word)
            ctx.set(dut.axi.rresp, resp)
            ctx.set(dut.axi.rlast, beat and pending[0][1] == 1)

            # AR: combinational, fetch first unless a load request already stands.
            fetch, load = (requesters[name].offer for name in ("fetch", "load"))
            expected = stalled or ("fetch" if fetch else "load" if load else None)
            contested += bool(fetch and load)
            overtaken += bool(fetch and load and expected == "load")
            assert ctx.get(dut.axi.arvalid) == (expected is not None)
            for name, requester in requesters.items():
                if requester.offer:
                    assert ctx.get(requester.port.req_ready) == (ready and name == expected)
            if expected:
                offer = requesters[expected].offer
                assert (ctx.get(dut.axi.araddr), ctx.get(dut.axi.arlen)) == offer

            # R: the beat stands at its owner in the same cycle.
            assert ctx.get(dut.axi.rready)
            for name, requester in requesters.items():
                port = requester.port
                assert ctx.get(port.beat_valid) == (beat and pending[0][0] == name)
                if beat:
                    seen = ctx.get(port.beat_data), ctx.get(port.beat_resp), ctx.get(port.beat_last)
                    assert seen == (word, resp, pending[0][1] == 1)

            await ctx.tick()
            stalled = None
            if beat:
                owner, left, at = pending.pop(0)
                if left > 1:
                    pending.insert(0, (owner, left - 1, at))
            if expected and not ready:
                stalled = expected
            elif expected:
                pending.append((expected, requesters[expected].offer[1] + 1, cycle))
                requesters[expected].offer = None
        assert contested > 50
        assert overtaken > 5 or ready_share == 1.0

    run_bench(dut, bench)


def test_all_outstanding() -> None:
    """Every burst that both requesters may have in flight fits the tags, in order."""
    config = Config(dim=4, bus_bytes=4, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4, read_bursts=5)
    dut = ReadArbiter(config=config)
    rng = random.Random(8)
    owners = ["fetch"] * config.fetch_queue + ["load"] * config.read_bursts
    rng.shuffle(owners)

    async def bench(ctx) -> None:
        ctx.set(dut.axi.arready, 1)
        for owner in owners:
            ctx.set(dut.fetch.req_valid, owner == "fetch")
            ctx.set(dut.load.req_valid, owner == "load")
            await ctx.tick()
        ctx.set(dut.fetch.req_valid, 0)
        ctx.set(dut.load.req_valid, 0)
        ctx.set(dut.axi.rvalid, 1)
        ctx.set(dut.axi.rlast, 1)
        for owner in owners:
            assert ctx.get(getattr(dut, owner).beat_valid)
            assert ctx.get(dut.fetch.beat_valid) + ctx.get(dut.load.beat_valid) == 1
            await ctx.tick()

    run_bench(dut, bench)
