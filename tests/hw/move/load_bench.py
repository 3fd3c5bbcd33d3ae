"""Bench of the load unit: commands, the bursts and chunks that they take, and every cycle of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gemmule.config import Config, load_config
from gemmule.hw.move.load import Load
from gemmule.isa import MoveFlag, Unit, legal_flags
from gemmule.timing import Timing

from ..bench import Simulated
from .rows import join, pitch, spans

ROWS = 2048
CONFIGS = {
    "tiny": load_config("tiny"),
    "4_2": Config(dim=4, bus_bytes=2, burst_bytes=32, spm_kib=1, spm_banks=1, acc_kib=4, preload=1,
                  read_bursts=3, read_beats=20, load_commands=2),
    "8_4": Config(dim=8, bus_bytes=4, burst_bytes=32, spm_kib=4, acc_kib=4, read_bursts=5, read_beats=11),
    "2_2": Config(dim=2, bus_bytes=2, burst_bytes=32, spm_kib=1, acc_kib=1, acc_banks=1, preload=1, read_beats=1),
    "single": Config(dim=4, bus_bytes=4, burst_bytes=32, spm_kib=4, spm_banks=4, acc_kib=4,
                     read_bursts=1, load_commands=1),
    "one_beat": Config(dim=32, bus_bytes=32, burst_bytes=32),
    "base": load_config("base"),
    "64_32": Config(dim=64, bus_bytes=32, burst_bytes=128, spm_kib=64, acc_kib=64, acc_banks=2, read_beats=6),
}
ACC, NARROW, ADD, ZERO, BROADCAST, INDEXED = (1 << flag for flag in MoveFlag)
FLAGS = [flags for flags in range(64) if legal_flags(Unit.LOAD, 0, flags)]
LIST = random.Random(9).choices((*range(12), 65535), k=64)


def random_command(rng: random.Random, config: Config, flags: int) -> dict[str, int]:
    words = flags & ACC and not flags & NARROW
    limit = rng.choice((config.bus_bytes, config.dim + 3, 2 * config.burst_bytes)) * (2 if words else 1)
    count = rng.randrange(1, limit + 1)
    address = rng.randrange(4096)
    command = {
        "zero": 0, "flags": flags, "rows": rng.choice((1, 2, 3, 7 if limit < 16 else 4)),
        "address": address - address % config.bus_bytes if flags & BROADCAST else address,
        "bytes": -(-count // 4) * 4 if words else count,
        "stride": rng.choice((rng.randrange(60), rng.randrange(60) * config.bus_bytes)),
        "row": rng.randrange(200), "row_stride": rng.choice((0, 1, 1, rng.randrange(9))),
        "block_stride": rng.randrange(20), "list": rng.randrange(57), "last_index": rng.randrange(1, 12),
    }
    return join(config, command, 4 if words else 1) if rng.random() < 0.4 else command


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


def spans_of(c: dict[str, int]) -> list[tuple[int, int]]:
    """(address, bytes) of what a command reads in one piece."""
    rows = 0 if c["flags"] & ZERO else 1 if c["flags"] & BROADCAST else c["rows"]
    return spans(c, [number_of(c, r) for r in range(rows)]) if rows else []


def width_of(config: Config, c: dict[str, int]) -> int:
    return 4 * config.dim if c["flags"] & ACC and not c["flags"] & NARROW else config.dim


def bursts_of(config: Config, c: dict[str, int]) -> list[tuple[int, int, bool]]:
    """(bus-aligned address, beats, begins its row) of every burst of a command."""
    out = []
    for first, size in spans_of(c):
        at, end = first, first + size
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
            start = c["address"] + number_of(c, r) * pitch(c)
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
            after += 1  # the command's first row: 4 cycles later than without INDEXED, t + 5
        for _, beats, begins in bursts_of(config, c):
            offer = after + (4 if begins and c["flags"] & INDEXED else 1)
            if len(last_beats) >= config.read_bursts:
                offer = max(offer, last_beats[-config.read_bursts] + 1)
            if beat >= config.read_beats:
                offer = max(offer, seen.beats[beat - config.read_beats] + 1)
            if broadcast:
                offer = max(offer, write + 1 if taken else 0)
            trace.offers.append(offer)
            after = seen.requests[len(last_beats)][0]
            arrivals += seen.beats[beat:beat + beats]
            beat += beats
            last_beats.append(arrivals[-1])
            if broadcast:
                for y in arrivals[taken:]:
                    write = max(write, y + 2)
                    for row in range(c["rows"]):
                        write += 1
                        put(write, row, taken)
                    taken += 1
        idle = after + 1
        if not zero and not broadcast:
            base = 0
            places = iter([(row, chunk) for row in range(c["rows"]) for chunk in range(chunks)])
            for start, size in spans_of(c):
                offset = start % bus
                for j in range(-(-size // bus)):
                    byte = min(j * bus + bus, size) - 1
                    y = arrivals[base + (offset + byte) // bus]
                    write = max(y + 2, write) + 1
                    assert write <= y + 4, "more than one chunk is late"
                    put(write, *next(places))
                base += (offset + size - 1) // bus + 1
        trace.finishes.append(write)
    trace.moved = sorted(trace.moved + trace.beats)
    return trace


@lru_cache(maxsize=4)
def simulated(config: Config) -> Simulated:
    """The unit's simulator, for all runs on this configuration."""
    return Simulated(Load(config=config, timing=Timing.of(config)))


def simulate(config: Config, commands: list[dict[str, int]], earliest: list[int], dram: np.ndarray,
             spm: np.ndarray, acc: np.ndarray, *, latency: int, stalls: random.Random | None = None,
             gaps: float = 0.0, beat_cycles: int = 1, bad_beat: int | None = None) -> Trace:
    """Run the unit on the memories; with ``stalls``, requests wait and beats come with gaps."""
    unit = simulated(config)
    dut = unit.component
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
                assert len(queue) + beat < config.read_beats
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
                number = LIST[entry := ctx.get(dut.list.entry)]
                if ctx.get(dut.control.start) or not ctx.get(dut.control.ready):  # else it waits for a start
                    trace.entries.append(entry)
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

    unit.run(bench, cycles=40000)
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
