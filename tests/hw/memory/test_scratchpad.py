"""Scratchpad: random traffic on all ports, one stream per bank and direction, against an array."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.flow.export import export
from gemmule.hw.flow.lint import lint
from gemmule.hw.memory.scratchpad import Scratchpad

from ...thinned import some
from ..bench import run_bench

CONFIGS = {
    "tiny": load_config("tiny"),
    "preload_4": Config(dim=4, bus_bytes=2, spm_kib=2, spm_banks=8, acc_kib=4, preload=4, burst_bytes=64),
    "one_bank": Config(dim=4, bus_bytes=2, spm_kib=1, spm_banks=1, acc_kib=4, preload=2, burst_bytes=64),
    "base_like": Config(dim=16, spm_kib=16, spm_banks=8, acc_kib=4, acc_banks=1, preload=2),
}
READS = ("store_r", "matrix_a", "matrix_b", "vector_r0", "vector_r1", "select_r")
WRITES = ("load_w", "vector_w", "select_w")


def pack(lanes: np.ndarray) -> int:
    return int.from_bytes(lanes.astype(np.uint8).tobytes(), "little")


@pytest.mark.parametrize("name", CONFIGS)
def test_random(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(3)
    random_bytes = np.random.default_rng(3)
    dut = Scratchpad(config=config)
    spm = np.zeros((config.spm_rows, config.dim), dtype=np.uint8)
    per_bank = config.spm_bank_rows

    async def bench(ctx) -> None:
        written = [rng.randrange(config.spm_rows)]
        checked = 0
        before: list[tuple[int, int, np.ndarray]] = []  # writes of the cycle before, which wait in the banks' registers
        for _ in range(400):
            banks = rng.sample([*range(config.spm_banks), *[None] * len(WRITES)], len(WRITES))
            updates = []
            for port, bank in zip(WRITES, banks, strict=True):
                stream = getattr(dut, port)
                enable = bank is not None
                bank = rng.randrange(config.spm_banks) if bank is None else bank
                row = bank * per_bank + rng.randrange(per_bank)
                mask = rng.choice(((1 << config.dim) - 1, rng.randrange(1 << config.dim)))
                lanes = random_bytes.integers(0, 256, config.dim)
                ctx.set(stream.en, enable)
                ctx.set(stream.row, row)
                ctx.set(stream.mask, mask)
                ctx.set(stream.data, pack(lanes))
                if enable:
                    updates.append((row, mask, lanes))
            # Reads go to distinct banks; rows written in this cycle or before it are left out: anything is allowed.
            expected = []
            used: set[int] = set()
            for port in rng.sample(READS, len(READS)):
                stream = getattr(dut, port)
                row = rng.choice(written[-20:]) if rng.random() < 0.7 else rng.randrange(config.spm_rows)
                rows = 1
                if port == "matrix_b":
                    rows = config.preload
                    row -= row % rows
                hit = any(row <= update[0] < row + rows for update in (*updates, *before))
                enable = row // per_bank not in used and not hit
                ctx.set(stream.en, enable)
                ctx.set(stream.row, row)  # stands there even when not enabled
                if enable:
                    used.add(row // per_bank)
                    expected.append((stream, pack(spm[row:row + rows])))
            await ctx.tick()
            for row, mask, lanes in before:
                for lane in range(config.dim):
                    if mask >> lane & 1:
                        spm[row, lane] = lanes[lane]
                written.append(row)
            before = updates
            for port in READS:  # data belong to the row of the cycle before
                ctx.set(getattr(dut, port).row, rng.randrange(config.spm_rows))
            for stream, value in expected:
                assert ctx.get(stream.data) == value
                checked += value != 0
        assert checked > 300

    run_bench(dut, bench)


def test_full_size_elaborates() -> None:
    """The base preset: last row of the last bank is written and read back two cycles later."""
    config = load_config("base")
    dut = Scratchpad(config=config)

    async def bench(ctx) -> None:
        row = config.spm_rows - 1
        ctx.set(dut.load_w.en, 1)
        ctx.set(dut.load_w.row, row)
        ctx.set(dut.load_w.mask, 0x8001)
        ctx.set(dut.load_w.data, (1 << 128) - 1)
        await ctx.tick()
        ctx.set(dut.load_w.en, 0)
        await ctx.tick()
        ctx.set(dut.matrix_b.en, 1)
        ctx.set(dut.matrix_b.row, row - 1)
        await ctx.tick()
        assert ctx.get(dut.matrix_b.data) == (0xFF << 120 | 0xFF) << 128

    run_bench(dut, bench)


@pytest.mark.parametrize("name", some(["one_bank", "preload_4"]))
def test_lint(name: str, tmp_path: Path) -> None:
    lint(export(CONFIGS[name], tmp_path, unit="scratchpad").files, "scratchpad")
