"""Waits: a head is told to have been reached exactly when all that it waits for has finished."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Mux, Signal, Value

from gemmule.hw.command.waits import Waits
from gemmule.hw.formal.bench import Bench

__all__ = ["LIMITS", "waits"]

LIMITS = 2, 1
"""Two units are enough: one that waits, and one that is waited for."""


def _saturating(signal: Signal, less: Value) -> Value:
    return Mux(signal == 0, 0, signal - less)


def waits(bench: Bench, depth: int) -> None:
    """In each queue one command, any one, is watched from its push to its pop."""
    m, dut = bench.m, bench.dut(Waits(depth=depth, limits=LIMITS))
    units = range(len(LIMITS))
    pushes = [bench.wire(dut.push & (dut.unit == u), f"push_into_{u}") for u in units]
    levels = [Signal(range(depth + 2), name=f"level_{u}") for u in units]
    flights = [Signal(range(limit + 2), name=f"flight_{u}") for u, limit in enumerate(LIMITS)]
    outstanding = [bench.wire(levels[u] + flights[u], f"outstanding_{u}") for u in units]
    for u in units:
        m.d.sync += [levels[u].eq(Mux(dut.clear, 0, levels[u] + pushes[u] - dut.pop[u])),
                     flights[u].eq(Mux(dut.clear, 0, flights[u] + dut.pop[u] - dut.finish[u]))]
    bench.assume("heads", "a queue has a head from the cycle after its first push on",
                 *(dut.valid[u] == (levels[u] != 0) for u in units))
    bench.assume("room", "a full queue is not pushed", *(~pushes[u] | (levels[u] < depth) for u in units))
    bench.assume("pop", "a head is dropped when it has been reached, and its unit has room",
                 *(~dut.pop[u] | dut.valid[u] & dut.reached[u] & (flights[u] < LIMITS[u]) for u in units))
    bench.assume("finish", "only commands in flight finish", *(~dut.finish[u] | (flights[u] != 0) for u in units))
    bench.lemma("levels", "queues and units hold no more than they can, and what is outstanding is counted",
                *((levels[u] <= depth) & (flights[u] <= LIMITS[u]) & (bench.register(f"pending_{u}") == outstanding[u])
                  for u in units))
    bench.always("backwards", "a command waits for no more commands than are outstanding",
                 *(bench.register(f"newest_{u}_{v}") <= outstanding[v] for u in units for v in units))
    bench.always("waits", "a head has been reached when all that it waits for has finished, and in that cycle",
                 *(_queue(bench, dut, u, depth, pushes[u], levels[u], outstanding) for u in units))


def _queue(bench: Bench, dut: Waits, u: int, depth: int, push: Value, level: Signal,
           outstanding: Sequence[Value]) -> Value:
    """Ghosts of one queue; returns that its watched command, at the head, is told right."""
    m, units = bench.m, range(len(LIMITS))
    behind, head = bench.part(f"behind_{u}"), bench.register(f"behind_{u}.read__addr")
    bench.lemma(f"behind {u}", "all but the head are behind it",
                behind.level == Mux(level == 0, 0, level - 1),
                (head + behind.level)[:len(head)] == bench.register(f"behind_{u}.write__addr"))
    entries = [bench.word(f"behind_{u}.memory", (head + i)[:len(head)]) for i in range(depth - 1)]

    watched, before = Signal(name=f"watched_{u}"), Signal(range(depth + 1), name=f"before_{u}")
    watch = bench.wire(push & ~watched & bench.choice(1, f"watch_{u}"), f"begins_{u}")
    with m.If(watched & dut.pop[u]):
        m.d.sync += [before.eq(before - 1), watched.eq(before != 0)]
    with m.If(watch):
        m.d.sync += [watched.eq(1), before.eq(level - dut.pop[u])]
    with m.If(dut.clear):
        m.d.sync += watched.eq(0)

    done = Signal(len(LIMITS), name=f"done_{u}")
    for v in units:
        newest, lacks = bench.register(f"newest_{u}_{v}"), bench.register(f"lacks_{u}_{v}")
        most, distance, finish = dut.depth + LIMITS[v], dut.distances[v], dut.finish[v]
        # Finishes that the watched command lacks, from its distance; and those that the one before it does.
        own, older = (Signal(range(most + 1), name=f"{name}_{u}_{v}") for name in ("own", "older"))
        m.d.sync += [own.eq(_saturating(own, finish)), older.eq(_saturating(older, finish))]
        with m.If(watch):
            waiting = (distance != 0) & (distance <= outstanding[v])
            m.d.sync += [own.eq(Mux(waiting, outstanding[v] - distance + 1 - finish, 0)),
                         older.eq(_saturating(newest, finish))]
        m.d.comb += done[v].eq(own == 0)

        # What the commands lack, from the head on.
        steps = [bench.wire(bench.fields(entry, behind.shape, f"of_{v}") + 1, f"more_{u}_{v}_{i}")
                 for i, entry in enumerate(entries)]
        sums: list[Value] = [bench.wire(lacks + 1, f"lacks_{u}_{v}_0")]
        for i, step in enumerate(steps):
            sums.append(bench.wire(sums[-1] + Mux(behind.level > i, step, 0), f"lacks_{u}_{v}_{i + 1}"))
        bench.lemma(f"sums {u} {v}", "a command needs as much as the one before it, and what its entry says",
                    *((behind.level <= i) | (step >= 0) & (step <= most) for i, step in enumerate(steps)),
                    sums[-1] == newest, (level != 0) | (newest == 0))
        bench.lemma(f"watched {u} {v}", "it lacks what its distance says, or more while the one before it does",
                    *(~(watched & (before == i)) | _lacks(sums[i], Mux(own > older, own, older))
                      & (_lacks(sums[i - 1], older) if i else older == 0) for i in range(depth)),
                    ~watched | (before < level))
    bench.cover(f"wait {u}", "a watched command comes to the head from behind it, and lacks a finish still",
                bench.before(watched & (before == 1), f"second_{u}") & watched & (before == 0) & ~dut.reached[u])
    return ~(watched & (before == 0)) | (dut.reached[u] == done.all())


def _lacks(total: Value, finishes: Value) -> Value:
    return Mux(finishes == 0, total <= 0, total == finishes)
