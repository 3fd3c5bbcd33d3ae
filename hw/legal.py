"""Legality: whether a unit knows an operation and every flag that is set, in this combination."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.isa import HEADER, SOp, Unit, VOp, legal_flags

__all__ = ["Legal"]

_BITS = dict(HEADER)
_OPERATIONS = tuple(
    [(unit, 0) for unit in (Unit.LOAD, Unit.STORE, Unit.MATRIX)]
    + [(Unit.VECTOR, op) for op in VOp] + [(Unit.SELECT, op) for op in SOp])


class Legal(wiring.Component):
    """Combinational truth tables of ``gemmule.isa.legal_flags``, one for each set of legal flags.

    Members
    -------
    unit, op, flags: In
        Header fields.
    known: Out(1)
        The unit exists, knows the operation, and its flags are legal.
    """

    def __init__(self) -> None:
        super().__init__({
            "unit": In(_BITS["unit"]), "op": In(_BITS["op"]), "flags": In(_BITS["flags"]), "known": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tables: dict[int, list[int]] = {}  # bit f: flags f are legal -> {unit, op} of the operations
        for unit, op in _OPERATIONS:
            table = sum(legal_flags(unit, op, flags) << flags for flags in range(1 << len(self.flags)))
            tables.setdefault(table, []).append(unit | op << len(self.unit))
        operation = Signal(len(self.unit) + len(self.op))
        m.d.comb += operation.eq(self.unit | self.op << len(self.unit))
        with m.Switch(operation):
            for i, (table, operations) in enumerate(tables.items()):
                truth = Signal(1 << len(self.flags), name=f"table_{i}")
                chosen = Signal(name=f"known_{i}")
                m.d.comb += [truth.eq(Const(table, len(truth))), chosen.eq(truth.bit_select(self.flags, 1))]
                with m.Case(*operations):
                    m.d.comb += self.known.eq(chosen)
        return m
