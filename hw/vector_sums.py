"""Reductions of the vector unit: maximum, softmax sum, sum and sum of squares of each row."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.serial import NORM_BITS
from gemmule.hw.vector_contexts import MEAN_BITS, SUM_BITS
from gemmule.hw.vector_divide import waiting_layout
from gemmule.hw.vector_ops import is_op, row_write, token_layout, traits_of
from gemmule.isa import VOp

__all__ = ["STAGES", "VectorSums"]

STAGES = 11
"""Tokens of stages 0 to 11 are used."""
EMPTY = -(1 << 23)
V_BITS = 64
SQUARES, POWERS = 3, 8
"""Stages in which the lanes' squares and exponentials are summed."""


def tree(values: list[Value], join) -> Value:  # type: ignore[no-untyped-def]
    """Balanced reduction of a power of two of values."""
    while len(values) > 1:
        values = [join(a, b) for a, b in zip(values[::2], values[1::2])]
    return values[0]


class VectorSums(wiring.Component):
    """What a row's lanes add up to, normalised (top bit set, for V one of the top two) for the dividers.

    Throughput: one column group a cycle (NORM_STAT: every other cycle). Latency: a maximum is written in stage 7, a sum
    that is kept in stage 10, a mean in stage 5; the word for a divider is there in stage 11 (ABSMAX: 9). Exact.

    Members
    -------
    command: In(vector_layout)
    token: In(token_layout).array(STAGES + 1)
    plain, factor, score, power: In
        Per lane: stage 3, 3, 5, 8. ABSMAX: the score is the magnitude - 1.
    maximum: In(signed(24)), total: In(37)
        Context of the row in stages 6 and 9, to go on from.
    found, kept, summed, fill: Out(row_write)
        Maximum, softmax sum, mean; word for a divider.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        dim = config.dim
        super().__init__({
            "command": In(vector_layout(config)), "token": In(token_layout(config)).array(STAGES + 1),
            "plain": In(signed(16)).array(dim), "factor": In(signed(33)).array(dim),
            "score": In(signed(32)).array(dim), "power": In(21).array(dim),
            "maximum": In(signed(24)), "total": In(SUM_BITS),
            "found": Out(row_write(config, signed(24))), "kept": Out(row_write(config, SUM_BITS)),
            "summed": Out(row_write(config, signed(MEAN_BITS))), "fill": Out(row_write(config, waiting_layout())),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        token, command, traits = self.token, self.command, traits_of(self.command)
        norm, exp, absmax = (is_op(command, op) for op in (VOp.NORM_STAT, VOp.SOFTMAX_EXP, VOp.ABSMAX))
        largest = self._find_maximum(m, absmax, traits.onward)

        # Sums of squares and of int16 operands in stages 3 and 4, of exponentials in stages 8 and 9.
        group, total = Signal(37), Signal(46)
        squares = [Mux(token[SQUARES].mask[i], f[:31], 0) for i, f in enumerate(self.factor)]
        terms = [Mux(norm, square, power) for square, power in zip(squares, self.power)]
        with m.If((token[SQUARES].valid & norm) | (token[POWERS].valid & exp)):
            m.d.sync += group.eq(tree(terms, lambda a, b: a + b))
        start = Mux(traits.onward, self.total, 0)
        with m.If(token[SQUARES + 1].valid & norm):
            m.d.sync += total.eq(Mux(token[SQUARES + 1].first, 0, total) + group)
        with m.Elif(token[POWERS + 1].valid & exp):
            m.d.sync += total.eq(Mux(token[POWERS + 1].first, start, total) + group)
        v = self._variance(m, norm, traits.mean, total)

        # Stage 10 (ABSMAX: 8): shift left until the top bit (NORM_STAT: of the top pair of bits) is set.
        raw, zeros, moved = Signal(V_BITS), Signal(range(V_BITS + 1)), Signal(V_BITS)
        waiting = Signal(waiting_layout())
        whole = Mux(absmax, largest, total[:SUM_BITS])
        m.d.comb += [
            raw.eq(Mux(norm, v, whole << V_BITS - NORM_BITS)),
            zeros.eq(V_BITS),
            moved.eq(raw << Cat(zeros[0] & ~norm, zeros[1:6])),
        ]
        for bit in range(V_BITS):
            with m.If(raw[bit]):
                m.d.comb += zeros.eq(V_BITS - 1 - bit)
        with m.If(Mux(absmax, token[8].valid, token[10].valid)):
            m.d.sync += [
                waiting.norm.eq(moved[-NORM_BITS:]),
                waiting.code.eq(Mux(norm, 16 - (zeros >> 1), Mux(zeros[6], 0, NORM_BITS - zeros))),
            ]
        stored = Signal(token_layout(self.config))
        m.d.comb += [
            stored.eq(Mux(absmax, token[9], token[11])),
            self.fill.en.eq(stored.valid & stored.final), self.fill.row.eq(stored.row), self.fill.data.eq(waiting),
            self.kept.en.eq(token[10].valid & token[10].final & traits.more),
            self.kept.row.eq(token[10].row), self.kept.data.eq(total),
        ]
        return m

    def _find_maximum(self, m: Module, absmax: Value, onward: Value) -> Signal:
        """Stage 5: over the lanes; stage 6: over the groups; stage 7: into the context, or ABSMAX's result."""
        token = self.token
        find, empty = is_op(self.command, VOp.SOFTMAX_MAX), Mux(absmax, -1, EMPTY)
        of_group, of_row, start = Signal(signed(32)), Signal(signed(32)), Signal(signed(32))
        seen = [Mux(token[5].mask[i], score, empty) for i, score in enumerate(self.score)]
        with m.If(token[5].valid & (find | absmax)):
            m.d.sync += of_group.eq(tree(seen, lambda a, b: Mux(a > b, a, b)))
        m.d.comb += start.eq(Mux(token[6].first, Mux(onward, self.maximum, empty), of_row))
        with m.If(token[6].valid & (find | absmax)):
            m.d.sync += of_row.eq(Mux(of_group > start, of_group, start))
        m.d.comb += [
            self.found.en.eq(token[7].valid & token[7].final & find),
            self.found.row.eq(token[7].row), self.found.data.eq(of_row),
        ]
        largest = Signal(32)
        with m.If(token[7].valid & absmax):
            m.d.sync += largest.eq(of_row + 1)
        return largest

    def _variance(self, m: Module, norm: Value, mean: Value, total: Signal) -> Signal:
        """Stages 3 to 9: ``max(1, n * Q - s * s + epsilon)``, the square in two halves; returns V of stage 10."""
        token, command = self.token, self.command
        at = [stage.valid & norm for stage in token]
        lanes = [Mux(token[SQUARES].mask[i] & mean, value, 0) for i, value in enumerate(self.plain)]
        part, s, magnitude = Signal(signed(23)), Signal(signed(MEAN_BITS)), Signal(MEAN_BITS)
        with m.If(at[3]):
            m.d.sync += part.eq(tree(lanes, lambda a, b: a + b))
        with m.If(at[4]):
            m.d.sync += s.eq(Mux(token[4].first, 0, s) + part)
        m.d.comb += [
            self.summed.en.eq(at[5] & token[5].final), self.summed.row.eq(token[5].row), self.summed.data.eq(s),
        ]
        epsilon, n_total, product = Signal(56), Signal(62), Signal(48)
        v = [Signal(V_BITS, name=f"v_{k}") for k in range(4)]
        with m.If(at[1]):
            m.d.sync += epsilon.eq(command.mult << Mux(command.shift > 40, 40, command.shift))
        with m.If(at[5]):
            m.d.sync += [n_total.eq(total * command.n), magnitude.eq(Mux(s < 0, -s, s))]
        with m.If(at[6] | at[7]):  # a row's operands hold for two cycles
            m.d.sync += product.eq(magnitude * Mux(at[7], magnitude[16:], magnitude[:16]))
        with m.If(at[6]):
            m.d.sync += v[0].eq(n_total + epsilon)
        with m.If(at[7]):
            m.d.sync += v[1].eq(v[0] - product)
        with m.If(at[8]):
            m.d.sync += v[2].eq(v[1] - (product << 16))
        with m.If(at[9]):
            m.d.sync += v[3].eq(Mux(v[2] == 0, 1, v[2]))
        return v[3]
