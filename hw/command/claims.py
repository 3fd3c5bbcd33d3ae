"""Port claims: which stream holds which memory port, and who is in whose way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from itertools import accumulate
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.isa import Unit
from gemmule.resolve import STREAM_UNIT, STREAMS
from gemmule.timing import Timing

__all__ = ["Claims", "StreamClaims", "claim_depths", "narrow", "ports_of", "widen"]

# Ports by kind, in the order of a full mask; a stream keeps one bit per bank for each of its parts.
_STREAM_PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "load.w": (("spm_write",), ("acc_read",), ("acc_write",)),
    "store.r": (("spm_read",), ("acc_read",)),
    "matrix.A": (("spm_read",),),
    "matrix.B": (("spm_read",),),
    "matrix.C": (("acc_read", "acc_write"),),  # always both of a bank
    "vector.r0": (("spm_read",), ("acc_read",)),
    "vector.r1": (("spm_read",),),
    "vector.w": (("spm_write",), ("acc_write",)),
    "select.r": (("spm_read",),),
    "select.w": (("spm_write",),),
}


def ports_of(config: Config) -> dict[str, slice]:
    """Bits of a full claim mask, by kind of port."""
    kinds = {"spm_read": config.spm_banks, "spm_write": config.spm_banks,
             "acc_read": config.acc_banks, "acc_write": config.acc_banks}
    ends = list(accumulate(kinds.values()))
    return {kind: slice(end - banks, end) for (kind, banks), end in zip(kinds.items(), ends)}


def narrow(config: Config, stream: str, mask: Value) -> Value:
    """The bits of a full mask that a stream can hold, each once."""
    ports = ports_of(config)
    return Cat(mask[ports[part[0]]] for part in _STREAM_PARTS[stream])


def widen(config: Config, stream: str, bits: Value) -> Value:
    """Inverse of :func:`narrow`: the full mask, 0 where the stream can hold nothing."""
    ports = ports_of(config)
    full: dict[str, Value] = {kind: Const(0, place.stop - place.start) for kind, place in ports.items()}
    at = 0
    for part in _STREAM_PARTS[stream]:
        width = len(full[part[0]])
        for kind in part:
            full[kind] = bits[at:at + width]
        at += width
    return Cat(full.values())


def claim_depths(config: Config, timing: Timing) -> dict[str, int]:
    """Commands of each stream that may hold claims at once (entry and release as in docs/timing.md).

    Matrix: command i issues no earlier than ``preload_free - 1`` of i - 1, hence than ``s - 1`` of
    i - 1, which is not before e - 1 of i - 2. That is the cycle in which i - 2 gives back A, and B when
    it is output-stationary (B of a weight-stationary one goes earlier still): two entries are enough.
    """
    return dict(zip(STREAMS, (
        config.load_commands,
        1,  # released before the reader is ready again
        2, 2,
        timing.matrix_commands,
        1, 1, 1,  # one vector command at a time
        1, 1,  # one select command at a time
    )))


class StreamClaims(wiring.Component):
    """Claims of one stream, oldest first; ``held`` is the union of all.

    Latency 1 (push and release show in the next cycle), one of each per cycle, no backpressure. ``held`` is a
    register: every decision of issue begins with it.

    Members
    -------
    push, mask: In
        Hold the ports of ``mask``.
    release: In(1)
        Drop the oldest claim.
    held, kept: Out
        Ports held in this cycle; those of them that are held in the next one too, whatever is pushed.
    """

    def __init__(self, *, bits: int, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self.depth = depth
        super().__init__({
            "push": In(1), "mask": In(bits), "release": In(1), "clear": In(1), "held": Out(bits), "kept": Out(bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.depth == 1:
            m.d.comb += self.kept.eq(Mux(self.release, 0, self.held))
        else:
            # Every place that is free after this cycle takes the mask; the push, which is late, only marks one.
            entries = [Signal.like(self.mask, name=f"entry_{i}") for i in range(self.depth)]
            used = Signal(self.depth)  # the oldest in bit 0, and no gap
            stays = Signal(self.depth)
            m.d.comb += stays.eq(Mux(self.release, used >> 1, used))
            m.d.sync += used.eq(Mux(self.clear, 0, Mux(self.push, Cat(1, stays), stays)))
            staying = []
            for i, entry in enumerate(entries):
                after = entries[i + 1] if i + 1 < self.depth else self.mask
                moved = Mux(self.release, after, entry)
                m.d.sync += entry.eq(Mux(stays[i], moved, self.mask))
                staying.append(Mux(stays[i], moved, 0))
            m.d.comb += self.kept.eq(reduce(or_, staying))
        m.d.sync += self.held.eq(Mux(self.clear, 0, self.kept | Mux(self.push, self.mask, 0)))
        return m


class Claims(wiring.Component):
    """All streams: holds claims and says whether all that the head command of a unit claims is free.

    Latency 1. ``free`` is a register, as every decision of issue begins with it: for each head of the next cycle, and
    for each command that may start in this one, it is computed whether they are in each other's way. What starts
    only chooses.

    Members
    -------
    want: In(array over streams)
        Ports that the head command of the stream's unit claims; those that it can never hold are ignored.
    following: In(array over streams)
        Ports that the unit's head claims in the next cycle if it has none in this one, or if that is issued.
    valid: In(units)
        Units that have a head.
    free: Out(units)
        No port that the head claims is held by another stream. Means nothing in the cycle after ``clear``.
    issue, start: In(units)
        The head leaves its queue; it does, and its streams hold their ports.
    release: In(streams)
        Bit s: drop the stream's oldest claim.
    clear: In(1)
        Drop all.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None) -> None:
        self.config = config
        self.timing = timing or Timing.of(config)
        units = len(Unit)
        super().__init__({
            "want": In(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "following": In(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "valid": In(units),
            "free": Out(units),
            "issue": In(units),
            "start": In(units),
            "release": In(len(STREAMS)),
            "clear": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        depths = claim_depths(config, self.timing)
        kept: dict[str, Value] = {}
        want: dict[str, Value] = {}
        following: dict[str, Value] = {}
        for s, (name, u) in enumerate(zip(STREAMS, STREAM_UNIT)):
            mask, after = narrow(config, name, self.want[s]), narrow(config, name, self.following[s])
            stream = StreamClaims(bits=len(mask), depth=depths[name])
            m.submodules[name.replace(".", "_")] = stream
            m.d.comb += [
                stream.push.eq(self.start[u]),
                stream.mask.eq(mask),
                stream.release.eq(self.release[s]),
                stream.clear.eq(self.clear),
            ]
            kept[name] = widen(config, name, stream.kept)
            following[name] = widen(config, name, after)
            want[name] = widen(config, name, Mux(self.valid[u], mask, after))  # of the next cycle, if none is issued

        streams = [[name for name, owner in zip(STREAMS, STREAM_UNIT) if owner == u] for u in Unit]
        for u, own in enumerate(streams):
            mine = {name: want[name] for name in own}
            held, held_after, itself = [], [], []
            for name in own:
                others = {other: kept[other] for other in STREAMS if other != name}
                held.append(self._meet({name: want[name]}, others))
                held_after.append(self._meet({name: following[name]}, others))
                beside = {other: mask for other, mask in mine.items() if other != name}
                itself.append(self._meet({name: following[name]}, beside))
            starts = [self.start[v] & self._meet(mine, {name: want[name] for name in theirs})
                      for v, theirs in enumerate(streams) if v != u]
            blocked = Cat(*held, *starts).any()
            blocked_after = Cat(*held_after, self.start[u] & Cat(itself).any()).any()
            m.d.sync += self.free[u].eq(~Mux(self.issue[u], blocked_after, blocked))
        return m

    def _meet(self, some: Mapping[str, Value], others: Mapping[str, Value]) -> Value:
        """Two sets of streams want a port in common; only kinds of ports that both can hold are compared."""
        conflicts = []
        for kind, place in ports_of(self.config).items():
            masks = [[mask[place] for name, mask in side.items() if any(kind in part for part in _STREAM_PARTS[name])]
                     for side in (some, others)]
            if all(masks):
                conflicts.append((reduce(or_, masks[0]) & reduce(or_, masks[1])).any())
        return Cat(conflicts).any()
