"""What the engine knows about one command at a time: parameters, resolving, finish of matrix and vector."""

from __future__ import annotations

from dataclasses import fields
from types import FunctionType

import numpy as np
from numba import njit

from gemmule import resolve as _resolve
from gemmule import timing as _timing
from gemmule.config import Config
from gemmule.isa import MatrixFlag, VectorFlag, VOp
from gemmule.timing import Timing

__all__ = ["PARAMETERS", "matrix_times", "parameters", "resolve_row", "vector_finish"]


PARAMETERS = np.dtype([(name, np.int64) for name in (
    "dim", "bus", "bus_shift", "burst", "preload", "read_bursts", "load_commands", "write_bursts", "fetch_queue",
    "unit_queue", "dividers", "latency", "banks", "bank_shift", "row_shift", "row_miss", "turnaround", "beat_cycles",
    "refresh_cycles", "refresh_period", *(field.name for field in fields(Timing)))])
"""Every number of docs/timing.md, from configuration and constants, as compiled code sees it.

``*_shift`` are base-2 logarithms: of bus bytes, DRAM banks and DRAM row bytes.
"""


def parameters(config: Config, timing: Timing) -> np.ndarray:
    """The parameters of one device, an array of one :data:`PARAMETERS`.

    Raises:
        ValueError: more matrix commands in flight than the engine's ring of claims holds.
    """
    if timing.matrix_commands > 16:
        raise ValueError(f"timing: matrix_commands must be at most 16, not {timing.matrix_commands}")
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


def _compile_resolve():  # type: ignore[no-untyped-def]
    """The contract's own resolve_row, with its helpers bound to compiled copies."""
    scope = dict(_resolve.resolve_row.__globals__)
    for helper in ("_length", "_banks"):
        scope[helper] = njit(getattr(_resolve, helper))
    return njit(FunctionType(_resolve.resolve_row.__code__, scope, "resolve_row"))


resolve_row = _compile_resolve()
_matrix_shape = njit(_timing.matrix_shape)
_serial_finish = njit(_timing.serial_finish)

_OUTPUT_STATIONARY, _A_TRANSPOSED, _GROUP_SCALES, _REUSE = (int(flag) for flag in (
    MatrixFlag.OUTPUT_STATIONARY, MatrixFlag.A_TRANSPOSED, MatrixFlag.GROUP_SCALES, MatrixFlag.REUSE))
_COLUMN, _WIDE, _RESIDUAL, _BIAS = (int(flag) for flag in (
    VectorFlag.COLUMN, VectorFlag.WIDE, VectorFlag.RESIDUAL, VectorFlag.BIAS))
_REQUANT, _PRODUCT, _ROPE, _RMS_STAT, _RMS_APPLY, _SOFTMAX_MAX, _SOFTMAX_EXP, _TABLE, _ADD = map(int, VOp)


@njit
def matrix_times(p, t, m, n, k, flags, apart, stream_free):  # type: ignore[no-untyped-def]
    """(preload_free, release of B, e, finish) of a command issued in cycle ``t``."""
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


@njit
def vector_finish(p, t, op, flags, m, n, apart):  # type: ignore[no-untyped-def]
    """Finish of a vector command issued in cycle ``t``."""
    groups = (n + p.dim - 1) // p.dim
    rows = 3 * (flags >> _COLUMN & 1) + 4 * (flags >> _BIAS & 1)
    wide = flags >> _WIDE & 1
    if op == _REQUANT:
        reads = groups * (rows + m * (2 if wide or flags >> _RESIDUAL & 1 else 1))
    elif op in (_PRODUCT, _ADD):
        reads = groups * m * (2 if apart or wide else 1)
    elif op == _ROPE:
        reads = groups * (rows + m * 4)
    elif op == _RMS_STAT:
        reads = groups * m * 2
    elif op == _RMS_APPLY:
        reads = groups * (2 + m * 2)
    elif op == _TABLE:
        reads = max(1, 256 // p.dim)
    else:
        reads = groups * m
    last = t + p.vector_first + reads - 1
    if op == _SOFTMAX_MAX:
        return last + p.vector_stat
    if op != _RMS_STAT and op != _SOFTMAX_EXP:
        return last + p.vector_write
    serial = p.rms_serial if op == _RMS_STAT else p.softmax_serial
    period = reads // m
    ready = t + p.vector_first - 1 + period + p.vector_stat
    quotient = _serial_finish(ready, period, m, p.dividers, serial)
    return max(quotient, last + p.vector_write) if op == _SOFTMAX_EXP else quotient
