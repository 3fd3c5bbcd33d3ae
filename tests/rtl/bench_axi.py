"""cocotb bench: the device alone, between an AXI memory and an AXI4-Lite host of cocotbext-axi.

Nothing of the project's own testbench takes part; only the expected bytes come from the model.
Runs inside the simulator, started by ``test_axi.py``.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiRamWrite, AxiResp

from gemmule.config import load_config
from gemmule.csr import FAULT_SHIFT, Control, Csr, Status, base_offset, length_offset, limit_offset
from gemmule.isa import COMMAND_BYTES, decode
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz import FuzzCase, generate
from gemmule.sim.run import Model

TINY = load_config("tiny")
COMMANDS = 50
PERIOD_NS = 10
WATCHDOG = 1_000_000
PAYLOADS = {
    "ar": ("araddr", "arlen", "arsize", "arburst", "arid"),
    "aw": ("awaddr", "awlen", "awsize", "awburst", "awid"),
    "w": ("wdata", "wstrb", "wlast"),
}
Pauses = Callable[[int], Iterator[bool]]


class ReadSide(AxiRamRead):
    """Answers SLVERR for the addresses in ``broken`` and for any beyond the memory."""

    broken = range(0)
    outside = 0

    async def _read(self, address: int, length: int) -> bytes:
        self.outside += address + length > self.size
        if address in self.broken or address + length > self.size:
            raise ValueError("SLVERR")
        return await super()._read(address, length)


class WriteSide(AxiRamWrite):
    """As :class:`ReadSide`; a refused write leaves the memory as it was."""

    broken = range(0)
    outside = 0

    async def _write(self, address: int, data: bytes) -> None:
        self.outside += address + len(data) > self.size
        if address in self.broken or address + len(data) > self.size:
            raise ValueError("SLVERR")
        await super()._write(address, data)


class Watch:
    """Every cycle: a valid stays with its payload until its ready; counts what is outstanding."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.reads = self.writes = self.requests = self.errors = 0
        self.rules: list[str] = []
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        channels = [(name, getattr(dut, f"m_axi_{name}valid"), getattr(dut, f"m_axi_{name}ready"),
                     [getattr(dut, f"m_axi_{signal}") for signal in signals])
                    for name, signals in PAYLOADS.items()]
        held: dict[str, list[int]] = {}
        while True:
            await edge
            for name, valid, ready, signals in channels:
                offered = [int(s.value) for s in signals] if valid.value else []
                if name in held and held[name] != offered:
                    self.rules.append(f"{name}: {held[name]} became {offered} before its ready")
                held.pop(name, None)
                if offered and not ready.value:
                    held[name] = offered
                elif offered and name != "w":
                    self.requests += 1
                    self.reads += name == "ar"
                    self.writes += name == "aw"
            if dut.m_axi_rvalid.value and dut.m_axi_rready.value:
                self.reads -= bool(dut.m_axi_rlast.value)
                self.errors += int(dut.m_axi_rresp.value) != AxiResp.OKAY
            if dut.m_axi_bvalid.value and dut.m_axi_bready.value:
                self.writes -= 1
                self.errors += int(dut.m_axi_bresp.value) != AxiResp.OKAY


class Bench:
    """Clock, memory and host around the device; create with :meth:`start`."""

    def __init__(self, dut: Any, size: int) -> None:
        logging.getLogger("cocotb.gemmule").setLevel(logging.ERROR)  # else one line per burst
        self.dut, self.memory = dut, bytearray(size)
        bus = AxiBus.from_prefix(dut, "m_axi")
        self.read = ReadSide(bus.read, dut.clk, dut.rst, mem=self.memory)
        self.write = WriteSide(bus.write, dut.clk, dut.rst, mem=self.memory)
        self.host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.watch = Watch(dut)
        self.cycles = -1

    @classmethod
    async def start(cls, dut: Any, size: int = 4096) -> Bench:
        Clock(dut.clk, PERIOD_NS, unit="ns", impl="gpi").start()
        dut.rst.value = 1
        bench = cls(dut, size)
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        await ClockCycles(dut.clk, 2)
        return bench

    def pause(self, pauses: Pauses | None, seed: int, host: bool = False) -> None:
        """A generator of its own for each channel of the memory, or of the host."""
        side = (self.host.read_if, self.host.write_if) if host else (self.read, self.write)
        channels = (side[0].ar_channel, side[0].r_channel, side[1].aw_channel, side[1].w_channel,
                    side[1].b_channel)
        for i, channel in enumerate(channels):
            channel.set_pause_generator(pauses(8 * seed + i) if pauses else None)

    async def peek(self, offset: int, size: int = 4) -> int:
        answer = await self.host.read(offset, size)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")

    async def poke(self, offset: int, data: int | bytes) -> None:
        payload = data if isinstance(data, bytes) else data.to_bytes(4, "little")
        assert (await self.host.write(offset, payload)).resp == AxiResp.OKAY

    async def launch(self, case: FuzzCase) -> None:
        """Put a program and its data into the memory, run it to its interrupt."""
        self.memory[:] = case.dram.tobytes()
        self.memory[case.program:case.program + len(case.image)] = case.image
        await self.poke(base_offset(0), case.bases.astype("<u8").tobytes())
        await self.poke(limit_offset(0), case.limits.astype("<u8").tobytes())
        await self.poke(length_offset(0), case.lengths.astype("<u4").tobytes())
        count = len(case.image) // COMMAND_BYTES
        await self.poke(Csr.PROGRAM_LO, case.program.to_bytes(8, "little") + count.to_bytes(4, "little"))
        cocotb.start_soon(self._time())
        await self.poke(Csr.CONTROL, Control.START)
        assert await self.peek(Csr.STATUS) == Status.BUSY
        if not self.dut.irq.value:
            await with_timeout(RisingEdge(self.dut.irq), WATCHDOG * PERIOD_NS, "ns")
        await ClockCycles(self.dut.clk, 2)

    async def _time(self) -> None:
        await RisingEdge(self.dut.trace_start)
        begin = get_sim_time("ns")
        await RisingEdge(self.dut.irq)
        self.cycles = round((get_sim_time("ns") - begin) / PERIOD_NS)

    def check_bus(self) -> None:
        assert self.watch.rules == []
        assert (self.read.outside, self.write.outside) == (0, 0)

    async def check(self, case: FuzzCase) -> None:
        """Run a program; its result, status and bus traffic are those of the model."""
        await self.launch(case)
        assert not (text := differences(expected(case), bytes(self.memory))), text
        assert await self.peek(Csr.STATUS) == Status.DONE
        assert await self.peek(Csr.CYCLES, 8) == self.cycles
        assert (self.watch.reads, self.watch.writes, self.watch.errors) == (0, 0, 0)
        self.check_bus()


def expected(case: FuzzCase) -> bytes:
    """All DRAM bytes after the program, by the model."""
    model = Model(TINY, dram_bytes=len(case.dram))
    model.write_dram(0, case.dram)
    model.bases[:], model.limits[:], model.lengths[:] = case.bases, case.limits, case.lengths
    model.load_program(case.image, case.program)
    assert model.run().fault == 0
    image = bytearray(model.read_dram(0, len(case.dram)))
    assert bytes(image) != case.dram.tobytes()
    if os.environ.get("BENCH_MUTANT") == "expected":
        image[-4096 * 5] ^= 1
    return bytes(image)


def differences(wanted: bytes, seen: bytes) -> str:
    """What differs; empty when nothing does."""
    a, b = np.frombuffer(wanted, dtype=np.uint8), np.frombuffer(seen, dtype=np.uint8)
    if len(a) != len(b):
        return f"{len(a)} bytes expected, {len(b)} seen"
    wrong = np.flatnonzero(a != b)
    if not len(wrong):
        return ""
    at = int(wrong[0])
    return f"{len(wrong)} DRAM bytes differ; first at {at}: expected {a[at]}, seen {b[at]}"


def often(seed: int) -> Iterator[bool]:
    """Paused at random, with a chance of its own for every channel."""
    rng = random.Random(seed)
    chance = rng.choice([0.2, 0.5, 0.8])
    while True:
        yield rng.random() < chance


def slow(seed: int) -> Iterator[bool]:
    """Short bursts of service between long idle times."""
    rng = random.Random(seed)
    while True:
        yield from [False] * rng.randint(1, 40)
        yield from [True] * rng.randint(20, 300)


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3], stalls=["none", "often", "slow"])
async def random_program(dut: Any, seed: int, stalls: str) -> None:
    case = generate(TINY, 900 + seed, COMMANDS)
    bench = await Bench.start(dut, len(case.dram))
    pauses = {"none": None, "often": often, "slow": slow}[stalls]
    bench.pause(pauses, seed)
    bench.pause(pauses and often, seed + 100, host=True)
    await bench.check(case)


def _offset(case: FuzzCase, index: int) -> int:
    """DRAM address of a move through base register 0."""
    at = index * COMMAND_BYTES
    command = decode(int.from_bytes(case.image[at:at + COMMAND_BYTES], "little"))
    return command.fields["offset"]


@cocotb.test()
@cocotb.parametrize(where=["fetch", "load", "store"], recover=["reset", "restart"])
async def axi_error(dut: Any, where: str, recover: str) -> None:
    case, after = generate(TINY, 950, COMMANDS), generate(TINY, 951, COMMANDS)
    count = len(case.image) // COMMAND_BYTES
    index = {"fetch": count - 6, "load": 2, "store": count - 3}[where]
    bench = await Bench.start(dut, len(case.dram))
    bench.pause(often, 3)
    if where == "store":
        begin = _offset(case, index)
        bench.write.broken = range(begin, begin + 64)
    else:
        begin = _offset(case, index) if where == "load" else case.program + index * COMMAND_BYTES
        bench.read.broken = range(begin, begin + 64)
    await bench.launch(case)
    assert bench.watch.errors > 0
    assert await bench.peek(Csr.STATUS) == Status.DONE | FAULTS.index("axi") << FAULT_SHIFT
    assert FAULTS.index("axi") == 5
    dispatched = await bench.peek(Csr.FAULT_INDEX)
    assert dispatched <= index if where == "fetch" else index < dispatched <= count
    assert dispatched < count or where == "store"
    assert await bench.peek(Csr.CYCLES, 8) == bench.cycles

    if recover == "reset":
        await ClockCycles(dut.clk, 1000)
        assert (bench.watch.reads, bench.watch.writes) == (0, 0)
        requests = bench.watch.requests
        await ClockCycles(dut.clk, 200)
        assert bench.watch.requests == requests
        assert dut.irq.value
        await bench.poke(Csr.CONTROL, Control.RESET)
        await ClockCycles(dut.clk, 2)
        assert not dut.irq.value
        assert await bench.peek(Csr.STATUS, 16) == 0
    bench.read.broken = bench.write.broken = range(0)
    bench.watch.errors = 0
    await bench.check(after)


@cocotb.test()
@cocotb.parametrize(seed=[1, 2])
async def registers(dut: Any, seed: int) -> None:
    """Every parameter reads back what was written, whole, by bytes and across a device reset."""
    bench = await Bench.start(dut)
    bench.pause(often, seed, host=True)
    rng = random.Random(seed)
    spans = {Csr.PROGRAM_LO: 12, Csr.LENGTH0: 64, Csr.BASE_LO: 256, Csr.LIMIT_LO: 256}
    address = (1 << TINY.address_bits) - 1
    program = address.to_bytes(8, "little") + (0xFFFFFF).to_bytes(4, "little")
    bits = {Csr.PROGRAM_LO: program, Csr.LENGTH0: bytes(4) + b"\xff\xff\0\0" * 15,
            Csr.BASE_LO: address.to_bytes(8, "little") * 32, Csr.LIMIT_LO: address.to_bytes(8, "little") * 32}
    image = {where: rng.randbytes(size) for where, size in spans.items()}
    for where, data in image.items():
        await bench.poke(where, data)
    shadow = {where: bytearray(data) for where, data in image.items()}
    for _ in range(40):  # odd places and sizes: byte strobes
        where = rng.choice(list(spans))
        begin = rng.randrange(spans[where])
        data = rng.randbytes(rng.randint(1, min(9, spans[where] - begin)))
        await bench.poke(where + begin, data)
        shadow[where][begin:begin + len(data)] = data

    async def compare() -> None:
        for where, data in shadow.items():
            wanted = bytearray(value & bit for value, bit in zip(data, bits[where]))
            if where == Csr.LENGTH0:
                wanted[:4] = b"\xff\xff\0\0"
            answer = await bench.host.read(where, len(data))
            assert answer.data == wanted, where.name

    await compare()
    for offset in (Csr.CONTROL, Csr.STATUS, Csr.FAULT_INDEX, Csr.CYCLES, Csr.CYCLES_HI, Csr.IRQ_CLEAR, 0x300,
                   0xFFC):
        if offset != Csr.CONTROL:
            await bench.poke(offset, 0xFFFFFFFF)
        assert await bench.peek(offset) == 0, hex(offset)
    await bench.poke(Csr.CONTROL, Control.RESET)
    await compare()
    assert not dut.irq.value
    assert bench.watch.requests == 0


@cocotb.test()
async def interrupt(dut: Any) -> None:
    """Level until cleared; status and cycles stay; the next start lowers it too."""
    case = generate(TINY, 960, 10)
    bench = await Bench.start(dut, len(case.dram))
    assert not dut.irq.value
    await bench.check(case)
    cycles = bench.cycles
    assert cycles > 1000
    await ClockCycles(dut.clk, 100)
    assert dut.irq.value
    await bench.poke(Csr.IRQ_CLEAR, 0)
    assert dut.irq.value
    await bench.poke(Csr.IRQ_CLEAR, 1)
    await ClockCycles(dut.clk, 2)
    assert not dut.irq.value
    assert await bench.peek(Csr.STATUS) == Status.DONE
    assert await bench.peek(Csr.CYCLES, 8) == cycles
    await bench.check(case)
    assert bench.cycles == cycles  # the same program on the same memory
    assert dut.irq.value
    begun = cocotb.start_soon(bench.check(case))
    await RisingEdge(dut.trace_start)
    await RisingEdge(dut.clk)
    assert not dut.irq.value
    await bench.poke(Csr.CONTROL, Control.START)  # ignored while busy
    await begun
    assert bench.cycles == cycles


@cocotb.test()
async def corrupt_memory(dut: Any) -> None:
    """The comparison fails when one bit of the data that the device reads is wrong."""
    case = generate(TINY, 970, 10)
    bench = await Bench.start(dut, len(case.dram))
    honest, begin = bench.read._read, _offset(case, 0)

    async def lies(address: int, length: int) -> bytes:
        data = await honest(address, length)
        return bytes([data[0] ^ 1, *data[1:]]) if begin <= address < begin + 1024 else data

    bench.read._read = lies
    with pytest.raises(AssertionError, match="DRAM bytes differ"):
        await bench.check(case)
