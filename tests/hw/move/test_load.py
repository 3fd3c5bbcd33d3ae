"""Load unit: data against numpy, every cycle against the rules of docs/timing.md."""

from __future__ import annotations

import random
from dataclasses import replace as changed
from pathlib import Path

import pytest

from gemmule.hw.flow.export import export
from gemmule.hw.flow.lint import lint
from gemmule.hw.move.load import Load
from gemmule.timing import Timing

from ...thinned import some, thinned
from ..bench import rejection
from .load_bench import (
    ACC,
    ADD,
    BROADCAST,
    CONFIGS,
    INDEXED,
    LIST,
    NARROW,
    ZERO,
    Trace,
    check,
    memories,
    program,
    simulate,
)


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


@pytest.mark.parametrize(("name", "gaps"), thinned(CONFIGS, [0.1, 0.6]))
def test_gaps_and_stalls(name: str, gaps: float) -> None:
    config, rng = CONFIGS[name], random.Random(f"{name} {gaps}")
    commands = program(rng, config, 26 if config.dim < 32 else 13)
    check(config, commands, [0] * len(commands), 5, latency=3, stalls=rng, gaps=gaps)


ONE = {"zero": 0, "flags": 0, "address": 64, "rows": 1, "bytes": 4, "stride": 0, "row": 7, "row_stride": 1,
       "block_stride": 1, "list": 0, "last_index": 0}


def test_constants() -> None:
    """load_first = 1, load_write = 3: issue 10, request 11, beat 31, write and finish 34."""
    config = CONFIGS["tiny"]
    trace = simulate(config, [ONE], [10], *memories(config, 1), latency=20)
    assert trace == Trace([10], [11], [(11, 64, 1)], [31], [(34, 7)], [], [31], [], [34])
    timing = Timing.of(config)
    assert (timing.load_first, timing.load_write, timing.load_fill) == (1, 3, 2)


def test_fill() -> None:
    """load_fill = 2: issue 10, two rows of two int32 chunks in 12 .. 15; a load right behind issues in 16."""
    config = CONFIGS["tiny"]
    commands = [{**ONE, "flags": ACC | ZERO, "rows": 2, "bytes": 8, "row_stride": 3}, ONE]
    trace = simulate(config, commands, [10, 10], *memories(config, 1), latency=20)
    assert trace.writes == [(12, 7), (13, 7), (14, 10), (15, 10), (40, 7)]
    assert trace.issues == [10, 16]
    assert trace.finishes == [15, 40]
    assert trace.moved == [12, 13, 14, 15, 37]


def test_broadcast() -> None:
    """Three rows of 17 chunks, 16 of them in the first burst: the second is asked for after their 48 writes."""
    config = CONFIGS["tiny"]
    command = {**ONE, "flags": BROADCAST, "rows": 3, "bytes": 68, "stride": 999}
    trace = check(config, [command], [0], 1, latency=10)
    assert trace.requests == [(1, 64, 16), (62, 128, 1)]
    assert trace.beats == [*range(11, 27), 72]
    assert [w for w, _ in trace.writes] == [*range(14, 62), 75, 76, 77]


@pytest.mark.parametrize("flags", [0, ACC, ACC | NARROW, ACC | ADD, ACC | NARROW | ADD])
def test_full_rate(flags: int) -> None:
    """Two commands of 4 aligned bursts overlap: 128 beats and writes without a gap."""
    config = CONFIGS["base"]
    command = {**ONE, "flags": flags, "address": 0, "rows": 4, "bytes": 256, "stride": 512, "block_stride": 4}
    trace = check(config, [command, command], [0, 0], 1, latency=30)
    assert [r[0] for r in trace.requests] == [1, 2, 3, 4, 6, 7, 8, 9]
    assert [w for w, _ in trace.writes] == list(range(34, 34 + 128))


def test_full_rate_unaligned() -> None:
    """Rows of 80 bytes from byte 5 of a beat on: 6 beats bring 5 chunks, the first beat none."""
    config = CONFIGS["base"]
    command = {**ONE, "address": 5, "rows": 4, "bytes": 80, "stride": 96, "block_stride": 4}
    trace = check(config, [command], [0], 1, latency=30)
    assert trace.beats == list(range(31, 31 + 24))
    assert [w for w, _ in trace.writes] == [w for row in range(4) for w in range(35 + 6 * row, 40 + 6 * row)]


def test_late_chunk() -> None:
    """5 bytes from byte 1 of a 4-byte beat on: the second beat completes two chunks. The aligned row behind
    stays one cycle late."""
    config = CONFIGS["tiny"]
    command = {**ONE, "address": 65, "rows": 2, "bytes": 5, "stride": 67, "row_stride": 2}
    trace = check(config, [command, {**ONE, "bytes": 12}], [0, 0], 1, latency=10)
    assert trace.beats == [11, 12, 13, 14, 15, 16, 17]
    assert trace.writes == [(15, 7), (16, 8), (17, 9), (18, 10), (19, 7), (20, 8), (21, 9)]


def test_gather() -> None:
    """index_cycles = 4: three rows of 8 bytes, one number limited to 5, each in two bursts for it crosses a boundary.
    Requests from t + 1 + 4 on, one a cycle in a row, the next row 4 cycles after the last one of the row before."""
    config = CONFIGS["tiny"]
    first = next(i for i in range(60) if LIST[i] > 5 > LIST[i + 1] != LIST[i + 2])
    command = {**ONE, "flags": INDEXED, "address": 60, "rows": 3, "bytes": 8, "stride": 128, "list": first,
               "last_index": 5, "row_stride": 2}
    trace = check(config, [command, {**command, "flags": 0}], [0, 0], 1, latency=10)
    assert [r[0] for r in trace.requests] == [5, 6, 10, 11, 15, 16, 18, 19, 20, 21, 22, 23]
    numbers = [min(number, 5) for number in LIST[first:first + 3]]
    assert [r[1] for r in trace.requests[:6]] == [a for n in numbers for a in (60 + 128 * n, 64 + 128 * n)]
    assert trace.issues == [0, 17]
    assert trace.entries == [first, first + 1, first + 2]
    assert len(set(numbers)) > 1


def test_joined() -> None:
    """Four rows of 24 bytes from byte 8 of a burst on, as one row of 96: bursts of 56 and 40 bytes, not four or more.
    Rows of the memory begin anew every 6 chunks all the same."""
    config = CONFIGS["tiny"]
    command = {**ONE, "joined": 1, "address": 72, "rows": 4, "bytes": 24, "stride": 96, "block_stride": 4}
    trace = check(config, [command, ONE], [0, 0], 1, latency=10)
    assert trace.requests == [(1, 72, 14), (2, 128, 10), (4, 64, 1)]
    assert trace.writes[:24] == [(14 + 6 * r + b, 7 + r + 4 * b) for r in range(4) for b in range(6)]


def test_joined_unaligned() -> None:
    """Two rows of 8 bytes from byte 3 of a beat on: five beats bring four chunks, the first beat none."""
    config = CONFIGS["tiny"]
    command = {**ONE, "joined": 1, "address": 67, "rows": 2, "bytes": 8, "stride": 16}
    trace = check(config, [command], [0], 1, latency=10)
    assert trace.requests == [(1, 64, 5)]
    assert trace.writes == [(15, 7), (16, 8), (17, 8), (18, 9)]


def test_beats_in_flight() -> None:
    """Bursts of 16 beats, of which 8 may be in flight, but only while fewer than 40 beats are: the fourth one is
    requested one cycle after the ninth beat, the fifth one 16 beats later, and short ones again up to 8 together."""
    config = CONFIGS["tiny"].model_copy(update={"read_beats": 40})
    short = {**ONE, "rows": 12, "bytes": 4, "stride": 64, "row_stride": 1}
    trace = check(config, [{**ONE, "bytes": 320}, short], [0, 400], 1, latency=50)
    assert [r[0] for r in trace.requests] == [1, 2, 3, 60, 76, *range(401, 409), *range(452, 456)]


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
    for name, built in (("load_first", 1), ("load_write", 3), ("load_fill", 2), ("index_cycles", 4)):
        timing = changed(Timing.of(config), **{name: 5})
        assert rejection(lambda timing=timing: Load(config=config, timing=timing)) == (
            f"{name} must be {built}, as built, not 5")


@pytest.mark.parametrize("name", some(["2_2", "one_beat", "single", "64_32"], 2))
def test_lint(name: str, tmp_path: Path) -> None:
    lint(export(CONFIGS[name], tmp_path, unit="load").files, "load")
