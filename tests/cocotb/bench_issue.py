"""cocotb bench of the issue logic (``hw/command/issue.py``): order of units, waits, claims, commands that run alone."""

import random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge
from support import CONFIG, now, start

from gemmule.isa import MAX_WAIT
from gemmule.resolve import STREAM_UNIT, STREAMS
from gemmule.timing import Timing

LOAD, STORE, MATRIX, VECTOR, SELECT = UNITS = range(5)
PRIORITY = (MATRIX, VECTOR, SELECT, LOAD, STORE)
LIMITS = (CONFIG.load_commands, Timing.of(CONFIG).store_commands, Timing.of(CONFIG).matrix_commands, 1, 1)
HOLD = (CONFIG.load_commands, 1, 2, 2, LIMITS[MATRIX], 1, 1, 1, 1, 1)
"""Claims that a stream may hold at once; the units see to that."""
DISTANCE_BITS = MAX_WAIT.bit_length()
ZERO_CYCLES = (2, 2, 2, 2, 2)
SPM, ACC = CONFIG.spm_banks, CONFIG.acc_banks
PORTS = {
    "load.w": [1 << SPM + b for b in range(SPM)] + [1 << 2 * SPM + ACC + b for b in range(ACC)],
    "store.r": [1 << b for b in range(SPM)] + [1 << 2 * SPM + b for b in range(ACC)],
    "matrix.A": [1 << b for b in range(SPM)], "matrix.B": [1 << b for b in range(SPM)],
    "matrix.C": [(1 | 1 << ACC) << 2 * SPM + b for b in range(ACC)],
    "vector.r0": [1 << b for b in range(SPM)] + [1 << 2 * SPM + b for b in range(ACC)],
    "vector.r1": [1 << b for b in range(SPM)], "vector.w": [1 << SPM + b for b in range(SPM)],
    "select.r": [1 << b for b in range(SPM)], "select.w": [1 << SPM + b for b in range(SPM)],
}
"""What each stream may claim."""


class Head:
    """A command that comes to a unit's queue; how far back it waits, by unit."""

    def __init__(self, unit: int, *, zero: bool = False, alone: bool = False, distances: tuple[int, ...] = (0,) * 5,
                 claims: dict[str, int] | None = None, predicate: int = 0) -> None:
        self.unit, self.zero, self.alone, self.distances = unit, zero, alone or zero, distances
        self.predicate = predicate
        self.claims = {STREAMS.index(name): mask for name, mask in (claims or {}).items()}


class Machine:
    """Queues before the issue logic and units behind it; the rules of docs/timing.md beside it, checked every cycle.

    A command enters its queue in every cycle, in order, as long as there is room.
    A unit takes ``work`` cycles from issue to finish and gives back all claims at the finish. ``predicates`` says in
    every cycle what they read, with bit 0 set.
    """

    def __init__(self, dut: Any, heads: list[Head], work: Any, ready: Any = lambda unit: True,
                 predicates: Any = lambda: 1) -> None:
        self.dut, self.work, self.unit_ready, self.predicates = dut, work, ready, predicates
        self.queues: list[list[Head]] = [[] for _ in UNITS]
        self.coming = list(heads)
        self.targets: dict[Head, tuple[int, ...]] = {}
        """Finished commands that a command in a queue waits for, by unit."""
        self.total = len(heads)
        self.issues: list[tuple[int, int]] = []
        """Cycle, unit."""
        self.finishes: list[tuple[int, int]] = []
        self._task = cocotb.start_soon(self._run())

    @property
    def done(self) -> bool:
        return len(self.finishes) == self.total

    def _drive(self, ready: list[bool], pushed: Head | None) -> None:
        dut, heads = self.dut, [queue[0] if queue else None for queue in self.queues]
        predicate = sum(head.predicate << 2 * head.unit for head in heads if head)
        following = [queue[1] if len(queue) > 1 else pushed if pushed and pushed.unit == unit else None
                     for unit, queue in enumerate(self.queues)]
        for name, bits in (
                ("valid", [head is not None for head in heads]), ("ready", ready),
                ("zero", [head is not None and head.zero for head in heads]),
                ("alone", [head is not None and head.alone for head in heads])):
            getattr(dut, name).value = sum(bit << i for i, bit in enumerate(bits))
        dut.predicate.value = predicate
        for port, commands in ((dut.claims, heads), (dut.following_claims, following)):
            port.value = sum(mask << CONFIG.claim_bits * stream for command in commands if command
                             for stream, mask in command.claims.items())

    async def _run(self) -> None:
        dut = self.dut
        flying: list[list[int]] = [[] for _ in UNITS]  # finish cycles
        finished, dispatched = [0] * len(UNITS), [0] * len(UNITS)
        held: dict[int, list[tuple[int, int]]] = {s: [] for s in range(len(STREAMS))}  # last cycle, mask
        while True:
            await FallingEdge(dut.clk)
            t = now()
            ready = [self.unit_ready(unit) and all(
                len(held[s]) < HOLD[s] for s in range(len(STREAMS)) if STREAM_UNIT[s] == unit) for unit in UNITS]
            pushed = self.coming[0] if self.coming and len(
                self.queues[self.coming[0].unit]) < CONFIG.unit_queue else None
            self._drive(ready, pushed)
            dut.push.value = pushed is not None
            if pushed is not None:
                dut.unit.value = pushed.unit
                dut.distances.value = sum(
                    distance << DISTANCE_BITS * unit for unit, distance in enumerate(pushed.distances))
            true = self.predicates()
            dut.predicates.value = true
            dut.unit_finish.value = sum(
                1 << u for u in UNITS if flying[u] and abs(flying[u][0]) == t and flying[u][0] > 0)
            dut.release.value = sum(1 << s for s, claims in held.items() if claims and claims[0][0] == t)
            expected, nothing = None, False
            for unit in PRIORITY:
                if not self.queues[unit]:
                    continue
                head = self.queues[unit][0]
                free = all(mask & other == 0 for s, mask in head.claims.items()
                           for o, claims in held.items() if o != s for _, other in claims)
                empty = head.zero or not true >> head.predicate & 1
                room = len(flying[unit]) < (1 if head.alone or empty else LIMITS[unit])
                if (room and all(a >= b for a, b in zip(finished, self.targets[head]))
                        and (empty or (free and ready[unit]))):
                    expected, nothing = head, empty
                    break
            await RisingEdge(dut.clk)
            issued = int(dut.issue.value)
            assert issued == (0 if expected is None else 1 << expected.unit), t
            assert int(dut.start.value) == (0 if nothing else issued)
            ended = [u for u in UNITS if flying[u] and abs(flying[u][0]) == t]
            assert int(dut.finish.value) == sum(1 << u for u in ended), t
            for claims in held.values():
                if claims and claims[0][0] == t:
                    claims.pop(0)
            for unit in ended:
                flying[unit].pop(0)
                finished[unit] += 1
                self.finishes.append((t, unit))
            if expected is not None:
                unit = expected.unit
                self.issues.append((t, unit))
                self.queues[unit].pop(0)
                del self.targets[expected]
                if nothing:
                    flying[unit].append(-(t + ZERO_CYCLES[unit]))  # finishes by itself
                else:
                    end = max([t + self.work(unit), *(abs(cycle) + 1 for cycle in flying[unit])])
                    flying[unit].append(end)
                    for s in range(len(STREAMS)):
                        if STREAM_UNIT[s] == unit:
                            held[s].append((end, expected.claims.get(s, 0)))
            if pushed is not None:
                self.queues[pushed.unit].append(self.coming.pop(0))
                self.targets[pushed] = tuple(
                    max(0, count - distance + 1) if distance else 0
                    for count, distance in zip(dispatched, pushed.distances))
                dispatched[pushed.unit] += 1


async def run(dut: Any, heads: list[Head], work: Any, ready: Any = lambda unit: True,
              predicates: Any = lambda: 1) -> Machine:
    await start(dut)
    machine = Machine(dut, heads, work, ready, predicates)
    for _ in range(20000):
        await RisingEdge(dut.clk)
        if machine.done:
            return machine
    raise AssertionError("commands are left")


@cocotb.test()
@cocotb.parametrize(seed=[1, 2, 3])
async def random_heads(dut: Any, seed: int) -> None:
    """Every cycle's decision on random commands, with units that are often not ready and predicates that change."""
    rng = random.Random(seed)
    heads = []
    for _ in range(400):
        unit = rng.choice(UNITS)
        distances = tuple(rng.choice((1, 2, 3, 4, 9)) if rng.random() < 0.3 else 0 for _ in UNITS)
        zero = rng.random() < 0.15
        claims = {name: rng.choice(PORTS[name]) | rng.choice(PORTS[name])
                  for s, name in enumerate(STREAMS) if STREAM_UNIT[s] == unit and rng.random() < 0.7}
        heads.append(Head(unit, zero=zero, alone=rng.random() < 0.1, distances=distances, claims={} if zero else claims,
                          predicate=rng.choice((0, 0, 1, 2, 3))))
    machine = await run(dut, heads, lambda unit: rng.randint(1, 25), lambda unit: rng.random() < 0.7,
                        lambda: 1 | rng.randrange(8) << 1)
    assert len(machine.issues) == 400


@cocotb.test()
async def full_rate(dut: Any) -> None:
    """A load issues in every cycle until 4 are in flight; the store gets the first cycle that is left."""
    heads = [*(Head(LOAD) for _ in range(4)), Head(STORE), *(Head(LOAD) for _ in range(3))]
    machine = await run(dut, heads, lambda unit: 40)
    t = machine.issues[0][0]
    assert [(cycle - t, unit) for cycle, unit in machine.issues] == [
        *((i, LOAD) for i in range(4)), (4, STORE), (41, LOAD), (42, LOAD), (43, LOAD)]


@cocotb.test()
@cocotb.parametrize(case=["wait", "port", "alone", "zero", "skipped"])
async def latency(dut: Any, case: str) -> None:
    """A load issued in t finishes in t + 5. In t + 6 issues what waits for it, wants the port that it gives back, or
    runs alone; a command of length zero, or whose predicate is 0, finishes 2 cycles after its issue by itself."""
    port = 1 << 2 * SPM
    first = Head(LOAD, claims={"load.w": port})
    second = {"wait": Head(VECTOR, distances=(1, 0, 0, 0, 0)), "port": Head(STORE, claims={"store.r": port}),
              "alone": Head(LOAD, alone=True), "zero": Head(LOAD, zero=True),
              "skipped": Head(LOAD, predicate=3, claims={"load.w": port})}[case]
    machine = await run(dut, [first, second], lambda unit: 5, predicates=lambda: 0b0111)
    t = machine.issues[0][0]
    assert machine.issues == [(t, LOAD), (t + 6, second.unit)]
    assert machine.finishes == [(t + 5, LOAD), (t + (8 if case in ("zero", "skipped") else 11), second.unit)]
