"""Cycles of the vector unit for its benches: what is read and written in which cycle, from docs/timing.md alone."""

from __future__ import annotations

from gemmule.isa import NormFlag as N
from gemmule.isa import RequantFlag as R
from gemmule.isa import SoftmaxFlag as S
from gemmule.isa import VOp

__all__ = [
    "NORM_OPS", "SOFTMAX_OPS", "Command", "flags_of", "has_tree", "is_late", "is_wide", "parameter_rows", "reads_of",
    "stride1", "trace",
]

Command = dict[str, int]
WRITE, STAT, RESCALE, MEAN, NORM, SOFTMAX = 11, 14, 7, 4, 36, 19
SOFTMAX_OPS = (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)
BY_ROWS = (*SOFTMAX_OPS, VOp.NORM_STAT, VOp.ABSMAX)
SILENT = (VOp.SOFTMAX_MAX, VOp.NORM_STAT, VOp.ABSMAX)
SCALED, NORM_OPS = (VOp.REQUANT, VOp.ROPE, VOp.I_GELU), (VOp.NORM_STAT, VOp.NORM_APPLY)
WIDENED = (VOp.REQUANT, VOp.PRODUCT, VOp.ADD, VOp.NORM_APPLY, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM)


def flags_of(c: Command) -> set[int]:
    """Numbers of the bits that are set; a flag of every operation equals its bit."""
    return {bit for bit in range(8) if c["flags"] >> bit & 1}


def parameter_rows(c: Command) -> int:
    """P: parameter rows of a column group."""
    bias = 4 * (R.BIAS in flags_of(c))
    if c["op"] == VOp.NORM_APPLY:
        return 2 + bias
    return (3 * (R.COLUMN in flags_of(c)) + bias) * (c["op"] in SCALED)


def is_wide(c: Command) -> bool:
    """Whether the result has 16 bits."""
    flags = flags_of(c)
    return c["op"] in WIDENED and (R.WIDE in flags or (c["op"] == VOp.REQUANT and R.RESIDUAL in flags))


def is_late(c: Command) -> bool:
    """Whether rows are written ``vector_stat`` cycles after their last read."""
    flags, op = flags_of(c), c["op"]
    if op == VOp.REQUANT:
        return {R.WIDE, R.LOOKUP} <= flags and R.RESIDUAL not in flags
    return op in (VOp.SOFTMAX_NORM, VOp.I_GELU) or (op == VOp.SOFTMAX_EXP and S.WIDE in flags)


def latency(c: Command) -> int:
    """Cycles from a row's last read to its write."""
    return STAT if is_late(c) else RESCALE if c["op"] == VOp.RESCALE else WRITE


def has_tree(c: Command) -> bool:
    """Whether the rows have bitmaps at src1."""
    return c["op"] in SOFTMAX_OPS and S.TREE in flags_of(c)


def divides(c: Command) -> bool:
    """Whether each row ends in a divider."""
    return c["op"] in (VOp.NORM_STAT, VOp.ABSMAX) or (c["op"] == VOp.SOFTMAX_EXP and S.MORE not in flags_of(c))


def stride1(c: Command) -> int:
    """Group stride of src1 of PRODUCT and ADD."""
    return c["aux"] if c["op"] == VOp.PRODUCT else c["src0_stride"]


def reads_of(c: Command, dim: int, passes: int) -> int:
    """Cycles with reads: the table of docs/timing.md."""
    op, m, groups = VOp(c["op"]), c["m"], passes * -(-c["n"] // dim)
    if op is VOp.TABLE:
        return max(1, 256 // dim)
    if op is VOp.WORD_TABLE:
        return 2 * -(-513 // dim)
    if op in BY_ROWS:
        return m * groups * (2 if op is VOp.NORM_STAT or is_wide(c) else 1)
    apart = c["apart"] and op in (VOp.PRODUCT, VOp.ADD)
    each = 4 if op is VOp.ROPE else 2 if op is VOp.NORM_APPLY or is_wide(c) or apart else 1
    if op is VOp.PRODUCT and is_wide(c) and apart:
        each = 4
    return groups * (parameter_rows(c) + m * each)


def trace(c: Command, dim: int, passes: int, dividers: int) -> tuple[
        list[dict[str, int]], dict[int, tuple[int, int]], int]:
    """Reads by cycle after issue (port: row), each a cycle after its step; writes (cycle: row and its part), each a
    cycle after its result, RESCALE's in that cycle to the accumulator; and the cycles to the finish."""
    op, m, params = VOp(c["op"]), c["m"], parameter_rows(c)
    reads: list[dict[str, int]] = [{}]  # steps: of cycle t, none
    writes: dict[int, tuple[int, int]] = {}
    if op in (VOp.TABLE, VOp.WORD_TABLE):
        reads += [{"r0": c["src0"] + i} for i in range(reads_of(c, dim, passes))]
        return [{}, *reads], writes, reads_of(c, dim, passes) + WRITE
    parts = range(passes * -(-c["n"] // dim))
    order = [(p, i) for i in range(m) for p in parts] if op in BY_ROWS else [(p, i) for p in parts for i in range(m)]
    for part, i in order:
        g = part // passes
        if i == 0 and op not in BY_ROWS:
            reads += [{"r1": c["src1"] + g * params + p} for p in range(params)]
        at0 = c["src0"] + g * c["src0_stride"] + i
        at2 = c["dst"] + g * c["dst_stride"] + i
        if op in (VOp.PRODUCT, VOp.ADD):
            at1 = c["src1"] + g * stride1(c) + i
        if op is VOp.PRODUCT and is_wide(c):
            planes = [{"r0": at0}, {"r0": at0 + c["src0_stride"] // 2}], [{"r1": at1}, {"r1": at1 + c["aux"] // 2}]
            reads += [*planes[0], *planes[1]] if c["apart"] else [a | b for a, b in zip(*planes, strict=True)]
        elif op in (VOp.PRODUCT, VOp.ADD):
            both = [{"r0": at0}, {"r1": at1}] if c["apart"] else [{"r0": at0, "r1": at1}, {}]
            reads += both if c["apart"] or is_wide(c) else both[:1]
        elif op in NORM_OPS:
            reads += [{"r0": at0}, {"r0": at0 + c["src0_stride"] // 2}]
        elif op is VOp.ROPE:
            entry = c["aux"] + i * (4 << c["period"]) + g % (1 << c["period"]) * 4
            reads += [{"acc": at0, "r1": entry}, *({"r1": entry + k} for k in (1, 2, 3))]
        elif op is VOp.REQUANT and R.RESIDUAL in flags_of(c):
            reads += [{"acc": at0, "r1": at2}, {"r1": at2 + c["dst_stride"] // 2}]
        else:
            bitmap = {"r1": c["src1"] + i} if has_tree(c) and part == 0 else {}
            reads += [{"acc": at0} | bitmap] + [{}] * is_wide(c)
        last = len(reads) - 1 + latency(c)
        if is_wide(c):
            writes[last - 1] = at2, part % passes
            writes[last] = at2 + c["dst_stride"] // 2, part % passes
        elif op not in SILENT:
            writes[last] = at2, part % passes
    assert len(reads) - 1 == reads_of(c, dim, passes)
    later = {cycle + 1: place for cycle, place in writes.items()}
    if not divides(c):
        seen = writes if op is VOp.RESCALE else later
        return [{}, *reads], seen, reads_of(c, dim, passes) + (STAT if op in BY_ROWS else latency(c))
    serial, period = (NORM if op is VOp.NORM_STAT else SOFTMAX), reads_of(c, dim, passes) // m
    stat = STAT + (MEAN if op is VOp.NORM_STAT and N.MEAN in flags_of(c) else 0)
    ends = [0] * dividers
    for i in range(m):
        ends[i % dividers] = max((i + 1) * period + stat, ends[i % dividers]) + serial
    return [{}, *reads], later, max(*ends, *writes, 0)
