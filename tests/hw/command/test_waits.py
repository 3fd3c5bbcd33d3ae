"""Waits against 24-bit counts: finished commands of each unit, and the count that each command waits for."""

import random

import pytest

from gemmule.hw.command.waits import Waits
from gemmule.isa import MAX_WAIT

from ..bench import rejection, run_bench


@pytest.mark.parametrize(("seed", "depth", "limits"), [(0, 2, (1, 1)), (1, 4, (4, 8, 12, 1, 1)), (2, 5, (3, 1, 2))])
def test_random(seed: int, depth: int, limits: tuple[int, ...]) -> None:
    """Commands wait by chance, some heads stay for long, and units finish in bursts."""
    rng = random.Random(seed)
    print("seed", seed)
    dut = Waits(depth=depth, limits=limits)
    units = range(len(limits))
    seen = {"waits": 0, "reached": 0, "direct": 0, "full": 0, "old": 0}

    async def bench(ctx):
        queues: list[list[list[int]]] = [[] for _ in units]  # finished commands, by unit, that each waits for
        dispatched, finished, flying = ([0] * len(limits) for _ in range(3))
        slow, fast, rate = 0, 0, 0.0
        for t in range(4000):
            if t % 50 == 0:
                slow, fast = rng.randrange(len(limits)), rng.randrange(len(limits))
                rate = rng.choice((0.1, 0.7))
            reached = [all(done >= target for done, target in zip(finished, queue[0])) if queue else None
                       for queue in queues]
            for u, right in enumerate(reached):
                if right is not None:
                    assert (ctx.get(dut.reached) >> u & 1) == right, (t, u)
                    seen["reached" if right else "waits"] += 1
            clear = rng.random() < 0.002
            pop = [bool(reached[u]) and flying[u] < limits[u] and rng.random() < (0.05 if u == slow else 0.8)
                   for u in units]
            finish = [flying[u] > 0 and rng.random() < (0.9 if u == fast else 0.2) for u in units]
            into = rng.randrange(len(limits) + 1)  # the last one has no queue
            distances = [rng.choice((0, 0, 1, 2, rng.randrange(MAX_WAIT + 1))) for _ in units]
            room = into >= len(limits) or len(queues[into]) < depth
            push = room and rng.random() < rate
            ctx.set(dut.push, push)
            ctx.set(dut.unit, into)
            ctx.set(dut.distances, distances)
            for name, bits in (("valid", map(bool, queues)), ("pop", pop), ("finish", finish)):
                ctx.set(getattr(dut, name), sum(bit << u for u, bit in enumerate(bits)))
            ctx.set(dut.clear, clear)
            if push and into < len(limits):
                seen["direct"] += len(queues[into]) == 1 and pop[into]
                targets = [max(0, dispatched[v] - distance + 1) if distance else 0
                           for v, distance in enumerate(distances)]
                seen["old"] += any(target and done > target for target, done in zip(targets, finished))
                queues[into].append(targets)
                seen["full"] += len(queues[into]) == depth
                dispatched[into] += 1
            for u in units:
                if pop[u]:
                    queues[u].pop(0)
                flying[u] += pop[u] - finish[u]
                finished[u] += finish[u]
            if clear:
                queues = [[] for _ in units]
                dispatched, finished, flying = ([0] * len(limits) for _ in range(3))
            await ctx.tick()

    run_bench(dut, bench)
    print(seen)
    assert min(seen.values()) > 10, seen


def test_a_queue_of_one_is_refused() -> None:
    assert rejection(lambda: Waits(depth=1, limits=(1,))) == "depth must be at least 2, not 1"
