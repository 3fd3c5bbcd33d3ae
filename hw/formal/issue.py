"""Issue: no port held twice, waits honoured, one command a cycle, counts of commands in flight and finished."""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Mux, Signal, Value

from gemmule.config import Config
from gemmule.hw.command.claims import claim_depths, narrow, ports_of, widen
from gemmule.hw.command.dispatch import UNIT_LAYOUTS
from gemmule.hw.command.issue import Issue
from gemmule.hw.formal.bench import Bench
from gemmule.hw.interfaces import COUNT_BITS
from gemmule.operations import ISSUE_PRIORITY
from gemmule.resolve import STREAM_UNIT, STREAMS
from gemmule.timing import Timing

__all__ = ["issue"]


def issue(bench: Bench, config: Config) -> None:
    """Heads of the unit queues and what they wait for are free in every cycle; units finish and release only
    what they have."""
    m, dut = bench.m, bench.dut(Issue(config=config), cut=("waits",))
    timing, units = Timing.of(config), list(UNIT_LAYOUTS)
    depths = list(claim_depths(config, timing).values())

    # What the units have: commands that run, claims of each stream.
    runs, issued, ghosts = [], [], []
    for u, name in enumerate(units):
        running = Signal(range(dut.limit(name) + 2), name=f"{name}_running")
        count = Signal(COUNT_BITS, name=f"{name}_issued")
        m.d.sync += [running.eq(running + dut.start[u] - dut.unit_finish[u]), count.eq(count + dut.issue[u])]
        runs.append(running)
        issued.append(count)
    for s, (name, u) in enumerate(zip(STREAMS, STREAM_UNIT)):
        claims = Signal(range(depths[s] + 2), name=f"{name.replace('.', '_')}_claims")
        m.d.sync += claims.eq(claims + dut.start[u] - dut.release[s])
        ghosts.append(claims)
    with m.If(dut.clear):
        m.d.sync += [signal.eq(0) for signal in (*runs, *issued, *ghosts)]
    bench.assume("finish", "a unit finishes only what it runs",
                 *(~(dut.unit_finish[u] & (running == 0)) for u, running in enumerate(runs)))
    bench.assume("release", "a stream releases only what it holds, a command's claims with its finish at the latest",
                 *(~(dut.release[s] & (claims == 0)) & (claims - dut.release[s] <= runs[u] - dut.unit_finish[u])
                   for s, (claims, u) in enumerate(zip(ghosts, STREAM_UNIT))))
    early = [s for s, u in enumerate(STREAM_UNIT) if depths[s] < dut.limit(units[u])]
    bench.assume("in time", f"{', '.join(STREAMS[s] for s in early)}: a unit that is ready has given back all but "
                 "what the next command leaves room for",
                 *(~dut.ready[STREAM_UNIT[s]] | (ghosts[s] - dut.release[s] < depths[s]) for s in early))
    flights = [bench.register(f"{name}_in_flight") for name in units]
    bench.assume("clear", "a launch starts when no command is queued or in flight",
                 ~dut.clear | (dut.valid == 0) & reduce(and_, (flight == 0 for flight in flights)))
    # What the heads claim comes a cycle earlier, if it is not there already.
    for s, u in enumerate(STREAM_UNIT):
        expected = bench.before(Mux(dut.valid[u] & ~dut.issue[u], dut.claims[s], dut.following_claims[s]), f"next_{s}")
        bench.assume(f"head {STREAMS[s]}", "a head claims what was told a cycle earlier", dut.claims[s] == expected)
    bench.assume("masks", "a stream claims only ports that it can hold, and both ports of an accumulator bank for C",
                 *(dut.claims[s] == widen(config, name, narrow(config, name, dut.claims[s]))
                   for s, name in enumerate(STREAMS)),
                 *(dut.following_claims[s] == widen(config, name, narrow(config, name, dut.following_claims[s]))
                   for s, name in enumerate(STREAMS)))

    pipes = [Cat(bench.register(f"{name}_zero_{i + 1}") for i in range(getattr(timing, f"{name}_zero")))
             for name in units]
    bench.assume("duration", "a command takes longer in its unit than one of length zero before it does in issue",
                 *(~dut.unit_finish[u] | ~pipe.any() for u, pipe in enumerate(pipes)))

    # No port held twice.
    full: dict[int, list[Value]] = {}
    every: list[Value] = []
    for s, (name, u) in enumerate(zip(STREAMS, STREAM_UNIT)):
        held = bench.part(f"claims.{name.replace('.', '_')}").held
        every.append(widen(config, name, held))
        full.setdefault(u, []).append(every[-1])
        lemma, part = f"{name} entries", f"claims.{name.replace('.', '_')}"
        if depths[s] == 1:
            bench.lemma(lemma, "a stream without a claim holds nothing", (held == 0) | (ghosts[s] != 0),
                        ghosts[s] <= 1, ghosts[s] <= runs[u])
            continue
        entries, used = [bench.register(f"{part}.entry_{i}") for i in range(depths[s])], bench.register(f"{part}.used")
        bench.lemma(lemma, "the stream knows its claims, and holds the union of them",
                    *(used[i] == (ghosts[s] > i) for i in range(depths[s])), ghosts[s] <= depths[s],
                    ghosts[s] <= runs[u],
                    held == reduce(or_, (Mux(used[i], entry, 0) for i, entry in enumerate(entries))))
    of_unit = [bench.wire(reduce(or_, full[u]), f"{name}_holds") for u, name in enumerate(units)]
    taken = [reduce(or_, (dut.claims[s] & reduce(or_, (other for o, other in enumerate(every) if o != s))
                          for s, owner in enumerate(STREAM_UNIT) if owner == u)) for u in range(len(units))]
    free, fresh = bench.part("claims").free, bench.before(dut.clear | bench.first, "fresh", init=1)
    bench.always("free", "a head is free exactly when no port that it claims is held by another stream",
                 *((free[u] == (ports == 0)) | fresh & ~free[u] for u, ports in enumerate(taken)))
    bench.always("exclusive", "no port of scratchpad or accumulator is held by two units",
                 *((of_unit[u] & of_unit[v]) == 0 for u in range(len(units)) for v in range(u)))

    # Counts, waits, order.
    for u, name in enumerate(units):
        empty = sum(pipes[u])
        bench.lemma(f"{name} in flight", "what it runs, and at most one command of length zero",
                    flights[u] == runs[u] + empty, empty <= 1)
    bench.always("in flight", "a unit has no more commands in flight than it can",
                 *(flight <= dut.limit(name) for flight, name in zip(flights, units)))
    bench.always("finished", "finished is what was issued less what is in flight; no finish is lost",
                 *((count - dut.finished[u])[:COUNT_BITS] == flights[u] for u, count in enumerate(issued)))
    bench.always("one", "one command is issued in a cycle at most, and only one that is there",
                 (dut.issue & (dut.issue - 1)[:len(units)]) == 0, (dut.issue & ~dut.valid) == 0)
    bench.always("waits", "a command is issued when all it waits for has finished",
                 (dut.issue & ~bench.part("waits").reached) == 0)
    bench.always("alone", "commands that run alone, or do nothing, are issued into an empty unit",
                 *(~(dut.issue[u] & (dut.alone[u] | dut.zero[u])) | (flight == 0) for u, flight in enumerate(flights)))
    bench.always("start", "a unit starts only when it is ready, and nothing of length zero or skipped",
                 *(~dut.start[u] | dut.issue[u] & dut.ready[u] & ~dut.zero[u]
                   & dut.predicates.bit_select(dut.predicate[u], 1) for u in range(len(units))))
    ports = ports_of(config)
    bench.cover("busy ports", "three units hold ports of one kind", reduce(and_, (
        of_unit[units.index(name)][ports["spm_read"]].any() for name in ("store", "matrix", "vector"))))
    bench.cover("most in flight", "the load unit has as many commands as it can",
                flights[units.index("load")] == dut.limit("load"))
    bench.cover("lowest", "the unit of lowest priority is issued", dut.issue[ISSUE_PRIORITY[-1]])
