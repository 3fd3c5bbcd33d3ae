"""Importance of positions: shadow sums, their commit, and keys made of them."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, select_layout
from gemmule.hw.select_memory import ENTRY_BITS, GroupMemory, bank_rows, in_run
from gemmule.hw.select_route import KEYED_BITS
from gemmule.hw.select_sequencer import flag, is_op, token_layout
from gemmule.isa import SelectFlag, SOp
from gemmule.numerics.select import KEY_BITS

__all__ = ["Importance"]

WORD_BITS = 32
KEY_MAX = (1 << KEY_BITS) - 1


class Importance(wiring.Component):
    """Shadow and committed importance, banked by lane; one adder with saturation a bank serves both.

    All groups stand in the order of the banks of the command's positions ``first ..``. Latency: memories are read in
    stage 2, sums and keys are made in stage 3, sums written in stage 4. One group a cycle; IMPORTANCE reads the
    shadow with a column group's first row and writes it after the last one.

    Members
    -------
    held, begin: In
        Command in work, and its first cycle.
    token_2, token_3, token_4: In(token_layout)
        The token as many cycles after its step.
    operands: In(array over banks)
        16-bit values of ``token_3``.
    keyed: Out(array over banks)
        Keys with ids of ``token_3`` (KEYS).
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lanes = config.dim
        self.committed = GroupMemory(lanes=lanes, entries=config.select_keys, width=WORD_BITS)
        self.shadow = GroupMemory(lanes=lanes, entries=config.select_keys, width=WORD_BITS)
        super().__init__({
            "held": In(select_layout(config)), "begin": In(1),
            **{f"token_{k}": In(token_layout(config)) for k in (2, 3, 4)},
            "operands": In(data.ArrayLayout(16, lanes)), "keyed": Out(data.ArrayLayout(KEYED_BITS, lanes)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.committed, m.submodules.shadow = committed, shadow = self.committed, self.shadow
        lanes, held = self.config.dim, self.held
        commit, clear = is_op(held, SOp.COMMIT), flag(held, SelectFlag.CLEAR)

        # Stage 2: the group's positions.
        at = [Signal(ENTRY_BITS, name=f"at_{k}") for k in range(2, 5)]
        m.d.sync += [at[1].eq(at[0]), at[2].eq(at[1])]
        with m.If(self.begin):
            m.d.sync += at[0].eq(held.first)
        with m.Elif(self.token_2.valid & self.token_2.final):
            m.d.sync += at[0].eq(at[0] + lanes)
        for memory in (committed, shadow):
            m.d.comb += [memory.r_en.eq(self.token_2.valid & self.token_2.first), memory.r_entry.eq(at[0])]

        # Stage 3: sums that stop at the largest value.
        sums = Signal(data.ArrayLayout(WORD_BITS, lanes))
        for b in range(lanes):
            total = Signal(WORD_BITS + 1, name=f"total_{b}")
            m.d.comb += total.eq(
                Mux(self.token_3.first, shadow.r_data[b], sums[b])
                + Mux(commit, committed.r_data[b], self.operands[b]))
            with m.If(self.token_3.valid):
                m.d.sync += sums[b].eq(total[:WORD_BITS] | total[WORD_BITS].replicate(WORD_BITS))

        # Stage 4: writes.
        group = self.token_4.valid & self.token_4.final
        for memory in (committed, shadow):
            m.d.comb += [memory.w_entry.eq(at[2]), memory.w_count.eq(self.token_4.count)]
        m.d.comb += [
            committed.w_en.eq(group & commit & (clear | ~flag(held, SelectFlag.DISCARD))),
            committed.w_data.eq(Mux(clear, 0, sums)),
            shadow.w_en.eq(group & (commit | is_op(held, SOp.IMPORTANCE))),
            shadow.w_data.eq(Mux(commit, 0, sums)),
        ]

        # Stage 3 of KEYS: the first and last positions of the n are protected.
        head, tail = Signal(ENTRY_BITS), Signal(LENGTH_BITS)  # protected from the front; positions before the tail

        def group_part(length: Value) -> Value:
            return Mux(length < lanes, length[:exact_log2(lanes) + 1], lanes)

        with m.If(self.begin):
            behind = held.aux[8:]
            m.d.sync += [head.eq(held.aux[:8]), tail.eq(Mux(held.n > behind, held.n - behind, 0))]
        with m.Elif(self.token_3.valid):
            m.d.sync += [
                head.eq(Mux(head < lanes, 0, head - lanes)), tail.eq(Mux(tail < lanes, 0, tail - lanes))]
        protected = Signal(lanes)
        shift = Signal(5)
        m.d.comb += [
            protected.eq(Cat(in_run(at[1], group_part(head), lanes)) | ~Cat(in_run(at[1], group_part(tail), lanes))),
            shift.eq(Mux(held.shift[5], 31, held.shift)),
        ]
        rows = bank_rows(at[1], lanes)
        for b in range(lanes):
            key, shifted = Signal(KEY_BITS, name=f"key_{b}"), Signal(WORD_BITS, name=f"shifted_{b}")
            value = self.operands[b]
            m.d.comb += shifted.eq(committed.r_data[b] >> shift)
            with m.If(flag(held, SelectFlag.FROM_IMPORTANCE)):
                m.d.comb += key.eq(Mux(protected[b] | (shifted > KEY_MAX), KEY_MAX, shifted))
            with m.Else():
                m.d.comb += key.eq(Cat(Const(0, KEY_BITS - len(value)), value[:-1], ~value[-1]))
            m.d.comb += self.keyed[b].eq(Cat(key, Const(b, exact_log2(lanes)), rows[b]))
        return m
