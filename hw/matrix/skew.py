"""Skew, deskew and staircase registers: every delay between the mesh's edges and the outside.

The mesh works on diagonals: PE(r, c) sees row m of a stream at m + r + c. So lane i enters i cycles
late (``Skew``), results leave the columns one after the other and are lined up again (``Skew`` with
``reverse``), and one-bit controls start at row or column i after a delay of their own (``Stairs``).
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Elaboratable, Module, Shape, ShapeCastable, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Skew", "Stairs", "delayed"]


def delayed(m: Module, value: Value, cycles: int, *, name: str, reset_less: bool = False) -> Value:
    """``value``, ``cycles`` cycles later: one packed shift register, oldest bits on top."""
    value = Value.cast(value)
    if cycles == 0:
        return value
    chain = Signal(len(value) * cycles, name=name, reset_less=reset_less)
    m.d.sync += chain.eq(Cat(value, chain))  # the assignment drops the oldest bits
    return chain[-len(value):]


class Skew(wiring.Component):
    """Delay lane i by i cycles, or with ``reverse`` by lanes - 1 - i.

    Throughput one item per cycle; no flow control; data registers without reset.

    Parameters
    ----------
    lanes: int
    shape: shape of one lane
    reverse: bool
        Undo the skew of a mesh edge, whose lane i arrives i cycles late.

    Members
    -------
    i: In(ArrayLayout(shape, lanes))
    o: Out(ArrayLayout(shape, lanes))
    """

    def __init__(self, *, lanes: int, shape: Shape | ShapeCastable | int, reverse: bool = False) -> None:
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes}")
        self.delays = [lanes - 1 - i if reverse else i for i in range(lanes)]
        layout = data.ArrayLayout(shape, lanes)
        super().__init__({"i": In(layout), "o": Out(layout)})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        for lane, cycles in enumerate(self.delays):
            late = delayed(m, Value.cast(self.i[lane]), cycles, name=f"lane{lane}", reset_less=True)
            m.d.comb += Value.cast(self.o[lane]).eq(late)
        return m


class Stairs(wiring.Component):
    """One bit that reaches output i after ``delays[i]`` cycles: one shift register with taps.

    Members
    -------
    i: In(1)
    o: Out(len(delays))
    """

    def __init__(self, *, delays: Sequence[int]) -> None:
        if not delays or min(delays) < 0:
            raise ValueError(f"delays must be non-negative and at least one, not {list(delays)}")
        self.delays = list(delays)
        super().__init__({"i": In(1), "o": Out(len(self.delays))})

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        past = Signal(max(1, *self.delays))
        history = Cat(self.i, past)
        m.d.sync += past.eq(history)
        m.d.comb += self.o.eq(Cat(history[cycles] for cycles in self.delays))
        return m
