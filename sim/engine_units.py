"""What the engine knows about one command at a time: parameters, unit latencies, burst cutting."""

from __future__ import annotations

from types import FunctionType
from typing import NamedTuple

from numba import njit

from gemmule import resolve as _resolve
from gemmule import timing as _timing
from gemmule.config import Config
from gemmule.timing import Timing

__all__ = ["Parameters", "chunk", "matrix_times", "parameters", "resolve_row", "vector_finish"]


class Parameters(NamedTuple):
    """Every number of docs/timing.md, from configuration and constants, as compiled code sees it."""

    dim: int
    bus: int
    burst: int
    preload: int
    read_bursts: int
    load_commands: int
    write_bursts: int
    store_commands: int
    matrix_commands: int
    fetch_queue: int
    unit_queue: int
    dividers: int
    latency: int
    banks: int
    row_bytes: int
    row_miss: int
    turnaround: int
    refresh_cycles: int
    refresh_period: int
    fetch_start: int
    done: int
    load_first: int
    load_write: int
    load_zero: int
    store_first: int
    store_send: int
    store_zero: int
    matrix_first: int
    matrix_zero: int
    matrix_rmw: int
    matrix_drain: int
    vector_first: int
    vector_write: int
    vector_stat: int
    vector_zero: int
    rms_serial: int
    softmax_serial: int


def parameters(config: Config, timing: Timing) -> Parameters:
    """Collect the parameters of one device; a field of ``timing`` wins over a name in ``config``."""
    renamed = {"bus": config.bus_bytes, "burst": config.burst_bytes}
    values = {}
    for name in Parameters._fields:
        for source in (timing, config, config.dram):
            if name in renamed or hasattr(source, name):
                values[name] = int(renamed.get(name, getattr(source, name, 0)))
                break
    if values["matrix_commands"] > 16:
        raise ValueError(  # the depth of the engine's ring of claims
            f"timing: matrix_commands must be at most 16, not {values['matrix_commands']}")
    return Parameters(**values)


def _compile_resolve():  # type: ignore[no-untyped-def]
    """The contract's own resolve_row, with its helpers bound to compiled copies."""
    scope = dict(_resolve.resolve_row.__globals__)
    for helper in ("_length", "_banks"):
        scope[helper] = njit(getattr(_resolve, helper))
    return njit(FunctionType(_resolve.resolve_row.__code__, scope, "resolve_row"))


resolve_row = _compile_resolve()


@njit
def chunk(p, address, left):  # type: ignore[no-untyped-def]
    """Bytes of the next burst of a DRAM row with ``left`` bytes from ``address`` on."""
    return min(left, p.burst - address % p.burst)


@njit
def matrix_times(p, t, m, n, k, stream_free):  # type: ignore[no-untyped-def]
    """(preload_free, e, finish) of a command issued in cycle ``t``."""
    tiles = ((n + p.dim - 1) // p.dim) * ((k + p.dim - 1) // p.dim)
    preload = p.dim // p.preload
    slot = max(m, preload, p.matrix_rmw)
    start = max(t + p.matrix_first + preload, stream_free)
    return start + (tiles - 1) * slot, start + tiles * slot, start + tiles * slot + p.matrix_drain


_serial_finish = njit(_timing.serial_finish)


@njit
def vector_finish(p, t, op, flags, m, n):  # type: ignore[no-untyped-def]
    """Finish of a vector command issued in cycle ``t``."""
    groups = (n + p.dim - 1) // p.dim
    column = 3 if flags & 1 else 0
    if op == 0:
        reads = groups * (column + m * (2 if flags & 12 else 1))
    elif op == 2:
        reads = groups * (column + m * 4)
    elif op == 3:
        reads = groups * m * 2
    elif op == 4:
        reads = groups * (2 + m * 2)
    elif op == 7:
        reads = max(1, 256 // p.dim)
    else:
        reads = groups * m
    last = t + p.vector_first + reads - 1
    if op == 5:
        return last + p.vector_stat
    if op != 3 and op != 6:
        return last + p.vector_write
    serial = p.rms_serial if op == 3 else p.softmax_serial
    period = reads // m
    ready = t + p.vector_first - 1 + period + p.vector_stat
    quotient = _serial_finish(ready, period, m, p.dividers, serial)
    return max(quotient, last + p.vector_write) if op == 6 else quotient
