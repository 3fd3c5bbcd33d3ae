"""What the parts of the vector unit agree on: traits of each operation, tokens, captures.

A new operation starts here: its traits make the sequencer read and loop and the unit write and finish;
what is left is its arithmetic in the lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import ROW_BITS
from gemmule.isa import VectorFlag, VOp

__all__ = ["TABLE_BYTES", "Traits", "capture_layout", "is_op", "token_layout", "traits_of"]

TABLE_BYTES = 256


def token_layout(config: Config) -> data.StructLayout:
    """One pass of the pipeline: a row of one column group, issued with its last read.

    ``first`` and ``final`` mark a row's first and last column group, ``last`` the command's last pass;
    ``mask`` has a bit per lane that is a visible column; ``row`` is the row (TABLE: the table row).
    """
    rows = max(config.stat_rows, TABLE_BYTES // config.dim)
    return data.StructLayout({
        "valid": 1, "first": 1, "final": 1, "last": 1, "row": exact_log2(rows),
        "dst": ROW_BITS, "mask": config.dim,
    })


def capture_layout() -> data.StructLayout:
    """What the data of a read are: one bit for each register that takes them, one cycle later."""
    return data.StructLayout({
        "low0": 1,  # low plane of an int16 operand on r0
        "main": 1,  # operand: accumulator, r0, or r0 with the low plane
        "low1": 1,  # low byte of an int16 value on r1
        "aux": 1,  # second operand: residual, gamma, cosine, or int8
        "sine": 1, "mult": 1, "shift": 1,
        "bias": 1,  # shifts in at the top of the column's int32
        "table": 1,
    })


def is_op(command: data.View, *ops: VOp) -> Value:
    """Whether the command's operation is one of ``ops``."""
    return command.op.matches(*(int(op) for op in ops))


@dataclass(frozen=True)
class Traits:
    """Properties of a command, one bit each, decoded from operation and flags."""

    accumulator: Value
    """First operand: int32 of the accumulator."""
    planes: Value
    """First operand: int16 in two planes of the scratchpad, read in two cycles."""
    pair: Value
    """Operands: int8 at src0 and src1."""
    table: Value
    """Fills the byte table."""
    column: Value
    """Parameters at src1: multiplier and shift of each column, 3 rows."""
    bias: Value
    """Parameters at src1, behind those of ``column``: int32 of each column, 4 rows."""
    gamma: Value
    """Parameters at src1: int16 of each column, 2 rows."""
    rotate: Value
    """Second operand: cosine and sine at aux, read in four cycles."""
    residual: Value
    """Second operand: int16 at dst, read in two cycles."""
    rescale: Value
    """The residual is multiplied by aux and shifted first."""
    by_rows: Value
    """Statistic: rows outer, column groups inner; the command ends with its last context."""
    causal: Value
    """Row i of m sees columns 0 .. n - m + i."""
    by_row: Value
    """Multiplier and shift of each row, from the context."""
    relu: Value
    clamp: Value
    """int8 limits: low and high byte of aux."""
    lookup: Value
    """The int8 result goes through the byte table."""
    wide: Value
    """int16 result in two planes, written in two cycles."""
    writes: Value
    """Rows go to dst."""

    @property
    def parameters(self) -> Value:
        """Whether each column group starts with parameter rows."""
        return self.column | self.bias | self.gamma


def traits_of(command: data.View) -> Traits:
    """Decode a command; flags that its operation does not know are ignored."""
    def op(*ops: VOp) -> Value:
        return is_op(command, *ops)

    def flag(bit: VectorFlag) -> Value:
        return command.flags[int(bit)]

    requant, scaled, stored = op(VOp.REQUANT), op(VOp.REQUANT, VOp.ROPE), op(VOp.REQUANT, VOp.ADD)
    softmax = op(VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP)
    residual = requant & flag(VectorFlag.RESIDUAL)
    wide = residual | (stored & flag(VectorFlag.WIDE))
    return Traits(
        accumulator=scaled | softmax,
        planes=op(VOp.RMS_STAT, VOp.RMS_APPLY),
        pair=op(VOp.PRODUCT, VOp.ADD),
        table=op(VOp.TABLE),
        column=scaled & flag(VectorFlag.COLUMN),
        bias=scaled & flag(VectorFlag.BIAS),
        gamma=op(VOp.RMS_APPLY),
        rotate=op(VOp.ROPE),
        residual=residual,
        rescale=residual & flag(VectorFlag.RESCALE),
        by_rows=softmax | op(VOp.RMS_STAT),
        causal=softmax & flag(VectorFlag.CAUSAL),
        by_row=op(VOp.RMS_APPLY) | (requant & flag(VectorFlag.ROW)),
        relu=stored & flag(VectorFlag.RELU),
        clamp=requant & ~wide & flag(VectorFlag.CLAMP),
        lookup=stored & ~wide & flag(VectorFlag.LOOKUP),
        wide=wide,
        writes=scaled | op(VOp.PRODUCT, VOp.ADD, VOp.RMS_APPLY, VOp.SOFTMAX_EXP),
    )
