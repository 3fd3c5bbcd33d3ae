"""cocotb bench of the store unit (``hw/move/store.py``): every mode, under stalls on all AXI channels, at full rate."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from support import CONFIG, Issuer, Memory, now, stalls, start, until

from gemmule.hw.interfaces import move_layout
from gemmule.isa import MoveFlag
from gemmule.timing import Timing

LAYOUT = move_layout(CONFIG)
DIM, BUS = CONFIG.dim, CONFIG.bus_bytes
ACCUMULATOR, NARROW, INDEXED = (1 << flag for flag in (MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.INDEXED))
LIST = np.random.default_rng(7).integers(0, 8, CONFIG.list_entries, dtype=np.uint16)
"""Numbers of DRAM rows."""
ONE = {"zero": 0, "flags": 0, "address": 64, "rows": 1, "bytes": 8, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1, "list": 0, "last_index": 0}
SPAN = 4096
"""DRAM bytes of one command."""


def random_command(rng: random.Random, i: int) -> dict[str, int]:
    flags = rng.choice((0, 0, ACCUMULATOR, ACCUMULATOR | NARROW)) | rng.choice((0, INDEXED))
    words = flags & (ACCUMULATOR | NARROW) == ACCUMULATOR
    size = rng.randint(1, 3 * DIM) * (4 if words else 1)
    if rng.random() < 0.2:
        size = 4 * rng.randint(1, 50)
    rows, width = rng.randint(1, 5), 4 * DIM if words else DIM
    joined = rng.random() < 0.4 and size % BUS == 0 and not flags & INDEXED
    return {"zero": 0, "joined": int(joined), "flags": flags, "address": i * SPAN + rng.randrange(200), "rows": rows,
            "bytes": size, "stride": rows * size if joined else size + rng.randrange(20), "row": rng.randrange(100),
            "row_stride": rng.choice((1, -(-size // width))), "block_stride": rng.choice((1, rows)),
            "list": rng.randrange(CONFIG.list_entries - rows), "last_index": rng.randrange(8)}


class WriteDram:
    """AXI write channels: payloads must stand until taken, addresses and data go their own ways; responses
    come ``latency`` cycles after a burst is complete. ``broken``: the number of a burst with SLVERR."""

    def __init__(self, dut: Any, size: int, *, latency: int, stall: Callable[[], bool] = lambda: False,
                 broken: int = -1) -> None:
        self.dut, self.latency, self.stall, self.broken = dut, latency, stall, broken
        self.data = np.zeros(size, dtype=np.uint8)
        self.addresses: list[tuple[int, int, int]] = []
        """Cycle, address, beats."""
        self.beats: list[int] = []
        self.responses: list[int] = []
        self.most = 0
        self._task = cocotb.start_soon(self._run())

    def _port(self, name: str) -> Any:
        return getattr(self.dut, f"axi__{name}")

    def _offer(self, channel: str, *fields: str) -> tuple[int, ...] | None:
        if not self._port(f"{channel}valid").value:
            return None
        return tuple(int(self._port(channel + field).value) for field in fields)

    def _write(self, address: int, word: int, strobe: int) -> None:
        for lane in range(BUS):
            if strobe >> lane & 1:
                self.data[address + lane] = word >> 8 * lane & 255

    async def _run(self) -> None:
        bursts: deque[tuple[int, int]] = deque()
        words: deque[tuple[int, int, int]] = deque()
        due: deque[int] = deque()
        held: dict[str, tuple[int, ...]] = {}
        ready = {"aw": False, "w": False}
        answering = False
        while True:
            await RisingEdge(self.dut.clk)
            cycle = now()
            offers = {"aw": self._offer("aw", "addr", "len"), "w": self._offer("w", "data", "strb", "last")}
            for channel, offer in offers.items():
                assert held.pop(channel, offer) == offer, f"{channel} changed while it waited"
                if offer and not ready[channel]:
                    held[channel] = offer
                elif offer and channel == "aw":
                    self.addresses.append((cycle, offer[0], offer[1] + 1))
                    bursts.append((offer[0], offer[1] + 1))
                elif offer:
                    self.beats.append(cycle)
                    words.append(offer)
            while bursts and len(words) >= bursts[0][1]:
                address, count = bursts.popleft()
                for i in range(count):
                    word, strobe, last = words.popleft()
                    assert last == (i == count - 1)
                    self._write(address // BUS * BUS + i * BUS, word, strobe)
                due.append(max(cycle + self.latency, due[-1] + 1 if due else 0))
            if answering:
                assert self._port("bready").value
                self.responses.append(cycle)
            self.most = max(self.most, len(self.addresses) - len(self.responses))
            for channel in ready:
                ready[channel] = not self.stall()
                self._port(f"{channel}ready").value = ready[channel]
            answering = bool(due) and due[0] <= cycle + 1 and not self.stall()
            self._port("bvalid").value = answering
            if answering:
                due.popleft()
                self._port("bresp").value = 2 if len(self.responses) == self.broken else 0


class Bench:
    """The unit between both memories and a DRAM."""

    def __init__(self, dut: Any, commands: list[dict[str, int]], *, latency: int, stall: Any = lambda: False,
                 earliest: tuple[int, ...] = (), broken: int = -1) -> None:
        generator = np.random.default_rng(8)
        scratchpad = generator.integers(0, 256, (512, DIM), dtype=np.uint8)
        accumulator = generator.integers(-200, 200, (512, DIM), dtype=np.int32)
        self.scratchpad = Memory(dut, scratchpad, reads={"spm": 1})
        self.accumulator = Memory(dut, accumulator.view(np.uint8), reads={"acc": 1})
        self.list = Memory(dut, LIST.view(np.uint8).reshape(-1, 2), reads={"list": 1}, address="entry")
        size = SPAN * (len(commands) + 1)
        self.dram = WriteDram(dut, size, latency=latency, stall=stall, broken=broken)
        self.issuer = Issuer(dut, LAYOUT, commands, limit=Timing.of(CONFIG).store_commands, earliest=earliest)
        self.expected = np.zeros(size, dtype=np.uint8)
        for c in commands:
            kind, pitch = c["flags"] & (ACCUMULATOR | NARROW), c["bytes"] if c.get("joined") else c["stride"]
            for r in range(c["rows"]):  # of a DRAM row that comes twice the later bytes stay
                number = min(int(LIST[c["list"] + r]), c["last_index"]) if c["flags"] & INDEXED else r
                for k in range(c["bytes"]):
                    at = c["address"] + number * pitch + k
                    width = 4 * DIM if kind == ACCUMULATOR else DIM
                    row, lane = c["row"] + r * c["row_stride"] + k // width * c["block_stride"], k % width
                    if kind == ACCUMULATOR:
                        self.expected[at] = accumulator[row].view(np.uint8)[lane]
                    elif kind:
                        self.expected[at] = max(-128, min(127, int(accumulator[row, lane]))) & 255
                    else:
                        self.expected[at] = scratchpad[row, lane]

    @property
    def reads(self) -> list[int]:
        return sorted(self.scratchpad.read_cycles["spm"] + self.accumulator.read_cycles["acc"])

    def check(self) -> None:
        np.testing.assert_array_equal(self.dram.data, self.expected)
        assert len(self.issuer.releases) == len(self.issuer.commands)
        assert self.dram.most <= CONFIG.write_bursts


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3], share=[0.0, 0.4])
async def random_commands(dut: Any, seed: int, share: float) -> None:
    await start(dut)
    rng = random.Random(seed)
    bench = Bench(dut, [random_command(rng, i) for i in range(50)], latency=1 + 9 * (seed - 1),
                  stall=stalls(seed, share))
    await until(dut, lambda: bench.issuer.done)
    await RisingEdge(dut.clk)
    bench.check()


@cocotb.test()
async def latency(dut: Any) -> None:
    """Issue t, reads in t + 1 and t + 2, sent in t + 4 and t + 5, response 10 later: finish t + 15."""
    await start(dut)
    bench = Bench(dut, [ONE], latency=10)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.reads == [t + 2, t + 3]
    assert bench.issuer.releases == [(t + 2, 1)]
    assert bench.dram.addresses == [(t + 5, 64, 2)]
    assert bench.dram.beats == [t + 5, t + 6]
    assert bench.issuer.finishes == [t + 16]
    bench.check()


@cocotb.test()
async def accumulator_latency(dut: Any) -> None:
    """The same for one row of 4 int32, unaligned: 5 beats, the last one needs no read of its own."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "flags": ACCUMULATOR, "address": 65, "bytes": 16}], latency=10)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.dram.addresses == [(t + 8, 64, 5)]
    assert bench.dram.beats == [t + 8 + i for i in range(5)]
    assert bench.issuer.releases == [(t + 5, 1)]
    assert bench.issuer.finishes == [t + 22]
    bench.check()


@cocotb.test()
async def indexed_latency(dut: Any) -> None:
    """Two reads a row: the first 4 cycles later than without INDEXED, in t + 5; every other row's 4 cycles after the
    last one of the row before. Numbers beyond the last one are that; a burst is sent 2 cycles after its reads."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "flags": INDEXED, "rows": 3, "stride": 64, "row_stride": 2, "list": 9,
                         "last_index": 4}], latency=2)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    at = [64 + 64 * min(int(number), 4) for number in LIST[9:12]]
    assert LIST[9:12].max() > 4 > LIST[9:12].min()
    assert bench.reads == [t + 6 + 5 * r + i for r in range(3) for i in range(2)]
    assert bench.dram.addresses == [(t + 9 + 5 * r, at[r], 2) for r in range(3)]
    bench.check()


@cocotb.test()
async def joined_latency(dut: Any) -> None:
    """Four rows of 24 bytes from byte 8 of a burst on go in two bursts, of 14 and 10 beats."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "joined": 1, "address": 72, "rows": 4, "bytes": 24, "stride": 96,
                         "block_stride": 4}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    assert [burst[1:] for burst in bench.dram.addresses] == [(72, 14), (128, 10)]
    bench.check()


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Three bursts of 16 beats: reading one overlaps sending the one before; two buffers, so the third waits."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "address": 0, "rows": 3, "bytes": 64, "stride": 64}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert [cycle - t for cycle, _, _ in bench.dram.addresses] == [19, 35, 53]
    assert [cycle - t for cycle in bench.reads] == [*range(2, 34), *range(36, 52)]
    bench.check()


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
    bench = Bench(dut, [ONE, {**ONE, "address": 256}], latency=5, earliest=(0, 60), broken=1)
    await until(dut, lambda: bench.issuer.done)
    await RisingEdge(dut.clk)
    assert errors == [bench.issuer.finishes[1]] == [bench.dram.responses[1]]
