"""Rounding arithmetic right shift of a lane, and limits by leading bits."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.numerics import MAX_SHIFT

__all__ = ["RESULT_BITS", "RoundingShift", "beyond", "fits", "limited"]

RESULT_BITS = 34
"""An int32 after its rounding, with a bit to spare."""
_LOW = RESULT_BITS - 1


def beyond(value: Value, sign: Value) -> Value:
    """Whether not all bits are ``sign``; of the upper bits of a number: whether it does not fit the lower ones."""
    return (value ^ sign.replicate(len(value))).any()


def fits(floor: Value, half: Value, bits: int) -> Value:
    """Whether ``floor + half`` is a signed number of ``bits``; beside the adder, not behind it."""
    top, upper = floor[bits - 1], floor[bits:]
    carry, ones = half & floor[:bits - 1].all(), upper.all()
    return Mux(carry, ones, Mux(top, ones, ~upper.any()))


def limited(shift: Value) -> Value:
    """A shift from 0 to 63, at most ``MAX_SHIFT``."""
    return Mux(shift[4:6] == 3, MAX_SHIFT, shift)  # 48 and more


class RoundingShift(wiring.Component):
    """``result = (2 * value >> shift) + add >> 1``: with ``add`` 1 ``numerics.rshr``, half up.

    Combinational. Wide shifts come first, and a level drops what the next ones cannot bring back; ``over`` remembers
    that it was more than copies of the sign.

    Members
    -------
    value: In(signed(width)), shift: In(6)
    flip: In(1)
        Every bit of the shifted value is inverted before ``add`` is added.
    add: In(signed(33))
        In halves.
    sign: Out(1)
        Of ``value``.
    floor: Out(signed(33)), half: Out(1)
        The shifted value (flipped), rounded down, and its first fraction bit.
    over: Out(1)
        The shifted value, rounded down, has more than 33 bits; ``result`` then means nothing.
    result: Out(signed(34))
    """

    def __init__(self, width: int) -> None:
        super().__init__({
            "value": In(signed(width)), "shift": In(6), "flip": In(1), "add": In(signed(_LOW)),
            "sign": Out(1), "floor": Out(signed(_LOW)), "half": Out(1), "over": Out(1),
            "result": Out(signed(RESULT_BITS)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits: Value = Cat(0, self.value)
        lost: list[Value] = []
        m.d.comb += self.sign.eq(self.value[-1])
        for level in reversed(range(len(self.shift))):
            step, by = 1 << level, self.shift[level]
            keep = min(len(bits), _LOW + step - 1)
            if len(bits) > keep:
                lost.append(beyond(bits[keep:keep + step], self.sign) & ~by)
            if len(bits) > keep + step:
                lost.append(beyond(bits[keep + step:], self.sign))
            moved = Cat(bits[step:], self.sign.replicate(step))[:keep]
            level_bits = Signal(keep, name=f"by_{step}")
            m.d.comb += level_bits.eq(Mux(by, moved, bits[:keep]))
            bits = level_bits
        low, total = Signal(signed(RESULT_BITS + 1)), Signal(signed(RESULT_BITS + 1))
        m.d.comb += [
            low.eq(Cat(bits, self.sign).as_signed() ^ self.flip.replicate(_LOW + 1).as_signed()),
            self.half.eq(low[0]),
            self.floor.eq(low[1:]),
            total.eq(low + self.add),
            self.result.eq(total >> 1),
            self.over.eq(Cat(lost).any()),
        ]
        return m
