"""Loops: a position in the stream of commands, and the bodies around it."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.control import MAX_DEPTH
from gemmule.hw.interfaces import COUNT_BITS, LENGTH_BITS

__all__ = ["DEPTH_BITS", "TURN_BITS", "Loops", "RepeatControl"]

DEPTH_BITS = MAX_DEPTH.bit_length()
TURN_BITS = LENGTH_BITS


def RepeatControl() -> wiring.Signature:
    """A REPEAT in the first stage of resolve, seen from there.

    ``body`` stands while the command does. ``allows``: such a body may begin here. ``pause`` is high in the cycle in
    which a REPEAT takes effect, if it does: fetch requests nothing then. Where fetch has a request ``standing`` that
    was not accepted yet, and which it may not withdraw, that cycle waits. ``effect``: in it the body begins,
    with so many ``times``, or none.
    """
    return wiring.Signature({
        "body": Out(COUNT_BITS), "times": Out(TURN_BITS), "pause": Out(1), "effect": Out(1),
        "allows": In(1), "standing": In(1),
    })


class Loops(wiring.Component):
    """Counts commands to the nearest end of a body, and goes back there, or on.

    A turn's end costs no cycle: the next position follows from the body on top of the stack in the same one.

    Parameters
    ----------
    place_bits: int
        Width of a position.
    most: int
        Commands of a step, at most; a power of two.
    limit_bits: int
        Width of ``limit``.

    Members
    -------
    start, first, commands: In
        Begin at ``first``, around which there is no body, with ``commands`` to the end.
    within: In
        Commands that a step may take: 1 to ``most``.
    limit: In
        Another number of commands.
    count, fits: Out
        Commands of a step: no more than ``left``. There are some, and no more than ``limit``.
    step: In(1)
        Go on by ``count`` commands; not with ``push``.
    push: In(1)
        A body begins, or has begun, ``more`` commands before its end: ``body`` commands from ``begin`` on, ``turns`` of
        them with the present one (0 means 1), and ``rest`` commands behind it to the end of what is around it.
    place, left, depth: Out
        Position, commands from there to the nearest end, bodies around it.
    closes, leaves: Out(1)
        A step ends a turn of the innermost body, its last turn.
    innermost: Out
        Commands of that body.
    """

    def __init__(self, *, place_bits: int, most: int, limit_bits: int) -> None:
        if place_bits < 1:
            raise ValueError(f"place_bits must be at least 1, not {place_bits}")
        self.place_bits, self.slot_bits = place_bits, exact_log2(most)
        super().__init__({
            "start": In(1), "first": In(place_bits), "commands": In(COUNT_BITS),
            "within": In(range(most + 1)), "count": Out(range(most + 1)), "step": In(1),
            "limit": In(limit_bits), "fits": Out(1),
            "push": In(1), "begin": In(place_bits), "body": In(COUNT_BITS), "turns": In(TURN_BITS),
            "rest": In(COUNT_BITS), "more": In(COUNT_BITS),
            "place": Out(place_bits), "left": Out(COUNT_BITS), "depth": Out(DEPTH_BITS),
            "closes": Out(1), "leaves": Out(1), "innermost": Out(COUNT_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        top, new = Signal(range(MAX_DEPTH)), Signal(range(MAX_DEPTH))  # entries: of the innermost body, of the next one

        # Turns change while a body is on the stack, the rest of its entry does not. ``lasts``: one is left.
        entry = data.StructLayout({"begin": self.place_bits, "body": COUNT_BITS, "rest": COUNT_BITS})
        m.submodules.bodies = bodies = Memory(shape=entry, depth=MAX_DEPTH, init=[])
        m.submodules.turns = turns = Memory(shape=TURN_BITS, depth=MAX_DEPTH, init=[])
        put, put_turns = bodies.write_port(), turns.write_port()
        body, left_turns = bodies.read_port(domain="comb"), turns.read_port(domain="comb")
        lasts = Array(Signal(name=f"last_{i}") for i in range(MAX_DEPTH))
        inside, last_turn = Signal(), Signal()
        again = Signal()
        m.d.comb += [
            top.eq(self.depth), new.eq(self.depth + 1), inside.eq(self.depth != 0),
            body.addr.eq(top), left_turns.addr.eq(top), last_turn.eq(lasts[top]),
            self.innermost.eq(body.data.body),
            put.addr.eq(new), put.en.eq(self.push),
            put.data.begin.eq(self.begin), put.data.body.eq(self.body), put.data.rest.eq(self.rest),
            put_turns.en.eq(self.push | again), put_turns.addr.eq(Mux(self.push, new, top)),
            put_turns.data.eq(Mux(self.push, self.turns, left_turns.data - 1)),
        ]

        # Only the low bits of what is left and of the position wait for a step's count; the others go on by one or not.
        low, high = self.left[:self.slot_bits + 1], self.left[self.slot_bits + 1:]
        slot, page = self.place[:self.slot_bits], self.place[self.slot_bits:]
        some, far = Signal(), Signal()  # left: any commands, many more than ``most``; a register says the latter
        reaches = Signal()  # a step ends at the nearest end
        turned = Signal(COUNT_BITS)  # left at the end of a turn
        lower = Signal(signed(self.slot_bits + 2))
        next_slot = Signal(self.slot_bits + 1)

        def is_far(left: Value) -> Value:
            return left[self.slot_bits + 1:].any()

        m.d.comb += [
            some.eq(far | low.any()),
            reaches.eq(~far & (low <= self.within if self.slot_bits else 1)),
            self.count.eq(Mux(reaches, low, self.within)),
            self.fits.eq(some & ((self.within <= self.limit) | ~far & (low <= self.limit))),
            lower.eq(low - self.within), next_slot.eq(slot + self.count),
            self.closes.eq(self.step & reaches & inside),
            self.leaves.eq(self.closes & last_turn), turned.eq(Mux(last_turn, body.data.rest, body.data.body)),
            again.eq(self.closes & ~last_turn),
        ]
        with m.If(self.step):
            m.d.sync += self.place.eq(Cat(next_slot[:self.slot_bits], Mux(next_slot[-1], page + 1, page)))
            with m.If(reaches):
                m.d.sync += [
                    self.left.eq(Mux(inside, turned, 0)),
                    far.eq(inside & Mux(last_turn, is_far(body.data.rest), is_far(body.data.body))),
                ]
            with m.Else():
                m.d.sync += self.left.eq(Cat(lower[:self.slot_bits + 1], Mux(lower[-1], high - 1, high)))
                with m.If(lower[-1]):
                    m.d.sync += far.eq(high != 1)
        with m.If(again):
            m.d.sync += [self.place.eq(body.data.begin), lasts[top].eq(left_turns.data == 2)]
        with m.If(self.leaves):
            m.d.sync += self.depth.eq(self.depth - 1)
        with m.If(self.push):
            m.d.sync += [self.depth.eq(self.depth + 1), self.left.eq(self.more), far.eq(is_far(self.more)),
                         lasts[new].eq(self.turns <= 1)]
        with m.If(self.start):
            m.d.sync += [self.place.eq(self.first), self.left.eq(self.commands), far.eq(is_far(self.commands)),
                         self.depth.eq(0)]
        return m
