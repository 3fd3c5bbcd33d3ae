"""Times of one matrix, vector or select command for the plain simulator of ``engine_reference``.

Commands are dictionaries of resolved fields, with their flag bits in ``has``; ``t`` is the cycle of issue.
"""

from __future__ import annotations

from gemmule.config import Config
from gemmule.isa import ImportanceFlag, KeysFlag, MatrixFlag, NormFlag, RequantFlag, SoftmaxFlag, SOp, TopKFlag, VOp
from gemmule.timing import Timing


def ceil(a: int, b: int) -> int:
    return (a + b - 1) // b


def matrix(c: Config, x: Timing, t: int, v: dict, stream_free: int) -> tuple[int, int, int, int]:
    """(preload_free, release of B, e, finish)."""
    has = v["has"]
    gm, gn, gk = (ceil(v[name], c.dim) for name in "mnk")
    if MatrixFlag.OUTPUT_STATIONARY in has:
        s = max(t + x.matrix_first + 1, stream_free)
        e = s + gn * gm * gk * c.dim
        return s, e, e, e + x.matrix_drain + c.dim
    stream = max(gm * c.dim if MatrixFlag.A_TRANSPOSED in has else v["m"], x.matrix_rmw)
    items = c.dim // c.preload
    load = items + (MatrixFlag.GROUP_SCALES in has)
    slot = max(stream, items)
    if MatrixFlag.REUSE in has:
        load, slot = 1, stream
    last = slot
    if v["apart"]:
        slot, last = stream + load, stream
    s = max(t + x.matrix_first + load, stream_free)
    begin = [s + j * slot for j in range(gn * gk)]
    e = begin[-1] + last
    free = s if MatrixFlag.REUSE in has else begin[-1]
    return free, free, e, e + x.matrix_drain


def vector(c: Config, x: Timing, t: int, v: dict) -> int:
    """Finish of a vector command, its rows one after the other."""
    op, m, has = v["op"], v["m"], v["has"]
    g, wide = ceil(v["n"], c.dim), RequantFlag.WIDE in has
    bias = 4 if RequantFlag.BIAS in has else 0
    p = (3 if RequantFlag.COLUMN in has else 0) + bias
    planes, apart = 2 if wide else 1, 2 if v["apart"] else 1
    rows = m * g * planes
    reads = {
        VOp.REQUANT: g * (p + m * (2 if has & {RequantFlag.WIDE, RequantFlag.RESIDUAL} else 1)),
        VOp.PRODUCT: g * m * planes * apart, VOp.ADD: g * m * max(planes, apart),
        VOp.ROPE: g * (p + 4 * m), VOp.NORM_APPLY: g * (2 + bias + 2 * m),
        VOp.I_GELU: g * (p + m), VOp.RESCALE: g * m,
        VOp.NORM_STAT: m * g * 2, VOp.SOFTMAX_MAX: m * g, VOp.SOFTMAX_EXP: rows, VOp.SOFTMAX_NORM: rows,
        VOp.ABSMAX: m * g, VOp.TABLE: max(1, 256 // c.dim), VOp.WORD_TABLE: 2 * ceil(513, c.dim),
    }[VOp(op)]
    last = t + x.vector_first + reads - 1
    more = op == VOp.SOFTMAX_EXP and SoftmaxFlag.MORE in has
    words = op == VOp.REQUANT and {RequantFlag.WIDE, RequantFlag.LOOKUP} <= has - {RequantFlag.RESIDUAL} == has
    if op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_NORM, VOp.I_GELU) or more or words:
        return last + x.vector_stat
    if op == VOp.RESCALE:
        return last + x.vector_rescale
    if op not in (VOp.NORM_STAT, VOp.SOFTMAX_EXP, VOp.ABSMAX):
        return last + x.vector_write
    serial = x.norm_serial if op == VOp.NORM_STAT else x.softmax_serial
    mean = x.vector_mean if op == VOp.NORM_STAT and NormFlag.MEAN in has else 0
    period, done = reads // m, []
    for i in range(m):
        ready = t + x.vector_first - 1 + (i + 1) * period + x.vector_stat + mean
        start = ready if i < c.dividers else max(ready, done[i - c.dividers])
        done.append(start + serial)
    return max([*done, last + x.vector_write] if op == VOp.SOFTMAX_EXP else done)


def select(c: Config, x: Timing, t: int, v: dict) -> int:
    """Walks the loops of a select command, a cycle for each step."""
    has, m, n = v["has"], v["m"], v["n"]
    groups = range(ceil(n, c.dim))
    planes = range(2 if ImportanceFlag.WIDE in has else 1)
    rows = [(i, g) for i in range(m) for g in groups]
    entries = [(row, e) for row in range(ceil(n, c.dim // 2)) for e in range(c.dim // 2)]
    passes = [(count, g) for count in range(6) for g in range(len(groups) + 4)]
    walk, delay = {
        SOp.ARGMAX: ([(*row, plane) for row in rows for plane in (0, 1)], x.select_result),
        SOp.KEYS: ([(g, plane) for g in groups for plane in (0, 1)], x.select_write),
        SOp.TOP_K: ([*passes, *groups, *4 * ["filter"]], 0),
        SOp.PACK: ([(i, g) for i in range(m) for g in (*groups, "rest")], x.select_pack),
        SOp.IMPORTANCE: ([(*row, plane) for row in rows for plane in planes], x.select_write),
        SOp.COMMIT: (groups, x.select_write),
        SOp.COMPARE: ([(*row, plane) for row in rows for plane in planes], x.select_result),
        SOp.LIST_LOAD: (entries, x.select_write), SOp.LIST_STORE: (entries, x.select_write),
    }[SOp(v["op"])]
    if v["op"] == SOp.KEYS and KeysFlag.FROM_IMPORTANCE in has:
        walk = groups
    if v["op"] == SOp.TOP_K and TopKFlag.NONZERO in has:
        walk = 2 * [*groups, *4 * ["filter"]]
    t += x.select_first - 1
    for _ in walk:
        t += 1
    return t + delay
