"""Load unit: data against numpy, every cycle against the rules of docs/timing.md."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.lint import lint
from gemmule.hw.load import Load
from gemmule.hw.testing import rejection, run_bench
from gemmule.hw.verilog import generate_unit
from gemmule.isa import MoveFlag, Unit, legal_flags
from gemmule.timing import Timing

ROWS = 2048
CONFIGS = {
    "tiny": load_config("tiny"),
    "4_2": Config(dim=4, bus_bytes=2, burst_bytes=32, spm_kib=1, spm_banks=1, acc_kib=4, preload=1,
                  read_bursts=3, load_commands=2),
    "8_4": Config(dim=8, bus_bytes=4, burst_bytes=32, spm_kib=4, acc_kib=4, read_bursts=5),
    "2_2": Config(dim=2, bus_bytes=2, burst_bytes=32, spm_kib=1, acc_kib=1, acc_banks=1, preload=1),
    "single": Config(dim=4, bus_bytes=4, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4,
                     read_bursts=1, load_commands=1),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32),
    "base": load_config("base"),
    "64_32": Config(dim=64, bus_bytes=32, burst_bytes=128, spm_kib=64, acc_kib=64, acc_banks=2),
}
ACC, NARROW, ADD, ZERO, BROADCAST, INDEXED = (1 << flag for flag in MoveFlag)
FLAGS = [flags for flags in range(64) if legal_flags(Unit.LOAD, 0, flags)]
LIST = random.Random(9).choices((*range(12), 65535), k=64)


def random_command(rng: random.Random, config: Config, flags: int) -> dict[str, int]:
    words = flags & ACC and not flags & NARROW
    limit = rng.choice((config.bus_bytes, config.dim + 3, 2 * config.burst_bytes)) * (2 if words else 1)
    count = rng.randrange(1, limit + 1)
    address = rng.randrange(4096)
    return {
        "zero": 0, "flags": flags, "rows": rng.choice((1, 2, 3, 7 if limit < 16 else 4)),
        "address": address - address % config.bus_bytes if flags & BROADCAST else address,
        "bytes": -(-count // 4) * 4 if words else count,
        "stride": rng.choice((rng.randrange(60), rng.randrange(60) * config.bus_bytes)),
        "row": rng.randrange(200), "row_stride": rng.choice((0, 1, 1, rng.randrange(9))),
        "block_stride": rng.randrange(20), "list": rng.randrange(57), "last_index": rng.randrange(1, 12),
    }


def number_of(c: dict[str, int], r: int) -> int:
    """Number of DRAM row r of a command."""
    if c["flags"] & BROADCAST:
        return 0
    return min(LIST[c["list"] + r], c["last_index"]) if c["flags"] & INDEXED else r


def program(rng: random.Random, config: Config, count: int) -> list[dict[str, int]]:
    """Every legal combination of flags, plain loads in between so that commands overlap."""
    flags = (FLAGS + [rng.choice((0, 0, ACC, ACC | ADD, ACC | NARROW)) for _ in FLAGS])[:count]
    rng.shuffle(flags)
    return [random_command(rng, config, f) for f in flags]


def width_of(config: Config, c: dict[str, int]) -> int:
    return 4 * config.dim if c["flags"] & ACC and not c["flags"] & NARROW else config.dim


def bursts_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, bool]]:
    """(bus-aligned address, beats, begins its row) of every burst of a command."""
    out = []
    rows = 0 if c["flags"] & ZERO else 1 if c["flags"] & BROADCAST else c["rows"]
    for r in range(rows):
        first = at = c["address"] + number_of(c, r) * c["stride"]
        end = at + c["bytes"]
        while at < end:
            cut = min(end, (at // config.burst_bytes + 1) * config.burst_bytes)
            words = range(at // config.bus_bytes, (cut - 1) // config.bus_bytes + 1)
            out.append((words[0] * config.bus_bytes, len(words), at == first))
            at = cut
    return out


def reference(config: Config, commands: list[dict[str, int]], dram: np.ndarray,
              spm: np.ndarray, acc: np.ndarray) -> None:
    """Changes ``spm`` (uint8) and ``acc`` (int32) as the commands say, lane by lane, in the order of the writes."""
    for c in commands:
        accumulator, broadcast = c["flags"] & ACC, c["flags"] & BROADCAST
        words = width_of(config, c) > config.dim
        kind = "<i4" if words else np.int8 if accumulator else np.uint8
        rows = []
        for r in range(c["rows"]):
            start = c["address"] + number_of(c, r) * c["stride"]
            raw = dram[start:start + c["bytes"]] if not c["flags"] & ZERO else np.zeros(c["bytes"], dtype=np.uint8)
            rows.append(raw.view(kind))
        lanes = max(1, config.bus_bytes // (4 if words else 1))  # of a chunk
        order = sorted(
            ((r, i) for r in range(c["rows"]) for i in range(len(rows[0]))),
            key=lambda place: (place[1] // lanes if broadcast else 0, place))
        for r, i in order:
            value = int(rows[r][i])
            row = c["row"] + r * c["row_stride"] + i // config.dim * c["block_stride"]
            if not accumulator:
                spm[row, i % config.dim] = value
            else:
                total = value + (int(acc[row, i % config.dim]) if c["flags"] & ADD else 0)
                acc[row, i % config.dim] = (total + 2**31) % 2**32 - 2**31


@dataclass
class Trace:
    """Cycles of everything that is visible at the unit's ports."""

    issues: list[int] = field(default_factory=list)
    offers: list[int] = field(default_factory=list)  # first cycle in which a request is valid
    requests: list[tuple[int, int, int]] = field(default_factory=list)  # accepted: cycle, address, beats
    beats: list[int] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)  # cycle, row
    reads: list[tuple[int, int]] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)
    finishes: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)  # of the list, in the order of their reads


def expected(config: Config, commands: list[dict[str, int]], earliest: list[int], seen: Trace) -> Trace:
    """docs/timing.md, section Load, for the accepted requests and beats that were seen."""
    trace = Trace(requests=seen.requests, beats=seen.beats)
    bus = config.bus_bytes
    last_beats: list[int] = []  # of every burst
    beat = write = idle = 0
    for i, c in enumerate(commands):
        zero, broadcast = c["flags"] & ZERO, c["flags"] & BROADCAST
        t = max(earliest[i], idle)
        if i >= config.load_commands:
            t = max(t, trace.finishes[i - config.load_commands] + 1)
        if i and (zero or broadcast or commands[i - 1]["flags"] & (ZERO | BROADCAST)):
            t = max(t, trace.finishes[i - 1] + 1)
        trace.issues.append(t)
        width = width_of(config, c)

        def put(write: int, row: int, chunk: int, c: dict[str, int] = c, width: int = width) -> None:
            """A chunk is written in cycle ``write``; one that ends within an int32 leaves no trace."""
            if width > config.dim and (chunk * bus + bus) % 4:
                return
            at = c["row"] + row * c["row_stride"] + chunk * bus // width * c["block_stride"]
            trace.writes.append((write, at))
            if c["flags"] & ADD:
                trace.reads.append((write - 1, at))

        chunks = -(-c["bytes"] // bus)
        write = max(write, t + 1)  # nothing of the command is written before t + 2
        if zero:
            for row in range(c["rows"]):
                for chunk in range(chunks):
                    write += 1
                    trace.moved.append(write)
                    put(write, row, chunk)
        arrivals: list[int] = []
        after = t
        taken = 0
        if c["flags"] & INDEXED:
            trace.entries += range(c["list"], c["list"] + c["rows"])
            after += 1  # the command's first row: 3 cycles later than without INDEXED, t + 4
        for _, beats, begins in bursts_of(config, c):
            offer = after + (3 if begins and c["flags"] & INDEXED else 1)
            if len(last_beats) >= config.read_bursts:
                offer = max(offer, last_beats[-config.read_bursts] + 1)
            if broadcast:
                offer = max(offer, write + 1 if taken else 0)
            trace.offers.append(offer)
            after = seen.requests[len(last_beats)][0]
            arrivals += seen.beats[beat:beat + beats]
            beat += beats
            last_beats.append(arrivals[-1])
            if broadcast:
                for y in arrivals[taken:]:
                    write = max(write, y)
                    for row in range(c["rows"]):
                        write += 1
                        put(write, row, taken)
                    taken += 1
        idle = after + 1
        if not zero and not broadcast:
            base = 0
            for row in range(c["rows"]):
                offset = (c["address"] + number_of(c, row) * c["stride"]) % bus
                for chunk in range(chunks):
                    byte = min(chunk * bus + bus, c["bytes"]) - 1
                    y = arrivals[base + (offset + byte) // bus]
                    write = max(y, write) + 1
                    assert write <= y + 2, "more than one chunk is late"
                    put(write, row, chunk)
                base += (offset + c["bytes"] - 1) // bus + 1
        trace.finishes.append(write)
    trace.moved = sorted(trace.moved + trace.beats)
    return trace


def simulate(config: Config, commands: list[dict[str, int]], earliest: list[int], dram: np.ndarray,
             spm: np.ndarray, acc: np.ndarray, *, latency: int, stalls: random.Random | None = None,
             gaps: float = 0.0, beat_cycles: int = 1, bad_beat: int | None = None) -> Trace:
    """Run the unit on the memories; with ``stalls``, requests wait and beats come with gaps."""
    dut = Load(config=config, timing=Timing.of(config))
    trace, bus, dim = Trace(), config.bus_bytes, config.dim

    async def bench(ctx) -> None:
        queue: list[tuple[int, int, bool]] = []  # earliest cycle, address, last
        offered = None
        cycle = free = 0
        while len(trace.finishes) < len(commands) or ctx.get(dut.control.finish):
            # inputs of this cycle
            i = len(trace.issues)
            in_flight = i - len(trace.finishes)
            start = (i < len(commands) and cycle >= earliest[i] and in_flight < config.load_commands
                     and (in_flight == 0 or not commands[i]["flags"] & (ZERO | BROADCAST))
                     and ctx.get(dut.control.ready))
            ctx.set(dut.control.start, bool(start))
            if start:
                ctx.set(dut.control.command, commands[i])
                trace.issues.append(cycle)
            beat = bool(queue) and queue[0][0] <= cycle and not (stalls and stalls.random() < gaps)
            ctx.set(dut.read.beat_valid, beat)
            if beat:
                _, address, last = queue.pop(0)
                ctx.set(dut.read.beat_data, int.from_bytes(dram[address:address + bus].tobytes(), "little"))
                ctx.set(dut.read.beat_last, last)
                ctx.set(dut.read.beat_resp, 2 if len(trace.beats) == bad_beat else 0)
                trace.beats.append(cycle)
            ready = not (stalls and stalls.random() < 0.3)
            ctx.set(dut.read.req_ready, ready)
            # outputs of this cycle
            request = None
            if ctx.get(dut.read.req_valid):
                request = ctx.get(dut.read.req_addr), ctx.get(dut.read.req_len) + 1
                if offered is None:
                    trace.offers.append(cycle)
            if offered is not None:
                assert request == offered, "an offered request was changed"
            offered = None if ready else request
            if request and ready:
                trace.requests.append((cycle, *request))
                for k in range(request[1]):
                    free = max(free, cycle + latency)
                    queue.append((free, request[0] + k * bus, k == request[1] - 1))
                    free += beat_cycles
            assert sum(last for *_, last in queue) <= config.read_bursts
            for name, event in (("moved", dut.moved), ("errors", dut.error)):
                if ctx.get(event):
                    getattr(trace, name).append(cycle)
            fetched = number = 0  # data stand for one cycle only
            if ctx.get(dut.list.en):
                trace.entries.append(ctx.get(dut.list.entry))
                number = LIST[trace.entries[-1]]
            if ctx.get(dut.acc_read.en):
                row = ctx.get(dut.acc_read.row)
                trace.reads.append((cycle, row))
                fetched = int.from_bytes(acc[row].tobytes(), "little")
            for port, memory in ((dut.spm, spm), (dut.acc_write, acc)):
                if ctx.get(port.en):
                    row, mask = ctx.get(port.row), ctx.get(port.mask)
                    assert mask
                    size = dim * memory.itemsize
                    lanes = np.frombuffer(ctx.get(port.data).to_bytes(size, "little"), memory.dtype)
                    chosen = np.array([mask >> lane & 1 for lane in range(dim)], dtype=bool)
                    memory[row, chosen] = lanes[chosen]
                    trace.writes.append((cycle, row))
            assert ctx.get(dut.control.release) == ctx.get(dut.control.finish)
            finish = ctx.get(dut.control.finish)
            await ctx.tick()
            ctx.set(dut.acc_read.data, fetched)
            ctx.set(dut.list.data, number)
            if finish:  # visible from the next cycle on
                trace.finishes.append(cycle)
            cycle += 1

    run_bench(dut, bench, cycles=40000)
    return trace


def memories(config: Config, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random DRAM bytes, scratchpad uint8 and accumulator int32 rows."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 256, 1 << 15, dtype=np.uint8),
            rng.integers(0, 256, (ROWS, config.dim), dtype=np.uint8),
            rng.integers(-(1 << 31), 1 << 31, (ROWS, config.dim)).astype("<i4"))


def check(config: Config, commands: list[dict[str, int]], earliest: list[int], seed: int, **how) -> Trace:
    """Run, and compare memories and every cycle; the trace that was seen."""
    dram, spm, acc = memories(config, seed)
    right_spm, right_acc = spm.copy(), acc.copy()
    reference(config, commands, dram, right_spm, right_acc)
    trace = simulate(config, commands, earliest, dram, spm, acc, **how)
    assert trace == expected(config, commands, earliest, trace)
    assert [r[1:] for r in trace.requests] == [b[:2] for c in commands for b in bursts_of(config, c)]
    assert np.array_equal(spm, right_spm)
    assert np.array_equal(acc, right_acc)
    return trace


@pytest.mark.parametrize(("name", "latency", "beat_cycles"), [
    ("tiny", 1, 1), ("tiny", 25, 2), ("4_2", 1, 1), ("4_2", 9, 3), ("8_4", 1, 1), ("2_2", 1, 1), ("single", 6, 1),
    ("one_beat", 4, 1), ("base", 60, 1), ("64_32", 5, 1),
])
def test_cycles_and_data(name: str, latency: int, beat_cycles: int) -> None:
    """Requests are accepted at once and beats come every ``beat_cycles``: everything at full rate."""
    config, rng = CONFIGS[name], random.Random(f"{name} {latency}")
    commands = program(rng, config, 26 if config.dim < 32 else 13)
    earliest = sorted(rng.randrange(400) for _ in commands)
    check(config, commands, earliest, 3, latency=latency, beat_cycles=beat_cycles)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("gaps", [0.1, 0.6])
def test_gaps_and_stalls(name: str, gaps: float) -> None:
    config, rng = CONFIGS[name], random.Random(f"{name} {gaps}")
    commands = program(rng, config, 26 if config.dim < 32 else 13)
    check(config, commands, [0] * len(commands), 5, latency=3, stalls=rng, gaps=gaps)


ONE = {"zero": 0, "flags": 0, "address": 64, "rows": 1, "bytes": 4, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1, "list": 0, "last_index": 0}


def test_constants() -> None:
    """load_first = 1, load_write = 1: issue 10, request 11, beat 31, write and finish 32."""
    config = CONFIGS["tiny"]
    trace = simulate(config, [ONE], [10], *memories(config, 1), latency=20)
    assert trace == Trace([10], [11], [(11, 64, 1)], [31], [(32, 7)], [], [31], [], [32])
    timing = Timing.of(config)
    assert (timing.load_first, timing.load_write, timing.load_fill) == (1, 1, 2)


def test_fill() -> None:
    """load_fill = 2: issue 10, two rows of two int32 chunks in 12 .. 15; a load right behind issues in 16."""
    config = CONFIGS["tiny"]
    commands = [{**ONE, "flags": ACC | ZERO, "rows": 2, "bytes": 8, "row_stride": 3}, ONE]
    trace = simulate(config, commands, [10, 10], *memories(config, 1), latency=20)
    assert trace.writes == [(12, 7), (13, 7), (14, 10), (15, 10), (38, 7)]
    assert trace.issues == [10, 16]
    assert trace.finishes == [15, 38]
    assert trace.moved == [12, 13, 14, 15, 37]


def test_broadcast() -> None:
    """Three rows of 17 chunks, 16 of them in the first burst: the second is asked for after their 48 writes."""
    config = CONFIGS["tiny"]
    command = {**ONE, "flags": BROADCAST, "rows": 3, "bytes": 68, "stride": 999}
    trace = check(config, [command], [0], 1, latency=10)
    assert trace.requests == [(1, 64, 16), (60, 128, 1)]
    assert trace.beats == [*range(11, 27), 70]
    assert [w for w, _ in trace.writes] == [*range(12, 60), 71, 72, 73]


@pytest.mark.parametrize("flags", [0, ACC, ACC | NARROW, ACC | ADD, ACC | NARROW | ADD])
def test_full_rate(flags: int) -> None:
    """Two commands of 4 aligned bursts overlap: 128 beats and writes without a gap."""
    config = CONFIGS["base"]
    command = {**ONE, "flags": flags, "address": 0, "rows": 4, "bytes": 256, "stride": 512, "block_stride": 4}
    trace = check(config, [command, command], [0, 0], 1, latency=30)
    assert [r[0] for r in trace.requests] == [1, 2, 3, 4, 6, 7, 8, 9]
    assert [w for w, _ in trace.writes] == list(range(32, 32 + 128))


def test_full_rate_unaligned() -> None:
    """Rows of 80 bytes from byte 5 of a beat on: 6 beats bring 5 chunks, the first beat none."""
    config = CONFIGS["base"]
    command = {**ONE, "address": 5, "rows": 4, "bytes": 80, "stride": 96, "block_stride": 4}
    trace = check(config, [command], [0], 1, latency=30)
    assert trace.beats == list(range(31, 31 + 24))
    assert [w for w, _ in trace.writes] == [w for row in range(4) for w in range(33 + 6 * row, 38 + 6 * row)]


def test_late_chunk() -> None:
    """5 bytes from byte 1 of a 4-byte beat on: the second beat completes two chunks. The aligned row behind
    stays one cycle late."""
    config = CONFIGS["tiny"]
    command = {**ONE, "address": 65, "rows": 2, "bytes": 5, "stride": 67, "row_stride": 2}
    trace = check(config, [command, {**ONE, "bytes": 12}], [0, 0], 1, latency=10)
    assert trace.beats == [11, 12, 13, 14, 15, 16, 17]
    assert trace.writes == [(13, 7), (14, 8), (15, 9), (16, 10), (17, 7), (18, 8), (19, 9)]


def test_gather() -> None:
    """index_cycles = 3: three rows of 8 bytes, one number limited to 5, each in two bursts for it crosses a boundary.
    Requests from t + 1 + 3 on, one a cycle in a row, the next row 3 cycles after the last one of the row before."""
    config = CONFIGS["tiny"]
    first = next(i for i in range(60) if LIST[i] > 5 > LIST[i + 1] != LIST[i + 2])
    command = {**ONE, "flags": INDEXED, "address": 60, "rows": 3, "bytes": 8, "stride": 128, "list": first,
               "last_index": 5, "row_stride": 2}
    trace = check(config, [command, {**command, "flags": 0}], [0, 0], 1, latency=10)
    assert [r[0] for r in trace.requests] == [4, 5, 8, 9, 12, 13, 15, 16, 17, 18, 19, 20]
    numbers = [min(number, 5) for number in LIST[first:first + 3]]
    assert [r[1] for r in trace.requests[:6]] == [a for n in numbers for a in (60 + 128 * n, 64 + 128 * n)]
    assert trace.issues == [0, 14]
    assert trace.entries == [first, first + 1, first + 2]
    assert len(set(numbers)) > 1


def test_reduction() -> None:
    """ADD with row stride 0 adds up all rows, one a cycle."""
    config = CONFIGS["tiny"]
    command = {**ONE, "flags": ACC | NARROW | ADD, "rows": 40, "stride": 5, "row_stride": 0}
    trace = check(config, [{**command, "flags": ACC | NARROW | ZERO, "rows": 1}, command], [0, 0], 2, latency=8)
    assert trace.finishes[1] - trace.issues[1] > 40


def test_error() -> None:
    config = CONFIGS["tiny"]
    trace = simulate(config, [{**ONE, "bytes": 16}], [0], *memories(config, 1), latency=5, bad_beat=2)
    assert trace.errors == [trace.beats[2] + 1]


def test_foreign_timing() -> None:
    config = CONFIGS["tiny"]
    for name, built in (("load_first", 1), ("load_write", 1), ("load_fill", 2), ("index_cycles", 3)):
        timing = changed(Timing.of(config), **{name: 4})
        assert rejection(lambda timing=timing: Load(config=config, timing=timing)) == (
            f"{name} must be {built}, as built, not 4")


@pytest.mark.parametrize("name", ["2_2", "single", "one_beat", "64_32"])
def test_lint(name: str, tmp_path: Path) -> None:
    lint(generate_unit("load", CONFIGS[name], tmp_path), "load")
