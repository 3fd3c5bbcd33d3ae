"""cocotb bench of the whole device, between an AXI memory and an AXI4-Lite host of cocotbext-axi (``device.py``)."""

import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from device import TINY, Bench

from gemmule.csr import FAULT_SHIFT, WATCHDOG_CYCLES, Control, Csr, Status
from gemmule.isa import COMMAND_BYTES, MoveFlag, Unit, decode
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz.draw import Straight
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch

COMMANDS = 50
REST = os.environ.get("BENCH_VARIANTS") == "rest"
"""Whether the further seeds, paths and channels run, which take too long for ``make test``, instead of the first."""


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
@cocotb.parametrize((("seed", "stalls"), [(1, "often"), (1, "none"), (3, "slow")] if REST else [(2, "often")]))
async def random_program(dut: Any, seed: int, stalls: str) -> None:
    case = generate(TINY, 900 + seed, COMMANDS, brief=True, taste=Straight)
    bench = await Bench.start(dut, len(case.dram))
    pauses = {"none": None, "often": often, "slow": slow}[stalls]
    bench.pause(pauses, seed)
    bench.pause(pauses and often, seed + 100, host=True)
    await bench.check(case)


def moves(case: Launch, unit: Unit) -> list[tuple[int, int]]:
    """(index, DRAM address) of the loads or stores through base register 0 that touch DRAM."""
    found = []
    for index in range(len(case.image) // COMMAND_BYTES):
        command = decode(int.from_bytes(case.image[index * COMMAND_BYTES:][:COMMAND_BYTES], "little"))
        if command.unit is unit and command.fields["base"] == 0 and MoveFlag.ZERO not in command.flags:
            found.append((index, command.fields["offset"]))
    return found


@cocotb.test()
@cocotb.parametrize((("where", "recover"), [
    ("load", "restart"), ("load", "reset"), ("store", "restart")] if REST else [("fetch", "reset")]))
async def axi_error(dut: Any, where: str, recover: str) -> None:
    case, after = (generate(TINY, seed, COMMANDS, brief=True, taste=Straight) for seed in (950, 951))
    count = len(case.image) // COMMAND_BYTES
    index, begin = {"fetch": (count - 6, case.program + (count - 6) * COMMAND_BYTES),
                    "load": moves(case, Unit.LOAD)[0], "store": moves(case, Unit.STORE)[-1]}[where]
    bench = await Bench.start(dut, len(case.dram))
    bench.pause(often, 3)
    if where == "store":
        bench.write.broken = range(begin, begin + 64)
    else:
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
@cocotb.parametrize(channel=["ar", "aw", "b", "r"] if REST else ["w"])
async def memory_stops(dut: Any, channel: str) -> None:
    """One channel of the memory never answers again: fault ``watchdog`` and the interrupt, ``WATCHDOG`` + 2 cycles
    after the last transfer. Once device and bus are reset the next program is exact."""
    case, after = (generate(TINY, seed, 30, brief=True, taste=Straight) for seed in (955, 956))
    bench = await Bench.start(dut, len(case.dram))
    await bench.poke(Csr.WATCHDOG, 400)
    ram = bench.read if channel in ("ar", "r") else bench.write
    side = getattr(ram, f"{channel}_channel")
    side.set_pause_generator(itertools.chain([False] * 150, itertools.repeat(True)))
    await bench.launch(case)
    assert bench.watch.silent == 400 + 3  # launch looks two cycles after the interrupt
    assert FAULTS[6] == "watchdog"
    assert await bench.peek(Csr.STATUS) == Status.DONE | 6 << FAULT_SHIFT
    assert await bench.peek(Csr.FAULT_INDEX) <= len(case.image) // COMMAND_BYTES
    assert await bench.peek(Csr.CYCLES, 8) == bench.cycles
    side.clear_pause_generator()
    side.pause = False
    bench.check_bus()
    await bench.poke(Csr.CONTROL, Control.RESET)  # withdraws what is offered: the bus must be reset too
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 2)
    assert not dut.irq.value
    bench.watch.forget()
    bench.registers.clear()
    await bench.check(after)


@cocotb.test()
@cocotb.parametrize(seed=[2] if REST else [1])
async def registers(dut: Any, seed: int) -> None:
    """Every parameter reads back what was written, whole, by bytes and across a device reset."""
    bench = await Bench.start(dut)
    bench.pause(often, seed, host=True)
    rng = random.Random(seed)
    assert await bench.peek(Csr.WATCHDOG) == WATCHDOG_CYCLES == 1 << 20
    spans = {Csr.PROGRAM_LO: 12, Csr.WATCHDOG: 4, Csr.LENGTH0: 64, Csr.BASE_LO: 256, Csr.LIMIT_LO: 256}
    address = (1 << TINY.address_bits) - 1
    program = address.to_bytes(8, "little") + (0xFFFFFF).to_bytes(4, "little")
    bits = {Csr.PROGRAM_LO: program, Csr.WATCHDOG: b"\xff" * 4, Csr.LENGTH0: bytes(4) + b"\xff\xff\0\0" * 15,
            Csr.BASE_LO: address.to_bytes(8, "little") * 32, Csr.LIMIT_LO: address.to_bytes(8, "little") * 32}
    image = {where: rng.randbytes(size) for where, size in spans.items()}
    for where, data in image.items():
        await bench.poke(where, data)
    shadow = {where: bytearray(data) for where, data in image.items()}
    for _ in range(40 if REST else 12):  # odd places and sizes: byte strobes
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
    case = generate(TINY, 960, 10, brief=True, taste=Straight)
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
    await bench.launch(wipe(TINY, len(case.dram)))
    assert dut.irq.value
    begun = cocotb.start_soon(bench.check(case, known=True))
    await RisingEdge(dut.trace_start)
    await RisingEdge(dut.clk)
    assert not dut.irq.value
    await bench.poke(Csr.CONTROL, Control.START)  # ignored while busy
    await begun
    assert bench.cycles == cycles  # the same program on the same memory


@cocotb.test()
async def corrupt_memory(dut: Any) -> None:
    """The comparison fails when one bit of the data that the device reads is wrong."""
    case = generate(TINY, 970, 10, brief=True, taste=Straight)
    bench = await Bench.start(dut, len(case.dram))
    honest, begin = bench.read._read, moves(case, Unit.LOAD)[0][1]

    async def lies(address: int, length: int) -> bytes:
        data = await honest(address, length)
        return bytes([data[0] ^ 1, *data[1:]]) if begin <= address < begin + 1024 else data

    bench.read._read = lies
    with pytest.raises(AssertionError, match="DRAM bytes differ"):
        await bench.check(case)
