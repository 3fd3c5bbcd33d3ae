"""Accumulator: random traffic on all ports, one stream per bank and direction, against an array."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.flow.export import export
from gemmule.hw.flow.lint import lint
from gemmule.hw.memory.accumulator import Accumulator

from ..bench import run_bench

CONFIGS = {
    "tiny": load_config("tiny"),
    "one_bank": Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=1, acc_banks=1),
    "base": load_config("base"),
}
READS = ("matrix_read", "vector_r0", "load_r", "store_r")
WRITES = ("matrix_write", "vector_w", "load_w")


def pack(lanes: np.ndarray) -> int:
    return int.from_bytes(lanes.astype("<i4").tobytes(), "little")


@pytest.mark.parametrize("name", CONFIGS)
def test_random(name: str) -> None:
    config, rng = CONFIGS[name], random.Random(4)
    random_words = np.random.default_rng(4)
    dut = Accumulator(config=config)
    acc = np.zeros((config.acc_rows, config.dim), dtype=np.int32)

    async def bench(ctx) -> None:
        written = [0]
        checked = 0
        for _ in range(300):
            banks = rng.sample([*range(config.acc_banks), *[None] * len(WRITES)], len(WRITES))
            updates = []
            for port, bank in zip(WRITES, banks, strict=True):
                stream = getattr(dut, port)
                row = rng.randrange(config.acc_bank_rows)
                row += config.acc_bank_rows * (rng.randrange(config.acc_banks) if bank is None else bank)
                mask = rng.choice(((1 << config.dim) - 1, rng.randrange(1 << config.dim)))
                lanes = random_words.integers(-(1 << 31), 1 << 31, config.dim)
                ctx.set(stream.en, bank is not None)
                ctx.set(stream.row, row)
                ctx.set(stream.mask, mask)
                ctx.set(stream.data, pack(lanes))
                if bank is not None:
                    updates.append((row, mask, lanes))
            expected = []
            used: set[int] = set()
            for port in rng.sample(READS, len(READS)):
                stream = getattr(dut, port)
                # mostly the row written one cycle ago; of a row that is being written, the other lanes count
                at = rng.choice([update[0] for update in updates] or [0]) if rng.random() < 0.2 else (
                    written[-1] if rng.random() < 0.5 else rng.choice(written))
                enable = at // config.acc_bank_rows not in used
                ctx.set(stream.en, enable)
                ctx.set(stream.row, at)  # stands there even when not enabled
                if enable:
                    used.add(at // config.acc_bank_rows)
                    lanes = sum(mask for row, mask, _ in updates if row == at)
                    known = sum(0xFFFFFFFF << 32 * i for i in range(config.dim) if not lanes >> i & 1)
                    expected.append((stream, known, pack(acc[at]) & known))
            await ctx.tick()
            for row, mask, lanes in updates:
                for lane in range(config.dim):
                    if mask >> lane & 1:
                        acc[row, lane] = lanes[lane]
                written.append(row)
            for port in READS:  # data belong to the row of the cycle before
                ctx.set(getattr(dut, port).row, rng.randrange(config.acc_rows))
            for stream, known, value in expected:
                assert ctx.get(stream.data) & known == value
                checked += value != 0
        assert checked > 150

    run_bench(dut, bench)


@pytest.mark.parametrize("name", ["one_bank"])
def test_lint(name: str, tmp_path: Path) -> None:
    lint(export(CONFIGS[name], tmp_path, unit="accumulator").files, "accumulator")
