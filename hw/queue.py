"""Queues of commands: small memory, head readable in the cycle after the push."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ShapeLike
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["HeadQueue", "Queue"]


class Queue(wiring.Component):
    """First in, first out; one push and one pop per cycle.

    Latency 1: an entry pushed in cycle d is the head, at the earliest, in d + 1. There is no
    backpressure: whoever pushes looks at ``level``, a registered count, and whoever pops at ``valid``.

    Parameters
    ----------
    shape:
        Shape of an entry.
    depth:
        Entries, at least 1; any number.

    Members
    -------
    push, push_data: In
        Append an entry.
    pop: In(1)
        Drop the head.
    clear: In(1)
        Drop everything (wins over push and pop).
    valid, head: Out
        The oldest entry, if there is one.
    level: Out
        Registered number of entries.
    room: Out(1)
        It is less than ``depth``; a register of its own.
    """

    def __init__(self, *, shape: ShapeLike, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self.shape = shape
        self.depth = depth
        super().__init__({
            "push": In(1), "push_data": In(shape), "pop": In(1), "clear": In(1),
            "valid": Out(1), "head": Out(shape), "level": Out(range(depth + 1)), "room": Out(1, init=1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = max(2, self.depth)  # an address has a bit
        m.submodules.memory = memory = Memory(shape=self.shape, depth=places, init=[])
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        head, tail = read.addr, write.addr
        last = self.depth - 1
        m.d.comb += [
            write.en.eq(self.level != self.depth),  # the push, which may be late, moves the pointer alone
            write.data.eq(self.push_data),
            self.head.eq(read.data),
            self.valid.eq(self.level != 0),
        ]
        with m.If(self.push):
            m.d.sync += tail.eq(Mux(tail == last, 0, tail + 1))
        with m.If(self.pop):
            m.d.sync += head.eq(Mux(head == last, 0, head + 1))
        with m.If(self.push & ~self.pop):
            m.d.sync += [self.level.eq(self.level + 1), self.room.eq(self.level != self.depth - 1)]
        with m.Elif(self.pop & ~self.push):
            m.d.sync += [self.level.eq(self.level - 1), self.room.eq(1)]
        with m.If(self.clear):
            m.d.sync += [head.eq(0), tail.eq(0), self.level.eq(0), self.room.eq(1)]
        return m


class HeadQueue(wiring.Component):
    """As :class:`Queue`, with the head in a register; tells a cycle earlier what the next head is.

    Parameters
    ----------
    shape:
        Shape of an entry.
    depth:
        Entries, at least 2.

    Members
    -------
    push, push_data, pop, clear: In
        As of a queue.
    valid, head: Out
        The oldest entry, if there is one; registers.
    following: Out
        What the head register takes in this cycle if there is no head, or if it is dropped: the second entry, or what
        is pushed. Means nothing if there is neither.
    room: Out(1)
        There are fewer than ``depth`` entries; a register.
    """

    def __init__(self, *, shape: ShapeLike, depth: int) -> None:
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth}")
        self.shape = shape
        self.depth = depth
        super().__init__({
            "push": In(1), "push_data": In(shape), "pop": In(1), "clear": In(1),
            "valid": Out(1), "head": Out(shape), "following": Out(shape), "room": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.behind = behind = Queue(shape=self.shape, depth=self.depth - 1)
        stays = self.valid & ~self.pop
        m.d.comb += [
            behind.push.eq(self.push & (behind.valid | stays)), behind.push_data.eq(self.push_data),
            behind.pop.eq(behind.valid & self.pop), behind.clear.eq(self.clear),
            self.following.eq(Mux(behind.valid, behind.head, self.push_data)), self.room.eq(behind.room),
        ]
        m.d.sync += self.valid.eq(~self.clear & (stays | behind.valid | self.push))
        with m.If(~stays):
            m.d.sync += self.head.eq(self.following)
        return m
