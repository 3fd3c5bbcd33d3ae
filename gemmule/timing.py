"""Latencies of every block, defined once: the RTL is built from them, the model adds them up.

All values are cycles. ``docs/timing.md`` states the contract in words; each RTL unit test
measures its own constants against hand-written numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .config import Config
from .isa import NUM_BASES

__all__ = ["Timing", "ceil_div", "matrix_shape", "serial_finish"]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def serial_finish(first_ready: int, period: int, rows: int, dividers: int, serial: int) -> int:
    """Last quotient of ``rows`` statistics that become ready every ``period`` cycles.

    Row i is ready at ``first_ready + i * period`` and runs on divider ``i % dividers``, in order:
    start_i = max(ready_i, start_{i-dividers} + serial). The maximum over a divider's chain is attained
    at one of its ends because both sides are linear. (The model compiles this function.)
    """
    last = rows - 1
    head = first_ready + last % dividers * period + last // dividers * serial
    return max(first_ready + last * period, head) + serial


def matrix_shape(  # type: ignore[no-untyped-def]
    dim, preload, rmw, m, n, k, output_stationary, a_transposed, scales, reuse, apart,
):
    """(tiles, slot, last, load) of a matrix command, see docs/timing.md, section Matrix.

    ``slot`` are the cycles between the stream starts of consecutive tiles, ``last`` those from the last
    one to the stream's end, ``load`` those of the first tile's preload. All arguments are integers. (The
    model compiles this function.)
    """
    columns, depth = (n + dim - 1) // dim, (k + dim - 1) // dim
    if output_stationary:
        return (m + dim - 1) // dim * columns * depth, dim, dim, 1
    rows = (m + dim - 1) // dim * dim if a_transposed else m
    items = dim // preload
    load = 1 if reuse else items + scales
    stream = max(rows, rmw)
    if apart:
        return columns * depth, stream + load, stream, load
    slot = stream if reuse else max(stream, items)
    return columns * depth, slot, slot, load


@dataclass(frozen=True)
class Timing:
    """Constants of one configuration (see docs/timing.md for what each one spans)."""

    fetch_start: int = 1
    """Start strobe to the first cycle in which fetch may request."""
    registers: int = NUM_BASES + 1
    """Start strobe to the first cycle in which a command may be taken: local registers are set one a cycle."""
    resolve: int = 6
    """Command taken from the fetch queue to the first cycle in which it may enter a unit's queue: stages of resolve."""
    control: int = 4
    """Cycles that a control command stays longer than others in the first stage of resolve, and holds what follows."""
    done: int = 2
    """Last finish to the interrupt: ``cycles = last finish + done``."""
    unit_start: int = 1
    """Issue of a command to the start of its unit: all that follows here counts from the start."""
    unit_report: int = 1
    """What a unit says (ready, finish, release) to the cycle in which issue sees it."""
    load_first: int = 1
    """Start of a load to its first possible read request."""
    load_write: int = 3
    """R beat accepted to its scratchpad write."""
    load_zero: int = 2
    """Load of length zero: issue to earliest finish."""
    load_fill: int = 2
    """Start of a ZERO load to its first write."""
    store_first: int = 1
    """Start of a store to its first possible beat."""
    store_send: int = 3
    """Last beat taken of a burst to the first cycle in which it may be sent."""
    store_zero: int = 2
    matrix_first: int = 1
    """Start of a matrix command to the first read of B: the c0 of the formula."""
    matrix_zero: int = 2
    matrix_rmw: int = 2
    """Accumulator read to the first cycle in which a read sees the written sum (R)."""
    matrix_commands: int = 12
    """Matrix commands between issue and finish."""
    store_commands: int = 8
    """Store commands between issue and finish."""
    matrix_drain: int = 0
    """End of stream e to the last accumulator write, weight-stationary (set from DIM by :meth:`of`)."""
    vector_first: int = 1
    """Start of a vector command to the first step of its reads."""
    vector_write: int = 11
    """Last step of a row's reads to its result write."""
    vector_stat: int = 14
    """Last step of a row's reads to the cycle in which its statistic is in the context."""
    vector_zero: int = 2
    vector_mean: int = 4
    """What the statistics of LayerNorm take longer than those of RMSNorm."""
    vector_rescale: int = 7
    """Last step of a row's reads to its write into the accumulator (RESCALE)."""
    norm_serial: int = 36
    """Square root and reciprocal of one norm row in a serial divider."""
    softmax_serial: int = 19
    """Reciprocal of one softmax row in a serial divider."""
    select_first: int = 1
    """Start of a select command to its first step."""
    select_write: int = 5
    """Last step to the last write of keys, importance, lists or scratchpad rows."""
    select_result: int = 9
    """Last step to the result of a maximum."""
    select_pack: int = 6
    """Last step to the last write of packed rows (PACK)."""
    select_zero: int = 2
    index_cycles: int = 4
    """Last burst of a DRAM row to the first one of the next, whose index comes from a list."""

    def __post_init__(self) -> None:
        for field in fields(self):
            low = int(field.name.endswith("_first") or field.name == "fetch_start")
            if getattr(self, field.name) < low:
                raise ValueError(
                    f"timing: {field.name} must be at least {low} (what issue decides is registered), "
                    f"not {getattr(self, field.name)}")

    @staticmethod
    def of(config: Config) -> Timing:
        return Timing(matrix_drain=2 * config.dim + 3)
