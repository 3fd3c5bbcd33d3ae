"""Dispatch: resolve, and the unit queues."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from gemmule.config import Config
from gemmule.control import MAX_COMMANDS
from gemmule.hw.command.claims import narrow, widen
from gemmule.hw.command.loops import RepeatControl
from gemmule.hw.command.resolve import FAULT_BITS, PREDICATE_BITS, UNIT_BITS, WAIT_BITS, Resolve
from gemmule.hw.interfaces import COUNT_BITS, LENGTH_BITS, matrix_layout, move_layout, select_layout, vector_layout
from gemmule.hw.queue import HeadQueue, Queue
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS, MatrixFlag, MoveFlag, Unit
from gemmule.operations import EXCLUSIVE_LOADS
from gemmule.resolve import FAULTS, STREAM_UNIT, STREAMS
from gemmule.timing import Timing

__all__ = ["Dispatch", "UNIT_LAYOUTS", "counts_layout"]

UNIT_LAYOUTS = {unit.label: layout for unit, layout in (
    (Unit.LOAD, move_layout), (Unit.STORE, move_layout), (Unit.MATRIX, matrix_layout), (Unit.VECTOR, vector_layout),
    (Unit.SELECT, select_layout))}
"""Units in order of their number, with the layout of their resolved commands."""
_PLACES = 1 << ceil_log2(Timing.resolve)
"""A ring that holds the place of every command in resolve."""


def counts_layout() -> data.ArrayLayout:
    """One counter of commands per unit."""
    return data.ArrayLayout(COUNT_BITS, len(UNIT_LAYOUTS))


class Dispatch(wiring.Component):
    """Moves commands, in order, from the fetch queue to the unit queues.

    Latency: that of resolve, and 1 cycle into the unit's queue. Throughput: one per cycle.
    Backpressure: a full unit queue (registered count) holds everything behind the command, once the stages of
    resolve are full. A command that faults stays in the last one until ``clear``. So does command number ``most``,
    whatever it is. Control commands have no queue: they leave resolve, and count in ``total`` alone.

    Parameters
    ----------
    config:
        Device.
    most: int
        Commands of a launch; those of any device by default.

    Members
    -------
    command_valid, command, command_take:
        Head of the fetch queue.
    command_place: In
        Its place in the image; without a command, that of the next one.
    repeat: Out(RepeatControl)
        To fetch.
    length_index, length, base_index, base, limit:
        Length register ``length_index`` as the host gave it, and base register ``base_index``, see
        :class:`gemmule.hw.command.resolve.Resolve`.
    stop: In(1)
        Push nothing.
    clear: In(1)
        Start strobe: drop everything, counters to zero.
    fault: Out
        Fault code of the command in the last stage of resolve; 0 if none.
    dispatched, total: Out
        Commands pushed, by unit and in all (a faulting command's index is ``total``).
    place, empty: Out
        Place in the image of the oldest command that has not left resolve, or of the next one; resolve has none.
    load, store, matrix, vector, select: Out(layouts)
        Heads of the unit queues.
    valid, zero, alone: Out(units)
        Bit u: the head exists; its length is zero; it runs alone (as every one of length zero does).
    predicate: Out(array)
        Predicate that the head of queue u depends on; 0: none.
    claims, following_claims: Out(arrays over streams)
        Ports that the head of the stream's unit claims; those that it claims in the next cycle if there is no head in
        this one, or if that is dropped.
    pop: In(units)
        Drop the head of queue u.
    push, unit, distances: Out
        A command enters the queue of ``unit`` in this cycle, if that has one; how far back it waits, by unit (0: not
        at all): a distance d means the d-th last command dispatched so far.
    """

    def __init__(self, *, config: Config, most: int = MAX_COMMANDS) -> None:
        if not 0 <= most < 1 << COUNT_BITS:
            raise ValueError(f"most must be from 0 to {(1 << COUNT_BITS) - 1}, not {most}")
        self.config = config
        self.most = most
        units = len(UNIT_LAYOUTS)
        super().__init__({
            "command_valid": In(1), "command": In(8 * COMMAND_BYTES), "command_take": Out(1),
            "command_place": In(COUNT_BITS), "repeat": Out(RepeatControl()),
            "length_index": Out(range(NUM_LENGTHS)),
            "length": In(LENGTH_BITS),
            "base_index": Out(range(NUM_BASES)),
            "base": In(config.address_bits),
            "limit": In(config.address_bits),
            "stop": In(1),
            "clear": In(1),
            "fault": Out(FAULT_BITS),
            "dispatched": Out(counts_layout()),
            "total": Out(COUNT_BITS),
            "place": Out(COUNT_BITS), "empty": Out(1),
            **{name: Out(layout(config)) for name, layout in UNIT_LAYOUTS.items()},
            "valid": Out(units),
            "zero": Out(units),
            "alone": Out(units),
            "predicate": Out(data.ArrayLayout(PREDICATE_BITS, units)),
            "claims": Out(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "following_claims": Out(data.ArrayLayout(config.claim_bits, len(STREAMS))),
            "pop": In(units),
            "push": Out(1), "unit": Out(UNIT_BITS), "distances": Out(data.ArrayLayout(WAIT_BITS, units)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config

        m.submodules.resolve = resolve = Resolve(config=config)
        pushed, fault = Signal(), Signal(FAULT_BITS)
        spent = Signal(init=self.most == 0)  # ``total`` is ``most``
        connect(m, wiring.flipped(self.repeat), resolve.repeat)
        m.d.comb += [
            resolve.valid.eq(self.command_valid), resolve.word.eq(self.command), self.command_take.eq(resolve.take),
            self.length_index.eq(resolve.length_index), self.base_index.eq(resolve.base_index),
            *(getattr(resolve, name).eq(getattr(self, name)) for name in ("length", "base", "limit", "clear")),
            resolve.leave.eq(pushed),
            fault.eq(Mux(spent, FAULTS.index("illegal"), resolve.fault)),
            self.fault.eq(Mux(resolve.full, fault, 0)),
        ]

        # Places of the commands in resolve.
        m.submodules.places = places = Queue(shape=COUNT_BITS, depth=_PLACES)
        m.d.comb += [
            places.push.eq(resolve.take), places.push_data.eq(self.command_place), places.pop.eq(pushed),
            places.clear.eq(self.clear), self.empty.eq(~places.valid),
            self.place.eq(Mux(places.valid, places.head, self.command_place)),
        ]

        # Alone: length zero, loads that fill or copy on their own, a change of the matrix dataflow, and a matrix
        # command behind one that may be skipped.
        load_flags, matrix_flags = resolve.move.flags, resolve.matrix.flags
        stationary = Signal()  # dataflow of the last matrix command of non-zero length: outputs stay
        doubtful = Signal()  # the last matrix command has a predicate
        own_kind = Signal(len(UNIT_LAYOUTS))
        m.d.comb += [
            own_kind[Unit.LOAD].eq(reduce(or_, (load_flags[flag] for flag in MoveFlag if EXCLUSIVE_LOADS >> flag & 1))),
            own_kind[Unit.MATRIX].eq((matrix_flags[MatrixFlag.OUTPUT_STATIONARY] != stationary) | doubtful),
        ]

        # Unit queues.
        ready, goes = Signal(), Signal(len(UNIT_LAYOUTS) + 1)
        for u, (unit, layout) in enumerate(UNIT_LAYOUTS.items()):
            streams = [s for s, owner in enumerate(STREAM_UNIT) if owner == u]
            claims = {STREAMS[s]: narrow(config, STREAMS[s], resolve.claims[i]) for i, s in enumerate(streams)}
            entry = data.StructLayout({
                "zero": 1, "alone": 1, "predicate": PREDICATE_BITS,
                "claims": data.StructLayout({name: len(mask) for name, mask in claims.items()}),
            })
            # What issue looks at, and the command, which only the unit does: with pointers of their own, so that a
            # start that hangs on the first does not wait for the way to the second.
            m.submodules[f"{unit}_queue"] = queue = HeadQueue(shape=entry, depth=config.unit_queue)
            m.submodules[f"{unit}_commands"] = commands = Queue(shape=layout(config), depth=config.unit_queue)
            source = resolve.move if unit in ("load", "store") else getattr(resolve, unit)
            m.d.comb += [
                queue.push.eq(ready & goes[u]),
                commands.push.eq(queue.push), commands.push_data.eq(source),
                commands.pop.eq(queue.pop), commands.clear.eq(queue.clear),
                queue.push_data.zero.eq(source.zero),
                queue.push_data.alone.eq(resolve.zero | own_kind[u]),
                queue.push_data.predicate.eq(resolve.predicate),
                *(queue.push_data.claims[name].eq(mask) for name, mask in claims.items()),
                queue.pop.eq(self.pop[u]),
                queue.clear.eq(self.clear),
                getattr(self, unit).eq(commands.head),
                self.valid[u].eq(queue.valid),
                self.zero[u].eq(queue.head.zero),
                self.alone[u].eq(queue.head.alone),
                self.predicate[u].eq(queue.head.predicate),
                *(ports[s].eq(widen(config, STREAMS[s], place.claims[STREAMS[s]]))
                  for ports, place in ((self.claims, queue.head), (self.following_claims, queue.following))
                  for s in streams),
            ]
            with m.If(queue.push):
                m.d.sync += self.dispatched[u].eq(self.dispatched[u] + 1)
            if u == Unit.MATRIX:
                with m.If(queue.push):
                    m.d.sync += doubtful.eq(resolve.predicate != 0)
                with m.If(queue.push & ~resolve.zero):
                    m.d.sync += stationary.eq(matrix_flags[MatrixFlag.OUTPUT_STATIONARY])
            m.d.comb += goes[u].eq(resolve.goes[u] & commands.room)
        m.d.comb += [
            goes[-1].eq(resolve.goes[-1]), ready.eq(resolve.full & ~self.stop & ~spent), pushed.eq(ready & goes.any()),
            self.push.eq(pushed), self.unit.eq(resolve.unit), self.distances.eq(resolve.waits),
        ]
        with m.If(pushed):
            m.d.sync += [self.total.eq(self.total + 1), spent.eq(self.total == self.most - 1)]
        with m.If(self.clear):
            m.d.sync += [
                stationary.eq(0), doubtful.eq(0), self.dispatched.eq(0), self.total.eq(0), spent.eq(self.most == 0),
            ]
        return m
