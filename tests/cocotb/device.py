"""The device between an AXI memory and an AXI4-Lite host of cocotbext-axi; for ``bench_gemmule.py``.

Nothing of the project's own testbench takes part; only the expected bytes and traffic come from the model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb.utils import get_sim_time
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRamRead, AxiRamWrite, AxiResp

from gemmule.config import load_config
from gemmule.csr import (
    CAUSES,
    TRAFFIC,
    Control,
    Csr,
    Status,
    base_offset,
    counter_offset,
    length_offset,
    limit_offset,
)
from gemmule.isa import COMMAND_BYTES
from gemmule.sim.fuzz.wipe import wipe
from gemmule.sim.launch import Launch
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator

TINY = load_config("tiny")
PERIOD_NS = 10
DEADLINE = 1_000_000
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
    """Every cycle: a valid stays with its payload until its ready; counts what is outstanding.

    ``silent``: cycles in a row in which a transfer was due and none was.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.reads = self.writes = self.requests = self.errors = self.silent = 0
        self.rules: list[str] = []
        self.held: dict[str, list[int]] = {}
        cocotb.start_soon(self._run())

    def forget(self) -> None:
        """After a reset of the bus."""
        self.reads = self.writes = self.errors = 0
        self.held.clear()
        self.rules.clear()

    async def _run(self) -> None:
        edge, held = RisingEdge(self.dut.clk), self.held
        port = {name: getattr(self.dut, f"m_axi_{name}") for channel in ("ar", "r", "aw", "w", "b")
                for name in (f"{channel}valid", f"{channel}ready", *PAYLOADS.get(channel, ()))}
        port |= {name: getattr(self.dut, f"m_axi_{name}") for name in ("rlast", "rresp", "bresp")}
        channels = [(name, port[f"{name}valid"], port[f"{name}ready"], [port[signal] for signal in signals])
                    for name, signals in PAYLOADS.items()]
        while True:
            await edge
            offered = moved = False
            for name, valid, ready, signals in channels:
                if not valid.value:
                    if name in held:
                        self.rules.append(f"{name}: {held.pop(name)} went before its ready")
                    continue
                offered = True
                payload = [int(s.value) for s in signals]
                if name in held and held.pop(name) != payload:
                    self.rules.append(f"{name}: became {payload} before its ready")
                if not ready.value:
                    held[name] = payload
                    continue
                moved = True
                if name != "w":
                    self.requests += 1
                    self.reads += name == "ar"
                    self.writes += name == "aw"
            due = offered or self.reads or self.writes
            if due and port["rvalid"].value and port["rready"].value:
                moved = True
                self.reads -= bool(port["rlast"].value)
                self.errors += int(port["rresp"].value) != AxiResp.OKAY
            if due and port["bvalid"].value and port["bready"].value:
                moved = True
                self.writes -= 1
                self.errors += int(port["bresp"].value) != AxiResp.OKAY
            self.silent = self.silent + 1 if due and not moved else 0


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
        self.registers: dict[int, bytes] = {}

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

    async def launch(self, case: Launch) -> None:
        """Put a program and its data into the memory, run it to its interrupt."""
        self.memory[:] = case.dram.tobytes()
        self.memory[case.program:case.program + len(case.image)] = case.image
        for offset, values in ((base_offset(0), case.bases.astype("<u8")), (limit_offset(0), case.limits.astype("<u8")),
                               (length_offset(0), case.lengths.astype("<u4"))):
            if self.registers.get(offset) != values.tobytes():  # they stay from launch to launch
                self.registers[offset] = values.tobytes()
                await self.poke(offset, values.tobytes())
        count = len(case.image) // COMMAND_BYTES
        await self.poke(Csr.PROGRAM_LO, case.program.to_bytes(8, "little") + count.to_bytes(4, "little"))
        cocotb.start_soon(self._time())
        await self.poke(Csr.CONTROL, Control.START)
        assert await self.peek(Csr.STATUS) == Status.BUSY
        if not self.dut.irq.value:
            await with_timeout(RisingEdge(self.dut.irq), DEADLINE * PERIOD_NS, "ns")
        await ClockCycles(self.dut.clk, 2)

    async def _time(self) -> None:
        await RisingEdge(self.dut.trace_start)
        begin = get_sim_time("ns")
        await RisingEdge(self.dut.irq)
        self.cycles = round((get_sim_time("ns") - begin) / PERIOD_NS)

    def check_bus(self) -> None:
        assert self.watch.rules == []
        assert (self.read.outside, self.write.outside) == (0, 0)

    async def check(self, case: Launch, known: bool = False) -> None:
        """Run a program; its result, status and bus traffic are those of the model.

        ``known``: the device's memories are those that :func:`wipe` leaves; else it runs first.
        """
        if not known:
            await self.launch(replace(wipe(TINY, len(self.memory)), bases=case.bases, limits=case.limits,
                                      lengths=case.lengths))
        await self.launch(case)
        memory, result = expected(case)
        assert not (text := differences(memory, bytes(self.memory))), text
        assert await self.peek(Csr.STATUS) == Status.DONE
        assert await self.peek(Csr.CYCLES, 8) == self.cycles
        for name in TRAFFIC:  # what crosses the bus does not depend on when
            assert await self.peek(counter_offset(name), 8) == result.registers[name], name
        for unit in ("load", "store", "matrix", "vector"):
            spent = [await self.peek(counter_offset(f"{unit}_{cause}"), 8) for cause in CAUSES]
            assert sum(spent) == self.cycles, unit
        assert (self.watch.reads, self.watch.writes, self.watch.errors) == (0, 0, 0)
        self.check_bus()


def expected(case: Launch) -> tuple[bytes, Result]:
    """All DRAM bytes after the program, and its traffic, by the model."""
    model = Simulator(TINY, dram_bytes=len(case.dram))
    for each in (wipe(TINY, len(case.dram)), case):
        model.write_dram(0, each.dram)
        model.bases[:], model.limits[:], model.lengths[:] = each.bases, each.limits, each.lengths
        model.load_program(each.image, each.program)
        result = model.run()
    assert result.fault == 0
    image = bytearray(model.read_dram(0, len(case.dram)))
    assert bytes(image) != case.dram.tobytes()
    if os.environ.get("BENCH_MUTANT") == "expected":
        image[-4096 * 5] ^= 1
    return bytes(image), result


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
