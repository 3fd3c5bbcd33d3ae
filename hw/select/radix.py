"""Radix selection: the k-th largest key in six counting passes, then the filter that compacts the survivors."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.interfaces import ENTRY_BITS, LENGTH_BITS
from gemmule.hw.select.group_memory import first_lanes, prefix_counts
from gemmule.hw.select.route import keyed_bits
from gemmule.numerics.select import KEY_BITS

__all__ = ["Radix", "wanted"]

DIGIT_BITS = 4
DIGITS = 1 << DIGIT_BITS
PASSES = KEY_BITS // DIGIT_BITS
DECIDE = 4  # cycles of a pass behind its last read
FILTER = 4  # cycles of the filter behind its last read


def wanted(n: Value, k: Value) -> Value:
    """How many keys are kept."""
    return Mux(k < n, k, n)


def popcount(bits: list[Value]) -> Value:
    """Number of set bits, as a balanced tree."""
    if len(bits) == 1:
        return bits[0]
    half = len(bits) // 2
    return popcount(bits[:half]) + popcount(bits[half:])


class Radix(wiring.Component):
    """Finds the k largest of n keys, lowest position first among equal ones, and says where they go.

    Radix-16 selection from the most significant digit over keys that do not move. A pass counts, among the keys that
    share the threshold's digits so far, those whose digit is at least d, for every d; the next digit is the largest d
    with at least ``need`` of them, and those above it are no longer needed. All six passes always run. A pass
    takes groups + 4 cycles, the filter groups + 4, without gaps; the first read is in the cycle after ``start``.
    With ``nonzero`` nothing is counted: one filter for the keys that are not 0, another one for those that are.

    Parameters
    ----------
    lanes, entries, index_bits: int
        Keys a cycle, keys of the memory, and bits of an id.

    Members
    -------
    start, n, k, nonzero: In
        n from 1 to ``entries``; k from 1, limited to n.
    r_en, r_entry: Out
        Read a group of keys, which are at ``keys`` in the next cycle.
    keys: In(array over lanes)
        Keys with their ids.
    valid: Out(1)
        The group at ``filtered``, which was at ``keys`` two cycles ago: ``count`` lanes survive, those in ``keep``.
    filtered: Out(array over lanes)
    count: Out
    keep: Out(lanes)
    mark: Out(1)
        ``keep`` says which of the group's keys survive, not which of them are 0.
    finish: Out(1)
        Last cycle; survivors taken in a cycle can be written in the next one.
    """

    def __init__(self, *, lanes: int, entries: int, index_bits: int) -> None:
        self.lanes, self.entries = lanes, entries
        keyed = data.ArrayLayout(keyed_bits(index_bits), lanes)
        super().__init__({
            "start": In(1), "n": In(LENGTH_BITS), "k": In(LENGTH_BITS), "nonzero": In(1),
            "r_en": Out(1), "r_entry": Out(ENTRY_BITS), "keys": In(keyed),
            "valid": Out(1), "filtered": Out(keyed), "count": Out(range(lanes + 1)), "keep": Out(lanes),
            "mark": Out(1), "finish": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, many = self.lanes, range(self.entries + 1)

        # Passes: reads of all groups, then the cycles until the digit is known.
        total, left = Signal(many), Signal(many)
        reading, gap, step = Signal(), Signal(range(max(DECIDE, FILTER) + 1)), Signal(range(PASSES + 2))
        filtering, group_last, nonzero = Signal(), Signal(), Signal()
        m.d.comb += [
            filtering.eq(step >= PASSES),
            group_last.eq(left <= lanes),
            self.r_en.eq(reading),
            self.finish.eq((step == PASSES + nonzero) & (gap == 1)),
        ]
        with m.If(reading):
            m.d.sync += [self.r_entry.eq(self.r_entry + lanes), left.eq(left - lanes)]
            with m.If(group_last):
                m.d.sync += [reading.eq(0), gap.eq(Mux(filtering, FILTER, DECIDE))]
        with m.If(gap != 0):
            m.d.sync += gap.eq(gap - 1)
            with m.If((gap == 1) & ~self.finish):
                m.d.sync += [reading.eq(1), self.r_entry.eq(0), left.eq(total), step.eq(step + 1)]
        with m.If(self.start):
            m.d.sync += [
                reading.eq(1), self.r_entry.eq(0), left.eq(self.n), total.eq(self.n), nonzero.eq(self.nonzero),
                step.eq(Mux(self.nonzero, PASSES, 0)),
            ]

        # Stage 1: keys are there. Pass: do they share the digits known so far, and which one is next?
        level = Signal(range(PASSES + 2))  # digits known; the last pass's becomes known as this steps
        unknown, next_digit = Signal(PASSES), Signal(PASSES)  # digits not known yet, and the first of them
        within = Signal(lanes)  # lanes inside n
        seen = [Signal(name=f"seen_{i}") for i in range(1, 4)]
        final = [Signal(name=f"final_{i}") for i in range(1, 7)]
        threshold = [Signal(DIGIT_BITS, name=f"threshold_{i}") for i in range(PASSES)]  # most significant first
        m.d.sync += [
            level.eq(step), unknown.eq(Cat(step <= i for i in range(PASSES))),
            next_digit.eq(Cat(step == i for i in range(PASSES))), within.eq(first_lanes(left, lanes)),
            Cat(seen).eq(Cat(reading, seen)),
            Cat(final).eq(Cat(reading & group_last & ~filtering, final)),
        ]
        alike, digits = Signal(lanes), Signal(data.ArrayLayout(DIGIT_BITS, lanes))
        same, keys = Signal(lanes), [keyed[:KEY_BITS] for keyed in self.keys]
        for lane in range(lanes):
            parts = [keys[lane][KEY_BITS - DIGIT_BITS * (i + 1):][:DIGIT_BITS] for i in range(PASSES)]
            known = Cat((parts[i] == threshold[i]) | unknown[i] for i in range(PASSES))
            m.d.comb += same[lane].eq(within[lane] & known.all())
            m.d.sync += [
                alike[lane].eq(same[lane]),
                digits[lane].eq(reduce(or_, (Mux(next_digit[i], parts[i], 0) for i in range(PASSES)))),
            ]
        # Stage 2: keys of this group per digit or above. Stage 3: of the pass.
        groups = [Signal(range(lanes + 1), name=f"group_{d}") for d in range(1, DIGITS)]
        totals = [Signal(many, name=f"total_{d}") for d in range(1, DIGITS)]
        begun = Signal()  # the first group comes to stage 3 later than that
        m.d.sync += begun.eq(self.start)
        for d in range(1, DIGITS):
            m.d.sync += groups[d - 1].eq(popcount([alike[lane] & (digits[lane] >= d) for lane in range(lanes)]))
            with m.If(begun | final[4]):
                m.d.sync += totals[d - 1].eq(0)
            with m.Elif(seen[2]):
                m.d.sync += totals[d - 1].eq(totals[d - 1] + groups[d - 1])
        # Stage 4: for which digits that is enough. Stage 5: the digit.
        need, above, digit = Signal(many), Signal(many), Signal(DIGIT_BITS)
        enough = Signal(DIGITS)  # falls once as digits rise, because the counts do: no priorities
        m.d.sync += enough.eq(Cat(1, (count >= need for count in totals)))
        last = [enough[d] & ~enough[d + 1] for d in range(DIGITS - 1)]
        m.d.comb += [
            digit.eq(reduce(or_, (Mux(is_last, d, 0) for d, is_last in enumerate([*last, enough[-1]])))),
            above.eq(reduce(or_, (Mux(is_last, count, 0) for is_last, count in zip(last, totals, strict=True)))),
        ]
        taken = Signal(many)  # leaves ``need`` in stage 6: the next pass, or the filter, asks later
        with m.If(final[4]):
            m.d.sync += taken.eq(above)
            with m.Switch(level):
                for i in range(PASSES):
                    with m.Case(i):
                        m.d.sync += threshold[i].eq(digit)
        with m.If(final[5]):
            m.d.sync += need.eq(need - taken)
        with m.If(self.start):
            m.d.sync += need.eq(Mux(self.nonzero, 0, wanted(self.n, self.k)))
            with m.If(self.nonzero):
                m.d.sync += [digits_of.eq(0) for digits_of in threshold]

        # Filter, where all digits are known. Stage 1: keys above the threshold, and those equal to it.
        value = Cat(reversed(threshold))
        greater, greater_3, alike_3 = Signal(lanes), Signal(lanes), Signal(lanes)
        others = level == PASSES + 1  # the second filter, for keys of 0
        m.d.sync += greater.eq(Cat(within[i] & (keys[i] > value) & ~others for i in range(lanes)))
        # Stage 2: how many.
        before = [Const(0, 1), *(Signal(range(i + 1), name=f"before_{i}") for i in range(1, lanes + 1))]
        above_3, keyed_2 = Signal(range(lanes + 1)), Signal.like(self.keys)
        m.d.sync += [
            *(to.eq(count) for to, count in zip(before[1:], prefix_counts(m, list(alike), "alike")[1:])),
            above_3.eq(popcount(list(greater))), greater_3.eq(greater), alike_3.eq(alike),
            keyed_2.eq(self.keys), self.filtered.eq(keyed_2),
        ]
        # Stage 3: the first equal ones, as many as needed.
        few, wanted_places = Signal(range(lanes + 1)), Signal(lanes)
        m.d.comb += [
            self.valid.eq(seen[2] & (level >= PASSES)), self.mark.eq(seen[2] & (level == PASSES)),
            wanted_places.eq(first_lanes(need, lanes)),
            self.keep.eq(greater_3 | Cat(alike_3[i] & Array(wanted_places)[before[i]] for i in range(lanes))),
            few.eq(Mux(before[lanes] < need, before[lanes], need)),
            self.count.eq(above_3 + few),
        ]
        with m.If(self.valid):
            m.d.sync += need.eq(need - few)
        with m.If((gap == 1) & filtering & ~self.finish):
            m.d.sync += need.eq(total)
        return m
