"""Datapath of the vector unit: DIM lanes, the byte table, the write stream."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import ROW_BITS, vector_layout
from gemmule.hw.vector_lane import STAGES, VectorLane
from gemmule.hw.vector_ops import (
    TABLE_BYTES,
    WORDS,
    capture_layout,
    is_op,
    lane_control_layout,
    token_layout,
    traits_of,
)
from gemmule.isa import VOp
from gemmule.numerics import MAX_SHIFT

__all__ = ["WRITE", "VectorDatapath"]

WRITE = 9
"""Stage of the write stream; late results: the lane's last stage + 1."""


def limited(shift: Value) -> Value:
    return Mux(shift > MAX_SHIFT, MAX_SHIFT, shift)


class VectorDatapath(wiring.Component):
    """DIM lanes in lock step (see :class:`VectorLane` for the stages).

    Throughput: one token a cycle. Latency: the result is on ``w`` 9 cycles (late results: 12) after the row's last
    read, the low plane of a result of 16 bits one cycle earlier.

    Members
    -------
    command: In(vector_layout)
        Held from ``begin`` until the last write.
    begin: In(1)
    capture: In(capture_layout)
        One cycle after the read, with its data.
    token: In(token_layout).array(STAGES)
        Element k - 1 is stage k.
    r0_data, r1_data, acc_data: In
        Read data.
    mean: In(signed(32)), row_mult: In(18), row_shift: In(6), maximum: In(signed(24))
        Of the rows in stages 2, 3 (softmax weights: 8), 4 (9) and 5, from the contexts.
    plain, factor, score, power: Out
        Per lane, seen in stages 3, 3, 5 and 8: int16 operands, squares, softmax scores or magnitudes - 1, exponentials.
    w_en, w_row, w_data: Out
        Write stream; lanes outside the token's mask are 0.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        dim = config.dim
        super().__init__({
            "command": In(vector_layout(config)), "begin": In(1), "capture": In(capture_layout()),
            "token": In(token_layout(config)).array(STAGES),
            "r0_data": In(8 * dim), "r1_data": In(8 * dim), "acc_data": In(32 * dim),
            "mean": In(signed(32)), "row_mult": In(18), "row_shift": In(6), "maximum": In(signed(24)),
            "plain": Out(signed(16)).array(dim), "factor": Out(signed(33)).array(dim),
            "score": Out(signed(32)).array(dim), "power": Out(21).array(dim),
            "w_en": Out(1), "w_row": Out(ROW_BITS), "w_data": Out(8 * dim),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, dim = self.command, self.config.dim
        stage = [None, *self.token]

        op, traits = Signal(lane_control_layout()), traits_of(command)
        norm, absmax = is_op(command, VOp.NORM_APPLY), is_op(command, VOp.ABSMAX)
        lower, upper = command.aux[:8].as_signed(), command.aux[8:].as_signed()
        m.d.comb += [getattr(op, name).eq(getattr(traits, name)) for name in (
            "planes", "pair", "rotate", "residual", "rescale", "by_row", "relu", "wide", "lookup", "interpolate",
            "weigh", "late")]
        m.d.comb += [
            op.product.eq(is_op(command, VOp.PRODUCT)),
            op.add.eq(is_op(command, VOp.ADD)),
            op.square.eq(is_op(command, VOp.NORM_STAT)),
            op.norm.eq(norm),
            op.exp.eq(is_op(command, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)),
            op.absmax.eq(absmax),
            op.mult.eq(Mux(absmax, 1, command.mult)),
            op.aux.eq(command.aux),
            op.shift.eq(Mux(absmax, 0, limited(command.shift))),
            op.shift2.eq(limited(Mux(norm, command.shift, command.shift2))),
            op.n.eq(command.n),
        ]
        with m.If(traits.wide):
            m.d.comb += [op.low.eq(-(1 << 15)), op.high.eq((1 << 15) - 1)]
        with m.Elif(traits.clamp):  # limits the wrong way round: the upper one wins
            m.d.comb += [op.low.eq(Mux(lower > upper, upper, lower)), op.high.eq(upper)]
        with m.Else():
            m.d.comb += [op.low.eq(-(1 << 7)), op.high.eq((1 << 7) - 1)]

        # Byte table: a scratchpad row is one word, every lane reads its own.
        m.submodules.table = table = Memory(shape=unsigned(8 * dim), depth=TABLE_BYTES // dim, init=[])
        fill = table.write_port()
        m.d.comb += [fill.en.eq(self.capture.table), fill.addr.eq(stage[1].row), fill.data.eq(self.r0_data)]
        words_low, words_high, words_end = self._word_table(m)

        lanes = [VectorLane(config=self.config, odd=bool(i % 2)) for i in range(dim)]
        for i, lane in enumerate(lanes):
            m.submodules[f"lane_{i}"] = lane
            word, low, high = table.read_port(), words_low.read_port(), words_high.read_port()
            m.d.comb += [
                lane.control.eq(op), lane.begin.eq(self.begin), lane.capture.eq(self.capture),
                lane.r0.eq(self.r0_data.word_select(i, 8)),
                lane.r1.eq(self.r1_data.word_select(i, 8)),
                lane.acc.eq(self.acc_data.word_select(i, 32)),
                lane.valid.eq(Cat(token.valid for token in self.token)),
                lane.visible.eq(Cat(token.mask[i] for token in self.token)),
                lane.mean.eq(self.mean),
                lane.row_mult.eq(self.row_mult),
                lane.row_shift.eq(self.row_shift),
                lane.maximum.eq(self.maximum),
                lane.partner.eq(lanes[i ^ 1].x),
                word.en.eq(stage[6].valid & op.lookup), word.addr.eq(lane.address), lane.word.eq(word.data),
                *(port.en.eq(op.interpolate & (stage[6].valid | stage[7].valid)) for port in (low, high)),
                low.addr.eq(lane.place), high.addr.eq(lane.place),
                lane.words_low.eq(low.data), lane.words_high.eq(high.data), lane.words_end.eq(words_end),
                self.plain[i].eq(lane.plain),
                self.factor[i].eq(lane.factor),
                self.score[i].eq(lane.score),
                self.power[i].eq(lane.power),
                self.w_data.word_select(i, 8).eq(lane.result),
            ]

        with m.If(op.late):
            self._write(m, stage[10], stage[11], op.wide, 1)
        with m.Else():
            self._write(m, stage[7], stage[8], op.wide, traits.writes)
        return m

    def _write(self, m: Module, low: data.View, high: data.View, wide: Value, writes: Value) -> None:
        """A row goes out from stage ``high``, the low plane of one of 16 bits from stage ``low``, one before."""
        m.d.sync += self.w_en.eq((high.valid & writes) | (low.valid & wide))
        with m.If(low.valid & wide):
            m.d.sync += self.w_row.eq(low.dst)
        with m.Elif(high.valid):
            m.d.sync += self.w_row.eq(high.dst + Mux(wide, self.command.dst_stride >> 1, 0))

    def _word_table(self, m: Module) -> tuple[Memory, Memory, Signal]:
        """Low and high bytes of the word table's first 512 entries, DIM a row, and its last entry."""
        dim, capture, row = self.config.dim, self.capture, self.token[0].row
        end = Signal(16)
        memories = []
        for i, (name, fills) in enumerate((("low", capture.words_low), ("high", capture.words_high))):
            memory = Memory(shape=unsigned(8 * dim), depth=WORDS // dim, init=[])
            m.submodules[f"words_{name}"] = memory
            fill, past = memory.write_port(), row == WORDS // dim
            m.d.comb += [fill.en.eq(fills & ~past), fill.addr.eq(row), fill.data.eq(self.r0_data)]
            with m.If(fills & past):
                m.d.sync += end.word_select(i, 8).eq(self.r0_data[:8])
            memories.append(memory)
        return memories[0], memories[1], end
