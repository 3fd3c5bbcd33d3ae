"""Fields of a command word in hardware."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data

from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS
from gemmule.isa import BODY, CONTROL_BODY, HEADER, COp, SOp, Unit, VOp

__all__ = ["CLAIMS", "FIRST_BITS", "Kind", "control_fields", "fields_of", "kind_of", "named"]

CLAIMS = 3
"""Most streams of one unit."""
FIRST_BITS = max(ROW_BITS, LENGTH_BITS + dict(HEADER)["dyn_stride"]) + 1
"""A row plus a dynamic offset, without loss."""

_header = data.StructLayout(dict(HEADER))
_body = {unit: data.StructLayout(dict(fields)) for unit, fields in BODY.items()}


def fields_of(word: Value) -> tuple[data.View, data.View, data.View, data.View, data.View]:
    """Header, and body as a move, matrix, vector and select command, of a command word."""
    bodies = (data.View(_body[unit], word[64:64 + _body[unit].size])
              for unit in (Unit.LOAD, Unit.MATRIX, Unit.VECTOR, Unit.SELECT))
    return (data.View(_header, word[:_header.size]), *bodies)  # type: ignore[return-value]


def control_fields(word: Value, op: COp) -> data.View:
    """Body of a command word as that of a control command."""
    layout = data.StructLayout(dict(CONTROL_BODY[op]))
    return data.View(layout, word[_header.size:_header.size + layout.size])


def named(m: Module, name: str, value: Value) -> Signal:
    """``value`` as a signal of its own shape, so that the Verilog reads like the source."""
    signal = Signal(value.shape(), name=name)
    m.d.comb += signal.eq(value)
    return signal


class Kind(NamedTuple):
    """What a command is: a load or store, or one of another unit."""

    op: Value
    move: Signal
    matrix: Signal
    vector: Signal
    select: Signal

    def vop(self, *ops: VOp) -> Value:
        """One of these operations of the vector unit."""
        return self.vector & Cat(self.op == op for op in ops).any()

    def sop(self, *ops: SOp) -> Value:
        """One of these operations of the select unit."""
        return self.select & Cat(self.op == op for op in ops).any()


def kind_of(m: Module, header: data.View) -> Kind:
    """The kind of the command with this header."""
    move = named(m, "is_move", header.unit < 2)
    return Kind(header.op, move, *(named(m, f"is_{unit.label}", header.unit == unit)
                                   for unit in (Unit.MATRIX, Unit.VECTOR, Unit.SELECT)))
