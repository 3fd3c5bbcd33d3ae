"""Fetch against a per-cycle statement of docs/timing.md, with random AR stalls and beat gaps."""

import dataclasses
import random
from collections import deque

import pytest

from gemmule.config import Config
from gemmule.hw.command.fetch import Fetch
from gemmule.timing import Timing

from ..bench import WatchdogError, run_bench

SMALL = {"spm_kib": 64, "spm_banks": 2, "acc_kib": 64, "acc_banks": 2}


def run(config: Config, *, seed: int, commands: int, program: int, stall: float, latency: int,
        fetch_start: int = 1) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    timing = dataclasses.replace(Timing.of(config), fetch_start=fetch_start)
    dut = Fetch(config=config, timing=timing)
    image = {program + i: rng.randrange(256) for i in range(-64, 32 * commands + 64)}
    words = [int.from_bytes(bytes(image[program + 32 * k + i] for i in range(32)), "little")
             for k in range(commands)]
    bus = config.bus_bytes

    async def bench(ctx):
        for _ in range(2):  # the second launch must find everything clean
            ctx.set(dut.program, program)
            ctx.set(dut.commands, commands)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            t, requested, taken = 1, 0, 0
            enter: list[int] = []  # cycle from which a command is visible
            beats: deque[tuple[int, int, int, list[int]]] = deque()  # earliest, data, last, commands
            while taken < commands or beats or t < 8:
                # The contract: what is requested now, and what is visible now.
                at = program + 32 * requested
                boundary = (at // config.burst_bytes + 1) * config.burst_bytes
                n = min((boundary - at) // 32, commands - requested)
                want = t >= fetch_start and n > 0 and config.fetch_queue - (requested - taken) >= n
                assert ctx.get(dut.read.req_valid) == want, (t, n, requested, taken)
                visible = taken < len(enter) and enter[taken] <= t
                assert ctx.get(dut.valid) == visible, t
                if visible:
                    assert ctx.get(dut.command) == words[taken], t
                ready = rng.random() >= stall
                take = visible and rng.random() >= stall
                ctx.set(dut.read.req_ready, ready)
                ctx.set(dut.take, take)
                if want and ready:
                    first, last = at // bus, (at + 32 * n - 1) // bus
                    assert ctx.get(dut.read.req_addr) // bus == first
                    assert ctx.get(dut.read.req_len) == last - first
                    for beat in range(first, last + 1):
                        value = sum(image[beat * bus + i] << (8 * i) for i in range(bus))
                        done = [k for k in range(requested, requested + n)
                                if (program + 32 * k + 31) // bus == beat]
                        beats.append((t + latency, value, beat == last, done))
                    requested += n
                beat_valid = bool(beats) and beats[0][0] <= t and rng.random() >= stall
                ctx.set(dut.read.beat_valid, beat_valid)
                if beat_valid:
                    _, value, last, done = beats.popleft()
                    ctx.set(dut.read.beat_data, value)
                    ctx.set(dut.read.beat_last, last)
                    enter += [t + 1] * len(done)
                taken += take
                await ctx.tick()
                ctx.set(dut.take, 0)
                ctx.set(dut.read.beat_valid, 0)
                t += 1
                assert ctx.get(dut.idle) == (not beats)
            assert requested == commands

    run_bench(dut, bench, cycles=200 * commands + 2000)


@pytest.mark.parametrize(("bus", "burst", "program"), [
    (4, 64, 0x1020), (2, 32, 0x20), (16, 256, 0x10E0), (32, 512, 0x40), (64, 256, 0x1060), (64, 128, 0x1000),
])
def test_random_stalls(bus: int, burst: int, program: int) -> None:
    config = Config(dim=64, bus_bytes=bus, burst_bytes=burst, **SMALL)
    run(config, seed=bus + burst, commands=75, program=program, stall=0.3, latency=9)


def test_full_rate_and_late_start() -> None:
    config = Config(dim=64, bus_bytes=32, burst_bytes=256, **SMALL)
    run(config, seed=1, commands=61, program=0x20, stall=0, latency=4, fetch_start=3)


def test_error_response_is_reported() -> None:
    config = Config(dim=64, bus_bytes=32, **SMALL)
    dut = Fetch(config=config)

    async def bench(ctx):
        ctx.set(dut.commands, 1)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.read.req_ready, 1)
        await ctx.tick()
        for response, error in ((0, 0), (1, 0), (2, 1), (3, 1)):  # OKAY, EXOKAY, SLVERR, DECERR
            ctx.set(dut.read.beat_resp, response)
            ctx.set(dut.read.beat_valid, 0)
            assert not ctx.get(dut.error)
            ctx.set(dut.read.beat_valid, 1)
            assert ctx.get(dut.error) == error

    run_bench(dut, bench)


def test_watchdog_ends_a_bench_that_waits_for_ever() -> None:
    async def bench(ctx):
        while True:
            await ctx.tick()

    with pytest.raises(WatchdogError):
        run_bench(Fetch(config=Config()), bench, cycles=20)
