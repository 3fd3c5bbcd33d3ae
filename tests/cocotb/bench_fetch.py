"""cocotb bench of the fetch unit (``hw/command/fetch.py``): requests, order of commands, room in its queue."""

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from support import CONFIG, Dram, now, stalls, start, until

from gemmule.isa import COMMAND_BYTES

IMAGE = np.random.default_rng(4).integers(0, 256, 1 << 14, dtype=np.uint8)


def word(address: int) -> int:
    return int.from_bytes(IMAGE[address:address + COMMAND_BYTES].tobytes(), "little")


class Consumer:
    """Takes commands unless it stalls; checks each against the image."""

    def __init__(self, dut: Any, program: int, stall: Any) -> None:
        self.cycles: list[int] = []
        """Cycles in which a command was taken."""
        self.dut, self.program, self.stall = dut, program, stall
        self._task = cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            take = bool(self.dut.valid.value) and not self.stall()
            self.dut.take.value = take
            if take:
                assert int(self.dut.command.value) == word(self.program + COMMAND_BYTES * len(self.cycles))
                self.cycles.append(now())


async def launch(dut: Any, program: int, commands: int) -> int:
    """Start strobe; returns its cycle."""
    await FallingEdge(dut.clk)
    dut.program.value, dut.commands.value, dut.start.value = program, commands, 1
    begin = now()
    await FallingEdge(dut.clk)
    dut.start.value = 0
    return begin


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3], share=[0.2, 0.6])
async def random_stalls(dut: Any, seed: int, share: float) -> None:
    await start(dut)
    program, commands = COMMAND_BYTES * (seed * 3 + 1), 70 + seed
    dram = Dram(dut, IMAGE, latency=5, stall=stalls(seed, share))
    consumer = Consumer(dut, program, stalls(seed + 10, share))
    begin = await launch(dut, program, commands)
    await until(dut, lambda: len(consumer.cycles) == commands)
    await RisingEdge(dut.clk)
    assert dut.idle.value
    assert not dut.valid.value
    at = program
    for cycle, address, beats in dram.requests:
        assert cycle > begin
        assert address == at
        at += beats * CONFIG.bus_bytes
        assert at == program + commands * COMMAND_BYTES or at % CONFIG.burst_bytes == 0
    assert at == program + commands * COMMAND_BYTES


@cocotb.test()
async def latency(dut: Any) -> None:
    """Start in 0: request in 1, first beat in 1 + 20, a command of 8 beats is at the head in 29."""
    await start(dut)
    dram = Dram(dut, IMAGE, latency=20)
    consumer = Consumer(dut, 64, lambda: False)
    begin = await launch(dut, 64, 2)
    await until(dut, lambda: len(consumer.cycles) == 2)
    assert [(cycle - begin, address, beats) for cycle, address, beats in dram.requests] == [(1, 64, 16)]
    assert dram.beats[0] - begin == 21
    assert [cycle - begin for cycle in consumer.cycles] == [29, 37]


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """One request a cycle until the queue's 32 commands are reserved, then a beat a cycle without a gap."""
    await start(dut)
    dram = Dram(dut, IMAGE, latency=30)
    consumer = Consumer(dut, 0, lambda: False)
    begin = await launch(dut, 0, 60)
    await until(dut, lambda: len(consumer.cycles) == 60)
    assert [cycle - begin for cycle, _, _ in dram.requests[:16]] == list(range(1, 17))
    assert [cycle - begin for cycle in dram.beats] == list(range(31, 31 + 60 * 8))


@cocotb.test()
async def full_queue(dut: Any) -> None:
    """Nobody takes: 32 commands are fetched, no more. A burst holds two; it is asked for when two are gone."""
    await start(dut)
    dram, allowed = Dram(dut, IMAGE, latency=3), 0
    consumer = Consumer(dut, 0, lambda: len(consumer.cycles) >= allowed)
    await launch(dut, 0, 64)
    for allowed, commands in ((0, 32), (1, 32), (2, 34), (5, 36)):
        for _ in range(400):
            await RisingEdge(dut.clk)
        assert len(consumer.cycles) == allowed
        assert sum(beats for _, _, beats in dram.requests) == commands * 8


@cocotb.test()
async def error_response(dut: Any) -> None:
    await start(dut)
    errors: list[int] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            if dut.error.value:
                errors.append(now())

    cocotb.start_soon(watch())
    dram = Dram(dut, IMAGE, latency=4, broken=11)
    consumer = Consumer(dut, 0, lambda: False)
    await launch(dut, 0, 2)
    await until(dut, lambda: len(consumer.cycles) == 2)
    assert errors == [dram.beats[11]]
