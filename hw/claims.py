"""Port claims: which stream holds which memory port, and who is in whose way."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.resolve import STREAMS
from gemmule.timing import Timing

__all__ = ["Claims", "StreamClaims", "claim_depths"]


def claim_depths(config: Config, timing: Timing) -> dict[str, int]:
    """Commands of each stream that may hold claims at once."""
    return dict(zip(STREAMS, (
        config.load_commands,
        2,  # the reader is idle before the next store issues
        3,  # preload_free to e overlaps one successor
        2,
        timing.matrix_commands,
        1, 1, 1,  # one vector command at a time
    )))


class StreamClaims(wiring.Component):
    """Claims of one stream, oldest first; ``held`` is the union of all.

    Latency 1 (push and release show in the next cycle), one of each per cycle, no backpressure.

    Members
    -------
    push, mask: In
        Hold the ports of ``mask``.
    release: In(1)
        Drop the oldest claim.
    held: Out
        Ports held.
    """

    def __init__(self, *, bits: int, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self.depth = depth
        super().__init__({
            "push": In(1), "mask": In(bits), "release": In(1), "clear": In(1), "held": Out(bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        entries = [Signal.like(self.mask, name=f"entry_{i}") for i in range(self.depth)]
        level = Signal(range(self.depth + 1))
        place = Signal(range(self.depth + 1))
        m.d.comb += [
            self.held.eq(reduce(or_, entries)),
            place.eq(level - self.release),
        ]
        m.d.sync += level.eq(place + self.push)
        for i, entry in enumerate(entries):
            after = entries[i + 1] if i + 1 < self.depth else 0
            with m.If(self.push & (place == i)):
                m.d.sync += entry.eq(self.mask)
            with m.Elif(self.release):
                m.d.sync += entry.eq(after)  # empty entries are 0
        with m.If(self.clear):
            m.d.sync += [level.eq(0), *(entry.eq(0) for entry in entries)]
        return m


class Claims(wiring.Component):
    """All streams: holds claims and says which wanted claims are free of other streams.

    Latency 1 from ``push`` and ``release``; ``free`` follows ``want`` in the same cycle.

    Members
    -------
    want: In(array over streams)
        Ports that the head command of the stream's unit claims.
    free: Out(streams)
        Bit s: no other stream holds a port of ``want[s]``.
    push, release: In(streams)
        Bit s: hold ``want[s]``; drop the stream's oldest claim.
    clear: In(1)
        Drop all.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None) -> None:
        self.config = config
        self.timing = timing or Timing.of(config)
        super().__init__({
            "want": In(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "free": Out(len(STREAMS)),
            "push": In(len(STREAMS)),
            "release": In(len(STREAMS)),
            "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depths = claim_depths(self.config, self.timing)
        streams = []
        for i, name in enumerate(STREAMS):
            stream = StreamClaims(bits=self.config.claim_bits, depth=depths[name])
            m.submodules[name.replace(".", "_")] = stream
            m.d.comb += [
                stream.push.eq(self.push[i]),
                stream.mask.eq(self.want[i]),
                stream.release.eq(self.release[i]),
                stream.clear.eq(self.clear),
            ]
            streams.append(stream)
        for i in range(len(STREAMS)):
            others = reduce(or_, (s.held for j, s in enumerate(streams) if j != i))
            m.d.comb += self.free[i].eq((self.want[i] & others) == 0)
        return m
