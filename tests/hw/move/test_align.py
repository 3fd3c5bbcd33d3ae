"""Aligner: chunks of random rows in random beats against the bytes of the rows."""

from __future__ import annotations

import random

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.move.align import Aligner

from ..bench import run_bench

CONFIGS = {
    "tiny": load_config("tiny"),
    "2_2": Config(dim=2, bus_bytes=2, burst_bytes=32, spm_kib=1, acc_kib=1, acc_banks=1, preload=1),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32),
    "base": load_config("base"),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("gaps", [0.0, 0.4])
def test_rows_taken_at_once(name: str, gaps: float) -> None:
    """Every chunk comes in the cycle of the beat that brings its last byte, or in the next one, without gaps."""
    config, rng = CONFIGS[name], random.Random(7)
    bus = config.bus_bytes
    dut = Aligner(config=config)
    beats: list[tuple[bytes, int, bool, bool, list[bytes]]] = []
    for _ in range(120):
        first, count = rng.randrange(bus), rng.choice((rng.randrange(1, 2 * bus + 1), rng.randrange(1, 6 * bus)))
        row = rng.randbytes(count)
        end = first + count
        padded = rng.randbytes(first) + row + rng.randbytes(-end % bus)
        for at in range(0, len(padded), bus):
            complete = [row[k:k + bus] for k in range(0, count, bus)
                        if at <= first + min(k + bus, count) - 1 < at + bus]
            beats.append((padded[at:at + bus], first, at + bus == len(padded), (end - 1) % bus >= first, complete))

    async def bench(ctx) -> None:
        due: list[bytes] = []
        i = most = 0
        while i < len(beats) or due:
            valid = i < len(beats) and rng.random() >= gaps
            ctx.set(dut.beat_valid, valid)
            ctx.set(dut.beat_data, rng.getrandbits(8 * bus))
            if valid:
                data, first, row_end, tail, complete = beats[i]
                ctx.set(dut.beat_data, int.from_bytes(data, "little"))
                ctx.set(dut.first_byte, first)
                ctx.set(dut.row_end, row_end)
                ctx.set(dut.tail, tail)
                due += complete
                i += 1
            assert ctx.get(dut.valid) == bool(due)
            ctx.set(dut.take, bool(due))
            if due:
                chunk = due.pop(0)
                assert ctx.get(dut.data).to_bytes(bus, "little")[:len(chunk)] == chunk
            most = max(most, len(due))
            await ctx.tick()
        assert most == 1

    run_bench(dut, bench)


@pytest.mark.parametrize("name", CONFIGS)
def test_burst_waits(name: str) -> None:
    """A burst of an aligned row stands here whole, and may be taken at any pace."""
    config, rng = CONFIGS[name], random.Random(8)
    bus = config.bus_bytes
    dut = Aligner(config=config)

    async def bench(ctx) -> None:
        for pace in (0.0, 0.5, 1.0):
            beats = [rng.randbytes(bus) for _ in range(config.burst_beats)]
            due: list[bytes] = []
            sent = 0
            while sent < len(beats) or due:
                valid = sent < len(beats) and rng.random() < 0.8
                ctx.set(dut.beat_valid, valid)
                if valid:
                    ctx.set(dut.beat_data, int.from_bytes(beats[sent], "little"))
                    due.append(beats[sent])
                    sent += 1
                    ctx.set(dut.row_end, sent == len(beats))
                    ctx.set(dut.tail, 1)
                assert ctx.get(dut.valid) == bool(due)
                take = bool(due) and (rng.random() < pace or sent == len(beats))
                ctx.set(dut.take, take)
                if take:
                    assert ctx.get(dut.data) == int.from_bytes(due.pop(0), "little")
                await ctx.tick()
            ctx.set(dut.beat_valid, 0)
            ctx.set(dut.take, 0)
            assert not ctx.get(dut.valid)

    run_bench(dut, bench)
