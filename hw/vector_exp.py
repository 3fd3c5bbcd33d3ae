"""Base-2 exponential of one lane."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gemmule.numerics import EXP2_TABLE

__all__ = ["Exponential"]

CLAMP = 40 << 10
ENTRY = data.StructLayout({"value": 17, "fall": 11})
"""A node of the table and its distance to the next one."""


class Exponential(wiring.Component):
    """``p = 2**-(maximum - score)`` as UQ1.20 and ``weight = min(255, rshr(p, 12))``.

    Bit-exact to ``numerics.exp2``: 32 linear segments, rounded half up twice. Latency: 3 cycles, one
    operand a cycle; stage k moves when ``enable[k]`` is high (operands come with ``enable[0]``), ``weight``
    is combinational from ``p``.

    Members
    -------
    enable: In(3)
    visible: In(1)
        With ``enable[2]``: low forces p to 0.
    score, maximum: In(signed(24))
        Q13.10; the difference is limited to 0..40.
    p: Out(21)
    weight: Out(8)
    """

    def __init__(self) -> None:
        super().__init__({
            "enable": In(3), "visible": In(1), "score": In(signed(24)), "maximum": In(signed(24)),
            "p": Out(21), "weight": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rom = [{"value": int(v), "fall": int(v - w)} for v, w in zip(EXP2_TABLE, EXP2_TABLE[1:])]
        m.submodules.rom = memory = Memory(shape=ENTRY, depth=len(rom), init=rom)
        entry = memory.read_port(domain="comb")

        # Stage 1: distance to the maximum, limited.
        delta = Signal(signed(25))
        distance = Signal(16)
        m.d.comb += delta.eq(self.maximum - self.score)
        with m.If(self.enable[0]):
            with m.If(delta < 0):
                m.d.sync += distance.eq(0)
            with m.Elif(delta > CLAMP):
                m.d.sync += distance.eq(CLAMP)
            with m.Else():
                m.d.sync += distance.eq(delta)

        # Stage 2: mantissa by interpolation within one of 32 segments.
        mantissa = Signal(17)
        octaves = Signal(6)
        step = Signal(16)
        m.d.comb += [
            entry.addr.eq(distance[5:10]),
            step.eq(entry.data.fall * distance[:5]),
        ]
        with m.If(self.enable[1]):
            m.d.sync += [
                mantissa.eq(entry.data.value - ((step + 16) >> 5)),
                octaves.eq(distance[10:]),
            ]

        # Stage 3: rounding shift by the whole octaves (one fraction bit kept, then half up).
        shifted = Signal(22)
        m.d.comb += shifted.eq((mantissa << 5) >> octaves)
        with m.If(self.enable[2]):
            m.d.sync += self.p.eq(Mux(self.visible, (shifted + 1) >> 1, 0))

        rounded = Signal(9)
        m.d.comb += [
            rounded.eq((self.p + (1 << 11)) >> 12),
            self.weight.eq(Mux(rounded[8], 255, rounded)),
        ]
        return m
