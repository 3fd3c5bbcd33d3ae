"""Watchdog: the exact cycle of expiry, on every channel, against a plain count."""

import random

import pytest

from gemmule.config import Config
from gemmule.hw.device.watchdog import Watchdog

from ..bench import run_bench

CONFIG = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=4, read_bursts=2, write_bursts=2)
CHANNELS = ("ar", "r", "aw", "w", "b")
# How far traffic comes before it stops, and what then stands offered.
HUNG = {
    "ar": ((), ("ar_valid",)),
    "r": (("ar",), ()),
    "r, second beat": (("ar", "r"), ()),
    "aw": ((), ("aw_valid",)),
    "aw after w": (("w",), ("aw_valid",)),
    "w": (("aw",), ("w_valid",)),
    "b": (("aw", "w"), ()),
}


def drive(ctx, dut: Watchdog, transfers: tuple[str, ...] = (), offered: tuple[str, ...] = (),
          last: bool = False) -> None:
    for channel in CHANNELS:
        ctx.set(getattr(dut, f"{channel}_valid"), channel in transfers or f"{channel}_valid" in offered)
        ctx.set(getattr(dut, f"{channel}_ready"), channel in transfers or channel in ("r", "b"))
    ctx.set(dut.r_last, last)


@pytest.mark.parametrize("limit", [1, 5])
@pytest.mark.parametrize("channel", HUNG)
def test_expires_in_the_last_of_the_silent_cycles(channel: str, limit: int) -> None:
    before, offered = HUNG[channel]
    dut = Watchdog(config=CONFIG)

    async def bench(ctx):
        ctx.set(dut.enable, 1)
        ctx.set(dut.limit, limit)
        drive(ctx, dut)
        for _ in range(3 * limit):  # nothing is due
            assert not ctx.get(dut.expired)
            await ctx.tick()
        for transfer in before:
            drive(ctx, dut, (transfer,))
            assert not ctx.get(dut.expired)
            await ctx.tick()
        drive(ctx, dut, (), offered)
        for silent in range(1, limit + 4):
            assert ctx.get(dut.expired) == (silent >= limit), silent
            await ctx.tick()
        drive(ctx, dut, ("r",), offered)  # any transfer starts the count anew
        assert not ctx.get(dut.expired)
        ctx.set(dut.limit, 0)  # off
        for _ in range(2 * limit):
            await ctx.tick()
            drive(ctx, dut, (), offered)
            assert not ctx.get(dut.expired)
        ctx.set(dut.limit, limit)
        ctx.set(dut.enable, 0)  # between launches
        assert not ctx.get(dut.expired)

    run_bench(dut, bench)


def test_random_traffic() -> None:
    rng = random.Random(9)
    print("seed 9")
    dut = Watchdog(config=CONFIG)
    expiries = quiet = 0

    async def bench(ctx):
        nonlocal expiries, quiet
        reads = writes = silent = 0
        enabled, limit = True, 4
        for _ in range(4000):
            if rng.random() < 0.01:
                enabled = not enabled
            transfers = set()
            for channel, may in (("ar", reads < 2), ("r", reads > 0), ("aw", writes < 2), ("w", writes > 0),
                                 ("b", writes > 0)):
                if may and rng.random() < 0.08:
                    transfers.add(channel)
            offered = {f"{c}_valid" for c in ("ar", "aw", "w") if rng.random() < 0.03}
            last = rng.random() < 0.7
            ctx.set(dut.enable, enabled)
            ctx.set(dut.limit, limit)
            drive(ctx, dut, tuple(transfers), tuple(offered), last)
            due = bool(reads or writes or offered or transfers & {"ar", "aw", "w"})
            silent = silent + 1 if enabled and due and not transfers else 0
            assert ctx.get(dut.expired) == (silent >= limit)
            expiries += silent == limit
            quiet += not due
            reads += ("ar" in transfers) - ("r" in transfers and last)
            writes += ("aw" in transfers) - ("b" in transfers)
            await ctx.tick()

    run_bench(dut, bench)
    assert min(expiries, quiet) > 50, (expiries, quiet)
