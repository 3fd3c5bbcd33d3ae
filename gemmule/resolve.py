"""From a decoded command and the registers to what the units see: lengths, rows, claims, faults.

One function on plain integer arrays, so that the model compiles it, the verifier calls it and the
RTL's decode stage (``hw/command/resolve.py``) is tested against it.
"""

from __future__ import annotations

import numpy as np

from .config import Config
from .isa import TABLE_FIELDS, IsaError, Unit, legal_flags
from .operations import EXPONENTIALS, is_comparison

__all__ = [
    "FAULTS", "OUT", "OUT_FIELDS", "STREAMS", "STREAM_UNIT", "check_registers", "config_vector", "resolve",
    "resolve_row",
]

FAULTS = ("none", "illegal", "rows", "limit", "align", "axi", "watchdog")
"""Fault codes by number: unit, op or flags unknown; rows out of range (scratchpad, accumulator,
statistics, weights to reuse) or operands that must not share a bank; DRAM range outside the limit
register; a size or address that is no multiple of what it must be; AXI error response; no AXI
transfer for as long as the watchdog allows. The last two come from the bus, not from resolving."""

STREAMS = ("load.w", "store.r", "matrix.A", "matrix.B", "matrix.C", "vector.r0", "vector.r1", "vector.w",
           "select.r", "select.w")
STREAM_UNIT = (0, 1, 2, 2, 2, 3, 3, 3, 4, 4)

OUT_FIELDS = (
    "fault", "unit", "op", "flags", "zero", "m", "n", "k", "address", "row0", "row1", "row2",
    "claim0", "claim1", "claim2", "apart", "after",
)
"""m/n/k: resolved lengths (load and store: m = rows). row0/row1/row2: resolved rows
(load, store: row; matrix: a, b, c; vector: src0, src1, dst; select: src0, -, dst). claim0..2: the unit's streams in
the order of ``STREAMS``. apart: two operands share a bank, so their reads must not overlap
(matrix: A and B; vector PRODUCT and ADD: src0 and src1). after: columns of a softmax row behind this piece."""
OUT = {name: i for i, name in enumerate(OUT_FIELDS)}

_F = {name: i for i, name in enumerate(TABLE_FIELDS)}
_UNIT, _OP, _FLAGS = _F["unit"], _F["op"], _F["flags"]
_DYN, _DYN_REG, _DYN_STRIDE = _F["dyn_which"], _F["dyn_reg"], _F["dyn_stride"]
_BASE, _OFFSET, _STRIDE, _BYTES = _F["base"], _F["offset"], _F["stride"], _F["bytes"]
_ROW, _ROW_STRIDE, _BLOCK_STRIDE = _F["row"], _F["row_stride"], _F["block_stride"]
_ROWS, _M, _N, _K = _F["rows_reg"], _F["m_reg"], _F["n_reg"], _F["k_reg"]
_A, _A_STRIDE, _B, _B_STRIDE = _F["a_row"], _F["a_stride"], _F["b_row"], _F["b_stride"]
_C, _C_STRIDE, _GROUP = _F["c_row"], _F["c_stride"], _F["group"]
_SRC0, _SRC0_STRIDE, _SRC1, _AUX = _F["src0"], _F["src0_stride"], _F["src1"], _F["aux"]
_FIRST, _NUMBER, _LIST, _LAST_INDEX = _F["first"], _F["number"], _F["list"], _F["last_index"]
_DST, _DST_STRIDE, _PERIOD, _CONTEXT = _F["dst"], _F["dst_stride"], _F["period"], _F["context"]

_EXPONENTIALS = len(EXPONENTIALS)

_LEGAL = np.array(
    [[[legal_flags(unit, op, flags) for flags in range(256)] for op in range(32)] for unit in range(len(Unit))])
"""[unit, op, flags]: the table form of :func:`gemmule.isa.legal_flags`."""
_COMPARES = np.array([[is_comparison(op, flags) for flags in range(256)] for op in range(32)])


def check_registers(config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray) -> None:
    """Refuse values that the device's registers cannot hold.

    Raises:
        IsaError: names the register, its range and the value.
    """
    top = (1 << config.address_bits) - 1
    for name, values, high in (("base", bases, top), ("limit", limits, top), ("length", lengths, 65535)):
        for i, value in enumerate(values):
            if not 0 <= value <= high:
                raise IsaError(f"{name} register {i} must be from 0 to {high}, not {int(value)}")


def config_vector(config: Config) -> np.ndarray:
    """The configuration values that :func:`resolve_row` reads, as int64."""
    return np.array([
        config.dim, config.spm_banks, config.spm_bank_rows, config.acc_banks, config.acc_bank_rows,
        config.preload, config.bus_bytes, config.stat_rows, config.stat_contexts, config.select_keys,
        config.list_entries, config.comparison_modes,
    ], dtype=np.int64)


def _length(row, at, lengths):  # type: ignore[no-untyped-def]
    value = 65535 if row[at] == 0 else lengths[row[at]]
    return min(max(value - row[at + 1], 0), row[at + 2])


def _comparison(op, flags, period):  # type: ignore[no-untyped-def]
    """0: a command of every device; 1: of one with ``comparison_modes``; 2: of none."""
    if op == 6 or op == 9:
        return 0 if period == 0 else 1 if period < _EXPONENTIALS else 2
    return 1 if _COMPARES[op, flags] else 0


def _banks(first, last, bank_rows, banks):  # type: ignore[no-untyped-def]
    """Mask of the banks of rows first..last; -1 when they leave the memory."""
    low, high = first // bank_rows, last // bank_rows
    if high >= banks:
        return -1
    return (1 << (high + 1)) - (1 << low)


def resolve_row(row, bases, limits, lengths, cfg, out):  # type: ignore[no-untyped-def]
    """Resolve one row of :func:`gemmule.isa.decode_table` into ``out`` (int64[len(OUT_FIELDS)]).

    ``bases``/``limits`` are bytes (int64[32]), ``lengths`` int64[16], ``cfg`` is
    :func:`config_vector`. ``out[fault]`` is an index into :data:`FAULTS`; checks run in the order
    illegal, rows, limit, align. Zero-length commands are not checked beyond illegal and claim nothing.
    """
    dim, spm_banks, spm_rows, acc_banks, acc_rows = cfg[0], cfg[1], cfg[2], cfg[3], cfg[4]
    preload, bus, stat_rows, contexts, keys, entries = cfg[5], cfg[6], cfg[7], cfg[8], cfg[9], cfg[10]
    out[:] = 0
    unit, op, flags = row[_UNIT], row[_OP], row[_FLAGS]
    out[1], out[2], out[3] = unit, op, flags
    if unit > 4 or not _LEGAL[unit, op, flags] or (unit == 4 and op == 5 and row[_NUMBER] == 0):
        out[0] = 1
        return
    if unit == 3 and _comparison(op, flags, row[_PERIOD]) > (1 if cfg[11] else 0):
        out[0] = 1
        return
    dynamic = lengths[row[_DYN_REG]] * row[_DYN_STRIDE]
    if row[_DYN_REG] == 0:
        dynamic = 65535 * row[_DYN_STRIDE]
    dyn0 = dynamic if row[_DYN] == 1 else 0
    dyn1 = dynamic if row[_DYN] == 2 else 0
    dyn2 = dynamic if row[_DYN] == 3 else 0
    spm_write, acc_read, acc_write = spm_banks, 2 * spm_banks, 2 * spm_banks + acc_banks
    mask0 = mask1 = mask2 = extra = 0
    if unit < 2:  # load, store
        rows = _length(row, _ROWS, lengths)
        accumulator, narrow, add = flags & 1, flags >> 1 & 1, flags >> 2 & 1
        fill, broadcast = flags >> 3 & 1, flags >> 4 & 1
        out[5] = rows
        out[8] = bases[row[_BASE]] + row[_OFFSET]
        out[9] = row[_ROW] + (dyn2 if unit == 0 else dyn0)
        if rows == 0 or row[_BYTES] == 0:
            out[4] = 1
            return
        words = accumulator and not narrow  # DRAM holds int32
        width = 4 * dim if words else dim
        blocks = (row[_BYTES] + width - 1) // width
        last = out[9] + (rows - 1) * row[_ROW_STRIDE] + (blocks - 1) * row[_BLOCK_STRIDE]
        mask0 = _banks(out[9], last, acc_rows if accumulator else spm_rows, acc_banks if accumulator else spm_banks)
        if mask0 < 0:
            out[0] = 2
            return
        indexed = flags >> 5 & 1
        if indexed and row[_LIST] + rows > entries:
            out[0] = 2
            return
        span = 0 if broadcast else (row[_LAST_INDEX] if indexed else rows - 1) * row[_STRIDE]
        if not fill and row[_OFFSET] + span + row[_BYTES] > limits[row[_BASE]]:
            out[0] = 3
            return
        if (words and row[_BYTES] % 4) or (broadcast and out[8] % bus):
            out[0] = 4
            return
        if accumulator:
            out[12] = mask0 << acc_read if unit == 1 else mask0 << acc_write
            if add:
                out[12] |= mask0 << acc_read
        else:
            out[12] = mask0 << spm_write if unit == 0 else mask0
        return
    m, n = _length(row, _M, lengths), _length(row, _N, lengths)
    if unit == 4:
        k = _length(row, _K, lengths)
        rows = m if op == 0 or op == 3 or op == 5 else 1
        if op != 2:
            k = 1
        out[5], out[6], out[7] = m, n, k
        out[9], out[11] = row[_SRC0] + dyn0, row[_DST] + dyn2
        if rows == 0 or n == 0 or k == 0:
            out[4] = 1
            return
        # Where a run of n keys, positions or list entries begins, and how many there may be.
        first = out[11] if op == 1 or op == 6 else row[_FIRST]
        count, most = n, entries if op >= 6 else keys
        if op == 2:
            first = 0
        if op == 0 or op == 5:
            count = first = 0
        bad = first + count > most
        if op == 0:
            bad = m > stat_rows or out[11] + m > entries
        elif op == 1 and flags & 1:
            bad = bad or row[_FIRST] + n > keys
        elif op == 1:
            bad = bad or row[_FIRST] + n > 65536
        elif op == 2:
            bad = bad or out[11] + min(k, n) > entries
        reads = op == 0 or op == 3 or op == 5 or op == 6 or (op == 1 and not flags & 1)
        if op >= 6:
            half = dim // 2
            last = (n + half - 1) // half - 1
        else:
            last = ((n + dim - 1) // dim - 1) * row[_SRC0_STRIDE] + rows - 1
            if op < 2 or flags & 2:
                last += row[_SRC0_STRIDE] // 2
        if reads:
            mask0 = _banks(out[9], out[9] + last, spm_rows, spm_banks)
        elif op == 7:
            mask1 = _banks(out[11], out[11] + last, spm_rows, spm_banks)
        if bad or mask0 < 0 or mask1 < 0:
            out[0] = 2
            return
        out[12], out[13] = mask0, mask1 << spm_write
        return
    out[5], out[6] = m, n
    column_groups = (n + dim - 1) // dim
    if unit == 2:  # matrix
        k = _length(row, _K, lengths)
        out[7] = k
        out[9], out[10], out[11] = row[_A] + dyn0, row[_B] + dyn1, row[_C]
        if m == 0 or n == 0 or k == 0:
            out[4] = 1
            return
        k_groups = (k + dim - 1) // dim
        transposed, stationary, int4, reuse = flags >> 1 & 1, flags >> 3 & 1, flags >> 5 & 1, flags >> 7 & 1
        if flags >> 4 & 1:
            last = out[9] + ((m + dim - 1) // dim - 1) * row[_A_STRIDE] + k - 1
        else:
            last = out[9] + (k_groups - 1) * row[_A_STRIDE] + m - 1
        mask0 = _banks(out[9], last, spm_rows, spm_banks)
        inner = n if transposed else k
        if int4:
            inner = (inner + 1) // 2
        if flags >> 6 & 1:  # the scale rows stand behind the block's weights
            inner = k_groups * (dim // 2) + ((k_groups - 1) >> row[_GROUP]) + 1
        last = out[10] + ((k_groups if transposed else column_groups) - 1) * row[_B_STRIDE] + inner - 1
        if not reuse:
            mask1 = _banks(out[10], last, spm_rows, spm_banks)
            if out[10] % preload or row[_B_STRIDE] % preload:
                mask1 = -1
        elif n > dim or k > dim:
            mask1 = -1
        mask2 = _banks(out[11], out[11] + (column_groups - 1) * row[_C_STRIDE] + m - 1, acc_rows, acc_banks)
        if mask0 < 0 or mask1 < 0 or mask2 < 0 or (stationary and mask0 & mask1):
            out[0] = 2
            return
        out[12], out[13] = mask0, mask1
        out[14] = mask2 << acc_read | mask2 << acc_write
        out[15] = 1 if mask0 & mask1 else 0
        return
    # vector
    wide = op != 5 and (flags >> 2 & 1 or (op == 0 and flags >> 3 & 1))
    residual = op == 0 and flags >> 3 & 1
    parameters = 0  # scratchpad rows per column group
    if op == 0 or op == 2 or op == 13:
        parameters = 3 * (flags & 1) + 4 * (flags >> 7 & 1)
    elif op == 4:
        parameters = 2 + 4 * (flags >> 7 & 1)
    softmax = op == 5 or op == 6 or op == 9
    pair = op == 1 or op == 8
    out[9], out[10], out[11] = row[_SRC0] + dyn0, row[_SRC1] + dyn1, row[_DST] + dyn2
    if op == 7:
        m, n = 1, 256
    elif op == 11:
        m, n = 2, 513
    out[5], out[6] = m, n
    if softmax and row[_AUX] & 15:
        out[15 + 1] = max(lengths[row[_AUX] & 15] - (row[_AUX] >> 4), 0)
    if m == 0 or n == 0:
        out[4] = 1
        return
    uses_stat = op == 3 or op == 4 or softmax or op == 10 or op == 12 or (op == 0 and flags >> 1 & 1)
    last_context = row[_CONTEXT] + (1 if op == 10 else 0)
    tree = softmax and flags & 1
    if (uses_stat and (m > stat_rows or last_context >= contexts)) or (tree and m > 8 * dim):
        out[0] = 2
        return
    if op == 7 or op == 11:  # the word table's high bytes stand behind its low bytes
        mask0 = _banks(out[9], out[9] + m * ((n + dim - 1) // dim) - 1, spm_rows, spm_banks)
    else:
        last = out[9] + (column_groups - 1) * row[_SRC0_STRIDE] + m - 1
        if op == 3 or op == 4:
            last += row[_SRC0_STRIDE] // 2
        if pair or op == 3 or op == 4:
            mask0 = _banks(out[9], last, spm_rows, spm_banks)
        else:
            mask0 = _banks(out[9], last, acc_rows, acc_banks)
    if op == 12:
        mask2 = _banks(out[11], out[11] + (column_groups - 1) * row[_DST_STRIDE] + m - 1, acc_rows, acc_banks)
    elif pair or op == 0 or op == 2 or op == 4 or op == 6 or op == 9 or op == 13:
        last = out[11] + (column_groups - 1) * row[_DST_STRIDE] + m - 1
        if wide:
            last += row[_DST_STRIDE] // 2
        mask2 = _banks(out[11], last, spm_rows, spm_banks)
        if residual:
            extra = mask2
    if parameters:
        mask1 = _banks(out[10], out[10] + parameters * column_groups - 1, spm_rows, spm_banks)
    if pair:
        stride = row[_AUX] if op == 1 else row[_SRC0_STRIDE]
        mask1 = _banks(out[10], out[10] + (column_groups - 1) * stride + m - 1, spm_rows, spm_banks)
    if tree:
        mask1 = _banks(out[10], out[10] + m - 1, spm_rows, spm_banks)
    if op == 2:
        extra = _banks(row[_AUX], row[_AUX] + (m << (row[_PERIOD] + 2)) - 1, spm_rows, spm_banks)
    if mask0 < 0 or mask1 < 0 or mask2 < 0 or extra < 0:
        out[0] = 2
        return
    out[12] = mask0 if pair or op == 3 or op == 4 or op == 7 or op == 11 else mask0 << acc_read
    out[13] = mask1 | extra
    out[14] = mask2 << acc_write if op == 12 else mask2 << spm_write
    out[15] = 1 if pair and mask0 & mask1 else 0
    return


def resolve(table: np.ndarray, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
            config: Config) -> np.ndarray:
    """Resolve every row of a decoded program: ``int64[commands, len(OUT_FIELDS)]``."""
    out = np.zeros((len(table), len(OUT_FIELDS)), dtype=np.int64)
    cfg = config_vector(config)
    for i in range(len(table)):
        resolve_row(table[i], bases, limits, lengths, cfg, out[i])
    return out
