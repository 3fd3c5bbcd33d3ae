"""Store unit: data against numpy, every cycle against the rules of docs/timing.md."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.flow.export import export
from gemmule.hw.flow.lint import lint
from gemmule.hw.move.store import Store
from gemmule.isa import MoveFlag
from gemmule.timing import Timing

from ...thinned import some, thinned
from ..bench import Simulated, rejection
from .rows import join, pitch, spans

ROWS = 1024
DRAM_BYTES = 1 << 17
CONFIGS = {
    "tiny": load_config("tiny"),
    "4_2": Config(dim=4, bus_bytes=2, burst_bytes=32, spm_kib=1, spm_banks=1, acc_kib=4, preload=1, write_bursts=3),
    "8_4": Config(dim=8, bus_bytes=4, burst_bytes=32, spm_kib=4, acc_kib=4),
    "2_2": Config(dim=2, bus_bytes=2, burst_bytes=32, spm_kib=1, acc_kib=1, acc_banks=1, preload=1),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32, write_bursts=1),
    "base": load_config("base"),
    "64_32": Config(dim=64, bus_bytes=32, burst_bytes=128, spm_kib=64, acc_kib=64, acc_banks=2),
}
ACC, NARROW, INDEXED = (1 << flag for flag in (MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.INDEXED))
FLAGS = (0, ACC, ACC | NARROW, INDEXED, ACC | INDEXED, ACC | NARROW | INDEXED)
LIST = random.Random(9).sample(range(12), 12)  # a scatter to rows that are not its own


def random_command(rng: random.Random, config: Config, i: int) -> dict[str, int]:
    """Commands write disjoint DRAM ranges with gaps; the rows that they read overlap freely."""
    flags = FLAGS[i % 6]
    limit = rng.choice((config.bus_bytes, config.dim + 3, 2 * config.burst_bytes)) * (2 if words(flags) else 1)
    count = rng.randrange(1, limit + 1)
    if words(flags):
        count = -(-count // 4) * 4
    unit = rng.choice((1, config.bus_bytes))
    command = {
        "zero": 0, "flags": flags, "address": i * 4096 + rng.randrange(64) * unit,
        "rows": rng.choice((1, 2, 3, 7 if limit < 16 else 4)),
        "bytes": count, "stride": -(-count // unit) * unit + rng.randrange(3) * unit,
        "row": rng.randrange(200), "row_stride": rng.randrange(9), "block_stride": rng.randrange(20),
        "list": rng.randrange(6), "last_index": rng.choice((4, 11)),
    }
    return join(config, command, 4 if words(flags) else 1) if rng.random() < 0.4 else command


def words(flags: int) -> bool:
    """DRAM holds int32."""
    return flags & (ACC | NARROW) == ACC


def number_of(c: dict[str, int], r: int) -> int:
    """Number of DRAM row r of a command."""
    return min(LIST[c["list"] + r], c["last_index"]) if c["flags"] & INDEXED else r


def bursts_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, int, bool]]:
    """(bus-aligned address, beats, chunks read, begins its row) of every burst of a command, found byte by byte."""
    out = []
    bus = config.bus_bytes
    for first, size in spans(c, [number_of(c, r) for r in range(c["rows"])]):
        end = first + size
        left = -(-size // bus)  # chunks of the row that are not read yet
        at = first
        while at < end:
            cut = min(end, (at // config.burst_bytes + 1) * config.burst_bytes)
            beats = range(at // bus, (cut - 1) // bus + 1)
            out.append((beats[0] * bus, len(beats), min(left, len(beats)), at == first))
            left -= out[-1][2]
            at = cut
        assert left == 0
    return out


def reference(config: Config, commands: list[dict[str, int]], spm: np.ndarray, acc: np.ndarray,
              dram: np.ndarray) -> None:
    """Changes ``dram`` as the commands say, element by element."""
    for c in commands:
        size = 4 if words(c["flags"]) else 1
        for r in range(c["rows"]):
            for i in range(c["bytes"] // size):
                row = c["row"] + r * c["row_stride"] + i // config.dim * c["block_stride"]
                value = int((acc if c["flags"] & ACC else spm)[row, i % config.dim])
                if c["flags"] & NARROW:
                    value = min(max(value, -128), 127)
                at = c["address"] + number_of(c, r) * pitch(c) + i * size
                data = (value % (1 << 8 * size)).to_bytes(size, "little")
                dram[at:at + size] = np.frombuffer(data, dtype=np.uint8)


@dataclass
class Trace:
    """Cycles of everything that is visible at the unit's ports."""

    issues: list[int] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)  # cycle, row
    releases: list[int] = field(default_factory=list)
    offers: list[tuple[int, int]] = field(default_factory=list)  # burst: first cycle of awvalid, of wvalid
    addresses: list[tuple[int, int, int]] = field(default_factory=list)  # accepted: cycle, address, beats
    beats: list[int] = field(default_factory=list)  # accepted
    moved: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)  # of the list, in the order of their reads


def expected(config: Config, commands: list[dict[str, int]], earliest: list[int], limit: int, seen: Trace) -> Trace:
    """docs/timing.md, section Store, for the accepted addresses and beats and the responses that were seen."""
    trace = Trace(addresses=seen.addresses, beats=seen.beats, answers=seen.answers, moved=seen.beats)
    ends: list[int] = []  # send ends
    idle = beat = 0
    for i, c in enumerate(commands):
        t = max(earliest[i], idle)
        if i >= limit:
            t = max(t, trace.finishes[i - limit] + 1)
        trace.issues.append(t)
        width = 4 * config.dim if words(c["flags"]) else config.dim
        indexed = c["flags"] & INDEXED
        chunks = -(-c["bytes"] // config.bus_bytes)
        places = [(r, j) for r in range(c["rows"]) for j in range(chunks)]
        rows = iter([c["row"] + r * c["row_stride"] + j * config.bus_bytes // width * c["block_stride"]
                     for r, j in places])
        last_beat = t  # the first beat is taken at t + 1 or later
        if indexed:
            trace.entries += range(c["list"], c["list"] + c["rows"])
            last_beat += 1  # the command's first row: 4 cycles later than without INDEXED, t + 5
        for _, beats, count, begins in bursts_of(config, c):
            r = last_beat + (4 if indexed and begins else 1)
            if len(ends) >= 2:
                r = max(r, ends[-2] + 1)
            last_beat = r + beats - 1
            trace.reads += [(x + 1, next(rows)) for x in range(r, r + count)]
            x = last_beat + 3
            if ends:
                x = max(x, ends[-1] + 1)
            if len(ends) >= config.write_bursts:
                x = max(x, seen.answers[len(ends) - config.write_bursts] + 1)
            trace.offers.append((x, x))
            beat += beats
            ends.append(max(seen.addresses[len(ends)][0], seen.beats[beat - 1]))
        trace.releases.append(last_beat)
        idle = last_beat + 1
        trace.finishes.append(seen.answers[len(ends) - 1])
    return trace


@lru_cache(maxsize=4)
def simulated(config: Config) -> Simulated:
    """The unit's simulator, for all runs on this configuration."""
    return Simulated(Store(config=config, timing=Timing.of(config)))


def simulate(config: Config, commands: list[dict[str, int]], earliest: list[int], spm: np.ndarray, acc: np.ndarray,
             dram: np.ndarray, *, latency: int, stalls: random.Random | None = None, bad_burst: int | None = None,
             limit: int = 8) -> Trace:
    """Run the unit on the memories."""
    unit = simulated(config)
    dut = unit.component
    axi = dut.axi
    trace = Trace()
    bus = config.bus_bytes

    def stall(share: float) -> bool:
        return bool(stalls) and stalls.random() < share

    async def bench(ctx) -> None:
        addresses: list[tuple[int, int]] = []  # accepted, data still to come
        data: list[tuple[int, int, bool]] = []  # accepted, address still to come
        responses: list[int] = []
        held = {}  # what a stalled channel must repeat
        offers: dict[str, list[int]] = {"aw": [], "w": []}
        cycle = arrived = 0
        fresh = True  # the next W beat begins a burst
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
            ctx.set(axi.bresp, 2 if answer and len(trace.answers) == bad_burst else 0)
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
                if seen is not None and name not in held and (name == "aw" or fresh):
                    offers[name].append(cycle)
                held.pop(name, None)
                if seen is not None and not ready:
                    held[name] = seen
            if aw and aw_ready:
                trace.addresses.append((cycle, *aw))
                addresses.append(aw)
            if w:
                fresh = False
            if w and w_ready:
                trace.beats.append(cycle)
                data.append(w)
                fresh = bool(w[2])
            assert len(trace.addresses) - len(trace.answers) <= config.write_bursts
            while addresses and len(data) >= addresses[0][1]:
                at, beats = addresses.pop(0)
                for k in range(beats):
                    word, strobe, last = data.pop(0)
                    assert strobe
                    assert bool(last) == (k == beats - 1)
                    for lane in range(bus):
                        if strobe >> lane & 1:
                            dram[at + k * bus + lane] = word >> 8 * lane & 255
                arrived = max(cycle + latency, arrived + 1)
                responses.append(arrived)
            # data of a read stand for one cycle only
            answers = {}
            number = 0
            if ctx.get(dut.list.en):
                number = LIST[entry := ctx.get(dut.list.entry)]
                if ctx.get(dut.control.start) or not ctx.get(dut.control.ready):  # else it waits for a start
                    trace.entries.append(entry)
            for port, memory in ((dut.spm, spm), (dut.acc, acc)):
                answers[port] = 0
                if ctx.get(port.en):
                    row = ctx.get(port.row)
                    trace.reads.append((cycle, row))
                    answers[port] = int.from_bytes(memory[row].tobytes(), "little")
            for name, event in (("releases", dut.control.release), ("errors", dut.error), ("moved", dut.moved)):
                if ctx.get(event):
                    getattr(trace, name).append(cycle)
            finish = ctx.get(dut.control.finish)
            assert ctx.get(axi.bready)
            if answer:
                responses.pop(0)
                trace.answers.append(cycle)
            await ctx.tick()
            for port, answer_data in answers.items():
                ctx.set(port.data, answer_data)
            ctx.set(dut.list.data, number)
            if finish:
                trace.finishes.append(cycle)
            cycle += 1
        assert not addresses
        assert not data
        assert not responses
        trace.offers += zip(offers["aw"], offers["w"], strict=True)

    unit.run(bench, cycles=40000)
    return trace


def memories(config: Config, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random scratchpad uint8 and accumulator int32 rows (half of them near int8), DRAM bytes."""
    rng = np.random.default_rng(seed)
    acc = rng.integers(-(1 << 31), 1 << 31, (ROWS, config.dim))
    near = rng.integers(-140, 140, acc.shape)
    return (rng.integers(0, 256, (ROWS, config.dim), dtype=np.uint8),
            np.where(rng.random(acc.shape) < 0.7, near, acc).astype("<i4"),
            rng.integers(0, 256, DRAM_BYTES, dtype=np.uint8))


def check(config: Config, commands: list[dict[str, int]], earliest: list[int], seed: int, *, limit: int = 8,
          **how) -> Trace:
    """Run, and compare the DRAM and every cycle; the trace that was seen."""
    spm, acc, dram = memories(config, seed)
    right = dram.copy()
    reference(config, commands, spm, acc, right)
    trace = simulate(config, commands, earliest, spm, acc, dram, limit=limit, **how)
    assert trace == expected(config, commands, earliest, limit, trace)
    assert [a[1:] for a in trace.addresses] == [b[:2] for c in commands for b in bursts_of(config, c)]
    assert np.array_equal(dram, right)
    return trace


@pytest.mark.parametrize(("name", "latency", "limit"), [
    ("tiny", 1, 8), ("tiny", 40, 8), ("4_2", 1, 2), ("4_2", 7, 8), ("8_4", 1, 8), ("2_2", 1, 8), ("one_beat", 3, 8),
    ("base", 60, 8), ("64_32", 5, 1),
])
def test_cycles_and_data(name: str, latency: int, limit: int) -> None:
    """Addresses and beats are accepted at once: everything at full rate."""
    config, rng = CONFIGS[name], random.Random(f"{name} {latency}")
    commands = [random_command(rng, config, i) for i in range(24)]
    earliest = sorted(rng.randrange(300) for _ in commands)
    trace = check(config, commands, earliest, 4, latency=latency, limit=limit)
    beat = 0
    for (x, _), (_, _, beats) in zip(trace.offers, trace.addresses, strict=True):
        assert trace.beats[beat:beat + beats] == list(range(x, x + beats))
        beat += beats


@pytest.mark.parametrize(("name", "seed"), thinned(CONFIGS, [1, 2]))
def test_stalls(name: str, seed: int) -> None:
    config, rng = CONFIGS[name], random.Random(seed)
    commands = [random_command(rng, config, i) for i in range(18)]
    check(config, commands, [0] * len(commands), seed, latency=3, stalls=rng)


ONE = {"zero": 0, "flags": 0, "address": 64, "rows": 1, "bytes": 8, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1, "list": 0, "last_index": 0}


def test_constants() -> None:
    """store_first = 1, store_send = 3: issue 10, beats 11 and 12, reads 12 and 13, sent 15 and 16, response 26."""
    config = CONFIGS["tiny"]
    trace = simulate(config, [ONE], [10], *memories(config, 1), latency=10)
    assert trace == Trace(
        [10], [(12, 7), (13, 8)], [12], [(15, 15)], [(15, 64, 2)], [15, 16], [15, 16], [26], [], [26])
    timing = Timing.of(config)
    assert (timing.store_first, timing.store_send) == (1, 3)


@pytest.mark.parametrize("flags", FLAGS[:3])
def test_full_rate(flags: int) -> None:
    """Reading a burst overlaps sending the one before; limited by the two buffers only."""
    config = CONFIGS["base"]
    command = {**ONE, "flags": flags, "address": 0, "rows": 3, "bytes": 256, "stride": 256}
    trace = check(config, [command], [0], 1, latency=5)
    assert [a[0] for a in trace.addresses] == [19, 35, 53]
    assert [r for r, _ in trace.reads] == [*range(2, 34), *range(36, 52)]


def test_joined() -> None:
    """Four rows of 24 bytes from byte 8 of a burst on, as one row of 96: bursts of 56 and 40 bytes."""
    config = CONFIGS["tiny"]
    command = {**ONE, "joined": 1, "address": 72, "rows": 4, "bytes": 24, "stride": 96, "block_stride": 4}
    trace = check(config, [command], [0], 1, latency=5)
    assert [a[1:] for a in trace.addresses] == [(72, 14), (128, 10)]
    assert trace.reads == [(2 + 6 * r + b, 7 + r + 4 * b) for r in range(4) for b in range(6)]


def test_unaligned() -> None:
    """8 bytes from byte 3 of a 4-byte beat on: three beats, two reads; the third beat takes its cycle."""
    config = CONFIGS["tiny"]
    trace = check(config, [{**ONE, "address": 67}, ONE], [0, 0], 1, latency=10)
    assert trace.reads == [(2, 7), (3, 8), (6, 7), (7, 8)]
    assert trace.releases == [3, 6]
    assert trace.issues == [0, 4]
    assert trace.addresses == [(6, 64, 3), (9, 64, 2)]
    assert trace.beats == [6, 7, 8, 9, 10]


def test_unaligned_full_rate() -> None:
    """Whole bursts of unaligned rows: one beat a cycle within a burst, one read a cycle but for the rows' ends."""
    config = CONFIGS["base"]
    trace = check(config, [{**ONE, "address": 7, "rows": 2, "bytes": 240, "stride": 256}], [0], 1, latency=5)
    assert [r for r, _ in trace.reads] == [*range(2, 17), *range(18, 33)]
    assert trace.beats == [*range(19, 35), *range(35, 51)]


def test_scatter() -> None:
    """index_cycles = 4: rows of two beats from t + 1 + 4 on, the next row 4 cycles after the last beat. Each
    reads a cycle later."""
    config = CONFIGS["tiny"]
    command = {**ONE, "flags": INDEXED, "rows": 3, "stride": 64, "row_stride": 5, "list": 2, "last_index": 11}
    trace = check(config, [command, ONE], [0, 0], 1, latency=3)
    assert trace.reads == [(6, 7), (7, 8), (11, 12), (12, 13), (16, 17), (17, 18), (19, 7), (20, 8)]
    assert [a[:2] for a in trace.addresses] == [*zip((9, 14, 19), (64 + 64 * n for n in LIST[2:5])), (22, 64)]
    assert (trace.releases, trace.issues) == ([16, 19], [0, 17])
    assert trace.entries == [2, 3, 4]


def test_error() -> None:
    config = CONFIGS["tiny"]
    trace = simulate(config, [ONE, ONE], [0, 30], *memories(config, 1), latency=5, bad_burst=1)
    assert trace.errors == [trace.finishes[1]]


def test_foreign_timing() -> None:
    config = CONFIGS["tiny"]
    for name, built in (("store_first", 1), ("store_send", 3), ("index_cycles", 4)):
        timing = changed(Timing.of(config), **{name: 5})
        assert rejection(lambda timing=timing: Store(config=config, timing=timing)) == (
            f"{name} must be {built}, as built, not 5")


@pytest.mark.parametrize("name", some(["2_2", "one_beat", "64_32"], 2))
def test_lint(name: str, tmp_path: Path) -> None:
    lint(export(CONFIGS[name], tmp_path, unit="store").files, "store")
