"""Load unit: data against numpy, every cycle against a model of docs/timing.md."""

from __future__ import annotations

import gc
import random
import warnings
from dataclasses import dataclass, field
from dataclasses import replace as changed

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.load import Load
from gemmule.hw.testing import run_bench
from gemmule.timing import Timing

SPM_ROWS = 2048
CONFIGS = {
    "tiny": load_config("tiny"),
    "narrow": Config(dim=8, bus_bytes=2, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4,
                     read_bursts=3, load_commands=2),
    "single": Config(dim=4, bus_bytes=4, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4,
                     read_bursts=1, load_commands=1),
    "base": load_config("base"),
}


def random_command(rng: random.Random, config: Config) -> dict[str, int]:
    limit = rng.choice((config.bus_bytes, config.dim + 3, 2 * config.burst_bytes))
    return {
        "zero": 0, "address": rng.randrange(1024) * config.bus_bytes, "rows": rng.randrange(1, 5),
        "bytes": rng.randrange(1, limit + 1), "stride": rng.randrange(60) * config.bus_bytes,
        "row": rng.randrange(200), "row_stride": rng.randrange(9), "block_stride": rng.randrange(20),
    }


def rows_as_bursts(config: Config, c: dict[str, int]) -> list[tuple[int, int]]:
    """(address, beats) of every burst of a command."""
    out = []
    for r in range(c["rows"]):
        at = c["address"] + r * c["stride"]
        end = at + c["bytes"]
        while at < end:
            cut = min(end, (at // config.burst_bytes + 1) * config.burst_bytes)
            out.append((at, -(-(cut - at) // config.bus_bytes)))
            at = cut
    return out


def reference(config: Config, commands: list[dict[str, int]], dram: np.ndarray) -> np.ndarray:
    spm = np.zeros((SPM_ROWS, config.dim), dtype=np.uint8)
    for c in commands:
        for r in range(c["rows"]):
            for k in range(c["bytes"]):
                row = c["row"] + r * c["row_stride"] + k // config.dim * c["block_stride"]
                spm[row, k % config.dim] = dram[c["address"] + r * c["stride"] + k]
    return spm


@dataclass
class Trace:
    """Cycles of everything that is visible at the unit's ports."""

    issues: list[int] = field(default_factory=list)
    requests: list[tuple[int, int, int]] = field(default_factory=list)  # cycle, address, beats
    writes: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)


def model(config: Config, commands: list[dict[str, int]], earliest: list[int], latency: int) -> Trace:
    """docs/timing.md, section Load, with a responder that starts a burst ``latency`` after its request."""
    trace = Trace()
    last_beats: list[int] = []
    idle = bus_free = 0
    for i, command in enumerate(commands):
        t = max(earliest[i], idle)
        if i >= config.load_commands:
            t = max(t, trace.finishes[i - config.load_commands] + 1)
        trace.issues.append(t)
        x = t
        for address, beats in rows_as_bursts(config, command):
            x += 1
            if len(last_beats) >= config.read_bursts:
                x = max(x, last_beats[-config.read_bursts] + 1)
            trace.requests.append((x, address, beats))
            start = max(x + latency, bus_free)
            bus_free = start + beats
            last_beats.append(bus_free - 1)
            trace.writes += [y + 1 for y in range(start, bus_free)]
        idle = x + 1
        trace.finishes.append(trace.writes[-1])
    return trace


def simulate(config: Config, commands: list[dict[str, int]], earliest: list[int], dram: np.ndarray, *,
             latency: int, stalls: random.Random | None = None,
             bad_beat: int | None = None) -> tuple[Trace, np.ndarray, list[int]]:
    """Run the unit; returns its trace, the scratchpad and the cycles with ``error`` high."""
    dut = Load(config=config, timing=Timing.of(config))
    trace, errors = Trace(), []
    spm = np.zeros((SPM_ROWS, config.dim), dtype=np.uint8)
    bus = config.bus_bytes

    async def bench(ctx) -> None:
        queue: list[tuple[int, int, bool]] = []  # earliest cycle, address, last
        offered = None
        cycle = beats = 0
        while len(trace.finishes) < len(commands):
            # inputs of this cycle
            i = len(trace.issues)
            in_flight = i - len(trace.finishes)
            start = (i < len(commands) and cycle >= earliest[i] and in_flight < config.load_commands
                     and ctx.get(dut.control.ready))
            ctx.set(dut.control.start, bool(start))
            if start:
                ctx.set(dut.control.command, commands[i])
                trace.issues.append(cycle)
            beat = bool(queue) and queue[0][0] <= cycle and not (stalls and stalls.random() < 0.4)
            ctx.set(dut.read.beat_valid, beat)
            if beat:
                _, address, last = queue.pop(0)
                ctx.set(dut.read.beat_data, int.from_bytes(dram[address:address + bus].tobytes(), "little"))
                ctx.set(dut.read.beat_last, last)
                ctx.set(dut.read.beat_resp, 2 if beats == bad_beat else 0)
                beats += 1
            ready = not (stalls and stalls.random() < 0.5)
            ctx.set(dut.read.req_ready, ready)
            # outputs of this cycle
            request = None
            if ctx.get(dut.read.req_valid):
                request = ctx.get(dut.read.req_addr), ctx.get(dut.read.req_len) + 1
            if offered is not None:
                assert request == offered, "an offered request was changed"
            offered = None if ready else request
            if request and ready:
                trace.requests.append((cycle, *request))
                for k in range(request[1]):
                    queue.append((cycle + latency + k, request[0] + k * bus, k == request[1] - 1))
            assert sum(last for *_, last in queue) <= config.read_bursts
            if ctx.get(dut.spm.en):
                row, mask = ctx.get(dut.spm.row), ctx.get(dut.spm.mask)
                lanes = np.frombuffer(ctx.get(dut.spm.data).to_bytes(config.dim, "little"), np.uint8)
                for lane in range(config.dim):
                    if mask >> lane & 1:
                        spm[row, lane] = lanes[lane]
                trace.writes.append(cycle)
            if ctx.get(dut.error):
                errors.append(cycle)
            assert ctx.get(dut.control.release) == ctx.get(dut.control.finish)
            finish = ctx.get(dut.control.finish)
            await ctx.tick()
            if finish:  # visible from the next cycle on
                trace.finishes.append(cycle)
            cycle += 1

    run_bench(dut, bench, cycles=20000)
    return trace, spm, errors


def memory(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, 1 << 16, dtype=np.uint8)


@pytest.mark.parametrize(("name", "latency"), [
    ("tiny", 1), ("tiny", 25), ("narrow", 1), ("narrow", 9), ("single", 6), ("base", 60),
])
def test_cycles_and_data(name: str, latency: int) -> None:
    config, rng, dram = CONFIGS[name], random.Random(latency), memory(3)
    commands = [random_command(rng, config) for _ in range(16)]
    earliest = sorted(rng.randrange(200) for _ in commands)
    trace, spm, errors = simulate(config, commands, earliest, dram, latency=latency)
    assert trace == model(config, commands, earliest, latency)
    assert np.array_equal(spm, reference(config, commands, dram))
    assert not errors


@pytest.mark.parametrize("name", CONFIGS)
def test_stalls(name: str) -> None:
    config, rng, dram = CONFIGS[name], random.Random(5), memory(5)
    commands = [random_command(rng, config) for _ in range(12)]
    trace, spm, _ = simulate(config, commands, [0] * len(commands), dram, latency=3, stalls=rng)
    assert [r[1:] for r in trace.requests] == [b for c in commands for b in rows_as_bursts(config, c)]
    assert np.array_equal(spm, reference(config, commands, dram))


ONE = {"zero": 0, "address": 64, "rows": 1, "bytes": 4, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1}


def test_constants() -> None:
    """load_first = 1, load_write = 1: issue 10, request 11, beat 31, write and finish 32."""
    trace, _, _ = simulate(CONFIGS["tiny"], [ONE], [10], memory(1), latency=20)
    assert trace == Trace([10], [(11, 64, 1)], [32], [32])
    timing = Timing.of(CONFIGS["tiny"])
    assert (timing.load_first, timing.load_write) == (1, 1)


def test_full_rate() -> None:
    """Two commands of 4 bursts overlap: 32 beats without a gap, and no gap between requests' rows."""
    config = CONFIGS["base"]
    command = {**ONE, "address": 0, "rows": 4, "bytes": 256, "stride": 512, "block_stride": 4}
    trace, _, _ = simulate(config, [command, command], [0, 0], memory(1), latency=30)
    assert [r[0] for r in trace.requests] == [1, 2, 3, 4, 6, 7, 8, 9]
    assert trace.writes == list(range(32, 32 + 128))


def test_error() -> None:
    trace, _, errors = simulate(
        CONFIGS["tiny"], [{**ONE, "bytes": 16}], [0], memory(1), latency=5, bad_beat=2)
    assert errors == [trace.writes[2]]


def test_foreign_timing() -> None:
    config = CONFIGS["tiny"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the refused unit is never elaborated
        with pytest.raises(ValueError, match="load_first and load_write must be 1 and 1"):
            Load(config=config, timing=changed(Timing.of(config), load_write=2))
        gc.collect()
