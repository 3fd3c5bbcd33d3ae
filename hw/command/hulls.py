"""Hulls: the last row of every operand of a command."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.command.fields import named
from gemmule.hw.command.spans import spans_layout
from gemmule.isa import Unit, field_bits

__all__ = ["HULLS", "Hulls", "hulls_layout", "row_bits"]

_STRIDE = field_bits(Unit.VECTOR, "src0_stride")
HULLS = 4
"""Operands 0 to 2, and the angles of ROPE."""


def row_bits(config: Config) -> int:
    """Bits of a row of the larger memory: both have a power of two of rows."""
    return exact_log2(max(config.spm_rows, config.acc_rows))


def hulls_layout(config: Config) -> data.StructLayout:
    """``last``: last row, of ``row_bits`` and what a sum has more; ``beyond``: a part alone is beyond that."""
    return data.StructLayout({"last": data.ArrayLayout(row_bits(config) + 2, HULLS), "beyond": HULLS})


class Hulls(wiring.Component):
    """Combinational. An operand's hull are the rows from its first to its last one, strides included.

    Nothing is lost, so that a hull that leaves its memory is always noticed: what a part has beyond the
    bits of a row is only looked at, not added. Outputs of a command that is illegal or of length zero mean nothing.

    Members
    -------
    spans: In(spans_layout)
    move: In(1)
        The command is a load or store: one row of it is as long as its blocks are apart.
    plane0, plane1, plane2: In
        Rows from the first plane of an operand to the second, or 0.
    angles: In
        First row of angles.
    result: Out(hulls_layout)
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "spans": In(spans_layout()), "move": In(1),
            "plane0": In(_STRIDE), "plane1": In(field_bits(Unit.VECTOR, "aux")), "plane2": In(_STRIDE),
            "angles": In(field_bits(Unit.VECTOR, "aux")),
            "result": Out(hulls_layout(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        spans, bits = self.spans, row_bits(self.config)

        def total(i: int, *parts: Value) -> None:
            """Sum of the parts' lower bits, and whether one has others."""
            one, *others = (named(m, f"part{i}_{n}", part) for n, part in enumerate(parts))
            m.d.comb += [
                self.result.last[i].eq(one[:bits] + sum(part[:bits] for part in others)),
                self.result.beyond[i].eq(Cat(part[bits:] for part in (one, *others)).any()),
            ]

        total(0, spans.first[0], spans.span0, Mux(self.move, spans.span1, spans.inner0), self.plane0)
        total(1, spans.first[1], spans.span1, spans.inner1, self.plane1)
        total(2, spans.first[2], spans.span2, spans.inner2, self.plane2)
        total(3, self.angles, spans.angle)
        return m
