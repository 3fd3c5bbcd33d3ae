"""cocotb bench of the register block (``hw/device/csr.py``), driven by cocotbext-axi's AXI4-Lite master."""

import logging
import os
import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp
from support import CONFIG, now, start

from gemmule.csr import (
    COUNTERS,
    FAULT_SHIFT,
    WATCHDOG_CYCLES,
    Control,
    Csr,
    base_offset,
    counter_offset,
    length_offset,
    limit_offset,
)
from gemmule.isa import NUM_BASES, NUM_LENGTHS

ADDRESS = (1 << CONFIG.address_bits) - 1
REST = os.environ.get("BENCH_VARIANTS") == "rest"
"""Whether the further variants run, which only ``make test-all`` takes, instead of the first."""


def paused(seed: int, share: float) -> Iterator[bool]:
    rng = random.Random(seed)
    while True:
        yield rng.random() < share


class Host:
    """The master, checked to get OKAY for everything."""

    def __init__(self, dut: Any, seed: int = 0, share: float = 0.0) -> None:
        logging.getLogger("cocotb.csr").setLevel(logging.ERROR)  # else a line per access
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "bus_"), dut.clk, dut.rst)
        read, write = self.master.read_if, self.master.write_if
        channels = (read.ar_channel, read.r_channel, write.aw_channel, write.w_channel, write.b_channel)
        for i, channel in enumerate(channels):
            channel.set_pause_generator(paused(8 * seed + i, share))

    async def read(self, offset: int, size: int = 4) -> int:
        answer = await self.master.read(offset, size)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")

    async def write(self, offset: int, value: int, size: int = 4) -> None:
        assert (await self.master.write(offset, value.to_bytes(size, "little"))).resp == AxiResp.OKAY


@cocotb.test()
@cocotb.parametrize((("seed", "share"), [(1, 0.6), (2, 0.0)] if REST else [(1, 0.0), (2, 0.6)]))
async def parameters(dut: Any, seed: int, share: float) -> None:
    """Random whole and partial writes; what is read, and what the core sees, is a shadow copy."""
    await start(dut)
    host, rng = Host(dut, seed, share), random.Random(seed)
    spans = {Csr.PROGRAM_LO: 12, Csr.LENGTH0: 4 * NUM_LENGTHS, Csr.BASE_LO: 8 * NUM_BASES, Csr.LIMIT_LO: 8 * NUM_BASES}
    held = {
        Csr.PROGRAM_LO: ADDRESS.to_bytes(8, "little") + (0xFFFFFF).to_bytes(4, "little"),
        Csr.LENGTH0: bytes(4) + b"\xff\xff\0\0" * (NUM_LENGTHS - 1),
        Csr.BASE_LO: ADDRESS.to_bytes(8, "little") * NUM_BASES,
        Csr.LIMIT_LO: ADDRESS.to_bytes(8, "little") * NUM_BASES,
    }
    shadow = {}
    for where, size in spans.items():
        shadow[where] = bytearray(rng.randbytes(size))
        await host.write(where, int.from_bytes(shadow[where], "little"), size)
    for _ in range(60):
        where = rng.choice(list(spans))
        begin = rng.randrange(spans[where])
        data = rng.randbytes(rng.randint(1, min(9, spans[where] - begin)))
        await host.write(where + begin, int.from_bytes(data, "little"), len(data))
        shadow[where][begin:begin + len(data)] = data
    for where, data in shadow.items():
        wanted = bytearray(value & bit for value, bit in zip(data, held[where]))
        if where == Csr.LENGTH0:
            wanted[:4] = b"\xff\xff\0\0"  # register 0 reads 65535
        assert await host.read(where, len(data)) == int.from_bytes(wanted, "little"), where.name
        shadow[where] = wanted
    program = shadow[Csr.PROGRAM_LO]
    assert int(dut.program.value) == int.from_bytes(program[:8], "little")
    assert int(dut.commands.value) == int.from_bytes(program[8:], "little")
    for i in range(1, NUM_LENGTHS):  # looked up in the same cycle
        await FallingEdge(dut.clk)
        dut.length_index.value = i
        await RisingEdge(dut.clk)
        at = length_offset(i) - Csr.LENGTH0
        assert int(dut.length.value) == int.from_bytes(shadow[Csr.LENGTH0][at:at + 2], "little")
    for i in range(NUM_BASES):
        await FallingEdge(dut.clk)
        dut.base_index.value = i
        await RisingEdge(dut.clk)
        for port, where, offset in (
                (dut.base, Csr.BASE_LO, base_offset(i)), (dut.limit, Csr.LIMIT_LO, limit_offset(i))):
            assert int(port.value) == int.from_bytes(shadow[where][offset - where:][:8], "little")


@cocotb.test()
async def status(dut: Any) -> None:
    """Status inputs appear in their registers, and writes to them change nothing."""
    await start(dut)
    host, rng = Host(dut, 3, 0.3), random.Random(3)
    for _ in range(20):
        busy, done, code = rng.randrange(2), rng.randrange(2), rng.randrange(7)
        index, cycles = rng.randrange(1 << 24), rng.randrange(1 << 48)
        dut.busy.value, dut.done.value, dut.code.value = busy, done, code
        dut.index.value, dut.cycles.value = index, cycles
        for register in (Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES, Csr.CYCLES_HI):
            await host.write(register, rng.getrandbits(32))
        assert await host.read(Csr.STATUS) == busy | done << 1 | code << FAULT_SHIFT
        assert await host.read(Csr.FAULT_INDEX) == index
        assert await host.read(Csr.CYCLES, 8) == cycles
        assert await host.read(Csr.CONTROL) == 0


@cocotb.test()
async def watchdog(dut: Any) -> None:
    """2**20 cycles at power-up; whole and byte writes."""
    await start(dut)
    host = Host(dut)
    assert await host.read(Csr.WATCHDOG) == WATCHDOG_CYCLES == 1048576
    await host.write(Csr.WATCHDOG, 0)
    assert await host.read(Csr.WATCHDOG) == 0
    await host.write(Csr.WATCHDOG + 1, 0x5A, 1)
    assert await host.read(Csr.WATCHDOG) == 0x5A00
    assert int(dut.watchdog.value) == 0x5A00


@cocotb.test()
async def actions(dut: Any) -> None:
    """One pulse for each write of a one, from its bit of its register alone."""
    await start(dut)
    pulses: list[tuple[int, str]] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            pulses.extend((now(), name) for name in ("start", "reset", "irq_clear") if getattr(dut, name).value)

    cocotb.start_soon(watch())
    host = Host(dut)
    for offset, value in ((Csr.CONTROL, Control.START), (Csr.CONTROL, 0), (Csr.CONTROL, Control.RESET),
                          (Csr.IRQ_CLEAR, 1), (Csr.IRQ_CLEAR, 2), (Csr.STATUS, 3), (0xFFC, 1)):
        await host.write(offset, value)
    await ClockCycles(dut.clk, 4)
    assert [name for _, name in pulses] == ["start", "reset", "irq_clear"]


async def write(dut: Any, offset: int, value: int, data_first: bool) -> None:
    """Address and data in consecutive cycles; both are taken at once."""
    channels = [("aw", {"addr": offset}), ("w", {"data": value, "strb": 15})]
    for channel, fields in channels[::-1] if data_first else channels:
        for name, content in fields.items():
            getattr(dut, f"bus__{channel}{name}").value = content
        getattr(dut, f"bus__{channel}valid").value = 1
        await RisingEdge(dut.clk)
        assert getattr(dut, f"bus__{channel}ready").value == 1
        getattr(dut, f"bus__{channel}valid").value = 0


@cocotb.test()
@cocotb.parametrize(data_first=[False, True])
async def latency(dut: Any, data_first: bool) -> None:
    """Taken in x, a write acts in x + 1 and is answered in x + 2; a read in x + 4."""
    await start(dut)
    dut.bus__bready.value = dut.bus__rready.value = 1
    await write(dut, Csr.CONTROL, Control.START, data_first)
    taken = now()
    await RisingEdge(dut.clk)
    assert (now() - taken, int(dut.start.value), int(dut.bus__bvalid.value)) == (1, 1, 0)
    await RisingEdge(dut.clk)
    assert (now() - taken, int(dut.start.value), int(dut.bus__bvalid.value)) == (2, 0, 1)
    dut.bus__araddr.value, dut.bus__arvalid.value = Csr.LENGTH0, 1
    await RisingEdge(dut.clk)
    assert dut.bus__arready.value
    dut.bus__arvalid.value = 0
    for _ in range(3):
        await RisingEdge(dut.clk)
        assert not dut.bus__rvalid.value
    await RisingEdge(dut.clk)
    assert dut.bus__rvalid.value
    assert int(dut.bus__rdata.value) == 0xFFFF


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """A write every second cycle and, at the same time, a read every fifth."""
    await start(dut)
    seen: dict[str, list[int]] = {"rvalid": [], "bvalid": []}

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            for name, cycles in seen.items():
                if getattr(dut, f"bus__{name}").value:
                    cycles.append(now())

    cocotb.start_soon(watch())
    for name in ("bready", "rready", "awvalid", "wvalid", "arvalid"):
        getattr(dut, f"bus__{name}").value = 1
    dut.bus__awaddr.value = dut.bus__araddr.value = Csr.PROGRAM_LO
    await ClockCycles(dut.clk, 120)
    for name, period in (("bvalid", 2), ("rvalid", 5)):
        assert len(seen[name]) >= 120 // period - 2
        assert {b - a for a, b in zip(seen[name], seen[name][1:])} == {period}


@cocotb.test()
async def counters(dut: Any) -> None:
    """Each counter, looked up by its number, 48 bits in two words; writes change nothing."""
    await start(dut)
    host, values = Host(dut, 4, 0.3), [random.Random(4).getrandbits(48) for _ in COUNTERS]

    async def look_up() -> None:
        while True:
            await FallingEdge(dut.clk)
            index = int(dut.counter_index.value)
            dut.counter.value = values[index] if index < len(values) else 0

    cocotb.start_soon(look_up())
    assert len(COUNTERS) == 31
    for i, (name, value) in enumerate(zip(COUNTERS, values)):
        assert counter_offset(name) == 0x300 + 8 * i
        await host.write(counter_offset(name), 5, 8)
        assert await host.read(counter_offset(name), 8) == value, name
