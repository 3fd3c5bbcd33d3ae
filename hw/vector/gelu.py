"""I-BERT's GELU of one lane: the factor that an operand is multiplied by."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.numerics.ibert import GELU_SCALE, gelu_constants

__all__ = ["GeluFactor"]

B, C, ONE = gelu_constants(GELU_SCALE)
ERF_SHIFT = 14


class GeluFactor(wiring.Component):
    """``factor = -(erf + one)`` of ``numerics.ibert.i_gelu_unit``, for one operand a cycle; 1 for x = 0.

    erf = sgn(x) * ((min(|x|, -b) + b)**2 + c) >> 14 (floor). The unit's result is x * factor. Latency: ``x`` is in
    stage 6; ``held`` and ``factor`` are there in stage 8.

    Members
    -------
    clear: In(1)
        Makes both results 0, so that they may be combined with other operands.
    enable: In(2)
        An operand is in stage 6, 7.
    x: In(signed(16))
    held: Out(signed(16)), factor: Out(9)
    """

    def __init__(self) -> None:
        super().__init__({
            "clear": In(1), "enable": In(2), "x": In(signed(16)), "held": Out(signed(16)), "factor": Out(9),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        short, below, x7 = Signal(signed(18)), Signal(range(-B + 1)), Signal(signed(16))
        m.d.comb += short.eq(Mux(self.x < 0, self.x, -self.x) - B)
        with m.If(self.enable[0]):
            m.d.sync += [below.eq(Mux(short < 0, 0, short)), x7.eq(self.x)]

        # -(sgn * p >> 14) is a ceiling of -p for positive x, a floor of it for negative.
        poly = Signal(22)
        m.d.comb += poly.eq(-C - below * below)
        with m.If(self.enable[1]):
            m.d.sync += self.held.eq(x7)
            with m.If(x7 < 0):
                m.d.sync += self.factor.eq(-ONE - (poly >> ERF_SHIFT))
            with m.Else():
                m.d.sync += self.factor.eq(-ONE + ((poly + (1 << ERF_SHIFT) - 1) >> ERF_SHIFT))
        with m.If(self.clear):
            m.d.sync += [self.held.eq(0), self.factor.eq(0)]
        return m
