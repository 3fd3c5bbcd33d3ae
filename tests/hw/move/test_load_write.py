"""Load writer: lanes, sums and forwarding by hand; shapes and cycles are tested with the unit."""

from __future__ import annotations

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.move.load_write import LoadWriter
from gemmule.isa import MoveFlag

from ..bench import run_bench

ACC, NARROW, ADD, ZERO, BROADCAST, _ = (1 << flag for flag in MoveFlag)
ONE = {"zero": 0, "rows": 1, "row": 5, "row_stride": 1, "block_stride": 1}
TINY = load_config("tiny")
BUS_2 = Config(dim=4, bus_bytes=2, burst_bytes=32, spm_kib=1, spm_banks=1, acc_kib=4, preload=1)


def written(config: Config, command: dict[str, int], chunks: list[bytes], row: list[int],
            late: int = 0) -> list[tuple[int, int, dict[int, int]]]:
    """(cycle, row, lane: value) of every write. The command starts in cycle 0, the chunks stand in the cycles
    from 1 + ``late`` on; every accumulator row holds ``row`` and keeps it."""
    dut = LoadWriter(config=config)
    out = []
    size = 4 if command["flags"] & ACC else 1
    port = dut.acc_write if command["flags"] & ACC else dut.spm

    async def bench(ctx) -> None:
        ctx.set(dut.command, command)
        ctx.set(dut.start, 1)
        old = b"".join(value.to_bytes(4, "little", signed=True) for value in row)
        pending = list(chunks)
        cycle = 0
        done = False
        while not done:
            valid = bool(pending) and cycle > late
            ctx.set(dut.valid, valid)
            if valid:
                ctx.set(dut.data, int.from_bytes(pending[0], "little"))
                if ctx.get(dut.take):
                    pending.pop(0)
            if ctx.get(port.en):
                assert ctx.get(dut.busy)
                mask = ctx.get(port.mask)
                data = ctx.get(port.data).to_bytes(size * config.dim, "little")
                out.append((cycle, ctx.get(port.row), {
                    lane: int.from_bytes(data[lane * size:(lane + 1) * size], "little", signed=True)
                    for lane in range(config.dim) if mask >> lane & 1}))
            done = ctx.get(dut.finish)
            read = ctx.get(dut.acc_read.en)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.acc_read.data, int.from_bytes(old, "little") if read else 0)
            cycle += 1
        assert not pending
        assert not ctx.get(dut.busy)

    run_bench(dut, bench, cycles=100)
    return out


def test_scratchpad() -> None:
    command = {**ONE, "flags": 0, "bytes": 6}
    assert written(TINY, command, [b"\x01\x02\x03\x04", b"\xff\x06??"], [0] * 4) == [
        (2, 5, {0: 1, 1: 2, 2: 3, 3: 4}), (3, 6, {0: -1, 1: 6})]


def test_words() -> None:
    """One int32 lane a chunk; the fifth one is lane 0 of the next row."""
    command = {**ONE, "flags": ACC, "bytes": 20, "block_stride": 3}
    chunks = [i.to_bytes(4, "little", signed=True) for i in (1, -2, 2**31 - 1, -(2**31), 7)]
    assert written(TINY, command, chunks, [9] * 4) == [
        (2, 5, {0: 1}), (3, 5, {1: -2}), (4, 5, {2: 2**31 - 1}), (5, 5, {3: -(2**31)}), (6, 8, {0: 7})]


def test_halves() -> None:
    """On a 2-byte bus an int32 is written with its second half."""
    command = {**ONE, "flags": ACC | ADD, "bytes": 8}
    chunks = [b"\x04\x03", b"\x02\x01", b"\xff\xff", b"\xff\xff"]
    assert written(BUS_2, command, chunks, [1, 2, 3, 4]) == [(3, 5, {0: 0x01020305}), (5, 5, {1: 1})]


def test_narrow_add_wraps() -> None:
    command = {**ONE, "flags": ACC | NARROW | ADD, "bytes": 4}
    assert written(TINY, command, [b"\x7f\x80\x01\xff"], [2**31 - 1, -(2**31), -1, 0]) == [
        (2, 5, {0: -(2**31) + 126, 1: 2**31 - 128, 2: 0, 3: -1})]


def test_sums_are_forwarded() -> None:
    """Four DRAM rows into one row, whose read value (10) is always the old one: each sum goes on from the last."""
    command = {**ONE, "flags": ACC | NARROW | ADD, "rows": 4, "bytes": 1, "row_stride": 0}
    chunks = [bytes([i, 0, 0, 0]) for i in (1, 2, 3, 4)]
    assert written(TINY, command, chunks, [10] * 4) == [
        (2, 5, {0: 11}), (3, 5, {0: 13}), (4, 5, {0: 16}), (5, 5, {0: 20})]


def test_other_rows_are_not_forwarded() -> None:
    command = {**ONE, "flags": ACC | NARROW | ADD, "rows": 2, "bytes": 1}
    assert written(TINY, command, [b"\x01???", b"\x02???"], [10] * 4) == [(2, 5, {0: 11}), (3, 6, {0: 12})]


def test_broadcast() -> None:
    """Each chunk is taken once and added to both rows."""
    command = {**ONE, "flags": ACC | ADD | BROADCAST, "rows": 2, "bytes": 8, "row_stride": 4}
    chunks = [b"\x05\0\0\0", b"\x06\0\0\0"]
    assert written(TINY, command, chunks, [100, 200, 0, 0], late=3) == [
        (5, 5, {0: 105}), (6, 9, {0: 105}), (7, 5, {1: 206}), (8, 9, {1: 206})]


@pytest.mark.parametrize(("flags", "lanes"), [(ZERO, 4), (ACC | NARROW | ZERO, 4), (ACC | ZERO, 1)])
def test_fill(flags: int, lanes: int) -> None:
    command = {**ONE, "flags": flags, "rows": 2, "bytes": 4}
    zeros = dict.fromkeys(range(lanes), 0)
    assert written(TINY, command, [], [3] * 4) == [(2, 5, zeros), (3, 6, zeros)]
