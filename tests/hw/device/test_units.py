"""The wiring of the real units: a list goes from DRAM to the select unit, and from there into addresses."""

import random
from typing import Any

import pytest

from gemmule.config import Config, load_config
from gemmule.hw.device.units import Units
from gemmule.isa import MoveFlag, SOp

from ..bench import run_bench

TINY = load_config("tiny")  # DIM 4, 4-byte bus
ONE_BANK = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=1, acc_kib=4, acc_banks=1, preload=1)
INDEXED = 1 << MoveFlag.INDEXED
MOVE = {"rows": 5, "bytes": 4, "stride": 4, "row_stride": 1, "block_stride": 1}
NUMBERS = [6, 0, 65535, 3, 2]
LAST = 7


class Host:
    """Starts commands on the units, one after the other, and answers their DRAM traffic a beat a cycle."""

    def __init__(self, dut: Units) -> None:
        self.dut = dut
        rng = random.Random(5)
        self.dram = bytearray(rng.getrandbits(8) for _ in range(1024))
        for i, number in enumerate(NUMBERS):
            self.dram[2 * i:2 * i + 2] = number.to_bytes(2, "little")
        self.beats: list[tuple[int, bool]] = []
        self.sent: list[int] = []  # addresses of one-beat writes
        self.cycle = 0

    async def tick(self, ctx: Any, unit: str = "load") -> bool:
        """One cycle; whether a command of the unit finishes in it."""
        read, write = self.dut.read, self.dut.write
        beats = list(self.beats)
        ctx.set(read.req_ready, 1)
        if ctx.get(read.req_valid):
            first, count = ctx.get(read.req_addr), ctx.get(read.req_len) + 1
            self.beats += [(first + 4 * i, i == count - 1) for i in range(count)]
        ctx.set(read.beat_valid, bool(beats))
        if beats:
            address, last = self.beats.pop(0)
            ctx.set(read.beat_data, int.from_bytes(self.dram[address:address + 4], "little"))
            ctx.set(read.beat_last, last)
        ctx.set(write.awready, 1)
        ctx.set(write.wready, 1)
        ctx.set(write.bvalid, bool(self.sent))
        self.sent.clear()
        if ctx.get(write.wvalid):
            assert ctx.get(write.awvalid)
            assert (ctx.get(write.awlen), ctx.get(write.wstrb)) == (0, 15)
            address = ctx.get(write.awaddr)
            self.dram[address:address + 4] = ctx.get(write.wdata).to_bytes(4, "little")
            self.sent.append(address)
        finish = bool(ctx.get(getattr(self.dut, unit).finish))
        await ctx.tick()
        self.cycle += 1
        return finish

    async def run(self, ctx: Any, unit: str, **command: int) -> int:
        """Cycles from the command's start to its finish."""
        control = getattr(self.dut, unit)
        assert ctx.get(control.ready)
        ctx.set(control.command, command)
        ctx.set(control.start, 1)
        issue = self.cycle
        while not await self.tick(ctx, unit):
            ctx.set(control.start, 0)
        return self.cycle - 1 - issue


@pytest.mark.parametrize("config", [TINY, ONE_BANK], ids=["four banks", "one bank"])
def test_gather_and_scatter(config: Config) -> None:
    dut = Units(config=config)

    async def bench(ctx: Any) -> None:
        host = Host(dut)
        await host.run(ctx, "load", **(MOVE | {"rows": 3, "row": 40}))
        # Two entries a row, one a cycle from t + 1 on, rows whole: 6 steps, finish 5 cycles behind the last.
        assert await host.run(ctx, "select", op=SOp.LIST_LOAD, m=1, n=5, k=1, src0=40, dst=9) == 6 + 5
        plain = await host.run(ctx, "load", address=64, row=100, **MOVE)
        # One burst a row: the first 4 cycles later, each other one 3 cycles later than without a list.
        assert await host.run(ctx, "load", address=64, row=200, flags=INDEXED, list=9, last_index=LAST,
                              **MOVE) == plain + 4 + 4 * 3
        await host.run(ctx, "store", address=512, row=200, **MOVE)
        await host.run(ctx, "store", address=640, row=100, flags=INDEXED, list=9, last_index=LAST, **MOVE)
        assert await host.run(ctx, "select", op=SOp.LIST_STORE, m=1, n=5, k=1, first=9, dst=300) == 6 + 5
        await host.run(ctx, "store", address=768, row=300, **(MOVE | {"rows": 3}))
        dram = host.dram
        for i, number in enumerate(min(number, LAST) for number in NUMBERS):
            assert dram[512 + 4 * i:516 + 4 * i] == dram[64 + 4 * number:68 + 4 * number]
            assert dram[640 + 4 * number:644 + 4 * number] == dram[64 + 4 * i:68 + 4 * i]
        assert dram[768:780] == dram[:10] + bytes(2)

    run_bench(dut, bench, cycles=400)


def test_predicates() -> None:
    """A maximum against two thresholds; the start strobe clears what COMPARE has set."""
    dut = Units(config=TINY)

    async def bench(ctx: Any) -> None:
        host = Host(dut)
        assert ctx.get(dut.predicates) == 1
        await host.run(ctx, "load", row=0, address=100, **MOVE)
        top = max(host.dram[100:120])
        for number, threshold in ((1, top), (2, top + 1), (3, 0)):
            # 5 rows of one group, finish 9 cycles behind the last step
            assert await host.run(ctx, "select", op=SOp.COMPARE, m=5, n=4, k=1, aux=threshold, number=number) == 5 + 9
        assert ctx.get(dut.predicates) == 0b1011
        ctx.set(dut.clear, 1)
        await host.tick(ctx)
        assert ctx.get(dut.predicates) == 1

    run_bench(dut, bench, cycles=400)
