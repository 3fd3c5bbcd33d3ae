"""What the engine knows about one command at a time: parameters, finish of matrix, vector, select."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from gemmule import timing as _timing
from gemmule.config import Config
from gemmule.isa import (
    CompareFlag,
    KeysFlag,
    MatrixFlag,
    NormFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
    legal_flags,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from gemmule.operands import parameter_rows
from gemmule.sim.compiled import borrowing, compiled
from gemmule.sim.timing.queues import MOST_FLYING, MOST_QUEUED
from gemmule.timing import Timing

__all__ = ["PARAMETERS", "matrix_times", "parameters", "select_finish", "vector_finish"]


PARAMETERS = np.dtype([(name, np.int64) for name in (
    "dim", "bus", "bus_shift", "burst", "preload", "read_bursts", "read_beats", "load_commands", "write_bursts",
    "fetch_queue", "unit_queue", "vector_passes", "dividers", "latency", "banks", "bank_shift", "row_shift", "row_miss",
    "turnaround", "beat_cycles", "refresh_cycles", "refresh_period", *(field.name for field in fields(Timing)))])
"""Every number of docs/timing.md, from configuration and constants, as compiled code sees it.

``*_shift`` are base-2 logarithms: of bus bytes, DRAM banks and DRAM row bytes.
"""


def parameters(config: Config, timing: Timing) -> np.ndarray:
    """The parameters of one device, an array of one :data:`PARAMETERS`.

    Raises:
        ValueError: more commands of a unit than the engine has places for, or a row of an INDEXED move that starts no
            later than the row before ends.
    """
    for part, name, most in ((timing, "matrix_commands", MOST_FLYING), (timing, "store_commands", MOST_FLYING),
                             (config, "load_commands", MOST_FLYING), (config, "unit_queue", MOST_QUEUED)):
        if (count := getattr(part, name)) > most:
            raise ValueError(f"timing: {name} must be at most {most}, not {count}")
    if timing.index_cycles < 1:
        raise ValueError(f"timing: index_cycles must be at least 1 (one burst a cycle), not {timing.index_cycles}")
    dram = config.dram
    values = {
        "bus": config.bus_bytes, "bus_shift": config.bus_bytes.bit_length() - 1, "burst": config.burst_bytes,
        "bank_shift": dram.banks.bit_length() - 1, "row_shift": dram.row_bytes.bit_length() - 1,
    }
    found = np.zeros(1, PARAMETERS)
    for name in PARAMETERS.names or ():
        source = next((part for part in (timing, dram, config) if hasattr(part, name)), None)
        found[name] = values[name] if name in values else getattr(source, name)
    return found


_matrix_shape = compiled(_timing.matrix_shape)
_serial_finish = compiled(_timing.serial_finish)

_OUTPUT_STATIONARY, _A_TRANSPOSED, _GROUP_SCALES, _REUSE = (int(flag) for flag in (
    MatrixFlag.OUTPUT_STATIONARY, MatrixFlag.A_TRANSPOSED, MatrixFlag.GROUP_SCALES, MatrixFlag.REUSE))
_MEAN, _MORE = int(NormFlag.MEAN), int(SoftmaxFlag.MORE)
_WIDE, _RESIDUAL, _LOOKUP = int(RequantFlag.WIDE), int(RequantFlag.RESIDUAL), int(RequantFlag.LOOKUP)
(_REQUANT, _PRODUCT, _ROPE, _NORM_STAT, _NORM_APPLY, _SOFTMAX_MAX, _SOFTMAX_EXP, _TABLE, _ADD, _SOFTMAX_NORM,
 _ABSMAX, _WORD_TABLE, _RESCALE, _I_GELU) = map(int, VOp)
_ARGMAX, _KEYS, _TOP_K, _IMPORTANCE, _COMMIT, _COMPARE, _, _, _PACK = map(int, SOp)
_NONZERO = int(TopKFlag.NONZERO)
_FROM_IMPORTANCE, _SELECT_WIDE = int(KeysFlag.FROM_IMPORTANCE), int(CompareFlag.WIDE)  # IMPORTANCE has the same bit
_PARAMETER_ROWS = np.array([[
    parameter_rows(Unit.VECTOR, op, flags) if legal_flags(Unit.VECTOR, op, flags) else 0 for flags in range(256)]
    for op in VOp])
_WORD_ENTRIES, _BYTE_ENTRIES = WORD_TABLE_ENTRIES, BYTE_TABLE_ENTRIES


@borrowing
def matrix_times(p, t, m, n, k, flags, apart, stream_free):  # type: ignore[no-untyped-def]
    """(preload_free, release of B, e, finish) of a command that starts in cycle ``t``."""
    stationary, reuse = flags >> _OUTPUT_STATIONARY & 1, flags >> _REUSE & 1
    tiles, slot, last, load = _matrix_shape(
        p.dim, p.preload, p.matrix_rmw, m, n, k, stationary, flags >> _A_TRANSPOSED & 1,
        flags >> _GROUP_SCALES & 1, reuse, apart)
    start = max(t + p.matrix_first + load, stream_free)
    end = start + (tiles - 1) * slot + last
    if stationary:
        return start, end, end, end + p.matrix_drain + p.dim
    free = start if reuse else start + (tiles - 1) * slot
    return free, free, end, end + p.matrix_drain


@borrowing
def _vector_reads(p, op, flags, m, n, apart):  # type: ignore[no-untyped-def]
    """Cycles in which a vector command reads."""
    groups = (n + p.dim - 1) // p.dim * p.vector_passes
    wide, parameters = flags >> _WIDE & 1, _PARAMETER_ROWS[op, flags]
    if op == _REQUANT:
        return groups * (parameters + m * (2 if wide or flags >> _RESIDUAL & 1 else 1))
    if op == _PRODUCT:  # planes of both operands
        return groups * m * (1 + apart) * (1 + wide)
    if op == _ADD:
        return groups * m * (2 if apart or wide else 1)
    if op == _ROPE:
        return groups * (parameters + m * 4)
    if op == _I_GELU:
        return groups * (parameters + m)
    if op == _NORM_APPLY:
        return groups * (parameters + m * 2)
    if op == _TABLE:
        return max(1, _BYTE_ENTRIES // p.dim)
    if op == _WORD_TABLE:
        return 2 * ((_WORD_ENTRIES + p.dim - 1) // p.dim)
    # a read a row, two for planes or words of 16 bits
    return m * groups * (2 if op == _NORM_STAT or wide else 1)


@borrowing
def vector_finish(p, t, op, flags, m, n, apart):  # type: ignore[no-untyped-def]
    """Finish of a vector command that starts in cycle ``t``."""
    reads = _vector_reads(p, op, flags, m, n, apart)
    last = t + p.vector_first + reads - 1
    exp = op == _SOFTMAX_EXP
    if op in (_NORM_STAT, _ABSMAX) or (exp and not flags >> _MORE & 1):
        norm = op == _NORM_STAT
        delay = p.vector_stat + (p.vector_mean if norm and flags >> _MEAN & 1 else 0)
        period = reads // m
        quotient = _serial_finish(
            t + p.vector_first - 1 + period + delay, period, m, p.dividers, p.norm_serial if norm else p.softmax_serial)
        return max(quotient, last + p.vector_write) if exp else quotient
    if op == _RESCALE:
        return last + p.vector_rescale
    # With RESIDUAL nothing is looked up.
    interpolated = op == _REQUANT and flags >> _WIDE & 1 and flags >> _LOOKUP & 1 and not flags >> _RESIDUAL & 1
    late = exp or op in (_SOFTMAX_MAX, _SOFTMAX_NORM, _I_GELU) or interpolated
    return last + (p.vector_stat if late else p.vector_write)


@borrowing
def select_finish(p, t, op, flags, m, n):  # type: ignore[no-untyped-def]
    """Finish of a select command that starts in cycle ``t``."""
    groups = (n + p.dim - 1) // p.dim
    wide = 2 if flags >> _SELECT_WIDE & 1 else 1
    after = p.select_write
    if op == _ARGMAX:
        steps, after = m * groups * 2, p.select_result
    elif op == _KEYS:
        steps = groups if flags >> _FROM_IMPORTANCE & 1 else 2 * groups
    elif op == _TOP_K:
        steps, after = (2 if flags >> _NONZERO & 1 else 7) * (groups + 4), 0
    elif op == _IMPORTANCE:
        steps = groups * m * wide
    elif op == _COMMIT:
        steps = groups
    elif op == _COMPARE:
        steps, after = m * groups * wide, p.select_result
    elif op == _PACK:
        steps, after = m * (groups + 1), p.select_pack
    else:  # lists: whole scratchpad rows of DIM / 2 entries
        half = p.dim // 2
        steps = (n + half - 1) // half * half
    return t + p.select_first + steps - 1 + after
