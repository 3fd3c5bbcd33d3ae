"""cocotb bench of dispatch (``hw/command/dispatch.py``): latency, wait targets, unit queues, faults."""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge
from support import CONFIG, now, stalls, start

from gemmule.hw.interfaces import COUNT_BITS, matrix_layout, move_layout, select_layout, vector_layout
from gemmule.isa import MAX_WAIT, NUM_BASES, NUM_LENGTHS, Command, SOp, Unit, decode_table, encode, encode_program
from gemmule.resolve import FAULTS, OUT, resolve

UNITS = ("load", "store", "matrix", "vector", "select")
LAYOUTS = (move_layout(CONFIG), move_layout(CONFIG), matrix_layout(CONFIG), vector_layout(CONFIG),
           select_layout(CONFIG))
BASES = np.arange(NUM_BASES, dtype=np.int64) * 0x400
LIMITS = np.full(NUM_BASES, 0x40000, dtype=np.int64)
LENGTHS = np.arange(NUM_LENGTHS, dtype=np.int64) * 3
FIELDS = (
    {"address": "address", "rows": "m"}, {"address": "address", "rows": "m"},
    {"m": "m", "n": "n", "k": "k", "a_row": "row0", "b_row": "row1", "c_row": "row2"},
    {"m": "m", "n": "n", "src0": "row0", "src1": "row1", "dst": "row2"},
    {"m": "m", "n": "n", "k": "k", "src0": "row0", "dst": "row2"},
)
"""Field of the unit's layout and column of ``gemmule.resolve.OUT_FIELDS``."""
DISTANCE_BITS = MAX_WAIT.bit_length()


def random_command(rng: random.Random) -> Command:
    unit = Unit(rng.randrange(len(Unit)))
    waits = {u: rng.randint(1, 6) for u in Unit if u != unit and rng.random() < 0.4}
    predicate = rng.choice((0, 0, 1, 2, 3))
    length = rng.choice((0, 1, 3, 7))
    if unit in (Unit.LOAD, Unit.STORE):
        return Command.make(unit, waits=waits, predicate=predicate, base=rng.randrange(NUM_BASES),
                            offset=rng.randrange(4096), bytes=4, stride=4, row=rng.randrange(100), row_stride=1,
                            block_stride=1, rows=length)
    if unit is Unit.MATRIX:
        return Command.make(unit, waits=waits, predicate=predicate, a_row=rng.randrange(100),
                            b_row=rng.randrange(100), c_row=rng.randrange(30), m=length, n=4, k=4)
    if unit is Unit.VECTOR:
        return Command.make(unit, waits=waits, predicate=predicate, src0=rng.randrange(100), src0_stride=8,
                            dst=rng.randrange(100), dst_stride=8, m=length, n=4, mult=1)
    return Command.make(unit, op=SOp.ARGMAX, waits=waits, predicate=predicate, src0=rng.randrange(100), src0_stride=8,
                        dst=rng.randrange(8), first=rng.randrange(65536), m=length, n=4)


class Bench:
    """Offers commands, takes the heads of the unit queues, compares each with the contract."""

    def __init__(self, dut: Any, commands: list[Command], late: Any = lambda: False, slow: Any = lambda: False) -> None:
        self.dut, self.late, self.slow = dut, late, slow
        self.words = [encode(command) for command in commands]
        self.out = resolve(decode_table(encode_program(commands)), BASES, LIMITS, LENGTHS, CONFIG)
        self.taken: list[int] = []
        """Cycle in which a command was taken."""
        self.popped: list[tuple[int, int]] = []
        """Cycle in which a head was dropped, index of the command."""
        self.expected: list[list[tuple[int, int]]] = [[] for _ in Unit]
        for i, command in enumerate(commands):
            self.expected[command.unit].append((i, command.predicate))
        self.commands = commands
        cocotb.start_soon(self._registers())
        cocotb.start_soon(self._offer())
        cocotb.start_soon(self._pop())
        cocotb.start_soon(self._pushes())

    async def _registers(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            self.dut.length.value = int(LENGTHS[int(self.dut.length_index.value)])
            index = int(self.dut.base_index.value)
            self.dut.base.value, self.dut.limit.value = int(BASES[index]), int(LIMITS[index])

    async def _offer(self) -> None:
        dut = self.dut
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        for word in self.words:
            while self.late():
                dut.command_valid.value = 0
                await RisingEdge(dut.clk)
            dut.command_valid.value, dut.command.value = 1, word
            while True:
                await RisingEdge(dut.clk)
                if dut.command_take.value:
                    break
            self.taken.append(now())
        dut.command_valid.value = 0

    async def _pop(self) -> None:
        dut, places = self.dut, [0] * len(UNITS)
        while True:
            await FallingEdge(dut.clk)
            valid, pop = int(dut.valid.value), 0
            for u, name in enumerate(UNITS):
                if not valid >> u & 1:
                    continue
                i, predicate = self.expected[u][places[u]]
                head = LAYOUTS[u].from_bits(int(getattr(dut, name).value))
                assert bool(int(dut.zero.value) >> u & 1) == bool(self.out[i, OUT["zero"]])
                if not self.out[i, OUT["zero"]]:
                    for field, column in FIELDS[u].items():
                        assert head[field] == self.out[i, OUT[column]], (i, field)
                assert int(dut.predicate.value) >> 2 * u & 3 == predicate, i
                if not self.slow():
                    pop |= 1 << u
                    places[u] += 1
                    self.popped.append((now(), i))
            dut.pop.value = pop

    async def _pushes(self) -> None:
        """In order, each with its queue and the distances of its waits."""
        dut = self.dut
        for i, command in enumerate(self.commands):
            await RisingEdge(dut.clk)
            while not dut.push.value:
                await RisingEdge(dut.clk)
            assert int(dut.unit.value) == command.unit, i
            assert int(dut.distances.value) == sum(
                distance << DISTANCE_BITS * unit for unit, distance in command.waits.items()), i


async def run(dut: Any, bench: Bench, cycles: int = 20000) -> None:
    for _ in range(cycles):
        await RisingEdge(dut.clk)
        if len(bench.popped) == len(bench.words):
            return
    raise AssertionError(f"{len(bench.popped)} of {len(bench.words)} commands came through")


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3])
async def random_commands(dut: Any, seed: int) -> None:
    await start(dut)
    rng = random.Random(seed)
    bench = Bench(dut, [random_command(rng) for _ in range(300)], stalls(seed, 0.3), stalls(seed + 9, 0.5))
    await run(dut, bench)
    assert int(dut.total.value) == 300
    counts = [len(expected) for expected in bench.expected]
    assert int(dut.dispatched.value) == sum(n << COUNT_BITS * u for u, n in enumerate(counts))


@cocotb.test()
async def latency_and_full_rate(dut: Any) -> None:
    """A command taken in q is pushed in q + 6 and the head of its queue in q + 7; one command a cycle."""
    await start(dut)
    rng = random.Random(4)
    bench = Bench(dut, [random_command(rng) for _ in range(100)])
    await run(dut, bench)
    q = bench.taken[0]
    assert bench.taken == [q + i for i in range(100)]
    assert sorted(bench.popped, key=lambda entry: entry[1]) == [(q + 7 + i, i) for i in range(100)]


@cocotb.test()
async def full_queue(dut: Any) -> None:
    """Nobody pops: 4 loads stand in the queue and 7 in resolve, which hold back all others."""
    await start(dut)
    load = {"bytes": 4, "rows": 1, "row_stride": 1}
    commands = [Command.make(Unit.LOAD, **load) for _ in range(11)] + [Command.make(Unit.STORE, **load)]
    bench = Bench(dut, commands, slow=lambda: True)
    for _ in range(80):
        await RisingEdge(dut.clk)
    assert (len(bench.taken), int(dut.total.value), int(dut.valid.value)) == (11, 4, 1)


@cocotb.test()
@cocotb.parametrize(fault=["illegal", "rows", "limit", "align"])
async def faults(dut: Any, fault: str) -> None:
    """The faulting command stays in the last stage of resolve, with its code; nothing behind it is dispatched."""
    await start(dut)
    load = {"bytes": 4, "rows": 1, "row_stride": 1}
    broken = {
        "illegal": Command.make(Unit.SELECT, op=31), "rows": Command.make(Unit.STORE, **load, row=CONFIG.spm_rows),
        "limit": Command.make(Unit.LOAD, **load, offset=0x3FFFD),
        "align": Command.make(Unit.LOAD, **(load | {"bytes": 5}), flags=[0]),
    }[fault]
    before = [Command.make(Unit.LOAD, **load), Command.make(Unit.STORE, **load)]
    bench = Bench(dut, [*before, broken, *before])
    for _ in range(70):
        await RisingEdge(dut.clk)
    assert int(dut.fault.value) == FAULTS.index(fault) == ["none", "illegal", "rows", "limit", "align"].index(fault)
    assert int(dut.total.value) == len(bench.popped) == 2
    dut.clear.value = 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    await RisingEdge(dut.clk)
    assert (int(dut.fault.value), int(dut.total.value)) == (0, 0)
