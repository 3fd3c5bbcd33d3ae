"""cocotb bench of the scratchpad and the accumulator (``hw/memory``): all ports at once against a numpy array."""

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from support import CONFIG, start


class Shape:
    """Ports and rows of the memory under test."""

    def __init__(self, dut: Any) -> None:
        self.reads: dict[str, int] = {}
        """Rows that a read returns."""
        if dut._name == "scratchpad":
            self.reads = dict.fromkeys(("store_r", "matrix_a", "vector_r0", "vector_r1"), 1)
            self.reads["matrix_b"] = CONFIG.preload
            self.writes, self.lane = ("load_w", "vector_w"), 1
            self.waits = True  # a write, for a cycle in a register of its bank
            self.banks, self.bank_rows = CONFIG.spm_banks, CONFIG.spm_bank_rows
        else:
            self.reads = dict.fromkeys(("matrix_read", "vector_r0", "load_r", "store_r"), 1)
            self.writes, self.lane = ("matrix_write", "vector_w", "load_w"), 4
            self.waits = False
            self.banks, self.bank_rows = CONFIG.acc_banks, CONFIG.acc_bank_rows


def port(dut: Any, name: str, signal: str) -> Any:
    return getattr(dut, f"{name}__{signal}")


def drive(dut: Any, name: str, **signals: int) -> None:
    for signal, value in signals.items():
        port(dut, name, signal).value = value


def number(rows: np.ndarray) -> int:
    return int.from_bytes(rows.tobytes(), "little")


async def fill(dut: Any, shape: Shape, memory: np.ndarray) -> None:
    """Write every row, two banks at a time."""
    half = len(memory) // 2
    for row in range(half):
        for name, at in zip(shape.writes, (row, half + row)):
            drive(dut, name, en=1, row=at, mask=(1 << CONFIG.dim) - 1, data=number(memory[at]))
        await RisingEdge(dut.clk)
    for name in shape.writes:
        drive(dut, name, en=0)
    await RisingEdge(dut.clk)


@cocotb.test()
@cocotb.parametrize(seed=[1, 2], share=[0.5, 1.0])
async def random_ports(dut: Any, seed: int, share: float) -> None:
    """Each cycle every port that is used has a bank of its own, as claims guarantee; share 1: full rate.

    A read in x shows in x + 1 (latency 1), a write in x is read in x + 1, of the scratchpad in x + 2; before, a read
    sees the old row.
    """
    await start(dut)
    shape, rng, generator = Shape(dut), random.Random(seed), np.random.default_rng(seed)
    memory = generator.integers(
        0, 256, (shape.banks * shape.bank_rows, CONFIG.dim * shape.lane), dtype=np.uint8)
    await fill(dut, shape, memory)
    expected: list[dict[str, int]] = [{}, {}]  # of the accesses one and two cycles ago
    accesses, waiting = 0, []
    for _ in range(3000):
        await RisingEdge(dut.clk)
        for name, value in expected.pop(0).items():
            assert int(port(dut, name, "data").value) == value, name
            accesses += 1
        banks = rng.sample(range(shape.banks), min(shape.banks, len(shape.reads)))
        readers = dict(zip(rng.sample(list(shape.reads), len(banks)), banks))
        pending, writes = {}, []
        for name, count in shape.reads.items():
            used = name in readers and rng.random() < share
            drive(dut, name, en=used)
            if used:
                row = readers[name] * shape.bank_rows + rng.randrange(shape.bank_rows)
                drive(dut, name, row=row)
                first = row // count * count
                pending[name] = number(memory[first:first + count])
        for name, bank in zip(shape.writes, rng.sample(range(shape.banks), len(shape.writes))):
            used = rng.random() < share
            drive(dut, name, en=used)
            if used:
                row, mask = bank * shape.bank_rows + rng.randrange(shape.bank_rows), rng.getrandbits(CONFIG.dim)
                value = generator.integers(0, 256, memory.shape[1], dtype=np.uint8)
                drive(dut, name, row=row, mask=mask, data=number(value))
                lanes = [at for at in range(len(value)) if mask >> at // shape.lane & 1]
                writes.append((row, lanes, value[lanes]))
        for row, lanes, value in waiting if shape.waits else writes:
            memory[row, lanes] = value
        waiting = writes
        expected.append(pending)
    assert accesses >= share * 2998 * min(shape.banks, len(shape.reads)) * 0.9
