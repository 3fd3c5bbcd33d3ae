"""Exponential of one lane: base 2 from a table of segments, and two others for comparison."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gemmule.numerics import EXP2_TABLE
from gemmule.numerics.exponential import I_EXP_B, I_EXP_LN2, SEGMENTS

__all__ = ["Exponential"]

I_EXP, SOFTERMAX = 1, 2
DIVIDE_BY_LN2 = (9869, 22)
"""``d * 9869 >> 22`` is d // 425 up to 30 * 425."""


class Exponential(wiring.Component):
    """``p = EXPONENTIAL[kind](maximum - score)`` as UQ1.20 and ``weight = min(255, rshr(p, 12))``.

    Bit-exact to ``gemmule.numerics.exponential``: 32 linear segments rounded half up twice; with ``comparison_modes``
    also I-BERT's polynomial and Softermax' four segments. Latency: 3 cycles, one operand a cycle; stage k moves when
    ``enable[k]`` is high (operands come with ``enable[0]``), ``weight`` is combinational from ``p``.

    Members
    -------
    clear: In(1)
        Makes p 0.
    kind: In(2)
        0 to 2, held; without ``comparison_modes`` not used.
    enable: In(3)
    visible: In(1)
        With ``enable[2]``: low forces p to 0.
    score, maximum: In(signed(24))
        Q13.10; a negative difference counts as 0, and from 32 on p is 0.
    p: Out(21)
    weight: Out(8)
    """

    def __init__(self, *, comparison_modes: bool) -> None:
        self._modes = comparison_modes
        super().__init__({
            "clear": In(1), "kind": In(2), "enable": In(3), "visible": In(1),
            "score": In(signed(24)), "maximum": In(signed(24)), "p": Out(21), "weight": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Stage 1: distance to the maximum, in Q5.10; ``far``: beyond it.
        delta, distance, far = Signal(signed(25)), Signal(15), Signal()
        m.d.comb += delta.eq(self.maximum - self.score)
        with m.If(self.enable[0]):
            m.d.sync += [distance.eq(delta), far.eq(delta[15:24].any() & ~delta[-1])]
        with m.If(self.enable[0] & delta[-1]):
            m.d.sync += distance.eq(0)

        # Stage 2: mantissa by interpolation within a segment, rounded half up.
        mantissa, octaves, gone = Signal(17), Signal(5), Signal()
        low, entry = self._segment(m, distance)
        fine = Signal(25)
        m.d.comb += fine.eq(Cat(Const(-1, 7), Const(0, 1), entry.value) - entry.fall * low)
        with m.If(self.enable[1]):
            m.d.sync += [mantissa.eq(fine[8:]), octaves.eq(distance[10:]), gone.eq(far)]

        # Stage 3: rounding shift by the whole octaves (one fraction bit kept, then half up).
        whole, half = Signal(22), Signal()
        shifted: Value = whole
        for level in reversed(range(len(octaves))):  # wide shifts first are smaller
            part = Signal(22, name=f"by_{1 << level}")
            m.d.comb += part.eq(Mux(octaves[level], shifted[1 << level:], shifted))
            shifted = part
        m.d.comb += [whole.eq(mantissa << 5), half.eq(shifted[0])]
        if self._modes:
            self._polynomial(m, distance, far, octaves, gone, whole, half)
        with m.If(self.enable[2]):
            m.d.sync += self.p.eq(shifted[1:] + half)
        with m.If((self.enable[2] & (~self.visible | gone)) | self.clear):
            m.d.sync += self.p.eq(0)

        rounded = Signal(9)
        m.d.comb += [
            rounded.eq(self.p[12:] + self.p[11]),
            self.weight.eq(rounded[:8] | rounded[8].replicate(8)),
        ]
        return m

    def _segment(self, m: Module, distance: Signal) -> tuple[Value, data.View]:
        """Place within the segment in 1/256 of it, and the table's entry: a node and its distance to the next."""
        tables = [EXP2_TABLE, SEGMENTS] if self._modes else [EXP2_TABLE]
        rom = [{"value": int(v), "fall": int(v - w)} for table in tables for v, w in zip(table, table[1:])]
        shape = data.StructLayout({"value": 17, "fall": max(e["fall"] for e in rom).bit_length()})
        m.submodules.rom = memory = Memory(shape=shape, depth=len(rom), init=rom)
        entry, coarse = memory.read_port(domain="comb"), self.kind == SOFTERMAX
        if not self._modes:
            m.d.comb += entry.addr.eq(distance[5:10])
            return distance[:5] << 3, entry.data
        m.d.comb += entry.addr.eq(Mux(coarse, Cat(distance[8:10], Const(8, 4)), distance[5:10]))
        return Mux(coarse, distance[:8], distance[:5] << 3), entry.data

    def _polynomial(self, m: Module, distance: Signal, far: Signal, octaves: Signal, gone: Signal,
                    whole: Signal, half: Signal) -> None:
        """I-BERT's: stage 2 divides by ln 2, stage 3 has the polynomial of the rest; floor. p is 0 from 21 octaves."""
        times, by = DIVIDE_BY_LN2
        z, rest = Signal(7), Signal(signed(10))
        m.d.comb += z.eq(distance * times >> by)
        with m.If(self.enable[1] & (self.kind == I_EXP)):
            m.d.sync += [rest.eq(z * I_EXP_LN2 - distance), octaves.eq(z), gone.eq(far | z[5:].any())]
        with m.If(self.kind == I_EXP):
            m.d.comb += [whole[0].eq(0), whole[1:].eq(rest * (rest + I_EXP_B) + (1 << 20)), half.eq(0)]
