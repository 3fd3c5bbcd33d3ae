"""Statistics contexts of the vector unit: what a row leaves behind, and what later commands make of it."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.ops import row_write, token_layout, traits_layout
from gemmule.hw.vector.serial import CODE_BITS
from gemmule.numerics import MAX_SHIFT

__all__ = ["MEAN_BITS", "RISE_BITS", "SUM_BITS", "VectorContexts", "maximum_layout", "quotient_layout"]

STAGES = 8
SUM_BITS = 37
MEAN_BITS = 32
RISE_BITS = 6
RECIPROCAL = data.StructLayout({"r": 17, "length": CODE_BITS})
ROOT = data.StructLayout({"r": 18, "h": signed(CODE_BITS)})


def maximum_layout() -> data.StructLayout:
    """A row's maximum, and by how many octaves it rose when it was last found in whole ones."""
    return data.StructLayout({"value": signed(24), "rise": RISE_BITS})


def quotient_layout() -> data.StructLayout:
    """What a divider leaves: a reciprocal or a root; ABSMAX: with the row's own scale for the next context."""
    return data.StructLayout({"r": 18, "code": CODE_BITS, "scale": RECIPROCAL})


class VectorContexts(wiring.Component):
    """One memory for each field of the contexts, but for a maximum and its rise, and a row's fields' way to the lanes.

    Reads are timed by the row's tokens: the reciprocal or root and the sum of a normalised row in stage 0 (softmax
    weights: 5), the maximum in stage 4 (RESCALE: 0) and, to go on from it, in stage 7, the softmax sum in stage 7. The
    reciprocals stand in two memories, for even and odd contexts, because ABSMAX writes two contexts at once.

    Members
    -------
    command: In(vector_layout), traits: In(traits_layout)
    token: In(token_layout).array(STAGES + 1)
        Element k is stage k.
    found, kept, summed, divided: In(row_write)
        Writes of a row: maximum and rise, softmax sum, mean, quotient.
    mean: Out(signed(32))
        Of the row in stage 2; 0 unless NORM_APPLY subtracts it.
    row_mult: Out(signed(18)), row_shift: Out(6)
        Multiplier and shift of the row in stage 3 (8), the multiplier of NORM_APPLY negated. RESCALE: 1 and the rise.
    maximum: Out(maximum_layout)
        Of the row in stage 5 (SOFTMAX_MAX: 8).
    total: Out(37), rise: Out(6)
        Softmax sum of the row in stage 8 and its maximum's rise.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "command": In(vector_layout(config)), "traits": In(traits_layout()),
            "token": In(token_layout(config)).array(STAGES + 1),
            "found": In(row_write(config, maximum_layout())), "kept": In(row_write(config, SUM_BITS)),
            "summed": In(row_write(config, signed(MEAN_BITS))), "divided": In(row_write(config, quotient_layout())),
            "mean": Out(signed(MEAN_BITS)), "row_mult": Out(signed(18)), "row_shift": Out(6),
            "maximum": Out(maximum_layout()), "total": Out(SUM_BITS), "rise": Out(RISE_BITS),
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
        token, command, traits = self.token, self.command, self.traits
        norm, find = traits.norm_apply, traits.softmax_max
        exp, rescales = traits.softmax_exp, traits.rescales
        root_write = Signal(row_write(self.config, ROOT))
        m.d.comb += [
            root_write.en.eq(self.divided.en & traits.norm_stat),
            root_write.row.eq(self.divided.row),
            root_write.data.r.eq(self.divided.data.r), root_write.data.h.eq(self.divided.data.code.as_signed()),
        ]
        maximum = self._memory(m, "maxima", maximum_layout(), self.found).read_port()
        total = self._memory(m, "sums", SUM_BITS, self.kept).read_port()
        mean = self._memory(m, "means", signed(MEAN_BITS), self.summed).read_port()
        root = self._memory(m, "roots", ROOT, root_write).read_port()
        row = Mux(traits.weigh, token[5].row, token[0].row)
        valid = [Mux(traits.weigh, late.valid, early.valid) for early, late in zip(token[:3], token[5:])]
        reciprocal = self._reciprocals(m, valid[0], row)
        rises = [Signal(RISE_BITS, name=f"rise_{k}") for k in range(6, 9)]
        m.d.sync += [to.eq(of) for to, of in zip(rises, [maximum.data.rise, *rises])]
        m.d.comb += [
            maximum.en.eq(Mux(find, token[7].valid, Mux(rescales, token[0].valid, token[4].valid))),
            maximum.addr.eq(self._address(Mux(find, token[7].row, Mux(rescales, token[0].row, token[4].row)))),
            self.maximum.eq(maximum.data), self.rise.eq(rises[-1]),
            total.en.eq(token[7].valid & exp), total.addr.eq(self._address(token[7].row)), self.total.eq(total.data),
            root.en.eq(token[0].valid & norm), root.addr.eq(self._address(token[0].row)),
            mean.en.eq(token[0].valid & norm), mean.addr.eq(self._address(token[0].row)),
        ]
        with m.If(~(norm & traits.mean)):
            m.d.sync += self.mean.eq(0)
        with m.Elif(token[1].valid):
            m.d.sync += self.mean.eq(mean.data)

        # Stage 1 (6): R * mult, an exact multiplier as itself times 2**15; the shift less the mantissa's 15 bits.
        one, exact = Signal(), Signal()
        factor, more, less, z, shift1 = Signal(18), Signal(6), Signal(signed(8)), Signal(33), Signal(signed(8))
        m.d.comb += [one.eq(rescales | traits.weigh & exp), exact.eq(norm | traits.weigh | rescales)]
        with m.If(norm):  # 32 - norm_fraction(n) + h
            long = (command.n > 1 << 10) + (command.n > 1 << 12)
            m.d.comb += [factor.eq(root.data.r), more.eq(root.data.h), less.eq(22 + long)]
        with m.Elif(rescales):
            m.d.comb += [factor.eq(1), more.eq(maximum.data.rise)]
        with m.Elif(one):  # 16 bits of p
            m.d.comb += [factor.eq(1), less.eq(4)]
        with m.Else():  # shift + 3 + L, or L + 7
            m.d.comb += [
                factor.eq(Mux(traits.weigh & (reciprocal.length == 0), 0, reciprocal.r)), more.eq(reciprocal.length),
                less.eq(Mux(traits.weigh, Mux(traits.wide, -1, 7), command.shift - 12)),
            ]
        with m.If(valid[1]):
            m.d.sync += [
                z.eq(factor * Mux(exact, 1 << 15, command.mult)),
                shift1.eq(less + Cat(more, norm & more[-1]).as_signed()),
            ]
        # Stage 2 (7): rounded to a mantissa of 17 bits. NORM_APPLY: negated, -(x + half) = ~x + ~half in one sum. Of 18
        # bits is only a root, and -2**17 is a number too.
        large, left, mantissa, half = Signal(), Signal(signed(8)), Signal(18), Signal()
        m.d.comb += [
            large.eq(z[31:].any() & ~exact), left.eq(shift1 - large),
            mantissa.eq(Mux(large, z[16:], z[15:])), half.eq(Mux(large, z[15], z[14])),
        ]
        with m.If(valid[2]):
            m.d.sync += [
                self.row_mult.eq((mantissa ^ norm.replicate(18)) + (half ^ norm)),
                self.row_shift.eq(Mux(left < 0, 0, Mux(left[6] | left[4:6].all(), MAX_SHIFT, left))),
            ]
        return m

    def _reciprocals(self, m: Module, valid: Value, row: Value) -> data.View:
        """Reciprocals of even and odd contexts; returns that of ``row``, one cycle later."""
        config, command, write = self.config, self.command, self.divided
        banks = min(2, config.stat_contexts)
        context, bank_of = Signal(4), Signal()
        m.d.comb += [context.eq(command.context), bank_of.eq(context[0] if banks == 2 else 0)]
        row_bits, context_bits = exact_log2(config.stat_rows), exact_log2(config.stat_contexts // banks)
        out = Signal(RECIPROCAL)
        for i in range(banks):
            memory = Memory(shape=RECIPROCAL, depth=config.stat_contexts * config.stat_rows // banks, init=[],
                            attrs={"ram_style": "block"})
            m.submodules[f"reciprocals_{i}"] = memory
            port, read, upper = memory.write_port(), memory.read_port(), Signal(4, name=f"upper_{i}")
            own = bank_of == i
            m.d.comb += [
                upper.eq(Mux(own, context, context + 1) >> (banks - 1)),
                port.en.eq(write.en & Mux(own, ~self.traits.norm_stat, self.traits.absmax)),
                port.addr.eq(Cat(write.row[:row_bits], upper[:context_bits])),
                port.data.eq(write.data.scale),
                read.en.eq(valid),
                read.addr.eq(Cat(row[:row_bits], upper[:context_bits])),
            ]
            with m.If(own):
                m.d.comb += [
                    port.data.r.eq(write.data.r), port.data.length.eq(write.data.code), out.eq(read.data)]
        return out
