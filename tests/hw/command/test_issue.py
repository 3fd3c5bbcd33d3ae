"""Issue against docs/timing.md, cycle by cycle, with random queues, units and release times."""

import dataclasses
import random

import pytest

from gemmule.config import Config
from gemmule.hw.command.issue import Issue
from gemmule.resolve import STREAM_UNIT
from gemmule.timing import Timing

from ...thinned import some
from ..bench import rejection, run_bench

CONFIG = Config(spm_banks=2, acc_banks=1, load_commands=3)
TIMING = dataclasses.replace(
    Timing.of(CONFIG), load_zero=3, store_zero=2, matrix_zero=1, vector_zero=4, select_zero=5,
    matrix_commands=4, store_commands=2)
LIMITS = (3, 2, 4, 1, 1)
ZERO = (3, 2, 1, 4, 5)
PRIORITY = (2, 3, 4, 0, 1)
DEPTH = (3, 1, 2, 2, 4, 1, 1, 1, 1, 1)
# Ports that each stream can hold: scratchpad reads 0 and 1, writes 2 and 3, accumulator read 4, write 5.
PORTS = (0b111100, 0b010011, 0b000011, 0b000011, 0b110000, 0b010011, 0b000011, 0b001100, 0b000011, 0b001100)


class Head:
    """A command in a unit queue, as random as the rules allow."""

    def __init__(self, rng: random.Random, unit: int, dispatched: list[int]) -> None:
        self.zero = rng.random() < 0.2
        self.alone = self.zero or rng.random() < 0.15
        self.predicate = rng.choice((0, 0, 0, 1, 2, 3))
        self.distances = [rng.randrange(1, 5) if rng.random() < 0.3 else 0 for _ in dispatched]
        self.targets = [max(0, count - distance + 1) if distance else 0
                        for count, distance in zip(dispatched, self.distances)]
        self.claims = []
        for s in (s for s in range(10) if STREAM_UNIT[s] == unit):
            mask = rng.getrandbits(6) & rng.getrandbits(6) & PORTS[s]
            if s == 4:  # matrix.C holds the read and the write port of a bank together
                mask = PORTS[s] if mask == PORTS[s] else 0
            self.claims.append(0 if self.zero else mask)


@pytest.mark.parametrize("seed", some(range(3)))
def test_random(seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    dut = Issue(config=CONFIG, timing=TIMING)
    assert [dut.limit(name) for name in ("load", "store", "matrix", "vector", "select")] == list(LIMITS)
    counts = {"issued": 0, "zero": 0, "claims": 0, "waits": 0, "alone": 0, "alone waits": 0,
              "skipped": 0, "select": 0}

    async def bench(ctx):
        queues: list[list[Head]] = [[] for _ in range(5)]
        predicates = 1
        dispatched = [0] * 5
        issued, finished = [0] * 5, [0] * 5
        finishes: list[list[int]] = [[] for _ in range(5)]  # future finish cycles, units and zero
        zeros: list[list[int]] = [[] for _ in range(5)]
        held: list[list[list[int]]] = [[] for _ in range(10)]  # [release cycle, mask], oldest first
        for t in range(4000):
            if rng.random() < 0.3:
                predicates = rng.getrandbits(4) | 1
            ctx.set(dut.predicates, predicates)
            heads = [queue[0] if queue else None for queue in queues]
            into = rng.randrange(5)
            pushed = Head(rng, into, dispatched)
            push = len(queues[into]) < CONFIG.unit_queue and rng.random() < 0.8
            ctx.set(dut.push, push)
            ctx.set(dut.unit, into)
            ctx.set(dut.distances, pushed.distances)
            ready = [rng.random() < 0.8 and all(
                len(held[s]) < DEPTH[s] for s in range(10) if STREAM_UNIT[s] == u) for u in range(5)]
            ctx.set(dut.valid, sum((head is not None) << u for u, head in enumerate(heads)))
            ctx.set(dut.zero, sum((head is not None and head.zero) << u for u, head in enumerate(heads)))
            ctx.set(dut.alone, sum((head is not None and head.alone) << u for u, head in enumerate(heads)))
            ctx.set(dut.predicate, [head.predicate if head else 0 for head in heads])
            for port, commands in ((dut.claims, heads), (dut.following_claims, [
                    queue[1] if len(queue) > 1 else pushed if u == into else None for u, queue in enumerate(queues)])):
                ctx.set(port, [
                    commands[u].claims[s - STREAM_UNIT.index(u)] if commands[u] else 0
                    for s, u in enumerate(STREAM_UNIT)])
            ctx.set(dut.ready, sum(bit << u for u, bit in enumerate(ready)))
            unit_finish = sum((t in finishes[u]) << u for u in range(5))
            ctx.set(dut.unit_finish, unit_finish)
            ctx.set(dut.release, sum((bool(held[s]) and held[s][0][0] == t) << s for s in range(10)))

            waiting = sum((head is not None and any(
                done < target for done, target in zip(finished, head.targets))) << u
                for u, head in enumerate(heads))
            assert ctx.get(dut.waiting) == waiting, t
            chosen = None
            for u in PRIORITY:
                head = heads[u]
                if head is None or chosen is not None:
                    continue
                if any(done < target for done, target in zip(finished, head.targets)):
                    counts["waits"] += 1
                    continue
                in_flight = issued[u] - finished[u]
                nothing = head.zero or not predicates >> head.predicate & 1
                counts["alone waits"] += head.alone and not nothing and in_flight > 0
                if nothing:
                    ok = in_flight == 0
                else:
                    free = all(
                        head.claims[s - STREAM_UNIT.index(u)] & mask == 0
                        for s in range(10) if STREAM_UNIT[s] == u
                        for other in range(10) if other != s for _, mask in held[other])
                    counts["claims"] += not free
                    ok = free and ready[u] and in_flight < (1 if head.alone else LIMITS[u])
                if ok:
                    chosen = u
            assert ctx.get(dut.issue) == (0 if chosen is None else 1 << chosen), t
            active = sum((issued[u] > finished[u] or u == chosen) << u for u in range(5))
            assert ctx.get(dut.active) == active, t
            zero_done = sum((t in zeros[u]) << u for u in range(5))
            assert ctx.get(dut.finish) == unit_finish | zero_done, t
            assert list(ctx.get(dut.finished)) == finished, t

            for u in range(5):
                finished[u] += (unit_finish | zero_done) >> u & 1
            for s in range(10):
                if held[s] and held[s][0][0] == t:
                    held[s].pop(0)
            starts = 0
            if push:
                queues[into].append(pushed)
                dispatched[into] += 1
            if chosen is not None:
                head, u = heads[chosen], chosen
                queues[u].pop(0)
                issued[u] += 1
                counts["issued"] += 1
                counts["select"] += u == 4
                if head.zero or not predicates >> head.predicate & 1:
                    counts["zero" if head.zero else "skipped"] += 1
                    zeros[u].append(t + ZERO[u])
                else:
                    counts["alone"] += head.alone
                    starts = 1 << u
                    finish = max([t + rng.randrange(5, 12), *(f + 1 for f in finishes[u])])
                    finishes[u].append(finish)
                    for s in range(10):
                        if STREAM_UNIT[s] == u:
                            last = held[s][-1][0] + 1 if held[s] else 0
                            held[s].append([max(last, rng.randrange(t + 1, t + 4)), head.claims[
                                s - STREAM_UNIT.index(u)]])
            assert ctx.get(dut.start) == starts, t
            await ctx.tick()

    run_bench(dut, bench)
    print(counts)
    assert min(counts.values()) > 100


def test_clear_forgets_everything() -> None:
    dut = Issue(config=CONFIG, timing=TIMING)

    async def bench(ctx):
        ctx.set(dut.following_claims, [1, *[0] * 9])
        await ctx.tick()
        ctx.set(dut.valid, 1)
        ctx.set(dut.ready, 31)
        ctx.set(dut.predicates, 1)
        ctx.set(dut.claims, [1, *[0] * 9])
        for _ in range(3):
            assert ctx.get(dut.issue) == 1
            await ctx.tick()
        assert ctx.get(dut.issue) == 0  # three loads in flight
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        ctx.set(dut.valid, 0)
        ctx.set(dut.following_claims, [0, 1, *[0] * 8])
        await ctx.tick()
        ctx.set(dut.valid, 2)
        ctx.set(dut.claims, [0, 1, *[0] * 8])
        assert ctx.get(dut.issue) == 2  # nor does load hold its port

    run_bench(dut, bench)


def test_zero_latency_is_rejected() -> None:
    message = rejection(lambda: Issue(config=CONFIG, timing=dataclasses.replace(TIMING, matrix_zero=0)))
    assert message == "matrix_zero must be at least 1, not 0"


def test_alone_waits_for_the_last_visible_finish() -> None:
    """Two matrix commands in flight; the third runs alone and issues the cycle after the second's finish."""
    dut = Issue(config=CONFIG, timing=TIMING)

    async def bench(ctx):
        await ctx.tick()
        ctx.set(dut.valid, 4)
        ctx.set(dut.ready, 31)
        ctx.set(dut.predicates, 1)
        for _ in range(2):
            assert ctx.get(dut.start) == 4
            await ctx.tick()
        ctx.set(dut.alone, 4)
        for finish in (0, 1, 0, 1):
            ctx.set(dut.unit_finish, 4 * finish)
            assert ctx.get(dut.issue) == 0
            await ctx.tick()
        ctx.set(dut.unit_finish, 0)
        ctx.set(dut.ready, 0)  # alone is not zero: it still needs its unit ...
        assert ctx.get(dut.issue) == 0
        ctx.set(dut.ready, 4)
        assert ctx.get(dut.start) == 4
        await ctx.tick()
        ctx.set(dut.alone, 0)
        assert ctx.get(dut.start) == 4  # ... and what follows it need not be alone

    run_bench(dut, bench)


def test_predicate_is_read_in_the_cycle_of_the_decision() -> None:
    """A store depends on predicate 2, waits for a select command and finds the port taken: what the predicate
    reads before the wait is over does not matter, and the skipped command needs no port."""
    dut = Issue(config=CONFIG, timing=TIMING)

    async def bench(ctx):
        ctx.set(dut.push, 1)
        ctx.set(dut.unit, 4)
        ctx.set(dut.ready, 31)
        ctx.set(dut.following_claims, [*[0] * 8, 1, 0])
        await ctx.tick()
        ctx.set(dut.unit, 1)
        ctx.set(dut.distances, [0, 0, 0, 0, 1])
        ctx.set(dut.valid, 1 << 4)
        ctx.set(dut.predicates, 0b0101)
        ctx.set(dut.claims, [*[0] * 8, 1, 0])
        ctx.set(dut.following_claims, [0, 1, *[0] * 8])
        assert ctx.get(dut.start) == 1 << 4  # select holds scratchpad read port 0
        await ctx.tick()
        ctx.set(dut.push, 0)
        ctx.set(dut.claims, [0, 1, *[0] * 8])
        ctx.set(dut.valid, 2)
        ctx.set(dut.predicate, [0, 2, 0, 0, 0])
        for predicates in (0b0101, 0b0001, 0b0101):
            ctx.set(dut.predicates, predicates)
            assert (ctx.get(dut.issue), ctx.get(dut.waiting)) == (0, 2)
            await ctx.tick()
        ctx.set(dut.unit_finish, 1 << 4)  # the claim goes later
        await ctx.tick()
        ctx.set(dut.unit_finish, 0)
        assert (ctx.get(dut.issue), ctx.get(dut.waiting)) == (0, 0)  # true: waits for the port
        await ctx.tick()
        ctx.set(dut.predicates, 0b1011)
        assert (ctx.get(dut.issue), ctx.get(dut.start)) == (2, 0)
        await ctx.tick()
        ctx.set(dut.predicates, 0b0101)
        ctx.set(dut.valid, 0)
        assert ctx.get(dut.finish) == 0
        await ctx.tick()
        assert ctx.get(dut.finish) == 2  # store_zero = 2 cycles after its issue

    run_bench(dut, bench)
