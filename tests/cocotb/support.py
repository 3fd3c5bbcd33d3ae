"""What the benches share: clock and reset, cycle numbers, and what stands behind a unit's ports.

Convention: whoever decides within a cycle (the issuer) acts at the falling edge, in the middle of the cycle,
when its registered outputs stand. All others look at the rising edge that ends a cycle and drive the next one.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import cocotb
import numpy as np
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from cocotb.utils import get_sim_time

from gemmule.config import Config, load_config

__all__ = ["CONFIG", "Dram", "Issuer", "Memory", "now", "pack", "start", "stalls", "until"]

CONFIG: Config = load_config(os.environ.get("GEMMULE_CONFIG", "tiny"))
PERIOD_NS = 10


_origin = 0


def now() -> int:
    """Number of the present cycle since :func:`start`; a rising edge belongs to the cycle that it ends."""
    return (round(get_sim_time("ns")) - _origin - 1) // PERIOD_NS


async def start(dut: Any) -> None:
    """Clock and reset; all inputs are 0 after it."""
    global _origin
    _origin = round(get_sim_time("ns"))
    for name in os.environ["GEMMULE_INPUTS"].split(","):
        getattr(dut, name).value = 0
    Clock(dut.clk, PERIOD_NS, unit="ns", impl="gpi").start()
    dut.rst.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def until(dut: Any, done: Callable[[], bool], cycles: int = 20000) -> None:
    """Wait for the end of the cycle in which ``done``; the test fails after ``cycles``."""
    for _ in range(cycles):
        await RisingEdge(dut.clk)
        if done():
            return
    raise AssertionError(f"not done after {cycles} cycles")


def stalls(seed: int, share: float) -> Callable[[], bool]:
    """Says in each cycle whether to stall; chance ``share``."""
    rng = random.Random(seed)
    return lambda: rng.random() < share


def pack(layout: data.Layout, values: Any) -> int:
    """The bits of a packed port, such as ``control__command``."""
    return int(layout.const(values).as_value().value)


class Memory:
    """Rows behind memory ports of a unit: data one cycle after ``en``, writes by lanes.

    Reads of a cycle see what was written before it. Read data stand for one cycle, then nonsense does.

    Parameters
    ----------
    rows: uint8[rows, bytes], the contents.
    reads: prefixes of read ports, with the number of aligned rows that each returns.
    writes: prefixes of write ports.
    lane: bytes per mask bit.
    address: signal that names the row.
    """

    def __init__(self, dut: Any, rows: np.ndarray, *, reads: dict[str, int] | None = None,
                 writes: Sequence[str] = (), lane: int = 1, address: str = "row") -> None:
        self.dut, self.rows, self.lane, self.address = dut, rows, lane, address
        self.reads, self.writes = dict(reads or {}), tuple(writes)
        self.read_cycles: dict[str, list[int]] = {name: [] for name in self.reads}
        self.write_cycles: dict[str, list[int]] = {name: [] for name in self.writes}
        self._task = cocotb.start_soon(self._run())

    def _port(self, name: str, signal: str) -> Any:
        return getattr(self.dut, f"{name}__{signal}")

    async def _run(self) -> None:
        width = self.rows.shape[1]
        while True:
            await RisingEdge(self.dut.clk)
            for name, together in self.reads.items():
                word = (1 << 8 * width * together) - 1
                if self._port(name, "en").value:
                    row = int(self._port(name, self.address).value) // together * together
                    word = int.from_bytes(self.rows[row:row + together].tobytes(), "little")
                    self.read_cycles[name].append(now())
                self._port(name, "data").value = word
            for name in self.writes:
                if self._port(name, "en").value:
                    row, mask = int(self._port(name, self.address).value), int(self._port(name, "mask").value)
                    value = int(self._port(name, "data").value).to_bytes(width, "little")
                    for at in range(width):
                        if mask >> at // self.lane & 1:
                            self.rows[row, at] = value[at]
                    self.write_cycles[name].append(now())


class Dram:
    """Answers read requests in order, ``latency`` cycles after their acceptance, a beat a cycle.

    ``stall`` holds back requests and beats. ``broken``: the number of a beat with an error response.
    """

    def __init__(self, dut: Any, data: np.ndarray, *, latency: int, stall: Callable[[], bool] = lambda: False,
                 prefix: str = "read", broken: int = -1) -> None:
        self.dut, self.data, self.latency, self.stall = dut, data, latency, stall
        self.prefix, self.broken = prefix, broken
        self.requests: list[tuple[int, int, int]] = []
        """Cycle, address, beats."""
        self.beats: list[int] = []
        self.most = self.most_beats = 0
        """Most bursts and beats in flight."""
        self._task = cocotb.start_soon(self._run())

    def _port(self, name: str) -> Any:
        return getattr(self.dut, f"{self.prefix}__{name}")

    async def _run(self) -> None:
        bus = CONFIG.bus_bytes
        queue: deque[tuple[int, int, bool]] = deque()  # earliest cycle, address, last
        flying = 0
        offered: tuple[int, int] | None = None
        ready = False
        while True:
            await RisingEdge(self.dut.clk)
            cycle = now()
            request = None
            if self._port("req_valid").value:
                request = int(self._port("req_addr").value), int(self._port("req_len").value) + 1
            assert offered in (None, request), "an offered request was changed"
            offered = None if ready else request
            if request and ready:
                address, count = request
                self.requests.append((cycle, address, count))
                queue.extend((cycle + self.latency + i, address + i * bus, i == count - 1) for i in range(count))
                flying += 1
                self.most, self.most_beats = max(self.most, flying), max(self.most_beats, len(queue))
            ready = not self.stall()
            self._port("req_ready").value = ready
            valid = bool(queue) and queue[0][0] <= cycle + 1 and not self.stall()
            self._port("beat_valid").value = valid
            if valid:
                _, address, last = queue.popleft()
                word = self.data[address // bus * bus:][:bus].tobytes()
                self._port("beat_data").value = int.from_bytes(word, "little")
                self._port("beat_last").value = last
                self._port("beat_resp").value = 2 if len(self.beats) == self.broken else 0
                self.beats.append(cycle + 1)
                flying -= last


class Issuer:
    """Starts a unit's commands in order as soon as it is ready and ``limit`` allows; records all cycles.

    ``earliest``: first cycle for each command, from now on; ``alone``: commands that wait for an idle unit;
    ``after_alone``: their successors do so too.
    """

    def __init__(self, dut: Any, layout: data.StructLayout, commands: Sequence[dict[str, Any]], *, limit: int,
                 earliest: Sequence[int] = (), alone: Callable[[dict[str, Any]], bool] = lambda _: False,
                 after_alone: bool = True) -> None:
        self.dut, self.commands, self.limit = dut, commands, limit
        single = [alone(command) for command in commands]
        self.limits = [
            1 if this or (before and after_alone) else limit for before, this in zip([False, *single], single)]
        self.words = [pack(layout, command) for command in commands]
        self.earliest = [now() + cycle for cycle in earliest] or [0] * len(commands)
        self.issues: list[int] = []
        self.finishes: list[int] = []
        self.releases: list[tuple[int, int]] = []
        """Cycle, mask of streams."""
        self._tasks = cocotb.start_soon(self._issue()), cocotb.start_soon(self._watch())

    @property
    def done(self) -> bool:
        return len(self.finishes) == len(self.commands)

    def stop(self) -> None:
        """Leave the port to a later one."""
        self.dut.control__start.value = 0
        for task in self._tasks:
            task.cancel()

    async def _issue(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            i, flying = len(self.issues), len(self.issues) - len(self.finishes)
            go = (i < len(self.words) and now() >= self.earliest[i] and bool(self.dut.control__ready.value)
                  and flying < self.limits[i])
            self.dut.control__start.value = go
            if go:
                self.dut.control__command.value = self.words[i]
                self.issues.append(now())

    async def _watch(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if self.dut.control__finish.value:
                self.finishes.append(now())
            if release := int(self.dut.control__release.value):
                self.releases.append((now(), release))
