"""Burst splitter against a plain enumeration of the same command."""

from __future__ import annotations

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.move.bursts import BurstSplitter
from gemmule.isa import MoveFlag

from ...thinned import some
from ..bench import run_bench
from .rows import join, spans

CONFIGS = {
    "tiny": load_config("tiny"),
    "narrow": Config(dim=8, bus_bytes=2, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32),
    "base": load_config("base"),
}
MOST = 2**20 - 1
INDEXED, BROADCAST = 1 << MoveFlag.INDEXED, 1 << MoveFlag.BROADCAST
INDICES = 1 << 18
LIST = [random.Random(9).randrange(INDICES) for _ in range(64)]


def random_command(rng: random.Random, config: Config) -> dict[str, int]:
    unit = rng.choice((1, config.bus_bytes))
    command = {
        "zero": 0, "address": rng.randrange(1 << 12) * unit, "rows": rng.randrange(1, 4),
        "bytes": rng.randrange(1, 2 * config.burst_bytes + 5), "stride": rng.randrange(200) * unit,
        "flags": rng.choice((0, 0, INDEXED, INDEXED, BROADCAST)), "list": rng.randrange(60),
        "last_index": rng.choice((3, 1 << 15, 65535, 1 << 17, INDICES - 1)),
    }
    return join(config, command, 1) if rng.random() < 0.4 else command


def number_of(c: dict[str, int], r: int) -> int:
    """Number of DRAM row r of a command."""
    return min(LIST[c["list"] + r], c["last_index"]) if c["flags"] & INDEXED else r


def bursts_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, int, int, bool, bool, bool]]:
    """(address, beats, first byte, last byte, begins the row, ends it, ends the command), found byte by byte."""
    out = []
    bus = config.bus_bytes
    pieces = spans(c, [number_of(c, r) for r in range(1 if c["flags"] & BROADCAST else c["rows"])])
    for i, (first, size) in enumerate(pieces, 1):
        end = first + size
        cuts = [first]
        cuts += [a for a in range(first + 1, end) if a % config.burst_bytes == 0]
        for low, high in zip(cuts, [*cuts[1:], end]):
            beats = len({a // bus for a in range(low, high)})
            out.append((low // bus * bus, beats, first % bus, (end - 1) % bus, low == first, high == end,
                        high == end and i == len(pieces)))
    return out


def seen(ctx, dut: BurstSplitter) -> tuple[int, ...]:
    return tuple(ctx.get(x) for x in (
        dut.address, dut.beats, dut.first_byte, dut.last_byte, dut.row_start, dut.row_end, dut.last))


@pytest.mark.parametrize("name", CONFIGS)
def test_random(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(1)
    dut = BurstSplitter(config=config)
    reads: list[int] = []

    async def tick(ctx) -> None:
        """One cycle; the list's answer stands for one cycle."""
        _, _, en, entry, used = await ctx.tick().sample(dut.list.en, dut.list.entry, dut.active | dut.start)
        ctx.set(dut.list.data, LIST[entry] if en else 0xA5A5)
        reads.extend([entry] if en and used else [])

    async def bench(ctx) -> None:
        for _ in range(60):
            command = random_command(rng, config)
            indexed = bool(command["flags"] & INDEXED)
            reads.clear()
            ctx.set(dut.command, command)
            ctx.set(dut.start, 1)
            assert not ctx.get(dut.active)
            await tick(ctx)
            ctx.set(dut.start, 0)
            for i, burst in enumerate(bursts_of(config, command)):
                gap = (4 if i == 0 else 3 if burst[4] else 0) if indexed else 0
                for _ in range(gap):
                    assert (ctx.get(dut.active), ctx.get(dut.valid)) == (1, 0)
                    await tick(ctx)
                while rng.random() < 0.3:
                    await tick(ctx)
                assert (ctx.get(dut.active), ctx.get(dut.valid)) == (1, 1)
                assert seen(ctx, dut) == burst
                ctx.set(dut.next, 1)
                await tick(ctx)
                ctx.set(dut.next, 0)
            assert (ctx.get(dut.active), ctx.get(dut.valid)) == (0, 0)
            assert reads == [command["list"] + r for r in range(command["rows"] if indexed else 0)]

    run_bench(dut, bench)


@pytest.mark.parametrize(("name", "fields", "total"), some([
    ("one_beat", {"rows": 1, "bytes": MOST}, MOST),
    ("base", {"joined": 1, "rows": 3, "bytes": MOST, "stride": 3 << 20}, 3 << 20),
    ("one_beat", {"joined": 1, "rows": 3, "bytes": MOST, "stride": 3 << 20}, 3 << 20),
    ("base", {"rows": 1, "bytes": MOST}, MOST)], 2))
def test_longest_row(name: str, fields: dict[str, int], total: int) -> None:
    """2^20 - 1 bytes, and 3 * 2^20 of joined rows, from the last byte of a burst on: all beats are counted."""
    config = CONFIGS[name]
    dut = BurstSplitter(config=config)

    async def bench(ctx) -> None:
        ctx.set(dut.command, {"address": config.burst_bytes - 1} | fields)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.next, 1)
        beats = 0
        while ctx.get(dut.active):
            beats += ctx.get(dut.beats)
            await ctx.tick()
        bus = config.bus_bytes
        assert beats == (config.burst_bytes + total - 2) // bus - (config.burst_bytes - 1) // bus + 1

    run_bench(dut, bench, cycles=110000)


def test_all_of_the_address_space() -> None:
    """4 GiB but a burst of joined rows from address 0 on: the first steps, and how much is left after them."""
    config = CONFIGS["base"]
    dut = BurstSplitter(config=config)

    async def bench(ctx) -> None:
        ctx.set(dut.command, {"joined": 1, "rows": 8191, "bytes": 1 << 19, "stride": (1 << 32) - (1 << 19)})
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.next, 1)
        for i in range(100):
            assert (ctx.get(dut.address), ctx.get(dut.beats), ctx.get(dut.row_end)) == (512 * i, 32, 0)
            await ctx.tick()

    run_bench(dut, bench)
