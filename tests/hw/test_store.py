"""Store unit: data against numpy, every cycle against a model of docs/timing.md."""

from __future__ import annotations

import gc
import random
import warnings
from dataclasses import dataclass, field
from dataclasses import replace as changed

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.store import Store
from gemmule.hw.testing import run_bench
from gemmule.timing import Timing

SPM_ROWS = 2048
DRAM_BYTES = 1 << 16
CONFIGS = {
    "tiny": load_config("tiny"),
    "narrow": Config(dim=8, bus_bytes=2, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4,
                     write_bursts=3),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32, write_bursts=1),
    "base": load_config("base"),
}


def random_command(rng: random.Random, config: Config, i: int) -> dict[str, int]:
    """Commands write disjoint DRAM ranges with gaps; their scratchpad rows overlap freely."""
    limit = rng.choice((config.bus_bytes, config.dim + 3, 2 * config.burst_bytes))
    count = rng.randrange(1, limit + 1)
    stride = -(-count // config.bus_bytes) * config.bus_bytes + rng.randrange(3) * config.bus_bytes
    return {
        "zero": 0, "address": i * 4096 + rng.randrange(64) * config.bus_bytes, "rows": rng.randrange(1, 5),
        "bytes": count, "stride": stride,
        "row": rng.randrange(200), "row_stride": rng.randrange(9), "block_stride": rng.randrange(20),
    }


def bursts_of(config: Config, c: dict[str, int]) -> list[tuple[int, int]]:
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


def reference(config: Config, commands: list[dict[str, int]], spm: np.ndarray) -> np.ndarray:
    dram = np.zeros(DRAM_BYTES, dtype=np.uint8)
    for c in commands:
        for r in range(c["rows"]):
            for k in range(c["bytes"]):
                row = c["row"] + r * c["row_stride"] + k // config.dim * c["block_stride"]
                dram[c["address"] + r * c["stride"] + k] = spm[row, k % config.dim]
    return dram


@dataclass
class Trace:
    """Cycles of everything that is visible at the unit's ports."""

    issues: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    addresses: list[tuple[int, int, int]] = field(default_factory=list)  # cycle, address, beats
    beats: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)


def model(config: Config, commands: list[dict[str, int]], earliest: list[int], latency: int,
          limit: int) -> Trace:
    """docs/timing.md, section Store; responses come ``latency`` after the last beat, one a cycle."""
    trace = Trace()
    ends: list[int] = []
    responses: list[int] = []
    idle = 0
    for i, command in enumerate(commands):
        t = max(earliest[i], idle)
        if i >= limit:
            t = max(t, trace.finishes[i - limit] + 1)
        trace.issues.append(t)
        last_read = t  # the first read is at t + 1 or later
        for address, beats in bursts_of(config, command):
            r = last_read + 1
            if len(ends) >= 2:
                r = max(r, ends[-2] + 1)
            last_read = r + beats - 1
            trace.reads += range(r, r + beats)
            x = last_read + 2
            if ends:
                x = max(x, ends[-1] + 1)
            if len(responses) >= config.write_bursts:
                x = max(x, responses[-config.write_bursts] + 1)
            trace.addresses.append((x, address, beats))
            trace.beats += range(x, x + beats)
            ends.append(x + beats - 1)
            responses.append(max(ends[-1] + latency, responses[-1] + 1 if responses else 0))
        trace.releases.append(last_read)
        idle = last_read + 1
        trace.finishes.append(responses[-1])
    return trace


def simulate(config: Config, commands: list[dict[str, int]], earliest: list[int], spm: np.ndarray, *,
             latency: int, stalls: random.Random | None = None, bad_burst: int | None = None,
             limit: int = 8) -> tuple[Trace, np.ndarray, list[int]]:
    """Run the unit; returns its trace, the DRAM and the cycles with ``error`` high."""
    dut = Store(config=config, timing=Timing.of(config))
    axi = dut.axi
    trace, errors = Trace(), []
    dram = np.zeros(DRAM_BYTES, dtype=np.uint8)
    bus = config.bus_bytes

    def stall(share: float) -> bool:
        return bool(stalls) and stalls.random() < share

    async def bench(ctx) -> None:
        addresses: list[tuple[int, int]] = []  # accepted, data still to come
        data: list[tuple[int, int, bool]] = []  # accepted, address still to come
        responses: list[int] = []
        held = {}  # what a stalled channel must repeat
        cycle = begun = answered = done = 0
        arrived = 0
        while len(trace.finishes) < len(commands):
            # inputs of this cycle
            i = len(trace.issues)
            start = (i < len(commands) and cycle >= earliest[i] and i - len(trace.finishes) < limit
                     and ctx.get(dut.control.ready))
            ctx.set(dut.control.start, bool(start))
            if start:
                ctx.set(dut.control.command, commands[i])
                trace.issues.append(cycle)
            answer = bool(responses) and responses[0] <= cycle and not stall(0.5)
            ctx.set(axi.bvalid, answer)
            ctx.set(axi.bresp, 2 if answer and answered == bad_burst else 0)
            aw_ready, w_ready = not stall(0.7), not stall(0.4)
            ctx.set(axi.awready, aw_ready)
            ctx.set(axi.wready, w_ready)
            # outputs of this cycle
            aw = (ctx.get(axi.awaddr), ctx.get(axi.awlen) + 1) if ctx.get(axi.awvalid) else None
            w = None
            if ctx.get(axi.wvalid):
                w = ctx.get(axi.wdata), ctx.get(axi.wstrb), ctx.get(axi.wlast)
            for name, seen, ready in (("aw", aw, aw_ready), ("w", w, w_ready)):
                assert name not in held or held[name] == seen, f"{name} changed while stalled"
                held.pop(name, None)
                if seen is not None and not ready:
                    held[name] = seen
            if aw and aw_ready:
                trace.addresses.append((cycle, *aw))
                addresses.append(aw)
                begun += 1
            if w and w_ready:
                trace.beats.append(cycle)
                data.append(w)
            assert begun - answered <= config.write_bursts
            while addresses and len(data) >= addresses[0][1]:
                at, beats = addresses.pop(0)
                for k in range(beats):
                    word, strobe, last = data.pop(0)
                    assert bool(last) == (k == beats - 1)
                    for lane in range(bus):
                        if strobe >> lane & 1:
                            dram[at + k * bus + lane] = word >> 8 * lane & 255
                arrived = max(cycle + latency, arrived + 1)
                responses.append(arrived)
            read = ctx.get(dut.spm.en)
            row = ctx.get(dut.spm.row)
            if read:
                trace.reads.append(cycle)
            if ctx.get(dut.control.release):
                trace.releases.append(cycle)
            if ctx.get(dut.error):
                errors.append(cycle)
            finish = ctx.get(dut.control.finish)
            assert ctx.get(axi.bready)
            if answer:
                responses.pop(0)
                answered += 1
            await ctx.tick()
            # read data stand for one cycle only
            word = spm[row].tobytes() if read else bytes(config.dim)
            ctx.set(dut.spm.data, int.from_bytes(word, "little"))
            if finish:
                done += 1
                trace.finishes.append(cycle)
            cycle += 1
        assert not addresses
        assert not data
        assert not responses

    run_bench(dut, bench, cycles=20000)
    return trace, dram, errors


def scratchpad(seed: int, config: Config) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, (SPM_ROWS, config.dim), dtype=np.uint8)


@pytest.mark.parametrize(("name", "latency"), [
    ("tiny", 1), ("tiny", 40), ("narrow", 1), ("narrow", 7), ("one_beat", 3), ("base", 60),
])
def test_cycles_and_data(name: str, latency: int) -> None:
    config, rng = CONFIGS[name], random.Random(latency)
    spm = scratchpad(4, config)
    commands = [random_command(rng, config, i) for i in range(14)]
    earliest = sorted(rng.randrange(200) for _ in commands)
    trace, dram, errors = simulate(config, commands, earliest, spm, latency=latency)
    assert trace == model(config, commands, earliest, latency, 8)
    assert np.array_equal(dram, reference(config, commands, spm))
    assert not errors


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", [1, 2])
def test_stalls(name: str, seed: int) -> None:
    config, rng = CONFIGS[name], random.Random(seed)
    spm = scratchpad(seed, config)
    commands = [random_command(rng, config, i) for i in range(10)]
    trace, dram, _ = simulate(config, commands, [0] * len(commands), spm, latency=3, stalls=rng)
    assert [a[1:] for a in trace.addresses] == [b for c in commands for b in bursts_of(config, c)]
    assert np.array_equal(dram, reference(config, commands, spm))
    assert len(trace.releases) == len(commands)


ONE = {"zero": 0, "address": 64, "rows": 1, "bytes": 8, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1}


def test_constants() -> None:
    """store_first = 1, store_send = 2: issue 10, reads 11 and 12, sent 14 and 15, response 25."""
    config = CONFIGS["tiny"]
    trace, _, _ = simulate(config, [ONE], [10], scratchpad(1, config), latency=10)
    assert trace == Trace([10], [11, 12], [12], [(14, 64, 2)], [14, 15], [25])
    timing = Timing.of(config)
    assert (timing.store_first, timing.store_send) == (1, 2)


def test_full_rate() -> None:
    """Reading a burst overlaps sending the one before; limited by the two buffers only."""
    config = CONFIGS["base"]
    command = {**ONE, "address": 0, "rows": 3, "bytes": 256, "stride": 256}
    trace, _, _ = simulate(config, [command], [0], scratchpad(1, config), latency=5)
    assert [a[0] for a in trace.addresses] == [18, 34, 51]
    assert trace.reads == [*range(1, 33), *range(34, 50)]


def test_error() -> None:
    config = CONFIGS["tiny"]
    trace, _, errors = simulate(config, [ONE, ONE], [0, 30], scratchpad(1, config), latency=5, bad_burst=1)
    assert errors == [trace.finishes[1]]


def test_foreign_timing() -> None:
    config = CONFIGS["tiny"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the refused unit is never elaborated
        with pytest.raises(ValueError, match="store_first and store_send must be 1 and 2"):
            Store(config=config, timing=changed(Timing.of(config), store_send=3))
        gc.collect()
