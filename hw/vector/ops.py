"""What the parts of the vector unit agree on: traits of each operation, tokens, captures.

A new operation starts here: its traits make the sequencer read and loop and the unit write and finish;
what is left is its arithmetic in the lane.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from amaranth.hdl import ShapeLike, Value, signed
from amaranth.lib import data
from amaranth.utils import bits_for, exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS, shared_bit
from gemmule.isa import AddFlag, ColumnFlag, NormFlag, ProductFlag, RequantFlag, SoftmaxFlag, VOp
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from gemmule.operations import SOFTMAX_OPS

__all__ = ["WORDS", "Traits", "capture_layout", "is_op", "lane_control_layout", "part_bits",
           "row_write", "token_layout", "traits_layout", "traits_of"]

WORDS = WORD_TABLE_ENTRIES - 1
"""Segments of the word table; its last entry only ends the last one."""


def token_layout(config: Config) -> data.StructLayout:
    """One pass of the pipeline: a row of one column group, issued with its last read.

    ``first`` and ``final`` mark a row's first and last column group, ``last`` the command's last pass;
    ``mask`` has a bit per lane that is a visible column (but for TREE); ``row`` is the row (of a table: the table row);
    ``part`` is the part of the memory rows that the lanes take.
    """
    rows = max(config.stat_rows, BYTE_TABLE_ENTRIES // config.dim, WORDS // config.dim + 1)
    return data.StructLayout({
        "valid": 1, "first": 1, "final": 1, "last": 1, "row": bits_for(rows - 1),
        "dst": ROW_BITS, "mask": config.lanes, "part": part_bits(config),
    })


def part_bits(config: Config) -> int:
    """Bits of a part's number; one more than needed of a device that takes rows whole."""
    return max(1, exact_log2(config.vector_passes))


def capture_layout(config: Config) -> data.StructLayout:
    """What the data of a read are: one bit for each register that takes them, one cycle later; and their part."""
    return data.StructLayout({
        "low0": 1,  # low plane of an int16 operand on r0
        "main": 1,  # operand: accumulator, r0, or r0 with the low plane
        "low1": 1,  # low byte of an int16 value on r1
        "aux": 1,  # second operand: residual, gamma, cosine, or int8
        "sine": 1, "mult": 1, "shift": 1,
        "bias": 1,  # shifts in at the top of the column's int32
        "table": 1, "words_low": 1, "words_high": 1,
        "bitmap": 1,
        "part": part_bits(config),
    })


def lane_control_layout() -> data.StructLayout:
    """The command, decoded once for all lanes. Shifts are limited already, and ``low <= high``.

    ``by_n`` multiplies by ``n`` in stage 2 (ADD: its multiplier), ``store`` takes a result past the second rounding,
    ``full`` gives scores 32 bits, ``pair`` is of int8 operands; ``aux`` is 0 where no operand is multiplied by it.
    """
    return data.StructLayout({
        "product": 1, "add": 1, "rotate": 1, "square": 1, "norm": 1, "exp": 1, "absmax": 1, "by_n": 1,
        "planes": 1, "pair": 1, "relu": 1, "residual": 1, "wide": 1, "lookup": 1, "by_row": 1, "store": 1, "full": 1,
        "interpolate": 1, "weigh": 1, "late": 1, "gelu": 1, "kind": 2,
        "mult": 16, "aux": 16, "shift": 6, "shift2": 6, "n": LENGTH_BITS, "low": signed(8), "high": signed(8),
    })


def row_write(config: Config, shape: ShapeLike) -> data.StructLayout:
    """Write of one row's statistic."""
    return data.StructLayout({"en": 1, "row": exact_log2(config.stat_rows), "data": shape})


def is_op(command: data.View, *ops: VOp) -> Value:
    """Whether the command's operation is one of ``ops``."""
    return command.op.matches(*(int(op) for op in ops))


@dataclass(frozen=True)
class Traits:
    """Properties of a command, one bit each, decoded from operation and flags."""

    norm_stat: Value
    norm_apply: Value
    softmax_max: Value
    softmax_exp: Value
    absmax: Value
    accumulator: Value
    """First operand: int32 of the accumulator."""
    planes: Value
    """First operand, and of a pair the second: int16 in two planes of the scratchpad, read in two cycles."""
    pair: Value
    """Operands: at src0 and src1, int8 or with ``planes`` int16."""
    table: Value
    """Fills the byte table."""
    words: Value
    """Fills the word table: all low bytes, then all high bytes."""
    column: Value
    """Parameters at src1: multiplier and shift of each column, ``COLUMN_ROWS``."""
    bias: Value
    """Parameters at src1, behind those of ``column``: int32 of each column, ``BIAS_ROWS``."""
    gamma: Value
    """Parameters at src1: int16 of each column, ``GAMMA_ROWS``."""
    rotate: Value
    """Second operand: cosine and sine at aux, read in four cycles."""
    residual: Value
    """Second operand: int16 at dst, read in two cycles."""
    rescale: Value
    """The residual is multiplied by aux and shifted first."""
    by_rows: Value
    """Statistic: rows outer, column groups inner; the command ends with its last context."""
    causal: Value
    """Row i of m sees columns 0 .. n + after - m + i."""
    tree: Value
    """Of the last m columns of the row, row i sees those of its bitmap at src1 + i."""
    mean: Value
    """The row's mean is subtracted."""
    onward: Value
    """The row's maximum or sum starts from the context's."""
    more: Value
    """The row's sum stays in the context, without a reciprocal."""
    divides: Value
    """A row's statistic ends in a divider."""
    by_row: Value
    """Multiplier and shift of each row, from the context."""
    relu: Value
    clamp: Value
    """int8 limits: low and high byte of aux."""
    lookup: Value
    """The int8 result goes through the byte table."""
    online: Value
    """Maxima in whole octaves, and sums that are shifted by their rise."""
    rounds: Value
    """The mean that is subtracted is a rounded integer."""
    rescales: Value
    """Accumulator rows shifted by the context's rise, back into the accumulator (not through ``writes``)."""
    gelu: Value
    interpolate: Value
    """The int16 result goes through the word table."""
    weigh: Value
    """Softmax weights of 16 bits, or normalised: p times a multiplier of the row."""
    wide: Value
    """Result of 16 bits in two planes, written in two cycles."""
    late: Value
    """Rows are written ``vector_stat`` cycles after their last read, not ``vector_write``."""
    writes: Value
    """Rows go to dst."""
    parameters: Value
    """Whether each column group starts with parameter rows: of ``column``, ``bias``, or ``gamma``."""


def traits_layout() -> data.StructLayout:
    """The traits of the command in work, decoded with its start and registered beside it."""
    return data.StructLayout({field.name: 1 for field in fields(Traits)})


def traits_of(command: data.View) -> Traits:
    """Decode a command; flags that its operation does not know are ignored."""
    def op(*ops: VOp) -> Value:
        return is_op(command, *ops)

    def flag(*flags: IntEnum) -> Value:
        return command.flags[shared_bit(*flags)]

    requant, stored, gelu = op(VOp.REQUANT), op(VOp.REQUANT, VOp.ADD), op(VOp.I_GELU)
    scaled, rescales = op(VOp.REQUANT, VOp.ROPE, VOp.I_GELU), op(VOp.RESCALE)
    norm, softmax, product = op(VOp.NORM_STAT, VOp.NORM_APPLY), op(*SOFTMAX_OPS), op(VOp.PRODUCT)
    residual = requant & flag(RequantFlag.RESIDUAL)
    widened = op(VOp.REQUANT, VOp.PRODUCT, VOp.ADD, VOp.NORM_APPLY, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM) & flag(
        RequantFlag.WIDE, ProductFlag.WIDE, AddFlag.WIDE, NormFlag.WIDE, SoftmaxFlag.WIDE)
    wide = residual | widened
    more = op(VOp.SOFTMAX_EXP) & flag(SoftmaxFlag.MORE)
    interpolate = requant & widened & ~residual & flag(RequantFlag.LOOKUP)
    weigh = op(VOp.SOFTMAX_NORM) | (op(VOp.SOFTMAX_EXP) & widened)
    column = scaled & flag(RequantFlag.COLUMN, ColumnFlag.COLUMN)
    bias = (scaled | op(VOp.NORM_APPLY)) & flag(RequantFlag.BIAS, ColumnFlag.BIAS, NormFlag.BIAS)
    gamma = op(VOp.NORM_APPLY)
    return Traits(
        norm_stat=op(VOp.NORM_STAT), norm_apply=op(VOp.NORM_APPLY),
        softmax_max=op(VOp.SOFTMAX_MAX), softmax_exp=op(VOp.SOFTMAX_EXP), absmax=op(VOp.ABSMAX),
        accumulator=scaled | softmax | op(VOp.ABSMAX, VOp.RESCALE),
        planes=norm | (product & widened),
        pair=op(VOp.PRODUCT, VOp.ADD),
        table=op(VOp.TABLE),
        words=op(VOp.WORD_TABLE),
        column=column,
        bias=bias,
        gamma=gamma,
        parameters=column | bias | gamma,
        rotate=op(VOp.ROPE),
        residual=residual,
        rescale=residual & flag(RequantFlag.RESCALE),
        by_rows=softmax | op(VOp.NORM_STAT, VOp.ABSMAX),
        causal=softmax & flag(SoftmaxFlag.CAUSAL),
        tree=softmax & flag(SoftmaxFlag.TREE),
        mean=norm & flag(NormFlag.MEAN),
        onward=op(VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP) & flag(SoftmaxFlag.CONTINUE),
        more=more,
        divides=op(VOp.NORM_STAT, VOp.ABSMAX) | (op(VOp.SOFTMAX_EXP) & ~more),
        online=op(VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP) & flag(SoftmaxFlag.ONLINE),
        rounds=op(VOp.NORM_STAT) & flag(NormFlag.ROUND),
        rescales=rescales,
        gelu=gelu,
        by_row=op(VOp.NORM_APPLY, VOp.RESCALE) | (requant & flag(RequantFlag.ROW)),
        relu=stored & flag(RequantFlag.RELU, AddFlag.RELU),
        clamp=requant & ~wide & flag(RequantFlag.CLAMP),
        lookup=stored & ~wide & flag(RequantFlag.LOOKUP, AddFlag.LOOKUP),
        interpolate=interpolate,
        weigh=weigh,
        wide=wide,
        late=interpolate | weigh | gelu,
        writes=scaled | op(VOp.PRODUCT, VOp.ADD, VOp.NORM_APPLY, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM),
    )
