"""Statistics contexts of the vector unit: what a row leaves behind, and what later commands make of it."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.serial import CODE_BITS
from gemmule.hw.vector_ops import is_op, row_write, token_layout, traits_of
from gemmule.isa import VOp
from gemmule.numerics import MAX_SHIFT

__all__ = ["MEAN_BITS", "SUM_BITS", "VectorContexts", "quotient_layout"]

STAGES = 8
SUM_BITS = 37
MEAN_BITS = 32
RECIPROCAL = data.StructLayout({"r": 17, "length": CODE_BITS})
ROOT = data.StructLayout({"r": 18, "h": signed(CODE_BITS)})


def quotient_layout() -> data.StructLayout:
    """What a divider leaves: a reciprocal or a root; ABSMAX: with the row's own scale for the next context."""
    return data.StructLayout({"r": 18, "code": CODE_BITS, "scale": RECIPROCAL})


class VectorContexts(wiring.Component):
    """One memory for each field of the contexts, and the way of a row's fields to the lanes.

    Reads are timed by the row's tokens: the reciprocal or root and the sum of a normalised row in stage 0 (softmax
    weights: 5), the maximum in stage 4 and, to go on from it, in stage 5, the softmax sum in stage 8. The reciprocals
    stand in two memories, for even and odd contexts, because ABSMAX writes two contexts at once.

    Members
    -------
    command: In(vector_layout)
    token: In(token_layout).array(STAGES + 1)
        Element k is stage k.
    found, kept, summed, divided: In(row_write)
        Writes of a row: maximum, softmax sum, mean, quotient.
    mean: Out(signed(32))
        Of the row in stage 2; 0 unless NORM_APPLY subtracts it.
    row_mult: Out(18), row_shift: Out(6)
        Multiplier of the row in stage 3 (8), its shift in stage 4 (9).
    maximum: Out(signed(24))
        Of the row in stage 5 (SOFTMAX_MAX: 6).
    total: Out(37)
        Softmax sum of the row in stage 9.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "command": In(vector_layout(config)), "token": In(token_layout(config)).array(STAGES + 1),
            "found": In(row_write(config, signed(24))), "kept": In(row_write(config, SUM_BITS)),
            "summed": In(row_write(config, signed(MEAN_BITS))), "divided": In(row_write(config, quotient_layout())),
            "mean": Out(signed(MEAN_BITS)), "row_mult": Out(18), "row_shift": Out(6), "maximum": Out(signed(24)),
            "total": Out(SUM_BITS),
        })

    def _address(self, row: Value, context: Value | None = None) -> Value:
        context = self.command.context if context is None else context
        return Cat(row[:exact_log2(self.config.stat_rows)], context[:exact_log2(self.config.stat_contexts)])

    def _memory(self, m: Module, name: str, shape: object, write: data.View) -> Memory:
        memory = Memory(shape=shape, depth=self.config.stat_contexts * self.config.stat_rows, init=[])
        m.submodules[name] = memory
        port = memory.write_port()
        m.d.comb += [port.en.eq(write.en), port.addr.eq(self._address(write.row)), port.data.eq(write.data)]
        return memory

    def elaborate(self, platform: object) -> Module:
        m = Module()
        token, command, traits = self.token, self.command, traits_of(self.command)
        norm, find = is_op(command, VOp.NORM_APPLY), is_op(command, VOp.SOFTMAX_MAX)
        exp = is_op(command, VOp.SOFTMAX_EXP)
        root_write = Signal(row_write(self.config, ROOT))
        m.d.comb += [
            root_write.en.eq(self.divided.en & is_op(command, VOp.NORM_STAT)),
            root_write.row.eq(self.divided.row),
            root_write.data.r.eq(self.divided.data.r), root_write.data.h.eq(self.divided.data.code.as_signed()),
        ]
        maximum = self._memory(m, "maxima", signed(24), self.found).read_port()
        total = self._memory(m, "sums", SUM_BITS, self.kept).read_port()
        mean = self._memory(m, "means", signed(MEAN_BITS), self.summed).read_port()
        root = self._memory(m, "roots", ROOT, root_write).read_port()
        at = [Signal(token_layout(self.config), name=f"at_{k}") for k in range(4)]
        m.d.comb += [of.eq(Mux(traits.weigh, late, early)) for of, early, late in zip(at, token[:4], token[5:])]
        reciprocal = self._reciprocals(m, at[0])
        m.d.comb += [
            maximum.en.eq(Mux(find, token[5].valid, token[4].valid)),
            maximum.addr.eq(self._address(Mux(find, token[5].row, token[4].row))),
            self.maximum.eq(maximum.data),
            total.en.eq(token[8].valid & exp), total.addr.eq(self._address(token[8].row)), self.total.eq(total.data),
            root.en.eq(token[0].valid & norm), root.addr.eq(self._address(token[0].row)),
            mean.en.eq(token[0].valid & norm), mean.addr.eq(self._address(token[0].row)),
        ]
        with m.If(token[1].valid):
            m.d.sync += self.mean.eq(Mux(norm & traits.mean, mean.data, 0))

        # Stage 1 (6): R * mult; the shift before the mantissa's own (22 + h, or shift + 3 + L).
        z, shift1 = Signal(33), Signal(signed(9))
        with m.If(at[1].valid):
            with m.If(norm):
                m.d.sync += [z.eq(root.data.r), shift1.eq(root.data.h + 22)]
            with m.Elif(traits.weigh & exp):  # 16 bits of p
                m.d.sync += [z.eq(1), shift1.eq(4)]
            with m.Elif(traits.weigh):
                m.d.sync += [
                    z.eq(Mux(reciprocal.length == 0, 0, reciprocal.r)),
                    shift1.eq(reciprocal.length + Mux(traits.wide, -1, 7)),
                ]
            with m.Else():
                m.d.sync += [z.eq(reciprocal.r * command.mult), shift1.eq(command.shift + reciprocal.length + 3)]
        # Stage 2 (7): rounded to a mantissa of 17 bits.
        large, left, shift2 = Signal(), Signal(signed(9)), Signal(6)
        exact = norm | traits.weigh
        m.d.comb += [large.eq(z >= 1 << 31), left.eq(shift1 - Mux(exact, 0, 15 + large))]
        with m.If(at[2].valid):
            with m.If(exact):
                m.d.sync += self.row_mult.eq(z)
            with m.Elif(large):
                m.d.sync += self.row_mult.eq((z + (1 << 15)) >> 16)
            with m.Else():
                m.d.sync += self.row_mult.eq((z + (1 << 14)) >> 15)
            m.d.sync += shift2.eq(Mux(left < 0, 0, Mux(left > MAX_SHIFT, MAX_SHIFT, left)))
        with m.If(at[3].valid):
            m.d.sync += self.row_shift.eq(shift2)
        return m

    def _reciprocals(self, m: Module, token: data.View) -> data.View:
        """Reciprocals of even and odd contexts; returns that of the row in ``token``, one cycle later."""
        config, command, write = self.config, self.command, self.divided
        banks = min(2, config.stat_contexts)
        context, bank_of = Signal(4), Signal()
        m.d.comb += [context.eq(command.context), bank_of.eq(context[0] if banks == 2 else 0)]
        row_bits, context_bits = exact_log2(config.stat_rows), exact_log2(config.stat_contexts // banks)
        absmax = is_op(command, VOp.ABSMAX)
        out = Signal(RECIPROCAL)
        for i in range(banks):
            memory = Memory(shape=RECIPROCAL, depth=config.stat_contexts * config.stat_rows // banks, init=[])
            m.submodules[f"reciprocals_{i}"] = memory
            port, read, upper = memory.write_port(), memory.read_port(), Signal(4, name=f"upper_{i}")
            own = bank_of == i
            m.d.comb += [
                upper.eq(Mux(own, context, context + 1) >> (banks - 1)),
                port.en.eq(write.en & Mux(own, ~is_op(command, VOp.NORM_STAT), absmax)),
                port.addr.eq(Cat(write.row[:row_bits], upper[:context_bits])),
                port.data.eq(write.data.scale),
                read.en.eq(token.valid),
                read.addr.eq(Cat(token.row[:row_bits], upper[:context_bits])),
            ]
            with m.If(own):
                m.d.comb += [
                    port.data.r.eq(write.data.r), port.data.length.eq(write.data.code), out.eq(read.data)]
        return out
