"""Legality: whether a unit knows an operation and every flag that is set, in this combination, on this device."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.isa import HEADER, INDEX_BITS, MoveFlag, SOp, Unit, VOp, field_bits, legal_flags
from gemmule.operations import EXPONENTIALS, FEATURES, needs

__all__ = ["Legal"]

_BITS = dict(HEADER)
_OPERATIONS = tuple(
    [(unit, 0) for unit in (Unit.LOAD, Unit.STORE, Unit.MATRIX)]
    + [(Unit.VECTOR, op) for op in VOp] + [(Unit.SELECT, op) for op in SOp])


class Legal(wiring.Component):
    """Combinational truth tables of ``gemmule.isa.legal_flags``, one for each set of legal flags.

    Parameters
    ----------
    features: frozenset[str]
        Of ``gemmule.operations.FEATURES``, those of the device.
    index_bits: int
        Bits of an index.

    Members
    -------
    unit, op, flags: In
        Header fields.
    period: In
        Field of a vector command's body.
    last_index: In
        Field of a move's body.
    known: Out(1)
        The unit exists, knows the operation, its flags are legal, and so are the exponential of a softmax and the
        largest index of a move.
    """

    def __init__(self, *, features: frozenset[str] = frozenset(FEATURES), index_bits: int = max(INDEX_BITS)) -> None:
        self._features, self._index_bits = features, index_bits
        super().__init__({
            "unit": In(_BITS["unit"]), "op": In(_BITS["op"]), "flags": In(_BITS["flags"]),
            "period": In(field_bits(Unit.VECTOR, "period")), "last_index": In(field_bits(Unit.LOAD, "last_index")),
            "known": Out(1),
        })

    def _legal(self, unit: int, op: int, flags: int) -> bool:
        return legal_flags(unit, op, flags) and needs(unit, op, flags) <= self._features

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tables: dict[int, list[int]] = {}  # bit f: flags f are legal -> {unit, op} of the operations
        for unit, op in _OPERATIONS:
            table = sum(self._legal(unit, op, flags) << flags for flags in range(1 << len(self.flags)))
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
        exponentials = len(EXPONENTIALS) if "comparison_modes" in self._features else 1
        with m.If(operation.matches(*(Unit.VECTOR | op << len(self.unit) for op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)))
                  & (self.period >= exponentials)):
            m.d.comb += self.known.eq(0)
        if self._index_bits < len(self.last_index):
            with m.If((self.unit < Unit.MATRIX) & self.flags[MoveFlag.INDEXED]
                      & self.last_index[self._index_bits:].any()):
                m.d.comb += self.known.eq(0)
        return m
