"""Registers over AXI4-Lite, with random stalls on all five channels."""

import random

import pytest
from amaranth.sim import Simulator

from gemmule.config import Config
from gemmule.csr import (
    AFTER_RESET,
    COUNTERS,
    READABLE,
    WRITABLE,
    Csr,
    base_offset,
    counter_offset,
    length_offset,
    limit_offset,
)
from gemmule.hw.device.csr import CsrBlock

from ..bench import run_bench

PULSES = ("start", "reset", "irq_clear")


class Host:
    """AXI4-Lite manager; address and data of a write come in random order."""

    def __init__(self, dut: CsrBlock, rng: random.Random) -> None:
        self.bus = dut.bus
        self.rng = rng

    async def write(self, ctx, offset: int, value: int, strobe: int = 15) -> None:
        bus, rng = self.bus, self.rng
        ctx.set(bus.awaddr, offset)
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, strobe)
        waiting = {"aw", "w"}
        offered: set[str] = set()
        answered = False
        while waiting or not answered:
            offered |= {channel for channel in sorted(waiting) if rng.random() < 0.6}
            ctx.set(bus.awvalid, "aw" in offered)
            ctx.set(bus.wvalid, "w" in offered)
            ready = rng.random() < 0.6
            ctx.set(bus.bready, ready)
            taken = {c for c in offered if ctx.get(bus.awready if c == "aw" else bus.wready)}
            if ctx.get(bus.bvalid):
                assert not waiting, "response before the write was complete"
                assert ctx.get(bus.bresp) == 0
                answered = ready
            await ctx.tick()
            offered -= taken
            waiting -= taken
        for name in (bus.awvalid, bus.wvalid, bus.bready):
            ctx.set(name, 0)

    async def read(self, ctx, offset: int) -> int:
        bus, rng = self.bus, self.rng
        ctx.set(bus.araddr, offset)
        ctx.set(bus.arvalid, 1)
        while not ctx.get(bus.arready):
            await ctx.tick()
        await ctx.tick()
        ctx.set(bus.arvalid, 0)
        ctx.set(bus.araddr, 0xFFF)
        seen = None
        while True:
            ready = rng.random() < 0.5
            ctx.set(bus.rready, ready)
            if ctx.get(bus.rvalid):
                assert ctx.get(bus.rresp) == 0
                value = ctx.get(bus.rdata)
                assert seen in (None, value), "payload changed while waiting"
                seen = value
                if ready:
                    await ctx.tick()
                    ctx.set(bus.rready, 0)
                    return value
            await ctx.tick()


def merge(old: int, value: int, strobe: int) -> int:
    mask = sum(0xFF << (8 * i) for i in range(4) if strobe >> i & 1)
    return old & ~mask | value & mask


@pytest.mark.parametrize("bits", [32, 44, 20])
def test_read_back_with_strobes(bits: int) -> None:
    rng = random.Random(bits)
    print("seed", bits)
    dut = CsrBlock(config=Config(address_bits=bits))
    low, high = min(bits, 32), max(bits - 32, 0)
    widths = {Csr.PROGRAM_LO: low, Csr.PROGRAM_HI: high, Csr.PROGRAM_COMMANDS: 24, Csr.WATCHDOG: 32}
    widths |= {length_offset(i): 16 for i in range(1, 16)}
    for of in (base_offset, limit_offset):
        for i in range(32):
            widths |= {of(i): low, of(i) + 4: high}
    model = dict.fromkeys(widths, 0) | {Csr.WATCHDOG: 1 << 20}

    async def bench(ctx):
        host = Host(dut, rng)
        assert await host.read(ctx, Csr.WATCHDOG) == ctx.get(dut.watchdog) == 1 << 20  # after power-up
        order = list(widths) * 2
        rng.shuffle(order)
        for offset in order:
            value, strobe = rng.getrandbits(32), rng.choice((15, 15, rng.getrandbits(4)))
            await host.write(ctx, offset, value, strobe)
            model[offset] = merge(model[offset], value, strobe) & ((1 << widths[offset]) - 1)
        for offset in widths:
            assert await host.read(ctx, offset) == model[offset], hex(offset)
        ctx.set(dut.busy, 1)
        for offset in widths:
            await host.write(ctx, offset, rng.getrandbits(32))  # parameters keep their values
        ctx.set(dut.busy, 0)
        for offset in widths:
            assert await host.read(ctx, offset) == model[offset], hex(offset)
        # What the device sees.
        assert ctx.get(dut.program) == model[Csr.PROGRAM_LO] | model[Csr.PROGRAM_HI] << 32
        assert ctx.get(dut.commands) == model[Csr.PROGRAM_COMMANDS]
        assert ctx.get(dut.watchdog) == model[Csr.WATCHDOG]
        for i in range(1, 16):
            ctx.set(dut.length_index, i)
            assert ctx.get(dut.length) == model[length_offset(i)]
        for i in range(32):
            ctx.set(dut.base_index, i)
            assert ctx.get(dut.base) == model[base_offset(i)] | model[base_offset(i) + 4] << 32
            assert ctx.get(dut.limit) == model[limit_offset(i)] | model[limit_offset(i) + 4] << 32

    run_bench(dut, bench, cycles=40000)


def test_status_and_fixed_registers() -> None:
    rng = random.Random(1)
    dut = CsrBlock(config=Config())

    async def bench(ctx):
        host = Host(dut, rng)
        ctx.set(dut.busy, 1)
        ctx.set(dut.code, 3)
        ctx.set(dut.index, 0x123456)
        ctx.set(dut.cycles, 0x1_2345_6789)
        for offset in (Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES, Csr.CONTROL, length_offset(0), 0xF00):
            await host.write(ctx, offset, 0xFFFFFFF0)
        assert await host.read(ctx, Csr.STATUS) == 0x301
        ctx.set(dut.busy, 0)
        ctx.set(dut.done, 1)
        assert await host.read(ctx, Csr.STATUS) == 0x302
        assert await host.read(ctx, Csr.FAULT_INDEX) == 0x123456
        assert await host.read(ctx, Csr.CYCLES) == 0x23456789
        assert await host.read(ctx, Csr.CYCLES_HI) == 1
        assert await host.read(ctx, length_offset(0)) == 65535
        for offset in (Csr.CONTROL, Csr.IRQ_CLEAR, 0x028, 0x080, 0x400, 0xF00):
            assert await host.read(ctx, offset) == 0, hex(offset)

    run_bench(dut, bench)


def test_counters_are_looked_up() -> None:
    """48 bits in two words, each at its offset; writes are ignored."""
    rng = random.Random(6)
    dut = CsrBlock(config=Config())
    values = [rng.getrandbits(48) for _ in COUNTERS] + [0] * (32 - len(COUNTERS))

    async def counters(ctx):
        while True:
            ctx.set(dut.counter, values[ctx.get(dut.counter_index)])
            await ctx.changed(dut.counter_index)

    async def bench(ctx):
        host = Host(dut, rng)
        for i, name in enumerate(COUNTERS):
            assert counter_offset(name) == 0x300 + 8 * i
            await host.write(ctx, counter_offset(name), 0)
            assert await host.read(ctx, counter_offset(name)) == values[i] & 0xFFFFFFFF
            assert await host.read(ctx, counter_offset(name) + 4) == values[i] >> 32

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(counters, background=True)
    sim.add_testbench(bench)
    sim.run()


def test_actions_are_single_pulses() -> None:
    rng = random.Random(2)
    dut = CsrBlock(config=Config())
    counts = dict.fromkeys(PULSES, 0)

    async def count(ctx):
        while True:
            for name in PULSES:
                counts[name] += ctx.get(getattr(dut, name))
            await ctx.tick()

    async def bench(ctx):
        host = Host(dut, rng)
        for offset, value, strobe, expected in (
            (Csr.CONTROL, 1, 15, (1, 0, 0)), (Csr.CONTROL, 2, 15, (1, 1, 0)),
            (Csr.CONTROL, 1, 14, (1, 1, 0)), (Csr.CONTROL, 0x100, 15, (1, 1, 0)),
            (Csr.IRQ_CLEAR, 1, 1, (1, 1, 1)), (Csr.STATUS, 3, 15, (1, 1, 1)),
        ):
            await host.write(ctx, offset, value, strobe)
            assert tuple(counts.values()) == expected

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(count, background=True)
    sim.add_testbench(bench)
    sim.run_until(1e-3)
    assert tuple(counts.values()) == (1, 1, 1)


@pytest.mark.parametrize("config", [Config(), Config(dim=8, bus_bytes=8, address_bits=40)])
def test_what_registers_read_after_reset_and_which_take_writes(config: Config) -> None:
    """The tables of the contract; the identity is a constant."""
    dut = CsrBlock(config=config)
    expected = AFTER_RESET | {Csr.CONFIGURATION: config.identity, Csr.LENGTH0: 65535}  # number 0 reads all ones
    assert expected[Csr.IDENTITY] == int.from_bytes(b"GML\1")

    async def bench(ctx):
        host = Host(dut, random.Random(1))
        for register in Csr:
            assert await host.read(ctx, register) == (expected[register] if register in READABLE else 0), register
        for register in Csr:
            await host.write(ctx, register, 0x0A0A0A0A if register not in (Csr.CONTROL, Csr.IRQ_CLEAR) else 0)
        changed = {register for register in Csr if await host.read(ctx, register) != (
            expected[register] if register in READABLE else 0)}
        upper = {register for register in WRITABLE if register.name.endswith("_HI") and config.address_bits == 32}
        assert changed == WRITABLE - {Csr.CONTROL, Csr.IRQ_CLEAR, Csr.LENGTH0} - upper

    run_bench(dut, bench)
