"""Serial arithmetic: restoring divider, digit-by-digit square root, and both as a reciprocal engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["CODE_BITS", "NORM_BITS", "QUOTIENT_BITS", "SCALE_BITS", "ReciprocalEngine", "SerialDivider", "SerialRoot"]

NORM_BITS = 37
"""Width of a normalised operand (top bit set): the softmax sum, or the root moved to the top."""
MANTISSA_BITS = 32
QUOTIENT_BITS = 18
CODE_BITS = 6
SCALE_BITS = 16


class SerialDivider(wiring.Component):
    """``quotient = floor(partial * 2**bits / divisor)``, one quotient bit a cycle, restoring.

    Started in cycle s, ``done`` is high in s + bits + 1 with the quotient, which holds until the next
    start. Exact for ``partial < divisor``. A start is taken when ``busy`` is low, so with ``done`` too.

    Parameters
    ----------
    width: int
        Bits of ``partial`` and ``divisor``.
    bits: int
        Bits of the quotient.

    Members
    -------
    start: In(1)
    partial, divisor: In(width)
    busy: Out(1)
        High from s + 1 until the cycle before ``done``.
    done: Out(1)
    quotient: Out(bits)
    held: Out(width)
        The divisor, from s + 1 until the cycle of the next start.
    """

    def __init__(self, *, width: int, bits: int) -> None:
        if width < 1 or bits < 1:
            raise ValueError(f"width and bits must be positive, not {width} and {bits}")
        self._width, self._bits = width, bits
        super().__init__({
            "start": In(1), "partial": In(width), "divisor": In(width),
            "busy": Out(1), "done": Out(1), "quotient": Out(bits), "held": Out(width),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rest = Signal(self._width)
        left = Signal(range(self._bits + 1))
        doubled = Signal(self._width + 1)
        fits = Signal()
        m.d.comb += [
            self.busy.eq(left != 0),
            doubled.eq(rest << 1),
            fits.eq(doubled >= self.held),
        ]
        m.d.sync += self.done.eq(left == 1)
        with m.If(self.busy):
            m.d.sync += [
                left.eq(left - 1),
                rest.eq(Mux(fits, doubled - self.held, doubled)),
                self.quotient.eq((self.quotient << 1) | fits),
            ]
        with m.Elif(self.start):
            m.d.sync += [left.eq(self._bits), rest.eq(self.partial), self.held.eq(self.divisor)]
        return m


class SerialRoot(wiring.Component):
    """``root = floor(sqrt(value))``, one root bit (two operand bits) a cycle.

    Started in cycle s, ``done`` is high in s + width / 2 + 1 with the root. A start is taken when
    ``busy`` is low.

    Parameters
    ----------
    width: int
        Bits of the operand, even.

    Members
    -------
    start: In(1)
    value: In(width)
    busy: Out(1)
    done: Out(1)
    root: Out(width // 2)
    """

    def __init__(self, *, width: int) -> None:
        if width < 2 or width % 2:
            raise ValueError(f"width must be even and positive, not {width}")
        self._width = width
        super().__init__({
            "start": In(1), "value": In(width),
            "busy": Out(1), "done": Out(1), "root": Out(width // 2),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        digits = self._width // 2
        rest = Signal(digits + 1)  # at most 2 * root
        value = Signal(self._width)
        left = Signal(range(digits + 1))
        grown = Signal(digits + 3)
        trial = Signal(digits + 2)
        fits = Signal()
        m.d.comb += [
            self.busy.eq(left != 0),
            grown.eq((rest << 2) | value[-2:]),
            trial.eq((self.root << 2) | 1),
            fits.eq(grown >= trial),
        ]
        m.d.sync += self.done.eq(left == 1)
        with m.If(self.busy):
            m.d.sync += [
                left.eq(left - 1),
                value.eq(value << 2),
                rest.eq(Mux(fits, grown - trial, grown)),
                self.root.eq((self.root << 1) | fits),
            ]
        with m.Elif(self.start):
            m.d.sync += [left.eq(digits), value.eq(self.value), rest.eq(0), self.root.eq(0)]
        return m


class ReciprocalEngine(wiring.Component):
    """One divider of the vector unit: softmax reciprocal, or reciprocal square root.

    Softmax, ABSMAX: ``floor(2**52 / norm)``; root: ``floor(2**32 / isqrt(norm >> 5))``; truncating; 0 if the top
    two bits of ``norm`` are 0 (an empty row). Started in cycle s, ``done`` is high in s + SOFTMAX_CYCLES or
    s + ROOT_CYCLES, whatever the data; the next start may be given in that cycle.

    Members
    -------
    start: In(1)
    root: In(1)
        Which of the two; held while busy.
    norm: In(NORM_BITS)
        Normalised operand: top bit set; root: one of the top two, the mantissa is the upper 32 bits.
    code: In(CODE_BITS)
        Exponent, handed through.
    busy: Out(1)
    done: Out(1)
    quotient: Out(QUOTIENT_BITS)
    exponent: Out(CODE_BITS)
    top: Out(SCALE_BITS)
        Upper bits of ``norm`` (not for roots).
    """

    SOFTMAX_CYCLES = QUOTIENT_BITS + 1
    ROOT_CYCLES = MANTISSA_BITS // 2 + 1 + QUOTIENT_BITS + 1

    def __init__(self) -> None:
        super().__init__({
            "start": In(1), "root": In(1), "norm": In(NORM_BITS), "code": In(CODE_BITS),
            "busy": Out(1), "done": Out(1), "quotient": Out(QUOTIENT_BITS), "exponent": Out(CODE_BITS),
            "top": Out(SCALE_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.root = root = SerialRoot(width=MANTISSA_BITS)
        m.submodules.divider = divider = SerialDivider(width=NORM_BITS, bits=QUOTIENT_BITS)
        valid = Signal()
        # The root has its top bit set; moved up it is a normalised divisor like the softmax sum.
        top = NORM_BITS - MANTISSA_BITS // 2
        dividend = 1 << NORM_BITS + 15 - QUOTIENT_BITS  # 2**52 / 2**18; root: (2**32 << 21) / 2**18
        m.d.comb += [
            root.start.eq(self.start & self.root),
            root.value.eq(self.norm[-MANTISSA_BITS:]),
            divider.start.eq(Mux(self.root, root.done, self.start)),
            divider.partial.eq(Mux(self.root, dividend << 1, dividend)),
            divider.divisor.eq(Mux(self.root, root.root << top, self.norm)),
            self.busy.eq(root.busy | root.done | divider.busy),
            self.done.eq(divider.done),
            self.quotient.eq(Mux(valid, divider.quotient, 0)),
            self.top.eq(divider.held[-SCALE_BITS:]),
        ]
        with m.If(self.start):
            m.d.sync += [self.exponent.eq(self.code), valid.eq(self.norm[-2:].any())]
        return m
