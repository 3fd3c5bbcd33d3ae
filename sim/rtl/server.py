"""The cocotb side of :class:`gemmule.sim.rtl.device.RtlDevice`: a loop that serves one client.

Runs inside the simulator. Between requests simulated time stands still. No Python runs per
cycle except for the few cycles of an AXI4-Lite access.
"""

from __future__ import annotations

import os
import random
import time
from multiprocessing.connection import Connection
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, FallingEdge, First, RisingEdge, Timer

PERIOD_NS = 10
PATIENCE = 1000
"""Cycles within which the registers must answer."""


async def _handshakes(dut: Any, pairs: dict[str, str], then: str) -> None:
    """Hold each valid until its ready, then wait for the response signal ``then``.

    Signals change at falling edges and are sampled shortly after them, when all is settled.
    """
    waiting = dict(pairs)
    for valid in waiting:
        getattr(dut, valid).value = 1
    answered, cycles = False, 0
    while waiting or not answered:
        cycles += 1
        if cycles > PATIENCE:
            raise TimeoutError(f"no answer of the registers in {PATIENCE} cycles")
        await Timer(PERIOD_NS // 5, unit="ns")
        taken = [valid for valid, ready in waiting.items() if int(getattr(dut, ready).value)]
        answered = answered or bool(int(getattr(dut, then).value))
        await FallingEdge(dut.clk)
        for valid in taken:
            getattr(dut, valid).value = 0
            del waiting[valid]


async def write_csr(dut: Any, address: int, value: int, strobe: int = 0xF) -> None:
    dut.s_axil_awaddr.value = address
    dut.s_axil_wdata.value = value
    dut.s_axil_wstrb.value = strobe
    await _handshakes(dut, {"s_axil_awvalid": "s_axil_awready", "s_axil_wvalid": "s_axil_wready"},
                      "s_axil_bvalid")


async def read_csr(dut: Any, address: int) -> int:
    dut.s_axil_araddr.value = address
    await _handshakes(dut, {"s_axil_arvalid": "s_axil_arready"}, "s_axil_rvalid")
    return int(dut.s_axil_rdata.value)


async def paused(dut: Any, write: bool, address: int, value: int, strobe: int, draw: random.Random) -> int:
    """One access of a host that begins each channel when it likes and takes the answer when it likes.

    The answer must stand until it is taken, and nothing is ready for a second access before this one is whole. What a
    channel carries is something else as soon as it has been taken.
    """
    sides = {"s_axil_awvalid": "s_axil_awready", "s_axil_wvalid": "s_axil_wready"} if write else {
        "s_axil_arvalid": "s_axil_arready"}
    then, ready = ("s_axil_bvalid", "s_axil_bready") if write else ("s_axil_rvalid", "s_axil_rready")
    ports, taken = dict(sides), []  # type: dict[str, str], list[str]
    begin, hold = {valid: draw.randrange(5) for valid in sides}, draw.randrange(5)
    dut.s_axil_awaddr.value = dut.s_axil_araddr.value = address
    dut.s_axil_wdata.value, dut.s_axil_wstrb.value = value, strobe
    getattr(dut, ready).value = 0
    answer: int | None = None
    for cycle in range(PATIENCE):
        for valid in sides:
            getattr(dut, valid).value = int(begin[valid] <= cycle)
        await Timer(PERIOD_NS // 5, unit="ns")
        if (sides or not write) and any(int(getattr(dut, ports[valid]).value) for valid in taken):
            raise ValueError("the registers would take a second access before the first one is whole")
        sides = {valid: side for valid, side in sides.items()
                 if begin[valid] > cycle or not int(getattr(dut, side).value)}
        taken = [valid for valid in begin if valid not in sides]
        shown = int(dut.s_axil_rdata.value) if not write else 0
        there = bool(int(getattr(dut, then).value))
        if answer is not None and (not there or shown != answer):
            raise ValueError("an answer of the registers was not held")
        answer = shown if there else None
        if there and hold == 0:
            getattr(dut, ready).value = 1
            await FallingEdge(dut.clk)
            getattr(dut, ready).value = 1
            if sides:
                raise ValueError("the registers answered before they had all")
            return shown
        hold -= there
        await FallingEdge(dut.clk)
        for valid in taken:
            getattr(dut, valid).value = 0
            for name, other in {"s_axil_awvalid": [("awaddr", ~address & 0xFFF)],
                               "s_axil_arvalid": [("araddr", ~address & 0xFFF)],
                               "s_axil_wvalid": [("wdata", ~value & 0xFFFFFFFF), ("wstrb", ~strobe & 0xF)]}[valid]:
                getattr(dut, f"s_axil_{name}").value = other
    raise TimeoutError(f"no answer of the registers in {PATIENCE} cycles")


async def host(dut: Any, op: int, word: int = 0, count: int = 0, fill: int = 0) -> None:
    """One testbench strobe (see ``hw/tb/dram.sv``)."""
    dut.host_word.value = word
    dut.host_count.value = count
    dut.host_fill.value = fill
    dut.host_op.value = op
    await FallingEdge(dut.clk)
    dut.host_op.value = 0


async def reset(dut: Any) -> None:
    dut.rst.value = 1
    for _ in range(4):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    await FallingEdge(dut.clk)


async def wait(dut: Any, cycles: int) -> None:
    if cycles:
        await ClockCycles(dut.clk, cycles)
        await FallingEdge(dut.clk)


async def launch(dut: Any, writes: list[tuple[int, int]], start: tuple[int, int], reads: list[int],
                 after: list[tuple[int, int]], watchdog: int, during: list[tuple[int, int, int]]) -> dict[str, Any]:
    """CSR writes, start, interrupt, CSR reads, CSR writes; the log file is complete on return.

    ``during``: CSR writes of the running device, each with the cycles to wait before it.
    """
    for address, value in writes:
        await write_csr(dut, address, value)
    interrupt = RisingEdge(dut.irq)
    await write_csr(dut, *start)
    for cycles, address, value in during:
        await wait(dut, cycles)
        await write_csr(dut, address, value)
    return await finish(dut, interrupt, reads, after, watchdog)


async def finish(dut: Any, interrupt: RisingEdge, reads: list[int], after: list[tuple[int, int]],
                 watchdog: int) -> dict[str, Any]:
    """The second half of a launch: what follows the start."""
    timeout = False
    if not int(dut.irq.value):
        await First(interrupt, Timer(watchdog * PERIOD_NS, unit="ns"))
        timeout = not int(dut.irq.value)
    await FallingEdge(dut.clk)
    await host(dut, 4)
    values = [] if timeout else [await read_csr(dut, address) for address in reads]
    for address, value in after:
        await write_csr(dut, address, value)
    return {"timeout": timeout, "values": values, "protocol": int(dut.protocol_error.value)}


async def step(dut: Any, what: str, *values: int) -> int:
    """One of many small requests: write a register, read one, or let cycles pass."""
    if what == "read":
        return await read_csr(dut, *values)
    await (write_csr if what == "write" else wait)(dut, *values)
    return 0


async def _serve(dut: Any, request: dict[str, Any]) -> Any:
    kind = request.pop("kind")
    if kind == "host":
        await host(dut, **request)
        return int(dut.protocol_error.value)
    if kind == "launch":
        return await launch(dut, **request)
    if kind == "finish":
        return await finish(dut, RisingEdge(dut.irq), **request)
    if kind == "csr":
        for write in request["writes"]:
            await write_csr(dut, *write)
        return [await read_csr(dut, address) for address in request["reads"]]
    if kind == "steps":
        return [await step(dut, *each) for each in request["steps"]]
    if kind == "paused":
        draw = random.Random(request["seed"])
        return [await paused(dut, write, address, value, strobe, draw)
                for write, address, value, strobe in request["accesses"]]
    if kind == "reset":
        return await reset(dut)
    if kind == "wait":
        await wait(dut, request["cycles"])
        return int(dut.irq.value)
    if kind == "seconds":
        return time.process_time()
    if kind == "set":
        for name, value in request["values"].items():
            getattr(dut, name).value = value
        await FallingEdge(dut.clk)
        return None
    raise ValueError(f"unknown request {kind!r}")


@cocotb.test()
async def serve(dut: Any) -> None:
    """Answer requests until the client says quit or goes away."""
    for name in ("s_axil_awvalid", "s_axil_wvalid", "s_axil_arvalid", "host_op", "bus_rst", "stall", "stall_channels",
                 "order", "error_enable", "error_beat"):
        getattr(dut, name).value = 0
    dut.s_axil_bready.value = 1
    dut.s_axil_rready.value = 1
    if "GEMMULE_CLOCK" not in os.environ:  # of a simulator that has none itself
        Clock(dut.clk, PERIOD_NS, unit="ns", impl="gpi").start()
    await reset(dut)
    with Connection(int(os.environ["GEMMULE_RTL_SOCKET"])) as connection:
        connection.send(("ok", "ready"))
        while True:
            try:
                request = connection.recv()
            except EOFError:
                return
            if request["kind"] == "quit":
                return
            try:
                connection.send(("ok", await _serve(dut, request)))
            except Exception as error:
                connection.send(("error", f"{type(error).__name__}: {error}"))
