"""Random vector commands, on contexts and tables that earlier commands have set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.isa import MAX_LENGTH, Command, Dyn, NormFlag, ProductFlag, RequantFlag, SoftmaxFlag, Unit, VOp
from gemmule.numerics import WORD_TABLE_ENTRIES
from gemmule.operands import Memory, operands_of
from gemmule.operations import EXPONENTIALS, SOFTMAX_OPS
from gemmule.sim.fuzz.draw import Draw, Note, sets_of
from gemmule.terms import Term

__all__ = ["SCALED", "draw_vector", "word_table_rows"]

_R, _S, _N = RequantFlag, SoftmaxFlag, NormFlag
_TABLES = (VOp.TABLE, VOp.WORD_TABLE)
SCALED = (VOp.REQUANT, VOp.PRODUCT, VOp.ADD, VOp.ROPE)
"""Operations whose scaling often comes from registers."""
# What is needed before an operation, and how it is set up.
_NEEDS = {VOp.NORM_APPLY: "norm", VOp.SOFTMAX_EXP: "maximum", VOp.SOFTMAX_NORM: "reciprocal", VOp.RESCALE: "risen"}
_SETS = {"norm": VOp.NORM_STAT, "maximum": VOp.SOFTMAX_MAX, "reciprocal": VOp.SOFTMAX_EXP, "total": VOp.SOFTMAX_EXP,
         "octaves": VOp.SOFTMAX_MAX, "risen": VOp.SOFTMAX_MAX}
_SETS_WITH = {"total": {_S.MORE}, "octaves": {_S.ONLINE}, "risen": {_S.ONLINE, _S.CONTINUE}}


def word_table_rows(dim: int) -> int:
    """Scratchpad rows that WORD_TABLE reads."""
    return 2 * -(-WORD_TABLE_ENTRIES // dim)


def _context(draw: Draw, kind: str) -> tuple[int, int] | None:
    """A context that holds this kind of statistic, and for how many rows."""
    known = [(context, rows) for (what, context), rows in draw.contexts.items() if what == kind]
    return draw.choice(known) if known else None


def _flags(draw: Draw, op: VOp) -> tuple[VOp, frozenset[int]]:
    """A set of flags; another operation where a table must be loaded first."""
    flags: frozenset[int] = draw.choice(sets_of(draw.config, Unit.VECTOR, op))
    # What needs most waits must be drawn more often, for it is taken more seldom.
    if op is VOp.REQUANT and draw.chance(0.45):
        flags = flags | {_R.RESIDUAL, _R.RESCALE} if draw.chance(0.5) else flags - {_R.WIDE, _R.RESIDUAL} | {_R.CLAMP}
    if op in SOFTMAX_OPS and draw.chance(0.4):
        flags = flags - {_S.CAUSAL, _S.TREE} | {draw.choice([_S.CAUSAL, _S.TREE, _S.TREE])}
    if op is VOp.REQUANT and draw.chance(0.5):
        flags -= {_R.ROW}
    if _R.LOOKUP in flags:
        words = bool(op is VOp.REQUANT and _R.WIDE in flags and _R.RESIDUAL not in flags)
        fits = not words or word_table_rows(draw.config.dim) <= draw.config.spm_rows
        if fits and not (draw.words if words else draw.table):
            if draw.chance(0.2):
                return VOp.WORD_TABLE if words else VOp.TABLE, frozenset()
            flags -= {_R.LOOKUP}
    return op, flags


def draw_vector(draw: Draw) -> tuple[Command, Sequence[Note]]:
    """A command and the context or table that it sets up."""
    config = draw.config
    wish = draw.wished if isinstance(draw.wished, VOp) else None
    op, flags = _flags(draw, wish or draw.vector_ops[draw.random.choice(len(draw.vector_ops), p=draw.ops)])
    m, n = draw.size(2), draw.size(6 * draw.roomy * draw.roomy)
    if op is VOp.ROPE and draw.chance(0.7):  # a row takes up to 16 rows of angles
        m = draw.size(1)
    context = draw.integer(0, config.stat_contexts - 1)
    need = "reciprocal" if op is VOp.REQUANT and _R.ROW in flags else _NEEDS.get(op)
    if op in SOFTMAX_OPS and _S.CONTINUE in flags and draw.chance(0.7):  # mostly go on from another piece
        need = "maximum" if op is VOp.SOFTMAX_MAX or _context(draw, "total") is None else "total"
        if op is VOp.SOFTMAX_EXP and _S.ONLINE in flags and _context(draw, "risen") and draw.chance(0.5):
            need = "risen"
    while need:
        found = _context(draw, need)
        if found is not None:
            context, m = found[0], min(m, found[1])
            break
        op, flags = _SETS[need], frozenset(_SETS_WITH.get(need, set()))
        if need == "norm" and draw.chance(0.5):
            flags = frozenset([_N.MEAN])
        need = "octaves" if need == "risen" else _NEEDS.get(op)
    if op is VOp.ABSMAX:
        context = draw.integer(0, max(0, config.stat_contexts - 2))
    values = _operands(draw, op, flags, m)
    if n and (columns := _long(draw, op, flags)):
        m, n, values = columns
    values |= _scales(draw, op, flags, n) | {"context": context, "period": _period(draw, op)}
    if draw.chance(0.25 if op in SCALED else 0.1):
        values["scale_reg"] = draw.register()
    which = draw.choice([(Dyn.SRC0, "src0"), (Dyn.SRC1, "src1"), (Dyn.DST, "dst")])
    dyn = draw.dynamic(which[0], values, which[1])
    command = Command.make(
        Unit.VECTOR, op=op, flags=flags, dyn=dyn, m=draw.length(m), n=draw.length(n), **values)
    return command, _notes(op, flags, context, m if n else 0)


def _long(draw: Draw, op: VOp, flags: frozenset[int]) -> tuple[int, int, dict[str, Any]] | None:
    """One very long row, with its columns and operands: it reads the same rows again and again."""
    if op in (*_TABLES, VOp.ROPE):
        return None
    found = {operand.name: operand for operand in operands_of(Unit.VECTOR, op, sum(1 << flag for flag in flags))}
    if "parameters" in found or "residual" in found:
        return None
    values, most = _operands(draw, op, flags, 1) | {"src0_stride": 0}, MAX_LENGTH
    if op is VOp.PRODUCT:
        values["aux"] = 0
    if "dst" in found:
        planes = 2 if found["dst"].planes is Term.TWO else 1
        rows = draw.config.acc_rows if found["dst"].memory is Memory.ACC else draw.config.spm_rows
        rows = rows // 2 if draw.sealed else rows
        half = rows // 2  # from the memory's first row, or into its second half
        values["dst"], values["dst_stride"] = draw.choice([0, half]), planes
        most = (rows - values["dst"]) // planes * draw.config.dim
    n = draw.long(most, draw.config.vector_passes / draw.config.dim,
                  1.0 if draw.wished is op else 0.7 if op is VOp.NORM_STAT else 0.2)
    return (1, n, values) if n else None


def _scales(draw: Draw, op: VOp, flags: frozenset[int], n: int) -> dict[str, int]:
    """Multiplier and shifts: any, mostly such that what an operation is about stays within its range."""
    values: dict[str, int] = {
        "mult": draw.choice([1, draw.integer(0, 255), draw.integer(0, 65535)]),
        "shift": draw.choice([draw.integer(0, 20), draw.integer(8, 24), draw.integer(0, 63)]),
        "shift2": draw.choice([14, draw.integer(0, 40)]),
    }
    if draw.chance(0.15):  # ties, and the smallest shifts
        bit = draw.integer(0, 3)
        values["mult"], values["shift"] = 1 << bit, bit + draw.integer(0, 2)
        values["shift2"] = draw.integer(0, 3)
        return values
    if op in SOFTMAX_OPS and draw.flat and draw.chance(0.8):
        values["shift"] = 63
        return values
    if not draw.chance(0.7):
        return values
    if op in SOFTMAX_OPS or op is VOp.I_GELU:  # a few octaves, from sums of products or from any int32
        values["mult"], values["shift"] = draw.integer(1 << 14, 65535), draw.integer(11, 17) + draw.choice([0, 18])
        values["shift2"] = draw.integer(8, 18)
    elif op is VOp.PRODUCT and ProductFlag.WIDE in flags:  # from any words to about 16 bits, now and then beyond
        values["mult"], values["shift"] = draw.integer(1 << 14, 65535), draw.integer(27, 34)
    elif op is VOp.NORM_STAT and _N.ROUND in flags and n:  # nearly 1 / n
        values["shift"] = 14 + n.bit_length()
        values["mult"] = (1 << values["shift"]) // n
    return values


def _period(draw: Draw, op: VOp) -> int:
    """What ``period`` means depends on the operation; for most it means nothing."""
    if op is VOp.ROPE:
        return int(draw.choice([0, 0, 1, 2]))
    if op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM):
        return draw.integer(0, len(EXPONENTIALS) - 1) if draw.config.comparison_modes else 0
    return draw.integer(0, 7)


def _notes(op: VOp, flags: frozenset[int], context: int, rows: int) -> list[Note]:
    if op in _TABLES:
        return [("table" if op is VOp.TABLE else "words", 0, 0)]
    if not rows:
        return []
    if op is VOp.SOFTMAX_EXP:
        return [("total" if _S.MORE in flags else "reciprocal", context, rows)]
    if op is VOp.ABSMAX:
        return [("reciprocal", at, rows) for at in (context, context + 1)]
    if op is VOp.SOFTMAX_MAX:
        online, further = _S.ONLINE in flags, _S.CONTINUE in flags
        return [("maximum", context, rows), *([("octaves", context, rows)] if online else []),
                *([("risen", context, rows if further else 0)] if online else [])]
    return [("norm", context, rows)] if op is VOp.NORM_STAT else []


def _operands(draw: Draw, op: VOp, flags: frozenset[int], m: int) -> dict[str, Any]:
    """Rows and strides; what ``aux`` means depends on the operation."""
    found = {operand.name: operand for operand in operands_of(Unit.VECTOR, op, sum(1 << flag for flag in flags))}
    planes = 2 if found["src0"].planes is Term.TWO else 1
    wide = "dst" in found and found["dst"].planes is Term.TWO
    pair, inside = "src1" in found, found["src0"].memory is Memory.SPM
    src0, stride = draw.row("spm" if inside else "acc"), draw.stride(m, planes=planes)
    if op is VOp.WORD_TABLE:
        src0 = draw.integer(0, max(0, draw.config.spm_rows - word_table_rows(draw.config.dim)))
    src1 = draw.partner(src0, draw.share) if inside else draw.row()
    dst = draw.row("acc" if "dst" in found and found["dst"].memory is Memory.ACC else "spm")
    dst_stride = draw.stride(m, planes=2 if wide else 1)
    in_place = 0.75 if op is VOp.RESCALE else 0.2 if inside and op not in _TABLES else 0.0
    if draw.chance(in_place):
        dst, stride = src1 if pair and draw.chance(0.3) else src0, max(stride, dst_stride)
        dst_stride = stride if draw.chance(0.9) else dst_stride
    aux = draw.stride(m, planes=2 if pair and found["src1"].planes is Term.TWO else 1)
    if op is VOp.ROPE:
        aux = draw.choice([draw.row(), draw.integer(0, draw.config.spm_rows - 1)])
    elif op in SOFTMAX_OPS:
        aux = _behind(draw, m)
    elif op in (VOp.REQUANT, VOp.ADD):
        limits = draw.integer(-90, 20) & 255 | draw.integer(-20, 127) << 8 & 0xFF00
        aux = draw.choice([limits, draw.integer(0, 65535)])
    elif op is VOp.PRODUCT and dst == src1:
        aux = dst_stride
    return {"src0": src0, "src0_stride": stride, "src1": src1, "aux": aux, "dst": dst, "dst_stride": dst_stride}


def _behind(draw: Draw, m: int) -> int:
    """Columns of the row behind a piece, as ``aux`` gives them: half of the time none, else mostly about m."""
    reg = draw.register()
    offset = max(0, int(draw.lengths[reg]) - draw.integer(0, 2 * m + 1))
    return int(draw.choice([draw.integer(0, 4095) << 4, min(offset, 4095) << 4 | reg]))
