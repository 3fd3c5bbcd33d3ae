"""Loops: a body is repeated as often as it should be, and every step of an address is the right one."""

from __future__ import annotations

from functools import reduce
from operator import and_

from amaranth.hdl import Array, Mux, Signal, Value

from gemmule.control import MAX_DEPTH
from gemmule.hw.command.loops import TURN_BITS, Loops
from gemmule.hw.formal.bench import Bench
from gemmule.hw.interfaces import COUNT_BITS

__all__ = ["loops"]


def loops(bench: Bench, most: int) -> None:
    """A stack of bodies beside the one of the hardware: where each begins and ends, and the turns that are left."""
    m = bench.m
    dut = bench.dut(Loops(place_bits=COUNT_BITS, most=most, limit_bits=6))
    end = Signal(COUNT_BITS, name="program_end")
    begins, ends, afters, turns = ([Signal(COUNT_BITS, name=f"{name}_{i}") for i in range(MAX_DEPTH + 1)]
                                   for name in ("begin", "end", "around", "turns"))
    depth = Signal(range(MAX_DEPTH + 1), name="bodies")
    nearest = _at(ends, depth)
    step = dut.step & ~dut.start
    push = dut.push & ~dut.start

    bench.assume("within", f"a step takes 1 to {most} commands, if there are any",
                 (dut.within != 0) & (dut.within <= most), ~dut.step | (dut.left != 0))
    bench.assume("program", "a program ends before the highest position",
                 ~dut.start | (dut.first + dut.commands < 1 << COUNT_BITS))
    bench.assume("push", "a body begins here or began before, and ends before what is around it does; not with a step",
                 ~dut.push | ~dut.step & (depth < MAX_DEPTH) & (dut.body != 0) & (dut.more != 0)
                 & (dut.more <= dut.body) & (dut.begin + dut.body == dut.place + dut.more)
                 & (dut.begin + dut.body + dut.rest == nearest) & ((depth == 0) | (dut.begin >= _at(begins, depth)))
                 & ((depth == 0) | (dut.rest != 0)))

    reaches = bench.wire(dut.place + dut.count == nearest, "reaches")
    inside, turns_left = depth != 0, _at(turns, depth)
    ends_turn = bench.wire(step & reaches & inside, "ends_turn")
    leaves = bench.wire(ends_turn & (turns_left <= 1), "leaves_body")
    with m.If(ends_turn):
        m.d.sync += Array(turns)[depth].eq(turns_left - 1)
    with m.If(leaves):
        m.d.sync += depth.eq(depth - 1)
    with m.If(push):
        new = bench.wire((depth + 1)[:len(depth)], "new")
        m.d.sync += [
            depth.eq(depth + 1), Array(begins)[new].eq(dut.begin), Array(ends)[new].eq(dut.begin + dut.body),
            Array(afters)[new].eq(nearest), Array(turns)[new].eq(Mux(dut.turns == 0, 1, dut.turns)),
        ]
    with m.If(dut.start):
        m.d.sync += [depth.eq(0), end.eq(dut.first + dut.commands), ends[0].eq(dut.first + dut.commands)]

    lasts = [bench.register(f"last_{i}") for i in range(MAX_DEPTH)]
    far = bench.register("far")
    stack: list[Value] = []
    for i in range(1, MAX_DEPTH + 1):
        at = i % MAX_DEPTH
        entry, left = bench.word("bodies", at), bench.word("turns", at)
        begin, body, rest = (entry[k * COUNT_BITS:(k + 1) * COUNT_BITS] for k in range(3))
        stack.append((depth < i) | (
            (begin == begins[i]) & (begins[i] + body == ends[i]) & (ends[i] + rest == ends[i - 1]) & (body != 0)
            & (turns[i] != 0) & (turns[i] < 1 << TURN_BITS) & ((left == turns[i]) | (left == 0) & (turns[i] == 1))
            & (lasts[at] == (turns[i] == 1)) & ((rest != 0) | (i == 1)) & (ends[i - 1] == afters[i])))
    bench.lemma("stack", "the hardware has the same bodies", dut.depth == depth, depth <= MAX_DEPTH,
                *stack)
    bench.lemma("far", "it tells whether the end is many steps away",
                far == dut.left[(most - 1).bit_length() + 1:].any())
    bench.lemma("end", "the program ends where it should", ends[0] == end)
    bench.lemma("order", "a body is within the one around it", dut.place <= nearest, ~inside | (dut.left != 0),
                reduce(and_, ((depth < i) | (begins[i] < ends[i]) & (dut.place >= begins[i])
                              & (i == 1 or begins[i] >= begins[i - 1])
                              & ((ends[i] < ends[i - 1]) | (i == 1) & (ends[i] <= ends[0]))
                              for i in range(1, MAX_DEPTH + 1))))
    bench.always("left", "left counts the commands to the nearest end", dut.place + dut.left == nearest)
    bench.always("count", "a step goes no further than to the nearest end, and only there by less than it may",
                 ~step | (dut.count != 0) & (dut.place + dut.count <= nearest)
                 & ((dut.count == dut.within) | reaches) & (dut.count <= dut.within))
    bench.always("turns", "a body ends a turn at its last command, and is left after as many turns as were wanted",
                 dut.closes == (ends_turn | dut.step & dut.start & dut.closes), ~step | (dut.leaves == leaves))
    bench.always("fits", "a step fits if there is one and the limit is not less than it",
                 dut.fits == ((dut.left != 0) & (dut.count <= dut.limit)))

    # The position after each step.
    was = {name: bench.before(value, name) for name, value in {
        "step": step & ~dut.push, "again": ends_turn & ~leaves, "next": dut.place + dut.count,
        "begin": _at(begins, depth), "push": push, "place": dut.place}.items()}
    bench.always("places", "the next position is the one behind the step, or the body's first one for another turn; "
                           "none is skipped or taken twice",
                 ~was["step"] | (dut.place == Mux(was["again"], was["begin"], was["next"])[:COUNT_BITS]),
                 ~was["push"] | (dut.place == was["place"]))
    bench.cover("nested", "an inner body's last turn ends, behind two, within a turn of the outer one",
                leaves & (depth == 2) & (turns[1] == 2) & bench.before(bench.before(
                    bench.before(ends_turn, "t1"), "t2"), "t3"))
    bench.cover("left behind", "a step leaves a body that had been repeated", leaves & (depth == 1)
                & (ends[1] == dut.place + 1)
                & bench.before(bench.before(ends_turn & ~leaves, "u1"), "u2"))


def _at(values: list[Signal], index: Value) -> Value:
    found: Value = values[0]
    for i, value in enumerate(values[1:], 1):
        found = Mux(index == i, value, found)
    return found
