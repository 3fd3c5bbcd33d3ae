"""cocotb bench of the load unit (``hw/move/load.py``): every mode, under stalls and at full rate."""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from support import CONFIG, Dram, Issuer, Memory, now, stalls, start, until

from gemmule.hw.interfaces import move_layout
from gemmule.isa import MoveFlag

LAYOUT = move_layout(CONFIG)
DRAM = np.random.default_rng(5).integers(0, 256, 1 << 14, dtype=np.uint8)
LIST = np.random.default_rng(7).integers(0, 12, CONFIG.list_entries, dtype=np.uint16)
"""Numbers of DRAM rows."""
DIM, BUS = CONFIG.dim, CONFIG.bus_bytes
ACCUMULATOR, NARROW, ADD, ZERO, BROADCAST, INDEXED = (1 << flag for flag in MoveFlag)
ONE = {"zero": 0, "flags": 0, "address": 64, "rows": 1, "bytes": 4, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1, "list": 0, "last_index": 0}
MODES = (0, ZERO, BROADCAST, ACCUMULATOR, ACCUMULATOR | NARROW, ACCUMULATOR | ADD, ACCUMULATOR | NARROW | ADD,
         ACCUMULATOR | ADD | BROADCAST, ACCUMULATOR | ZERO, INDEXED, ACCUMULATOR | ADD | INDEXED)


def alone(command: dict[str, int]) -> bool:
    return bool(command["flags"] & (ZERO | BROADCAST))


def random_command(rng: random.Random) -> dict[str, int]:
    flags = rng.choice(MODES)
    words = flags & ACCUMULATOR and not flags & NARROW
    size = rng.randint(1, 3 * DIM) * (4 if words else 1)
    if rng.random() < 0.1:
        size = 4 * rng.randint(1, 40)
    address = rng.randrange(8192) // (BUS if flags & BROADCAST else 1) * (BUS if flags & BROADCAST else 1)
    rows, width = rng.randint(1, 5), 4 * DIM if words else DIM
    blocks = -(-size // width)
    layouts = [(1, rows), (blocks, 1), *([] if flags & BROADCAST else [(1, 1), (0, 1)])]  # the last two overlap
    row_stride, block_stride = rng.choice(layouts)
    joined = rng.random() < 0.4 and size % BUS == 0 and not flags & (BROADCAST | INDEXED)
    return {"zero": 0, "joined": int(joined), "flags": flags, "address": address, "rows": rows, "bytes": size,
            "stride": rows * size if joined else rng.randrange(300),
            "row": rng.randrange(100), "row_stride": row_stride, "block_stride": block_stride,
            "list": rng.randrange(CONFIG.list_entries - rows), "last_index": rng.randrange(12)}


def reference(commands: list[dict[str, int]], scratchpad: np.ndarray, accumulator: np.ndarray) -> None:
    """docs/isa.md in plain Python: ``uint8[rows, DIM]`` and ``int64[rows, DIM]`` are changed in place."""
    for c in commands:
        flags = c["flags"]
        words = flags & ACCUMULATOR and not flags & NARROW
        item = 4 if words else 1
        pitch = 0 if flags & BROADCAST else c["bytes"] if c.get("joined") else c["stride"]
        for r in range(c["rows"]):
            number = min(int(LIST[c["list"] + r]), c["last_index"]) if flags & INDEXED else r
            for i in range(c["bytes"] // item):
                at = c["address"] + number * pitch + i * item
                raw = DRAM[at:at + item]
                value = 0 if flags & ZERO else int(raw.view(np.int32 if words else np.int8)[0])
                row = c["row"] + r * c["row_stride"] + i // DIM * c["block_stride"]
                if not flags & ACCUMULATOR:
                    scratchpad[row, i % DIM] = value & 255
                else:
                    accumulator[row, i % DIM] = value + (accumulator[row, i % DIM] if flags & ADD else 0)


class Bench:
    """The unit between a DRAM and both memories."""

    def __init__(self, dut: Any, commands: list[dict[str, int]], *, latency: int, stall: Any = lambda: False,
                 earliest: tuple[int, ...] = (), broken: int = -1) -> None:
        random_bytes = np.random.default_rng(6).integers(0, 256, (512, 5 * DIM), dtype=np.uint8)
        self.scratchpad = Memory(dut, random_bytes[:, :DIM].copy(), writes=["spm"])
        self.accumulator = Memory(
            dut, random_bytes[:, DIM:].copy(), reads={"acc_read": 1}, writes=["acc_write"], lane=4)
        self.expected = self.scratchpad.rows.copy(), self.accumulator.rows.view(np.int32).astype(np.int64)
        self.list = Memory(dut, LIST.view(np.uint8).reshape(-1, 2), reads={"list": 1}, address="entry")
        self.dram = Dram(dut, DRAM, latency=latency, stall=stall, broken=broken)
        self.issuer = Issuer(dut, LAYOUT, commands, limit=CONFIG.load_commands, earliest=earliest, alone=alone)
        reference(commands, *self.expected)

    def check(self) -> None:
        np.testing.assert_array_equal(self.scratchpad.rows, self.expected[0])
        np.testing.assert_array_equal(self.accumulator.rows.view(np.int32), self.expected[1].astype(np.int32))
        assert len(self.issuer.releases) == len(self.issuer.commands)
        assert self.dram.most <= CONFIG.read_bursts
        assert self.dram.most_beats < CONFIG.read_beats + CONFIG.burst_beats

    @property
    def writes(self) -> list[int]:
        return sorted(self.scratchpad.write_cycles["spm"] + self.accumulator.write_cycles["acc_write"])


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3], share=[0.0, 0.4])
async def random_commands(dut: Any, seed: int, share: float) -> None:
    await start(dut)
    rng = random.Random(seed)
    bench = Bench(dut, [random_command(rng) for _ in range(80)], latency=1 + 9 * (seed - 1), stall=stalls(seed, share))
    await until(dut, lambda: bench.issuer.done)
    await RisingEdge(dut.clk)
    bench.check()


@cocotb.test()
async def latency(dut: Any) -> None:
    """Issue t, request t + 1, its only beat 20 later in t + 21, write and finish in t + 24."""
    await start(dut)
    bench = Bench(dut, [ONE], latency=20)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.dram.requests == [(t + 1, 64, 1)]
    assert bench.dram.beats == [t + 21]
    assert bench.writes == bench.issuer.finishes == [t + 24]
    assert bench.issuer.releases == [(t + 24, 1)]
    bench.check()


@cocotb.test()
async def unaligned_latency(dut: Any) -> None:
    """9 bytes from byte 2: beats 0, 1, 2 in t + 6 .. t + 8 complete chunks 0 and 1 one beat late, and the rest of one
    byte comes with beat 2 as well: its chunk is written one cycle later."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "address": 66, "bytes": 9}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.dram.requests == [(t + 1, 64, 3)]
    assert bench.writes == [t + 10, t + 11, t + 12]
    assert bench.issuer.finishes == [t + 12]
    bench.check()


@cocotb.test()
async def zero_fill_latency(dut: Any) -> None:
    """ZERO reads nothing; 3 rows of 2 chunks are written from t + 2 on, one a cycle."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "flags": ZERO, "rows": 3, "bytes": 8, "block_stride": 4}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.dram.requests == []
    assert bench.writes == [t + 2 + i for i in range(6)]
    assert bench.issuer.finishes == [t + 7]
    bench.check()


@cocotb.test()
async def broadcast_latency(dut: Any) -> None:
    """One burst of 2 beats, in t + 6 and t + 7; each goes to 3 rows, the second after the first."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "flags": BROADCAST, "rows": 3, "bytes": 8, "block_stride": 4}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.dram.requests == [(t + 1, 64, 2)]
    assert bench.writes == [t + 9 + i for i in range(6)]
    assert bench.issuer.finishes == [t + 14]
    bench.check()


@cocotb.test()
async def indexed_latency(dut: Any) -> None:
    """Rows of two bursts: the first 4 cycles later than without INDEXED, in t + 5; every other one 4 cycles after
    the last burst of the row before. Numbers beyond the last one are that."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "flags": INDEXED, "address": 60, "rows": 3, "bytes": 8, "stride": 128,
                         "block_stride": 3, "list": 5, "last_index": 9}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    at = [60 + 128 * min(int(number), 9) for number in LIST[5:8]]
    assert LIST[5:8].max() > 9 > LIST[5:8].min()
    assert bench.dram.requests == [
        (t + 5 + 5 * r + i, at[r] + 4 * i, 1) for r in range(3) for i in range(2)]
    bench.check()


@cocotb.test()
async def joined_latency(dut: Any) -> None:
    """Four rows of 24 bytes from byte 8 of a burst on come in two bursts, of 14 and 10 beats."""
    await start(dut)
    bench = Bench(dut, [{**ONE, "joined": 1, "address": 72, "rows": 4, "bytes": 24, "stride": 96,
                         "block_stride": 4}], latency=5)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert bench.dram.requests == [(t + 1, 72, 14), (t + 2, 128, 10)]
    bench.check()


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """Two commands of 4 bursts overlap: requests one a cycle, 128 beats and 128 writes without a gap. The last request
    waits for the first beat, with 112 in flight."""
    await start(dut)
    command = {**ONE, "address": 0, "rows": 4, "bytes": 64, "stride": 64, "block_stride": 4}
    bench = Bench(dut, [command, {**command, "row": 80}], latency=30)
    await until(dut, lambda: bench.issuer.done)
    t = bench.issuer.issues[0]
    assert [cycle - t for cycle, _, _ in bench.dram.requests] == [1, 2, 3, 4, 6, 7, 8, 32]
    assert bench.writes == [t + 34 + i for i in range(128)]
    bench.check()


@cocotb.test()
async def error_response(dut: Any) -> None:
    """The third beat answers SLVERR: ``error`` is high in the next cycle, with its write."""
    await start(dut)
    errors: list[int] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk)
            if dut.error.value:
                errors.append(now())

    cocotb.start_soon(watch())
    bench = Bench(dut, [{**ONE, "bytes": 16}], latency=5, broken=2)
    await until(dut, lambda: bench.issuer.done)
    await RisingEdge(dut.clk)
    assert errors == [bench.dram.beats[2] + 1]
