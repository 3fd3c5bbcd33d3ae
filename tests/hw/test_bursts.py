"""Burst splitter and row walker against plain enumerations of the same command."""

from __future__ import annotations

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.bursts import BurstSplitter, RowWalker
from gemmule.hw.testing import run_bench

CONFIGS = {
    "tiny": load_config("tiny"),
    "narrow": Config(dim=8, bus_bytes=2, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32),
    "base": load_config("base"),
}


def random_command(rng: random.Random, config: Config) -> dict[str, int]:
    bus = config.bus_bytes
    return {
        "zero": 0, "address": rng.randrange(1 << 12) * bus, "rows": rng.randrange(1, 4),
        "bytes": rng.randrange(1, 2 * config.burst_bytes + 5), "stride": rng.randrange(200) * bus,
        "row": rng.randrange(100), "row_stride": rng.randrange(9), "block_stride": rng.randrange(20),
    }


def bursts_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, bool, bool]]:
    """(address, beats, ends the row, ends the command), found byte by byte."""
    out = []
    for r in range(c["rows"]):
        first = c["address"] + r * c["stride"]
        cuts = [first]
        cuts += [a for a in range(first + 1, first + c["bytes"]) if a % config.burst_bytes == 0]
        for low, high in zip(cuts, [*cuts[1:], first + c["bytes"]]):
            beats = len({a // config.bus_bytes for a in range(low, high)})
            end = high == first + c["bytes"]
            out.append((low, beats, end, end and r == c["rows"] - 1))
    return out


def beats_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, int]]:
    """(scratchpad row, chunk, mask) per beat, found byte by byte."""
    beats: dict[tuple[int, int], list[int]] = {}
    for r in range(c["rows"]):
        for k in range(c["bytes"]):
            row = c["row"] + r * c["row_stride"] + k // config.dim * c["block_stride"]
            lane = k % config.dim
            beat = beats.setdefault((r, k // config.bus_bytes), [row, lane // config.bus_bytes, 0])
            beat[2] |= 1 << lane % config.bus_bytes
    return [tuple(beats[key]) for key in sorted(beats)]


@pytest.mark.parametrize("name", CONFIGS)
def test_splitter(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(1)
    dut = BurstSplitter(config=config)

    async def bench(ctx) -> None:
        for _ in range(12):
            command = random_command(rng, config)
            ctx.set(dut.command, command)
            ctx.set(dut.start, 1)
            assert not ctx.get(dut.active)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for burst in bursts_of(config, command):
                while rng.random() < 0.3:
                    await ctx.tick()
                seen = tuple(ctx.get(x) for x in (dut.address, dut.beats, dut.row_end, dut.last))
                assert ctx.get(dut.active)
                assert seen == burst
                ctx.set(dut.next, 1)
                await ctx.tick()
                ctx.set(dut.next, 0)
            assert not ctx.get(dut.active)

    run_bench(dut, bench)


@pytest.mark.parametrize("name", CONFIGS)
def test_walker(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(2)
    dut = RowWalker(config=config)

    async def bench(ctx) -> None:
        commands = [random_command(rng, config) for _ in range(8)]
        ctx.set(dut.command, commands[0])
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for i, command in enumerate(commands):
            expected = beats_of(config, command)
            for j, beat in enumerate(expected):
                while rng.random() < 0.2:
                    await ctx.tick()
                assert ctx.get(dut.active)
                assert tuple(ctx.get(x) for x in (dut.row, dut.chunk, dut.mask)) == beat
                last = j == len(expected) - 1
                assert ctx.get(dut.last) == last
                ctx.set(dut.next, 1)
                if last and i + 1 < len(commands):  # the next command follows without a gap
                    ctx.set(dut.command, commands[i + 1])
                    ctx.set(dut.start, 1)
                await ctx.tick()
                ctx.set(dut.next, 0)
                ctx.set(dut.start, 0)
        assert not ctx.get(dut.active)

    run_bench(dut, bench)
