"""cocotb bench of the matrix unit (``hw/matrix/matrix.py``): both dataflows, all formats of A and B, cycles by hand.

The unit has no backpressure: ports are claimed before a command starts. Commands come with random gaps instead.
"""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from support import CONFIG, Issuer, Memory, now, start, until

from gemmule.hw.interfaces import matrix_layout
from gemmule.isa import MatrixFlag, Unit, legal_flags
from gemmule.timing import Timing

LAYOUT = matrix_layout(CONFIG)
DIM = CONFIG.dim
UNSIGNED, B_TRANSPOSED, ACCUMULATE, OUTPUTS, A_TRANSPOSED, INT4, SCALES, REUSE = (1 << flag for flag in MatrixFlag)
REGION = 64
"""Accumulator rows of one result; consecutive commands use different ones."""
ONE = {"zero": 0, "flags": 0, "m": DIM, "n": DIM, "k": DIM, "a_row": 0, "a_stride": 16, "b_row": 512, "b_stride": 64,
       "c_row": 0, "c_stride": 16, "group": 0, "apart": 0}
LIMIT = Timing.of(CONFIG).matrix_commands


def random_command(rng: random.Random, i: int) -> dict[str, int]:
    flags = 0
    while not (flags and legal_flags(Unit.MATRIX, 0, flags)):
        flags = rng.getrandbits(8) & (255 if rng.random() < 0.5 else ~OUTPUTS)
    most = DIM if flags & REUSE else 3 * DIM
    apart = not flags & (OUTPUTS | REUSE) and rng.random() < 0.2
    return {"zero": 0, "flags": flags, "m": rng.randint(1, 3 * DIM), "n": rng.randint(1, most),
            "k": rng.randint(1, most), "a_row": rng.randrange(300), "a_stride": rng.randrange(60),
            "b_row": 512 + rng.randrange(300), "b_stride": rng.randrange(60), "c_row": i % 8 * REGION, "c_stride": 15,
            "group": rng.randrange(6), "apart": int(apart)}


class Reference:
    """docs/numerics.md, matrix section, element by element."""

    def __init__(self, scratchpad: np.ndarray, accumulator: np.ndarray) -> None:
        self.spm, self.acc = scratchpad, accumulator
        self.held = np.zeros((DIM, DIM), dtype=np.int64)

    def a(self, c: dict[str, int], m: int, k: int) -> int:
        if c["flags"] & A_TRANSPOSED:
            m, k = k, m
        byte = int(self.spm[c["a_row"] + k // DIM * c["a_stride"] + m, k % DIM])
        return byte if byte < 128 or c["flags"] & UNSIGNED else byte - 256

    def b(self, c: dict[str, int], k: int, n: int) -> int:
        depth = k
        if c["flags"] & B_TRANSPOSED:
            k, n = n, k
        block = c["b_row"] + n // DIM * c["b_stride"]
        if not c["flags"] & INT4:
            byte = int(self.spm[block + k, n % DIM])
            return byte - 256 * (byte >= 128)
        nibble = int(self.spm[block + k // 2, n % DIM]) >> 4 * (k % 2) & 15
        value = nibble - 16 * (nibble >= 8)
        if c["flags"] & SCALES:
            groups = -(-c["k"] // DIM)
            row = block + groups * DIM // 2 + (depth // DIM >> c["group"])
            return value * (int(self.spm[row, n % DIM]) & 15)
        return value << min(c["group"], 4)

    def run(self, c: dict[str, int]) -> None:
        m, n, k = c["m"], c["n"], c["k"]
        if c["flags"] & REUSE:
            k, b = DIM, self.held
        else:
            b = np.array([[self.b(c, i, j) for j in range(n)] for i in range(k)], dtype=np.int64)
            if not c["flags"] & OUTPUTS:
                top, left = (k - 1) // DIM * DIM, (n - 1) // DIM * DIM
                self.held = np.zeros((DIM, DIM), dtype=np.int64)
                self.held[:k - top, :n - left] = b[top:, left:]
        a = np.array([[self.a(c, i, j) for j in range(k)] for i in range(m)], dtype=np.int64)
        product = a @ b
        for g in range(-(-n // DIM)):
            rows = slice(c["c_row"] + g * c["c_stride"], c["c_row"] + g * c["c_stride"] + m)
            part = np.zeros((m, DIM), dtype=np.int64)
            columns = product[:, g * DIM:(g + 1) * DIM]
            part[:, :columns.shape[1]] = columns
            old = self.acc[rows] if c["flags"] & ACCUMULATE else 0
            self.acc[rows] = (old + part + (1 << 31)) % (1 << 32) - (1 << 31)


class Bench:
    """The unit between both memories; a change of dataflow waits until the unit is idle, as issue does."""

    def __init__(self, dut: Any, commands: list[dict[str, int]], earliest: tuple[int, ...] = ()) -> None:
        generator = np.random.default_rng(9)
        scratchpad = generator.integers(0, 256, (1024, DIM), dtype=np.uint8)
        accumulator = generator.integers(-1 << 31, 1 << 31, (8 * REGION, DIM)).astype(np.int32)
        self.scratchpad = Memory(dut, scratchpad, reads={"a": 1, "b": CONFIG.preload})
        self.accumulator = Memory(
            dut, accumulator.copy().view(np.uint8), reads={"acc_read": 1}, writes=["acc_write"], lane=4)
        self.reference = Reference(scratchpad, accumulator.astype(np.int64))
        kinds = [0, *(command["flags"] & OUTPUTS for command in commands)]
        changes = {id(command) for command, before, kind in zip(commands, kinds, kinds[1:]) if kind != before}
        self.issuer = Issuer(dut, LAYOUT, commands, limit=LIMIT, earliest=earliest,
                             alone=lambda command: id(command) in changes, after_alone=False)
        for command in commands:
            self.reference.run(command)

    def check(self) -> None:
        np.testing.assert_array_equal(self.accumulator.rows.view(np.int32), self.reference.acc)
        for stream in range(3):
            assert sum(mask >> stream & 1 for _, mask in self.issuer.releases) == len(self.issuer.commands)

    def released(self, stream: int) -> list[int]:
        return [cycle for cycle, mask in self.issuer.releases if mask >> stream & 1]


async def run(dut: Any, commands: list[dict[str, int]], earliest: tuple[int, ...] = ()) -> Bench:
    await start(dut)
    bench = Bench(dut, commands, earliest)
    await until(dut, lambda: bench.issuer.done, 100000)
    await RisingEdge(dut.clk)
    bench.check()
    return bench


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3, 4])
async def random_commands(dut: Any, seed: int) -> None:
    """Without gaps (odd seeds) or with them."""
    rng = random.Random(seed)
    commands = [random_command(rng, i) for i in range(60)]
    earliest = () if seed % 2 else tuple(sorted(rng.randrange(6000) for _ in commands))
    await run(dut, commands, earliest)


@cocotb.test()
async def latency(dut: Any) -> None:
    """DIM 4, preload 1: B in t + 2 .. 5, A in t + 6 .. 9, e = t + 9, drain 11: finish t + 20."""
    bench = await run(dut, [ONE])
    t = bench.issuer.issues[0]
    assert bench.scratchpad.read_cycles == {"b": [t + 2 + i for i in range(4)], "a": [t + 6 + i for i in range(4)]}
    assert bench.accumulator.write_cycles["acc_write"] == [t + 17 + i for i in range(4)]
    assert bench.accumulator.read_cycles["acc_read"] == []
    assert bench.issuer.finishes == [t + 20]
    assert [bench.released(stream) for stream in range(3)] == [[t + 8], [t + 4], [t + 20]]


@cocotb.test()
async def latency_output_stationary(dut: Any) -> None:
    """A and B together in t + 3 .. 6, e = t + 6, the block's rows in t + 18 .. 21."""
    bench = await run(dut, [{**ONE, "flags": OUTPUTS}])
    t = bench.issuer.issues[0]
    assert bench.scratchpad.read_cycles == {"b": [t + 3 + i for i in range(4)], "a": [t + 3 + i for i in range(4)]}
    assert bench.accumulator.write_cycles["acc_write"] == [t + 18 + i for i in range(4)]
    assert bench.issuer.finishes == [t + 21]
    assert [bench.released(stream) for stream in range(3)] == [[t + 5], [t + 5], [t + 21]]


@cocotb.test()
async def latency_of_modes(dut: Any) -> None:
    """Issue to finish of one tile of 4 rows: scales load one row more; REUSE loads nothing; a single row still takes
    the 4 cycles of a preload; 5 rows of A transposed are two blocks of 4; A and B in one bank make no difference to one
    tile, and the second tile waits for 4 rows and 4 items instead of 4."""
    cases = [
        ({"flags": INT4 | SCALES}, 21), ({"flags": REUSE}, 17), ({"m": 1}, 20), ({"m": 1, "flags": REUSE}, 15),
        ({"flags": A_TRANSPOSED, "m": 5}, 24), ({"apart": 1}, 20), ({"k": 8}, 24), ({"k": 8, "apart": 1}, 28),
    ]
    commands = [{**ONE, **change} for change, _ in cases]
    bench = await run(dut, commands, tuple(100 * (i + 1) for i in range(len(cases))))
    seen = [finish - issue for issue, finish in zip(bench.issuer.issues, bench.issuer.finishes)]
    assert seen == [cycles for _, cycles in cases]


@cocotb.test()
@cocotb.parametrize(outputs=[False, True])
async def full_rate(dut: Any, outputs: bool) -> None:
    """8 commands of two tiles, back to back: one row of A in every cycle, without a drain bubble."""
    flags = OUTPUTS if outputs else 0
    bench = await run(dut, [{**ONE, "k": 2 * DIM, "flags": flags, "c_row": i * REGION} for i in range(8)])
    reads = bench.scratchpad.read_cycles["a"]
    assert reads == list(range(reads[0], reads[0] + 64))
    assert now() - bench.issuer.issues[0] < 64 + 28
