"""Waits: whether the head of each unit queue may go on, from how many commands are still outstanding."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.command.resolve import UNIT_BITS, WAIT_BITS
from gemmule.hw.queue import Queue

__all__ = ["Waits"]


class Waits(wiring.Component):
    """Counts, for each queue, the finishes that its head still lacks; they are few, as the commands under way are.

    A command pushed with distance d waits for the d-th last command pushed to that unit before it, if that one has
    not visibly finished; 0 is no wait. A queue is in order, so a command never needs less than the one before it:
    its entry says only how many finishes more it needs, unit by unit.

    Latency 1: pushes, pops and finishes show in ``reached`` in the next cycle. One of each per unit and cycle, and
    one push in all. No backpressure: whoever pushes sees to the room.

    Parameters
    ----------
    depth: int
        Commands of a queue, at least 2.
    limits: sequence of int
        Commands of each unit that may have left its queue and not finished.

    Members
    -------
    push, unit, distances: In
        A command enters the queue of ``unit``, if there is one of this number; how far back it waits, by unit.
    valid, pop: In(units)
        Queue u has a head; it is dropped. Only a head that has been reached may be.
    finish: In(units)
        Commands finish.
    clear: In(1)
        Drop everything.
    reached: Out(units)
        All that the head of queue u waits for has visibly finished. Means nothing without a head.
    """

    def __init__(self, *, depth: int, limits: Sequence[int]) -> None:
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth}")
        self.depth = depth
        self.limits = tuple(limits)
        units = len(self.limits)
        super().__init__({
            "push": In(1), "unit": In(UNIT_BITS), "distances": In(data.ArrayLayout(WAIT_BITS, units)),
            "valid": In(units), "pop": In(units), "finish": In(units), "clear": In(1), "reached": Out(units),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        units = range(len(self.limits))
        most = [self.depth + limit for limit in self.limits]  # outstanding: pushed and not visibly finished
        newest = [[Signal(range(most[v] + 1), name=f"newest_{u}_{v}") for v in units] for u in units]
        """Finishes that the newest command of queue u lacks of unit v."""

        # What the command pushed lacks, beyond what the newest one of its queue does; less 1, from -1 on.
        more = Signal(data.StructLayout({f"of_{v}": signed(most[v].bit_length() + 1) for v in units}))
        back = [Signal(signed(WAIT_BITS + 1), name=f"back_{v}") for v in units]  # all that it lacks, less 1
        needs = Signal(len(units))
        for v in units:
            pending = Signal(range(most[v] + 1), name=f"pending_{v}")
            beyond = Signal(signed(WAIT_BITS + 2), name=f"beyond_{v}")
            m.d.comb += [
                back[v].eq(pending - self.distances[v]),
                beyond.eq(back[v] - Array(newest[u][v] for u in units)[self.unit]),
                needs[v].eq((self.distances[v] != 0) & (beyond >= 0)),
                more[f"of_{v}"].eq(Mux(needs[v], beyond, -1)),
            ]
            m.d.sync += pending.eq(Mux(self.clear, 0, pending + (self.push & (self.unit == v)) - self.finish[v]))

        for u in units:
            # Commands behind the head; the first one goes past.
            m.submodules[f"behind_{u}"] = behind = Queue(shape=more.shape(), depth=self.depth - 1)
            push, direct = Signal(name=f"push_{u}"), Signal(name=f"direct_{u}")
            moves = Signal(name=f"moves_{u}")  # a new head in the next cycle
            m.d.comb += [
                push.eq(self.push & (self.unit == u)),
                direct.eq(push & ~behind.valid & (self.pop[u] | ~self.valid[u])),
                moves.eq(Mux(behind.valid, self.pop[u], direct)),
                behind.push.eq(push & ~direct), behind.push_data.eq(more),
                behind.pop.eq(self.pop[u] & behind.valid), behind.clear.eq(self.clear),
            ]
            reached = []
            for v in units:
                # Finishes that the head lacks, less 1: its sign says that they have come. What came before the next
                # head needed it counts for that one, as long as anything in the queue lacks a finish.
                lacks = Signal(range(-(self.depth - 1) * most[v] - 1, most[v]), name=f"lacks_{u}_{v}", init=-1)
                last, later, counts = newest[u][v], Signal(name=f"later_{u}_{v}"), Signal(name=f"counts_{u}_{v}")
                following = Signal(signed(len(more[f"of_{v}"])), name=f"following_{u}_{v}")
                # lacks + more + 1 - counts for the head and for the next one, each one sum with a carry in; which one
                # it is, the pop, is late.
                stays, goes = (
                    (Cat(~counts, lacks).as_signed() + Cat(~counts, step).as_signed()) >> 1
                    for step in (C(-1, following.shape()), following))
                m.d.comb += [
                    later.eq(push & needs[v]),
                    counts.eq(self.finish[v] & (later | last.any())),
                    following.eq(Mux(behind.valid, behind.head[f"of_{v}"], more[f"of_{v}"])),
                ]
                m.d.sync += [
                    last.eq(Mux(self.clear, 0, Mux(later, back[v] + ~self.finish[v], last - counts))),
                    lacks.eq(Mux(self.clear, -1, Mux(moves, goes, stays))),
                ]
                reached.append(lacks[-1])
            m.d.comb += self.reached[u].eq(Cat(reached).all())
        return m
