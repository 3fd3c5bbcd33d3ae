"""Accumulator: random traffic on all ports, one stream per bank and direction, against an array."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.accumulator import Accumulator
from gemmule.hw.testing import run_bench

CONFIGS = {
    "tiny": load_config("tiny"),
    "one_bank": Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=1, acc_banks=1),
    "base": load_config("base"),
}


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
            write = rng.random() < 0.8
            row = rng.randrange(config.acc_rows)
            lanes = random_words.integers(-(1 << 31), 1 << 31, config.dim)
            ctx.set(dut.matrix_write.en, write)
            ctx.set(dut.matrix_write.row, row)
            ctx.set(dut.matrix_write.data, pack(lanes))
            expected = []
            used: set[int] = set()
            for stream in rng.sample((dut.matrix_read, dut.vector_r0), 2):
                # mostly the row written one cycle ago
                at = written[-1] if rng.random() < 0.5 else rng.choice(written)
                enable = at // config.acc_bank_rows not in used and not (write and at == row)
                ctx.set(stream.en, enable)
                ctx.set(stream.row, at)  # stands there even when not enabled
                if enable:
                    used.add(at // config.acc_bank_rows)
                    expected.append((stream, pack(acc[at])))
            await ctx.tick()
            if write:
                acc[row] = lanes
                written.append(row)
            for stream in (dut.matrix_read, dut.vector_r0):  # data belong to the row of the cycle before
                ctx.set(stream.row, rng.randrange(config.acc_rows))
            for stream, value in expected:
                assert ctx.get(stream.data) == value
                checked += value != 0
        assert checked > 150

    run_bench(dut, bench)
