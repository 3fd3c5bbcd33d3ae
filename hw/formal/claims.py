"""Claims of one stream: held from the cycle after the push until the release, and nothing else."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Const, Mux, Signal

from gemmule.hw.command.claims import StreamClaims
from gemmule.hw.formal.bench import Bench

__all__ = ["stream_claims"]

PORTS = 3


def stream_claims(bench: Bench, depth: int) -> None:
    """One claim, any one, is watched from its push to its release."""
    m, claims = bench.m, bench.dut(StreamClaims(bits=PORTS, depth=depth))
    level = Signal(range(depth + 1))
    m.d.sync += level.eq(level + claims.push - claims.release)
    bench.assume("release", "only what is held is released", ~(claims.release & (level == 0)))
    bench.assume("room", "no more claims than the stream may have",
                 ~(claims.push & (level == depth) & ~claims.release))

    watched, before, ports = Signal(), Signal(range(depth + 1)), Signal(PORTS)
    with m.If(watched & claims.release):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += watched.eq(0)
    with m.If(claims.push & ~watched & bench.choice(1, "watch")):
        m.d.sync += [watched.eq(1), before.eq(level - claims.release), ports.eq(claims.mask)]
    with m.If(claims.clear):
        m.d.sync += [level.eq(0), watched.eq(0)]

    entries, used = [bench.register(f"entry_{i}") for i in range(depth)], bench.register("used")
    bench.lemma("level", "the stream counts its claims", level <= depth,
                *(used[i] == (level > i) for i in range(depth)))
    bench.lemma("held", "the union of all claims",
                claims.held == reduce(or_, (Mux(used[i], entry, 0) for i, entry in enumerate(entries))))
    bench.lemma("watched entry", "it moves down with every release",
                ~watched | (before < level), *(~(watched & (before == i)) | (entry == ports)
                                               for i, entry in enumerate(entries)))
    bench.always("kept", "a claim is held from the cycle after its push to its release",
                 ~watched | (ports & ~claims.held == Const(0, PORTS)))
    bench.always("given back", "a stream without a claim holds no port", (level != 0) | (claims.held == 0))
    bench.cover("most claims", "as many claims as may be, one of them pushed with a release",
                (level == depth) & bench.before(claims.push & claims.release, "moves"))
