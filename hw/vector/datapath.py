"""Datapath of the vector unit: lanes, their tables, the write stream."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ROW_BITS, vector_layout
from gemmule.hw.vector.lane import STAGES, VectorLane
from gemmule.hw.vector.ops import (
    WORDS,
    capture_layout,
    is_op,
    lane_control_layout,
    part_bits,
    token_layout,
    traits_layout,
    traits_of,
)
from gemmule.hw.vector.round import limited
from gemmule.hw.vector.word import STEP_BITS
from gemmule.isa import VOp
from gemmule.numerics import BYTE_TABLE_ENTRIES

__all__ = ["WRITE", "VectorDatapath"]

WRITE = 9
"""Stage of the write stream; late results: the lane's last stage + 1."""


class VectorDatapath(wiring.Component):
    """``config.lanes`` lanes in lock step (see :class:`VectorLane` for the stages), which take one part of a row.

    Throughput: one token a cycle. Latency: the result is on ``w`` 9 cycles (late results: 12) after the row's last
    read, the low plane of a result of 16 bits one cycle earlier.

    Members
    -------
    start: In(1), next: In(vector_layout)
        With ``start`` the next command, which is decoded for the lanes then.
    command: In(vector_layout), traits: In(traits_layout)
        Held from ``begin``, the next cycle, until the last write.
    begin: In(1)
    capture: In(capture_layout)
        One cycle after the read, with its data.
    token: In(token_layout).array(STAGES)
        Element k - 1 is stage k.
    r0_data, r1_data, acc_data: In
        Read data.
    mean: In(signed(32)), row_mult: In(signed(18)), row_shift: In(6), maximum: In(signed(24))
        Of the rows in stages 2, 3 and 3 (softmax weights: 8) and 5, from the contexts.
    plain, factor, score, power: Out
        Per lane, seen in stages 3, 3, 5 and 8: int16 operands, squares, softmax scores or magnitudes - 1 or rescaled
        accumulators, exponentials.
    w_en, w_row, w_part, w_data: Out
        Write stream of parts of rows; lanes outside the token's mask are 0.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        dim, lanes = config.dim, config.lanes
        super().__init__({
            "start": In(1), "next": In(vector_layout(config)),
            "command": In(vector_layout(config)), "traits": In(traits_layout()),
            "begin": In(1), "capture": In(capture_layout(config)),
            "token": In(token_layout(config)).array(STAGES),
            "r0_data": In(8 * dim), "r1_data": In(8 * dim), "acc_data": In(32 * dim),
            "mean": In(signed(32)), "row_mult": In(signed(18)), "row_shift": In(6), "maximum": In(signed(24)),
            "plain": Out(signed(16)).array(lanes), "factor": Out(signed(33)).array(lanes),
            "score": Out(signed(32)).array(lanes), "power": Out(21).array(lanes),
            "w_en": Out(1), "w_row": Out(ROW_BITS), "w_part": Out(part_bits(config)), "w_data": Out(8 * lanes),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, traits = self.config.lanes, self.traits
        stage = [None, *self.token]

        op, decoded = Signal(lane_control_layout()), self._decode(m)
        with m.If(self.start):
            m.d.sync += op.eq(decoded)
        low, high, words_end = self._tables(m, op.lookup | op.interpolate)

        weigh_mult = Signal(17)
        m.d.comb += weigh_mult.eq(Mux(op.weigh, self.row_mult, 0))
        r0, r1, acc = (self._part(m, name, row) for name, row in (
            ("r0", self.r0_data), ("r1", self.r1_data), ("acc", self.acc_data)))
        lanes = [VectorLane(config=self.config, odd=bool(i % 2)) for i in range(count)]
        for i, lane in enumerate(lanes):
            m.submodules[f"lane_{i}"] = lane
            m.d.comb += [
                lane.control.eq(op), lane.begin.eq(self.begin), lane.capture.eq(self.capture),
                lane.r0.eq(r0.word_select(i, 8)),
                lane.r1.eq(r1.word_select(i, 8)),
                lane.acc.eq(acc.word_select(i, 32)),
                lane.valid.eq(Cat(token.valid for token in self.token)),
                lane.visible.eq(Cat(token.mask[i] for token in self.token)),
                lane.mean.eq(self.mean),
                lane.row_mult.eq(self.row_mult),
                lane.weigh_mult.eq(weigh_mult),
                lane.row_shift.eq(self.row_shift),
                lane.maximum.eq(self.maximum),
                lane.partner.eq(lanes[i ^ 1].x),
                lane.words_end.eq(words_end),
                self.plain[i].eq(lane.plain),
                self.factor[i].eq(lane.factor),
                self.score[i].eq(lane.score),
                self.power[i].eq(lane.power),
                self.w_data.word_select(i, 8).eq(lane.result),
            ]
            self._read(m, op, lane, low, high)

        with m.If(op.late):
            self._write(m, stage[10], stage[11], op.wide, 1)
        with m.Else():
            self._write(m, stage[7], stage[8], op.wide, traits.writes)
        return m

    def _part(self, m: Module, name: str, row: Value) -> Value:
        """What the lanes take of a row that was read."""
        if self.config.vector_passes == 1:
            return row
        part = Signal(len(row) // self.config.vector_passes, name=f"{name}_part")
        m.d.comb += part.eq(row.word_select(self.capture.part, len(part)))
        return part

    def _decode(self, m: Module) -> data.View:
        """Control of the lanes from the next command."""
        command, traits, op = self.next, traits_of(self.next), Signal(lane_control_layout())
        norm, absmax, add = (is_op(command, o) for o in (VOp.NORM_APPLY, VOp.ABSMAX, VOp.ADD))
        exp = is_op(command, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
        stored = is_op(command, VOp.REQUANT, VOp.PRODUCT, VOp.ADD) & ~traits.interpolate
        lower, upper = command.aux[:8].as_signed(), command.aux[8:].as_signed()
        m.d.comb += [getattr(op, name).eq(getattr(traits, name)) for name in (
            "planes", "rotate", "residual", "by_row", "relu", "wide", "lookup", "interpolate", "weigh", "late")]
        m.d.comb += [
            op.product.eq(is_op(command, VOp.PRODUCT)), op.pair.eq(traits.pair & ~traits.planes),
            op.add.eq(add),
            op.square.eq(is_op(command, VOp.NORM_STAT)),
            op.norm.eq(norm), op.by_n.eq(norm | add), op.n.eq(Mux(add, command.mult, command.n)),
            op.exp.eq(exp),
            op.absmax.eq(absmax), op.full.eq(absmax | traits.rescale | traits.rescales),
            op.store.eq(stored),
            op.mult.eq(Mux(absmax | add, 1, command.mult)),
            op.shift.eq(Mux(absmax, 0, limited(command.shift))),
        ]
        if self.config.comparison_modes:
            m.d.comb += [op.gelu.eq(traits.gelu), op.kind.eq(Mux(exp, command.period, 0))]
        # A residual that is not rescaled is multiplied by 1; interpolation rounds to the table's step.
        with m.If(traits.residual & ~traits.rescale):
            m.d.comb += [op.aux.eq(1), op.shift2.eq(0)]
        with m.Else():
            m.d.comb += [
                op.aux.eq(Mux(add | traits.rescale, command.aux, 0)),
                op.shift2.eq(Mux(traits.interpolate, STEP_BITS, limited(Mux(norm, command.shift, command.shift2)))),
            ]
        with m.If(traits.clamp):  # limits the wrong way round: the upper one wins
            m.d.comb += [op.low.eq(Mux(lower > upper, upper, lower)), op.high.eq(upper)]
        with m.Else():
            m.d.comb += [op.low.eq(-(1 << 7)), op.high.eq((1 << 7) - 1)]
        return op

    def _write(self, m: Module, low: data.View, high: data.View, wide: Value, writes: Value) -> None:
        """A row goes out from stage ``high``, the low plane of one of 16 bits from stage ``low``, one before."""
        m.d.sync += self.w_en.eq((high.valid & writes) | (low.valid & wide))
        with m.If(low.valid & wide):
            m.d.sync += [self.w_row.eq(low.dst), self.w_part.eq(low.part)]
        with m.Elif(high.valid):
            m.d.sync += [
                self.w_row.eq(high.dst + Mux(wide, self.command.dst_stride >> 1, 0)), self.w_part.eq(high.part)]

    def _tables(self, m: Module, reads: Value) -> tuple[Memory, Memory, Signal]:
        """Memories of the tables, an entry a word, and the word table's last entry.

        The first one holds the low bytes of 512 words and behind them the byte table, the second the high bytes. A
        scratchpad row fills DIM entries side by side: synthesis makes of their ports one that is DIM bytes wide, and
        reads bytes. It must see that no table is filled while one is read (``reads``), or it adds logic for that case.
        """
        dim, capture, fills = self.config.dim, self.capture, Signal(3)
        end, depth, lane_bits = Signal(16), WORDS // dim, exact_log2(dim)
        row, of_bytes = self.token[0].row, Signal()
        memories = []
        m.d.comb += [
            fills.eq(Mux(reads, 0, Cat(capture.words_low, capture.words_high, capture.table))), of_bytes.eq(fills[2])]
        for i, name in enumerate(("low", "high")):
            entries, past, en = WORDS + BYTE_TABLE_ENTRIES if i == 0 else WORDS, row[exact_log2(depth)], Signal()
            m.submodules[f"table_{name}"] = memory = Memory(shape=unsigned(8), depth=entries, init=[])
            at = row[:exact_log2(depth)] if i else Cat(row[:exact_log2(depth)], of_bytes)
            m.d.comb += en.eq((fills[i] & ~past) | (of_bytes if i == 0 else 0))
            for lane in range(dim):
                fill = memory.write_port()
                m.d.comb += [
                    fill.en.eq(en), fill.addr.eq(Cat(Const(lane, lane_bits), at)),
                    fill.data.eq(self.r0_data.word_select(lane, 8))]
            with m.If(fills[i] & past):
                m.d.sync += end.word_select(i, 8).eq(self.r0_data[:8])
            memories.append(memory)
        return memories[0], memories[1], end

    def _read(self, m: Module, op: data.View, lane: VectorLane, low: Memory, high: Memory) -> None:
        """A lane's reads: bytes in stage 6, words in stages 6 and 7.

        From a register with an enable synthesis makes a read port and finds out what it excludes.
        """
        valid6, valid7 = self.token[5].valid, self.token[6].valid
        of_low, of_high = low.read_port(domain="comb"), high.read_port(domain="comb")
        m.d.comb += [of_low.addr.eq(lane.place), of_high.addr.eq(lane.place.entry)]
        with m.If((op.lookup & valid6) | (op.interpolate & (valid6 | valid7))):
            m.d.sync += lane.low.eq(of_low.data)
        with m.If(op.interpolate & (valid6 | valid7)):
            m.d.sync += lane.high.eq(of_high.data)
