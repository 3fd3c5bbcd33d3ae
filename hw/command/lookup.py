"""Look-up: the length registers that a command names, with what is taken from them and where they end."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.hw.command.fields import control_fields, fields_of, kind_of, named
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    NUM_BASES,
    COp,
    RequantFlag,
    Unit,
    VOp,
    field_bits,
)

__all__ = ["AFTER_REG_BITS", "READS", "Lookup", "lookup_layout"]

AFTER_REG_BITS = 4
"""Low bits of a softmax command's ``aux``: the register of the row's length; the others are what is taken from it."""
READS = ("m", "n", "k", "dyn", "scale", "shifts")
"""What length registers are looked up for."""
REG_BITS = field_bits(Unit.VECTOR, "scale_reg")
OFFSET_BITS = field_bits(Unit.VECTOR, "aux") - AFTER_REG_BITS


def lookup_layout() -> data.StructLayout:
    """Of each length m (also a move's rows), n, k: LEN[register], offset and cap; ``dyn``: LEN of the dynamic row.

    Vector commands have no k: there it is the row's columns up to the end of the piece behind this one. Control
    commands have ``dyn`` alone: the register of a SET's source, or of a REPEAT's times.
    """
    return data.StructLayout({
        **{f"{name}_{part}": bits for name in "mnk" for part, bits in (
            ("value", LENGTH_BITS), ("offset", OFFSET_BITS), ("cap", LENGTH_BITS))},
        "dyn": LENGTH_BITS,
    })


_SCALING = ("mult", "shift", "shift2", "aux")


class Lookup(wiring.Component):
    """Combinational: the only stage that reads registers.

    Members
    -------
    word: In
        Command.
    registers, lengths: Out, In (structs by READS)
        Look-up of length registers, in the same cycle.
    base_index: Out
        Base register that the command names.
    result: Out(lookup_layout)
    scaled: Out
        The command, with the scaling from registers if it names them.
    """

    def __init__(self) -> None:
        super().__init__({
            "word": In(8 * COMMAND_BYTES),
            "registers": Out(data.StructLayout(dict.fromkeys(READS, REG_BITS))),
            "lengths": In(data.StructLayout(dict.fromkeys(READS, LENGTH_BITS))),
            "base_index": Out(range(NUM_BASES)),
            "result": Out(lookup_layout()),
            "scaled": Out(8 * COMMAND_BYTES),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header, move, matrix, vector, select = fields_of(self.word)
        kind, result = kind_of(m, header), self.result
        _, is_move, is_matrix, is_vector, is_select = kind

        def value(name: str, register: Value) -> Value:
            """LEN[register]."""
            m.d.comb += self.registers[name].eq(register)
            return self.lengths[name]

        def of(name: str, part: str) -> Value:  # matrix and vector commands have m and n in the same place
            shared = Mux(is_select, select[f"{name}_{part}"], vector[f"{name}_{part}"])
            return Mux(is_move, move[f"rows_{part}"], shared) if name == "m" else shared

        # The look-up of k, which vector commands lack, serves the last of three registers, or a softmax row.
        by_register = named(m, "by_register", is_vector & (vector.scale_reg != 0))
        flags = Cat(header.flags[RequantFlag.RESIDUAL], header.flags[RequantFlag.RESCALE]).all()
        factor = named(m, "factor", by_register & kind.vop(VOp.ADD) | by_register & kind.vop(VOp.REQUANT) & flags)
        shifts = value("shifts", (vector.scale_reg + 1)[:REG_BITS])
        values = dict(zip(_SCALING, (value("scale", vector.scale_reg), shifts[:6], shifts[6:12], result.k_value)))
        body, size = Signal(vector.shape(), name="scaled_body"), vector.shape().size
        m.d.comb += [body.eq(vector), self.scaled.eq(Cat(self.word[:64], body, self.word[64 + size:]))]
        for name, found in values.items():
            with m.If(factor if name == "aux" else by_register):
                m.d.comb += body[name].eq(found)

        control_reg = Mux(header.op == COp.REPEAT, control_fields(self.word, COp.REPEAT).times_reg,
                          control_fields(self.word, COp.SET).source_reg[:REG_BITS])
        k_reg, k_offset, k_cap = (Mux(is_matrix, matrix[f"k_{part}"], select[f"k_{part}"])
                                  for part in ("reg", "offset", "cap"))
        m.d.comb += [
            self.base_index.eq(move.base),
            *(result[f"{name}_value"].eq(value(name, of(name, "reg"))) for name in "mn"),
            *(result[f"{name}_{part}"].eq(of(name, part)) for name in "mn" for part in ("offset", "cap")),
            result.k_value.eq(value("k", Mux(is_vector, Mux(
                factor, (vector.scale_reg + 2)[:REG_BITS], vector.aux[:AFTER_REG_BITS]), k_reg))),
            result.k_offset.eq(Mux(is_vector, vector.aux[AFTER_REG_BITS:], k_offset)),
            result.k_cap.eq(k_cap),
            result.dyn.eq(value("dyn", Mux(header.unit == CONTROL, control_reg, header.dyn_reg))),
        ]
        return m
