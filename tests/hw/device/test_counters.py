"""Performance counters against a plain count of what happened, cycle by cycle."""

import random

import pytest

from gemmule.config import Config
from gemmule.csr import CAUSES, COUNTERS
from gemmule.hw.device.counters import Counters

from ..bench import run_bench

UNITS = ("load", "store", "matrix", "vector", "select")
SOURCES = ("program", "load", "store")


@pytest.mark.parametrize("bus", [2, 16])
def test_random(bus: int) -> None:
    rng = random.Random(bus)
    print("seed", bus)
    dut = Counters(config=Config(bus_bytes=bus))

    async def bench(ctx):
        for launch in range(3):
            counts = dict.fromkeys(COUNTERS, 0)
            counts_before = dict(counts)  # events show in the next cycle but one
            cycles = rng.randrange(200, 300)
            for t in range(cycles + 20):  # the last ones come after the end
                active, valid, waiting = (rng.getrandbits(5) for _ in range(3))
                moved = rng.getrandbits(2) & active
                sent, beats = rng.getrandbits(3), [rng.randrange(256) for _ in SOURCES]
                ctx.set(dut.start, t == 0)
                ctx.set(dut.running, 0 < t < cycles)
                for name, value in (("active", active), ("valid", valid), ("waiting", waiting & valid),
                                    ("moved", moved), ("sent", sent), ("beats", beats)):
                    ctx.set(getattr(dut, name), value)
                for u, unit in enumerate(UNITS):
                    if t == 0:
                        cause = "empty"
                    elif active >> u & 1:
                        cause = "dram" if u < 2 and not moved >> u & 1 else "busy"
                    elif not valid >> u & 1:
                        cause = "empty"
                    else:
                        cause = "waiting" if waiting >> u & 1 else "ports"
                    counts[f"{unit}_{cause}"] += t < cycles
                for i, source in enumerate(SOURCES):
                    if sent >> i & 1 and 0 < t < cycles:
                        counts[f"{source}_bursts"] += 1
                        counts[f"{source}_bytes"] += (beats[i] + 1) * bus
                await ctx.tick()
                ctx.set(dut.start, 0)
                shown, counts_before = counts_before, dict(counts)
                if t == 0 or t % 50 == 49 or t == cycles + 19:
                    for i, name in enumerate(COUNTERS):
                        ctx.set(dut.index, i)
                        assert ctx.get(dut.value) == shown[name], (launch, t, name)
            for unit in UNITS:
                assert sum(counts[f"{unit}_{cause}"] for cause in CAUSES) == cycles
            assert counts["matrix_dram"] == counts["vector_dram"] == counts["select_dram"] == 0
            for index in range(len(COUNTERS), 32):
                ctx.set(dut.index, index)
                assert ctx.get(dut.value) == 0

    run_bench(dut, bench)
