"""Fetch with REPEAT: what is requested and what is taken in every cycle, against lists of the whole stream."""

import dataclasses
import random
from collections import deque
from typing import NamedTuple

import pytest

from gemmule.config import Config
from gemmule.hw.command.fetch import Fetch

from ...thinned import some, thinned
from ..bench import run_bench

SMALL = {"dim": 64, "spm_kib": 64, "spm_banks": 2, "acc_kib": 64, "acc_banks": 2, "fetch_queue": 32}
WAIT = 4  # a REPEAT that is taken in cycle T acts in T + 4, and the next take may be in T + 5
DEPTH = 4


class Repeat(NamedTuple):
    """What one execution of a REPEAT does."""

    body: int
    times: int
    legal: bool
    span: int
    """Commands of all turns in the stream."""


@dataclasses.dataclass
class Step:
    """A command of the stream."""

    place: int
    left: int
    """Commands behind it to the end of the innermost body."""
    depth: int
    dropped: bool = False
    repeat: Repeat | None = None


class Nest:
    """A random program of REPEATs and others, and one stream of it: every execution has times of its own."""

    def __init__(self, rng: random.Random, count: int, bodies: list[int], times: list[int],
                 chance: float = 0.2) -> None:
        self.rng, self.count, self.times = rng, count, times
        self.bodies: dict[int, int] = {}
        self._place(0, count, 0, bodies, chance)

    def _place(self, first: int, end: int, depth: int, bodies: list[int], chance: float) -> None:
        place = first
        while place < end:
            room = end - place - 1 - (depth > 0)
            fitting = [body for body in bodies if body <= room]
            if fitting and depth < DEPTH and self.rng.random() < chance:
                self.bodies[place] = body = self.rng.choice(fitting)
                self._place(place + 1, place + 1 + body, depth + 1, bodies, chance)
                place += body
            place += 1

    def stream(self) -> list[Step]:
        return self._stream(0, self.count, 0)

    def _stream(self, first: int, end: int, depth: int) -> list[Step]:
        steps, place = [], first
        while place < end:
            steps.append(step := Step(place, end - place - 1, depth))
            place += 1
            if (body := self.bodies.get(step.place)) is not None:
                times = self.rng.choice(self.times)
                turns = [turn for _ in range(times) for turn in self._stream(place, place + body, depth + 1)]
                step.repeat = Repeat(body, times, True, len(turns))
                steps += turns or [Step(place + i, end - place - i - 1, depth, dropped=True) for i in range(body)]
                place += body
        return steps


class Requests:
    """The fetch side: what to request next."""

    def __init__(self, count: int) -> None:
        self.place, self.left = 0, count
        self.around: list[list[int]] = []  # begin, body, turns, rest

    def go(self, n: int) -> None:
        self.place += n
        self.left -= n
        if self.around and not self.left:
            begin, body, turns, rest = self.around[-1]
            if turns > 1:
                self.around[-1][2] -= 1
                self.place, self.left = begin, body
            else:
                self.around.pop()
                self.left = rest


def run(config: Config, nest: Nest, steps: list[Step], rng: random.Random, *, program: int = 0x1020, stall: float = 0.3,
        latency: int = 9, ready: float = 0.7, launches: int = 1) -> tuple[list[int], dict[str, int]]:
    """Play a stream; the cycles of all takes, figures of what happened."""
    dut = Fetch(config=config)
    count, bus, places = nest.count, config.bus_bytes, config.fetch_queue
    image = {program + i: rng.randrange(256) for i in range(-64, 32 * count + 64)}
    words = [int.from_bytes(bytes(image[program + 32 * k + i] for i in range(32)), "little") for k in range(count)]
    end = next((i for i, step in enumerate(steps, 1) if step.repeat is not None and not step.repeat.legal), len(steps))
    taken: list[int] = []
    seen = dict.fromkeys(("cycles", "requests", "anchors", "drops", "waits", "full"), 0)

    async def play(ctx) -> None:
        ctx.set(dut.program, program)
        ctx.set(dut.commands, count)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        side = Requests(count)
        window: list[int] = []  # place of every command requested
        enter: list[int] = []  # cycle from which it is visible
        read = freed = 0  # of the window: the next one, those whose place is free
        anchor: tuple[int, int, int] | None = None  # in the window, first place, step behind the last turn
        beats: deque[tuple[int, int, bool, int]] = deque()  # earliest, data, last, commands
        at, t, ages, standing, quiet = 0, 1, 0, False, 0
        while at < end or quiet < 40 or beats:
            step = steps[at] if at < len(steps) else None
            # The REPEAT that was taken last.
            repeat = steps[at - 1].repeat if at and ages else None
            pause = repeat is not None and ages == WAIT
            effect = pause and not standing and repeat is not None and repeat.legal
            if repeat is not None:
                ctx.set(dut.repeat.body, repeat.body)
                assert ctx.get(dut.repeat.allows) == repeat.legal, (t, at)
            ctx.set(dut.repeat.times, repeat.times if repeat is not None else rng.getrandbits(16))
            ctx.set(dut.repeat.pause, pause)
            ctx.set(dut.repeat.effect, effect)
            assert ctx.get(dut.repeat.standing) == standing
            # What is requested.
            address = program + 32 * side.place
            n = min((address // config.burst_bytes + 1) * config.burst_bytes - address, 32 * side.left) // 32
            want = n > 0 and places - (len(window) - freed) >= n and (standing or not pause)
            assert ctx.get(dut.read.req_valid) == want, (t, at, side.place, n)
            seen["full"] += n > 0 and not want and not pause
            accepted = rng.random() < ready
            ctx.set(dut.read.req_ready, accepted)
            # What is there.
            visible = read < len(enter) and enter[read] <= t
            dropping = at < end and steps[at].dropped and not ages
            assert ctx.get(dut.valid) == (visible and not dropping), (t, at)
            if visible and not dropping:
                assert ctx.get(dut.command) == words[window[read]], (t, at)
            assert ctx.get(dut.done) == (step is None), (t, at)
            if step is not None:
                assert not visible or window[read] == step.place, (t, at)
                assert ctx.get(dut.place) == step.place, (t, at)
            take = at < end and visible and not dropping and not ages and rng.random() >= stall
            ctx.set(dut.take, take)
            goes = take or visible and dropping
            if take:
                taken.append(t)
            # The positions move.
            ahead = len(window) - read
            if want and accepted:
                first, last = address // bus, (address + 32 * n - 1) // bus
                assert ctx.get(dut.read.req_addr) // bus == first, (t, at)
                assert ctx.get(dut.read.req_len) == last - first, (t, at)
                for beat in range(first, last + 1):
                    data = sum(image[beat * bus + i] << 8 * i for i in range(bus))
                    done = sum((program + 32 * k + 31) // bus == beat for k in range(side.place, side.place + n))
                    beats.append((t + latency, data, beat == last, done))
                window += range(side.place, side.place + n)
                side.go(n)
                seen["requests"] += 1
            if effect and repeat is not None and repeat.times:
                body, turns = repeat.body, repeat.times
                if anchor is None and body <= places:
                    seen["anchors"] += 1
                    anchor, turns = (read, steps[at].place, at + repeat.span), 1
                elif anchor is not None:
                    turns = 0
                if turns and ahead < body:
                    rest = side.left - (body - ahead)
                    side.around.append([steps[at].place, body, turns, rest])
                    side.left = body - ahead
            if pause and not standing:
                ages = 0
            elif pause:
                seen["waits"] += 1
            elif ages:
                ages += 1
            standing = want and not accepted
            if goes:
                seen["drops"] += dropping
                ages = int(steps[at].repeat is not None)
                at += 1
                read += 1
                if anchor is not None and at == anchor[2]:
                    anchor = None
                if anchor is None:
                    freed = read
                elif at < len(steps):
                    read = anchor[0] + steps[at].place - anchor[1]
            beat_valid = bool(beats) and beats[0][0] <= t and rng.random() >= stall
            ctx.set(dut.read.beat_valid, beat_valid)
            ctx.set(dut.read.beat_last, rng.randrange(2))
            ctx.set(dut.read.beat_data, rng.getrandbits(8 * bus))
            if beat_valid:
                _, data, last_beat, done = beats.popleft()
                ctx.set(dut.read.beat_data, data)
                ctx.set(dut.read.beat_last, last_beat)
                enter += [t + 1] * done
            quiet = quiet + 1 if at == end else 0  # behind an illegal one requests go on
            await ctx.tick()
            ctx.set(dut.take, 0)
            ctx.set(dut.repeat.pause, 0)
            ctx.set(dut.repeat.effect, 0)
            ctx.set(dut.read.beat_valid, 0)
            t += 1
            assert ctx.get(dut.idle) == (not beats), t
        seen["cycles"] += t
        if end == len(steps):
            assert len(window) == read
            assert ctx.get(dut.place) == count

    async def bench(ctx) -> None:
        for _ in range(launches):
            await play(ctx)

    run_bench(dut, bench, cycles=launches * (80 * len(steps) + 4000))
    return taken, seen


def config_of(bus: int, burst: int) -> Config:
    return Config(bus_bytes=bus, burst_bytes=burst, **SMALL)


@pytest.mark.parametrize(("bus", "burst", "program"), some([
    (4, 32, 0x20), (64, 1024, 0x10C0), (4, 64, 0x1020), (16, 256, 0x10E0), (16, 1024, 0x1000), (64, 256, 0x1060),
]))
def test_random_nests(bus: int, burst: int, program: int) -> None:
    total: dict[str, int] = {}
    for seed in range(bus + burst, bus + burst + 6):
        print("seed", seed)
        rng = random.Random(seed)
        bodies = [1, 1, 2, 3, 5, 9, 20, 31, 32, 33, 40, 70]
        nest = Nest(rng, rng.randrange(40, 130), bodies, [0, 1, 1, 2, 2, 3])
        steps = nest.stream()
        while not 200 < len(steps) < 700:
            nest = Nest(rng, nest.count, bodies, [0, 1, 1, 2, 2, 3])
            steps = nest.stream()
        _, seen = run(config_of(bus, burst), nest, steps, rng, program=program, launches=1 + seed % 2,
                      stall=rng.choice((0.0, 0.1, 0.4)), latency=rng.choice((2, 9, 40)),
                      ready=rng.choice((0.05, 0.3, 1.0)))
        total = {name: total.get(name, 0) + value for name, value in seen.items()}
    print(total)
    assert min(total.values()) > 0, total


def nest_of(count: int, bodies: dict[int, int], times: list[int]) -> Nest:
    """With these bodies behind these places."""
    nest = Nest(random.Random(1), count, [], times)
    nest.bodies = bodies
    return nest


@pytest.mark.parametrize(("bus", "times"), thinned([4, 16, 64], [0, 1, 2, 5]))
def test_bodies_about_the_size_of_the_window(bus: int, times: int) -> None:
    """At full rate."""
    for body in (1, 2, 31, 32, 33, 65):
        nest = nest_of(body + 80, {2: 1, 40: body}, [times])
        run(config_of(bus, 256), nest, nest.stream(), random.Random(2), stall=0, latency=3, ready=1)


@pytest.mark.parametrize("outer", [30, 50])
def test_four_deep(outer: int) -> None:
    nest = nest_of(outer + 10, {2: outer, 4: 20, 6: 9, 8: 3, 12: 1}, [2, 3])
    steps = nest.stream()
    assert max(step.depth for step in steps) == DEPTH
    for bus in (4, 64):
        run(config_of(bus, 256), nest, steps, random.Random(3))


@pytest.mark.parametrize("bus", [4, 64])
def test_a_turn_costs_nothing(bus: int) -> None:
    """A body of one command, and one of eight that takes 64 cycles to arrive on the narrow bus."""
    nest = nest_of(40, {10: 1, 20: 8}, [40])
    taken, _ = run(config_of(bus, 1024), nest, nest.stream(), random.Random(4), stall=0, latency=2, ready=1)
    gaps = [b - a for a, b in zip(taken, taken[1:])]
    assert (gaps[10] if bus == 64 else WAIT + 1) == WAIT + 1
    assert set(gaps[11:50]) == {1}
    assert set(gaps[60 + 7:379]) == {1}, "from the end of the first turn on"


@pytest.mark.parametrize("seed", some(range(4), 2))
def test_illegal_bodies(seed: int) -> None:
    """A body of nothing, one that ends with or beyond what is around it, one within four, one behind a body's end."""
    rng = random.Random(seed)
    print("seed", seed)
    nest = nest_of(70, {2: 50, 4: 20, 6: 9, 8: 3, 30: 2}, [1, 2])
    steps = nest.stream()
    kinds: dict[str, list[tuple[int, int]]] = {}
    for i, step in enumerate(steps):
        if step.dropped:
            continue
        bound = step.left - (step.depth > 0)
        kinds.setdefault("none", []).append((i, 0))
        kinds.setdefault("closed" if step.depth and not step.left else "deep" if step.depth == DEPTH else "long",
                         []).append((i, max(1, bound if step.depth == DEPTH else bound + 1)))
        kinds.setdefault("huge", []).append((i, (1 << 24) - 1))
    assert set(kinds) == {"none", "closed", "deep", "long", "huge"}
    for kind, cases in kinds.items():
        i, body = rng.choice(cases)
        print(kind, i, body)
        step = dataclasses.replace(steps[i], repeat=Repeat(body, rng.choice((0, 1, 9)), False, 0))
        run(config_of(16, 256), nest, [*steps[:i], step, *steps[i + 1:]], rng)


def test_bodies_of_long_programs() -> None:
    """Up to the last command of the longest program."""
    dut = Fetch(config=config_of(64, 256))
    rng = random.Random(5)

    async def bench(ctx) -> None:
        for count in (2, 3, (1 << 24) - 1, 1 << 23, rng.getrandbits(24)):
            ctx.set(dut.commands, count)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.take, 1)  # whatever is there
            await ctx.tick()
            ctx.set(dut.take, 0)
            for body in (0, 1, count - 2, count - 1, count, (1 << 24) - 1, rng.randrange(count)):
                ctx.set(dut.repeat.body, body)
                assert ctx.get(dut.repeat.allows) == (0 < body <= count - 1), (count, body)

    run_bench(dut, bench)
