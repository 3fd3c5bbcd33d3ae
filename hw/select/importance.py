"""Importance of positions: shadow sums, their commit, and keys made of them."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ENTRY_BITS, LENGTH_BITS, select_layout
from gemmule.hw.select.group_memory import GroupMemory, bank_rows, first_lanes, rotate_lanes
from gemmule.hw.select.route import keyed_bits
from gemmule.hw.select.sequencer import flag, is_op, token_layout
from gemmule.isa import CommitFlag, KeysFlag, SOp
from gemmule.numerics.select import KEY_BITS, MAX_IMPORTANCE_SHIFT

__all__ = ["Importance"]

WORD_BITS = 32
WORD_MAX = (1 << WORD_BITS) - 1
KEY_MAX = (1 << KEY_BITS) - 1
HALF = 2  # bit of the shift behind which its register stands


class Importance(wiring.Component):
    """Shadow and committed importance, banked by lane; one adder with saturation a bank serves both.

    All groups stand in the order of the banks of the command's positions ``first ..``. Latency: memories are read in
    stage 2, by KEYS in stage 1, sums and keys are made in stage 3, sums written in stage 4. One group a cycle;
    IMPORTANCE reads the shadow with a column group's first row and writes it after the last one.

    Members
    -------
    held, begin: In
        Command in work, and its first cycle.
    token_1, token_2, token_3, token_4: In(token_layout)
        The token as many cycles after its step.
    operands: In(array over banks)
        16-bit values of ``token_3``.
    keys_en, keys_entry: Out
        Reads the keys of ``token_2`` (COMMIT FROM_KEYS), which are at ``keys`` in the next cycle.
    keys: In(array over banks)
    keyed: Out(array over banks)
        Keys with ids of ``token_3`` (KEYS).
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lanes = config.dim
        # The bit above a sum says that it counts as 0: cheaper than zeros on all bits that are written.
        self.committed = GroupMemory(lanes=lanes, entries=config.select_keys, width=WORD_BITS + 1)
        self.shadow = GroupMemory(lanes=lanes, entries=config.select_keys, width=WORD_BITS + 1)
        super().__init__({
            "held": In(select_layout(config)), "begin": In(1),
            **{f"token_{k}": In(token_layout(config)) for k in (1, 2, 3, 4)},
            "operands": In(data.ArrayLayout(16, lanes)),
            "keys_en": Out(1), "keys_entry": Out(ENTRY_BITS), "keys": In(data.ArrayLayout(KEY_BITS, lanes)),
            "keyed": Out(data.ArrayLayout(keyed_bits(config.index_bits), lanes)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.committed, m.submodules.shadow = committed, shadow = self.committed, self.shadow
        lanes, held = self.config.dim, self.held
        keys, commit, clear, from_importance, from_keys, shift = (*(Signal() for _ in range(5)), Signal(5))
        m.d.comb += keys.eq(is_op(held, SOp.KEYS))
        m.d.sync += [
            commit.eq(is_op(held, SOp.COMMIT)), clear.eq(flag(held, CommitFlag.CLEAR)),
            from_importance.eq(flag(held, KeysFlag.FROM_IMPORTANCE)),
            from_keys.eq(is_op(held, SOp.COMMIT) & flag(held, CommitFlag.FROM_KEYS)),
            shift.eq(Mux(held.shift[5], MAX_IMPORTANCE_SHIFT, held.shift)),
        ]

        # Stage 2, of KEYS stage 1: the group's positions.
        at = [Signal(self.config.index_bits, name=f"at_{k}") for k in range(3)]
        m.d.sync += [at[1].eq(at[0]), at[2].eq(at[1])]
        first, final = Signal(), Signal()
        m.d.comb += [
            first.eq(Mux(keys, self.token_1.valid, self.token_2.valid & self.token_2.first)),
            final.eq(Mux(keys, self.token_1.valid, self.token_2.valid & self.token_2.final)),
        ]
        with m.If(self.begin):
            m.d.sync += at[0].eq(held.first)
        with m.Elif(final):
            m.d.sync += at[0].eq(at[0] + lanes)
        for memory in (committed, shadow):
            m.d.comb += [memory.r_en.eq(first), memory.r_entry.eq(at[0])]
        m.d.comb += [self.keys_en.eq(first), self.keys_entry.eq(at[0])]

        # Stage 3: sums that stop at the largest value.
        # A flip-flop that starts at 1 and is not reset has its set input free for the carry.
        sums = Signal(data.ArrayLayout(WORD_BITS, lanes), init=[WORD_MAX] * lanes, reset_less=True)
        for b in range(lanes):
            old, new = shadow.r_data[b], committed.r_data[b]
            total = Signal(WORD_BITS + 1, name=f"total_{b}")
            m.d.comb += total.eq(
                Mux(self.token_3.first, Mux(old[WORD_BITS] | from_keys, 0, old[:WORD_BITS]), sums[b])
                + Mux(from_keys, self.keys[b], Mux(commit, Mux(new[WORD_BITS], 0, new[:WORD_BITS]), self.operands[b])))
            with m.If(self.token_3.valid):
                m.d.sync += sums[b].eq(Mux(total[WORD_BITS], WORD_MAX, total))

        # Stage 4: writes.
        group = self.token_4.valid & self.token_4.final
        for memory in (committed, shadow):
            m.d.comb += [memory.w_entry.eq(at[2]), memory.w_count.eq(self.token_4.count)]
        m.d.comb += [
            committed.w_en.eq(group & commit & (clear | ~flag(held, CommitFlag.DISCARD))),
            shadow.w_en.eq(group & (commit | is_op(held, SOp.IMPORTANCE))),
        ]
        for b in range(lanes):
            m.d.comb += [committed.w_data[b].eq(Cat(sums[b], clear)), shadow.w_data[b].eq(Cat(sums[b], commit))]

        # Stage 2 of KEYS: the first and last positions of the n are protected.
        head, tail = Signal(8), Signal(LENGTH_BITS)  # protected from the front; positions before the tail
        before = Signal(LENGTH_BITS + 1)
        m.d.comb += before.eq(held.n - held.aux[8:])
        with m.If(self.begin):
            m.d.sync += [head.eq(held.aux[:8]), tail.eq(Mux(before[LENGTH_BITS], 0, before))]
        with m.Elif(self.token_2.valid):
            m.d.sync += [
                head.eq(Mux(head < lanes, 0, head - lanes)), tail.eq(Mux(tail < lanes, 0, tail - lanes))]
        protected = Signal(lanes)
        m.d.sync += protected.eq(rotate_lanes(
            m, first_lanes(head, lanes) | ~first_lanes(tail, lanes), 1, at[1][:exact_log2(lanes)], "protected"))

        # KEYS shifts by 16, 8 and 4 in stage 2, by 2 and 1 in stage 3: the largest first leaves fewest bits to others.
        rows = bank_rows(at[2], lanes)
        for b in range(lanes):
            key, value = Signal(KEY_BITS, name=f"key_{b}"), self.operands[b]
            shifted = committed.r_data[b][:WORD_BITS]
            for i in reversed(range(len(shift))):
                moved = Signal(WORD_BITS, name=f"moved_{b}_{i}")
                domain = m.d.sync if i == HALF else m.d.comb
                after = Mux(shift[i], shifted >> (1 << i), shifted)
                if i == HALF:
                    after = Mux(committed.r_data[b][WORD_BITS], 0, after)
                domain += moved.eq(after)
                shifted = moved
            with m.If(from_importance):
                m.d.comb += key.eq(Mux(protected[b] | shifted[KEY_BITS:].any(), KEY_MAX, shifted))
            with m.Else():
                m.d.comb += key.eq(Cat(Const(0, KEY_BITS - len(value)), value[:-1], ~value[-1]))
            m.d.comb += self.keyed[b].eq(Cat(key, Const(b, exact_log2(lanes)), rows[b]))
        return m
