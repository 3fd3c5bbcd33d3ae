"""Row walker against a plain enumeration of the same command."""

from __future__ import annotations

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.move.row_walker import RowWalker
from gemmule.isa import MoveFlag

from ..bench import run_bench

CONFIGS = {
    "tiny": load_config("tiny"),
    "2_2": Config(dim=2, bus_bytes=2, burst_bytes=32, spm_kib=1, acc_kib=1, acc_banks=1, preload=1),
    "narrow": Config(dim=8, bus_bytes=2, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32),
    "base": load_config("base"),
}
ACC, NARROW, BROADCAST = 1 << MoveFlag.ACCUMULATOR, 1 << MoveFlag.NARROW, 1 << MoveFlag.BROADCAST


def random_command(rng: random.Random, config: Config) -> dict[str, int]:
    return {
        "zero": 0, "flags": rng.choice((0, ACC, ACC | NARROW)) | rng.choice((0, BROADCAST)),
        "rows": rng.randrange(1, 4), "bytes": rng.randrange(1, rng.choice((5, 2 * config.burst_bytes + 5))),
        "row": rng.randrange(100), "row_stride": rng.randrange(9), "block_stride": rng.randrange(20),
    }


def steps_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, int, bool]]:
    """(memory row, chunk, mask, fresh) per step, found byte by byte."""
    bus = config.bus_bytes
    width = 4 * config.dim if c["flags"] & ACC and not c["flags"] & NARROW else config.dim
    chunks = -(-c["bytes"] // bus)
    if c["flags"] & BROADCAST:
        order = [(r, j) for j in range(chunks) for r in range(c["rows"])]
    else:
        order = [(r, j) for r in range(c["rows"]) for j in range(chunks)]
    out = []
    before = None
    for r, j in order:
        places = set()
        mask = 0
        for k in range(j * bus, min(j * bus + bus, c["bytes"])):
            places.add((c["row"] + r * c["row_stride"] + k // width * c["block_stride"], k % width // bus))
            mask |= 1 << k % bus
        (place,) = places
        out.append((*place, mask, not c["flags"] & BROADCAST or j != before))
        before = j
    return out


@pytest.mark.parametrize("name", CONFIGS)
def test_random(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(2)
    dut = RowWalker(config=config)

    async def bench(ctx) -> None:
        commands = [random_command(rng, config) for _ in range(30)]
        ctx.set(dut.command, commands[0])
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for i, command in enumerate(commands):
            expected = steps_of(config, command)
            for j, step in enumerate(expected):
                while rng.random() < 0.2:
                    await ctx.tick()
                assert ctx.get(dut.active)
                assert ctx.get(dut.flags) == command["flags"]
                assert tuple(ctx.get(x) for x in (dut.row, dut.chunk, dut.mask, dut.fresh)) == step
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

    run_bench(dut, bench, cycles=40000)
