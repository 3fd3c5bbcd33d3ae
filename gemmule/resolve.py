"""From a decoded command and the registers to what the units see: lengths, rows, claims, faults.

Functions on plain integer arrays, so that the model compiles them, the verifier calls them and the RTL's decode
stage (``hw/command/resolve.py``) is tested against them. Which rows a command reaches, and through which stream,
says :mod:`gemmule.operands`; here stand lengths, first rows and the rules that are about more than one operand.
"""

from __future__ import annotations

import numpy as np

from .config import Config
from .isa import BODY, COMMAND_BYTES, MAX_LENGTH, NUM_LENGTHS, TABLE_FIELDS, Dyn, IsaError, Unit
from .numerics import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
from .operands import CLASS_OF, CLASSES, STREAM_UNIT, STREAMS, Class, Memory
from .operations import (
    EXPONENTIALS,
    FEATURES,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    VOp,
    needs,
)
from .terms import OUT, OUT_FIELDS, Term, fill_terms

__all__ = [
    "CONFIG", "FAULTS", "OUT", "OUT_FIELDS", "STREAMS", "STREAM_UNIT", "TERMS", "check_program", "check_registers",
    "config_vector", "resolve", "resolve_row",
]

FAULTS = ("none", "illegal", "rows", "limit", "align", "axi", "watchdog")
"""Fault codes by number: unit, op or flags unknown; rows out of range (scratchpad, accumulator,
statistics, weights to reuse) or operands that must not share a bank; DRAM range outside the limit
register; a size or address that is no multiple of what it must be; AXI error response; no AXI
transfer for as long as the watchdog allows. The last two come from the bus, not from resolving."""
_NONE, _ILLEGAL, _BAD_ROWS, _BAD_LIMIT, _BAD_ALIGN = range(5)
TERMS = len(Term)
"""Size of the scratch array of :func:`resolve_row`."""

_F = {name: i for i, name in enumerate(TABLE_FIELDS)}
_F_UNIT, _F_OP, _F_FLAGS = _F["unit"], _F["op"], _F["flags"]
_F_DYN, _F_DYN_REG, _F_DYN_STRIDE = _F["dyn_which"], _F["dyn_reg"], _F["dyn_stride"]
_F_BASE, _F_OFFSET, _F_STRIDE, _F_BYTES, _F_ROW = _F["base"], _F["offset"], _F["stride"], _F["bytes"], _F["row"]
_F_ROWS, _F_M, _F_N, _F_K = _F["rows_reg"], _F["m_reg"], _F["n_reg"], _F["k_reg"]
_F_A, _F_B, _F_B_STRIDE, _F_C = _F["a_row"], _F["b_row"], _F["b_stride"], _F["c_row"]
_F_SRC0, _F_SRC1, _F_DST, _F_AUX = _F["src0"], _F["src1"], _F["dst"], _F["aux"]
_F_FIRST, _F_FIRST_HIGH = _F["first"], _F["first_high"]
_F_MULT, _F_SHIFT, _F_SHIFT2, _F_SCALE = _F["mult"], _F["shift"], _F["shift2"], _F["scale_reg"]
_F_PERIOD, _F_NUMBER, _F_LIST, _F_LAST_INDEX = _F["period"], _F["number"], _F["list"], _F["last_index"]

_FAULT, _UNIT, _OP, _FLAGS, _ZERO = OUT["fault"], OUT["unit"], OUT["op"], OUT["flags"], OUT["zero"]
_M, _N, _K, _ADDRESS = OUT["m"], OUT["n"], OUT["k"], OUT["address"]
_ROW0, _ROW1, _ROW2, _CLAIM, _APART, _AFTER, _JOINED = (
    OUT[name] for name in ("row0", "row1", "row2", "claim0", "apart", "after", "joined"))
_O_MULT, _O_SHIFT, _O_SHIFT2, _O_AUX = OUT["mult"], OUT["shift"], OUT["shift2"], OUT["aux"]

_LOAD, _STORE, _MATRIX, _VECTOR, _SELECT = map(int, Unit)
_SRC0_MOVES, _SRC1_MOVES, _DST_MOVES = int(Dyn.SRC0), int(Dyn.SRC1), int(Dyn.DST)
_SPM, _ACC, _DRAM, _STATISTICS = int(Memory.SPM), int(Memory.ACC), int(Memory.DRAM), int(Memory.STATISTICS)
(_C_MEMORY, _C_WRITE, _C_CLAIM, _C_BOTH, _C_FIRST, _C_RUN, _C_TIMES, _C_COUNT, _C_STRIDE, _C_PLANES,
 _C_PLANE_STRIDE, _) = map(int, Class)
_WORDS, _INT8 = 1 << MoveFlag.ACCUMULATOR, 1 << MoveFlag.NARROW
_FILL, _BROADCAST, _INDEXED = 1 << MoveFlag.ZERO, 1 << MoveFlag.BROADCAST, 1 << MoveFlag.INDEXED
_STATIONARY, _REUSE, _TREE = 1 << MatrixFlag.OUTPUT_STATIONARY, 1 << MatrixFlag.REUSE, 1 << SoftmaxFlag.TREE
_FROM_IMPORTANCE = 1 << KeysFlag.FROM_IMPORTANCE
_REQUANT, _PRODUCT, _ADD, _TABLE, _WORD_TABLE = map(int, (
    VOp.REQUANT, VOp.PRODUCT, VOp.ADD, VOp.TABLE, VOp.WORD_TABLE))
_RESCALED = 1 << RequantFlag.RESIDUAL | 1 << RequantFlag.RESCALE
_SOFTMAX_MAX, _SOFTMAX_EXP, _SOFTMAX_NORM = int(VOp.SOFTMAX_MAX), int(VOp.SOFTMAX_EXP), int(VOp.SOFTMAX_NORM)
_ARGMAX, _KEYS, _TOP_K, _IMPORTANCE, _COMPARE, _PACK = (
    int(op) for op in (SOp.ARGMAX, SOp.KEYS, SOp.TOP_K, SOp.IMPORTANCE, SOp.COMPARE, SOp.PACK))
_BYTE_ENTRIES, _WORD_ENTRIES = BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES
_MAX_LENGTH, _FIRST_BITS = MAX_LENGTH, dict(BODY[Unit.SELECT])["first"]
_EXPONENTIALS = len(EXPONENTIALS)
_COMPARISON = 1 << FEATURES.index("comparison_modes")
_NEEDS = np.array([[[sum(1 << FEATURES.index(name) for name in needs(unit, op, flags)) for flags in range(256)]
                    for op in range(32)] for unit in Unit])
"""Features that a command needs, as bits, by unit, operation and flags."""

_SIZES = {
    Memory.SPM: "spm_rows", Memory.ACC: "acc_rows", Memory.LIST: "list_entries", Memory.KEYS: "select_keys",
    Memory.COMMITTED: "select_keys", Memory.SHADOW: "select_keys", Memory.RUNNING: "stat_rows",
    Memory.STATISTICS: "stat_contexts", Memory.MASK: "select_keys",
}
"""Places of a memory by the configuration's field; the others hold all that a command can name."""
CONFIG = {name: i for i, name in enumerate((
    "dim", "spm_banks", "acc_banks", "preload", "bus_bytes", "stat_rows", "feature_bits", "address_bits",
    "index_bits", "parameter_words", "fetch_queue"))}
"""Configuration values of :func:`config_vector`, by place."""
_DIM, _SPM_BANKS, _ACC_BANKS, _PRELOAD, _BUS, _STAT_ROWS, _FEATURES, _ADDRESS_BITS, _INDEX_BITS, _, _ = CONFIG.values()
_SIZE = len(CONFIG)


def check_registers(config: Config, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray) -> None:
    """Refuse values that the device's registers cannot hold.

    Raises:
        IsaError: names the register, its range and the value.
    """
    top = (1 << config.address_bits) - 1
    for name, values, high in (("base", bases, top), ("limit", limits, top), ("length", lengths, MAX_LENGTH)):
        if values.astype(np.uint64).max() > high:  # a negative one is large
            i = int(np.flatnonzero((values < 0) | (values > high))[0])
            raise IsaError(f"{name} register {i} must be from 0 to {high}, not {int(values[i])}")


def check_program(config: Config, address: int, size: int) -> None:
    """Refuse a program of ``size`` bytes that cannot stand at a DRAM address: fetch would go on from address 0.

    Raises:
        IsaError: names address, size and the rule.
    """
    if address % COMMAND_BYTES or size % COMMAND_BYTES:
        raise IsaError(f"program address and size must be multiples of {COMMAND_BYTES}, not {address} and {size}")
    if address < 0 or address + size > 1 << config.address_bits:
        raise IsaError(f"a program of {size} bytes must lie within the {1 << config.address_bits} bytes of the address "
                       f"space, not at {address}")


def config_vector(config: Config) -> np.ndarray:
    """The configuration values that :func:`resolve_row` reads, as int64; last the places of every memory."""
    sizes = [getattr(config, _SIZES[memory]) if memory in _SIZES else 1 << 62 for memory in Memory]
    return np.array([*(int(getattr(config, name)) for name in CONFIG), *sizes], dtype=np.int64)


def _register(number, lengths):  # type: ignore[no-untyped-def]
    """LEN[number], counted on behind the last one."""
    number &= NUM_LENGTHS - 1
    return _MAX_LENGTH if number == 0 else lengths[number]


def _length(row, at, lengths):  # type: ignore[no-untyped-def]
    """The length in columns at (register), at + 1 (offset), at + 2 (cap)."""
    return min(max(_register(row[at], lengths) - row[at + 1], 0), row[at + 2])


def _lacks(unit, op, flags, row, cfg):  # type: ignore[no-untyped-def]
    """Whether the device lacks a feature of the command, its exponential, or bits of its largest index."""
    if _NEEDS[unit, op, flags] & ~cfg[_FEATURES]:
        return True
    if unit <= _STORE:
        return flags & _INDEXED != 0 and row[_F_LAST_INDEX] >> cfg[_INDEX_BITS] != 0
    if unit == _VECTOR and op in (_SOFTMAX_EXP, _SOFTMAX_NORM):
        return row[_F_PERIOD] >= (_EXPONENTIALS if cfg[_FEATURES] & _COMPARISON else 1)
    return False


def _banks(first, last, rows, banks):  # type: ignore[no-untyped-def]
    """Mask of the banks of rows first .. last, or -1 when a row is outside of the memory."""
    bank_rows = rows // banks
    low, high = first // bank_rows, last // bank_rows
    if high >= banks:
        return -1
    return (1 << (high + 1)) - (1 << low)


def _resolve_move(row, bases, lengths, dyn, cfg, out):  # type: ignore[no-untyped-def]
    """Length and first row of a load or store, whether its DRAM rows are one; whether it is empty."""
    out[_M] = _length(row, _F_ROWS, lengths)
    out[_ADDRESS] = bases[row[_F_BASE]] + row[_F_OFFSET]
    moves = row[_F_DYN] == (_DST_MOVES if out[_UNIT] == _LOAD else _SRC0_MOVES)
    out[_ROW0] = row[_F_ROW] + (dyn if moves else 0)
    out[_ROW1] = row[_F_LIST] + (dyn if row[_F_DYN] == _SRC1_MOVES else 0)
    size = row[_F_BYTES]
    out[_JOINED] = (out[_FLAGS] & (_BROADCAST | _INDEXED) == 0 and row[_F_STRIDE] == size and size % cfg[_BUS] == 0)
    return out[_M] == 0 or size == 0


def _resolve_matrix(row, lengths, dyn, out):  # type: ignore[no-untyped-def]
    """Lengths and first rows of a product; whether it is empty."""
    out[_M], out[_N], out[_K] = _length(row, _F_M, lengths), _length(row, _F_N, lengths), _length(row, _F_K, lengths)
    out[_ROW0] = row[_F_A] + (dyn if row[_F_DYN] == _SRC0_MOVES else 0)
    out[_ROW1] = row[_F_B] + (dyn if row[_F_DYN] == _SRC1_MOVES else 0)
    out[_ROW2] = row[_F_C] + (dyn if row[_F_DYN] == _DST_MOVES else 0)
    return out[_M] == 0 or out[_N] == 0 or out[_K] == 0


def _resolve_vector(row, lengths, dyn, out):  # type: ignore[no-untyped-def]
    """Lengths and first rows of a vector command, columns behind a softmax piece; whether it is empty."""
    op = out[_OP]
    out[_M], out[_N] = _length(row, _F_M, lengths), _length(row, _F_N, lengths)
    if op == _TABLE:
        out[_M], out[_N] = 1, _BYTE_ENTRIES
    elif op == _WORD_TABLE:
        out[_M], out[_N] = 2, _WORD_ENTRIES
    out[_ROW0] = row[_F_SRC0] + (dyn if row[_F_DYN] == _SRC0_MOVES else 0)
    out[_ROW1] = row[_F_SRC1] + (dyn if row[_F_DYN] == _SRC1_MOVES else 0)
    out[_ROW2] = row[_F_DST] + (dyn if row[_F_DYN] == _DST_MOVES else 0)
    if op in (_SOFTMAX_MAX, _SOFTMAX_EXP, _SOFTMAX_NORM):
        register = row[_F_AUX] & 15
        if register:
            out[_AFTER] = max(lengths[register] - (row[_F_AUX] >> 4), 0)
    _scaling(row, lengths, out)
    return out[_M] == 0 or out[_N] == 0


def _scaling(row, lengths, out):  # type: ignore[no-untyped-def]
    """Multipliers and shifts, from the command or from the registers that it names."""
    out[_O_MULT], out[_O_SHIFT], out[_O_SHIFT2], out[_O_AUX] = row[_F_MULT], row[_F_SHIFT], row[_F_SHIFT2], row[_F_AUX]
    register = row[_F_SCALE]
    if register == 0:
        return
    shifts = _register(register + 1, lengths)
    out[_O_MULT], out[_O_SHIFT], out[_O_SHIFT2] = lengths[register], shifts & 63, shifts >> 6 & 63
    if out[_OP] == _ADD or (out[_OP] == _REQUANT and out[_FLAGS] & _RESCALED == _RESCALED):
        out[_O_AUX] = _register(register + 2, lengths)


def _resolve_select(row, lengths, dyn, out):  # type: ignore[no-untyped-def]
    """Lengths and first rows of a select command; whether it is empty."""
    op = out[_OP]
    out[_M], out[_N] = _length(row, _F_M, lengths), _length(row, _F_N, lengths)
    out[_K] = _length(row, _F_K, lengths) if op == _TOP_K else 1
    out[_ROW0] = row[_F_SRC0] + (dyn if row[_F_DYN] == _SRC0_MOVES else 0)
    out[_ROW1] = row[_F_FIRST] + (row[_F_FIRST_HIGH] << _FIRST_BITS) + (dyn if row[_F_DYN] == _SRC1_MOVES else 0)
    out[_ROW2] = row[_F_DST] + (dyn if row[_F_DYN] == _DST_MOVES else 0)
    by_rows = op in (_ARGMAX, _IMPORTANCE, _COMPARE, _PACK)
    return (by_rows and out[_M] == 0) or out[_N] == 0 or out[_K] == 0


def _breaks_matrix(row, out, cfg):  # type: ignore[no-untyped-def]
    """B that a preload cannot read or that does not stand in the mesh, A and B of one bank where they must not."""
    if out[_FLAGS] & _REUSE:
        if out[_N] > cfg[_DIM] or out[_K] > cfg[_DIM]:
            return True
    elif out[_ROW1] % cfg[_PRELOAD] or row[_F_B_STRIDE] % cfg[_PRELOAD]:
        return True
    return out[_FLAGS] & _STATIONARY != 0 and out[_CLAIM] & out[_CLAIM + 1] != 0


def _breaks_vector(out, cfg):  # type: ignore[no-untyped-def]
    """A tree of more rows than a bitmap has bits."""
    op = out[_OP]
    softmax = op in (_SOFTMAX_MAX, _SOFTMAX_EXP, _SOFTMAX_NORM)
    return softmax and out[_FLAGS] & _TREE != 0 and out[_M] > 8 * cfg[_DIM]


def _breaks_select(out, cfg):  # type: ignore[no-untyped-def]
    """Keys of ids that an index cannot name."""
    return (out[_OP] == _KEYS and out[_FLAGS] & _FROM_IMPORTANCE == 0
            and out[_ROW1] + out[_N] > 1 << cfg[_INDEX_BITS])


def _reach(classes, terms, out, cfg):  # type: ignore[no-untyped-def]
    """Claims of the operands in ``classes``; whether one of them leaves its memory."""
    bad = False
    for i in range(len(classes)):
        memory = classes[i, _C_MEMORY]
        if memory < 0:
            break
        if memory == _DRAM:
            continue
        first = terms[classes[i, _C_FIRST]]
        last = (first + (terms[classes[i, _C_COUNT]] - 1) * terms[classes[i, _C_STRIDE]]
                + (terms[classes[i, _C_PLANES]] - 1) * terms[classes[i, _C_PLANE_STRIDE]]
                + terms[classes[i, _C_RUN]] * classes[i, _C_TIMES] - 1)
        if last >= cfg[_SIZE + memory] or (memory == _STATISTICS and out[_M] > cfg[_STAT_ROWS]):
            bad = True
        elif memory == _SPM:
            mask = _banks(first, last, cfg[_SIZE + _SPM], cfg[_SPM_BANKS])
            out[_CLAIM + classes[i, _C_CLAIM]] |= mask << (cfg[_SPM_BANKS] if classes[i, _C_WRITE] else 0)
        elif memory == _ACC:
            mask = _banks(first, last, cfg[_SIZE + _ACC], cfg[_ACC_BANKS]) << 2 * cfg[_SPM_BANKS]
            if classes[i, _C_BOTH]:
                mask |= mask << cfg[_ACC_BANKS]
            elif classes[i, _C_WRITE]:
                mask <<= cfg[_ACC_BANKS]
            out[_CLAIM + classes[i, _C_CLAIM]] |= mask
    return bad


def resolve_row(row, bases, limits, lengths, cfg, out, terms):  # type: ignore[no-untyped-def]
    """Resolve one row of :func:`gemmule.isa.decode_table` into ``out`` (int64[len(OUT_FIELDS)]).

    ``bases``/``limits`` are bytes (int64[32]), ``lengths`` int64[16], ``cfg`` is :func:`config_vector`; ``terms`` is
    scratch (int64[TERMS]) and afterwards holds the command's terms, unless it is illegal or of length zero.
    ``out[fault]`` is an index into :data:`FAULTS`; checks run in the order illegal, rows, limit, align. Zero-length
    commands are not checked beyond illegal and claim nothing; of one that faults nothing else counts.
    """
    out[:] = 0
    unit, op, flags = row[_F_UNIT], row[_F_OP], row[_F_FLAGS]
    out[_UNIT], out[_OP], out[_FLAGS] = unit, op, flags
    if unit > _SELECT or CLASS_OF[unit, op, flags] < 0:
        out[_FAULT] = _ILLEGAL
        return
    if (unit == _SELECT and op == _COMPARE and row[_F_NUMBER] == 0) or _lacks(unit, op, flags, row, cfg):
        out[_FAULT] = _ILLEGAL
        return
    dyn = _register(row[_F_DYN_REG], lengths) * row[_F_DYN_STRIDE]
    if unit <= _STORE:
        empty = _resolve_move(row, bases, lengths, dyn, cfg, out)
    elif unit == _MATRIX:
        empty = _resolve_matrix(row, lengths, dyn, out)
    elif unit == _VECTOR:
        empty = _resolve_vector(row, lengths, dyn, out)
    else:
        empty = _resolve_select(row, lengths, dyn, out)
    if empty:
        out[_ZERO] = 1
        return
    fill_terms(row, out, cfg[_DIM], terms)
    bad = _reach(CLASSES[CLASS_OF[unit, op, flags]], terms, out, cfg)
    if not bad:
        if unit == _MATRIX:
            bad = _breaks_matrix(row, out, cfg)
        elif unit == _VECTOR:
            bad = _breaks_vector(out, cfg)
        elif unit == _SELECT:
            bad = _breaks_select(out, cfg)
    if bad:
        out[_FAULT] = _BAD_ROWS
    elif unit <= _STORE:
        out[_FAULT] = _breaks_memory(row, limits, flags, cfg, out)
    elif unit == _MATRIX or (unit == _VECTOR and (op in (_PRODUCT, _ADD))):
        # Both read the scratchpad: matrix A and B, vector r0 and r1.
        out[_APART] = 1 if out[_CLAIM] & out[_CLAIM + 1] else 0
    if out[_FAULT]:
        out[_CLAIM:_CLAIM + 3] = 0


def _breaks_memory(row, limits, flags, cfg, out):  # type: ignore[no-untyped-def]
    """The fault of a move beyond its limit or the address space, of parts of words, of a BROADCAST off a bus line."""
    if flags & _FILL == 0:
        lines = out[_M]
        if flags & _BROADCAST:
            lines = 1
        elif flags & _INDEXED:
            lines = row[_F_LAST_INDEX] + 1
        end = row[_F_OFFSET] + (lines - 1) * row[_F_STRIDE] + row[_F_BYTES]
        # Addresses do not wrap: what lies there is another's.
        if end > limits[row[_F_BASE]] or end > (1 << cfg[_ADDRESS_BITS]) - (out[_ADDRESS] - row[_F_OFFSET]):
            return _BAD_LIMIT
    if flags & (_WORDS | _INT8) == _WORDS and row[_F_BYTES] % 4:
        return _BAD_ALIGN
    if flags & _BROADCAST and out[_ADDRESS] % cfg[_BUS]:
        return _BAD_ALIGN
    return _NONE


def resolve(table: np.ndarray, bases: np.ndarray, limits: np.ndarray, lengths: np.ndarray,
            config: Config) -> np.ndarray:
    """Resolve every row of a decoded program: ``int64[commands, len(OUT_FIELDS)]``."""
    out = np.zeros((len(table), len(OUT_FIELDS)), dtype=np.int64)
    cfg, terms = config_vector(config), np.zeros(TERMS, dtype=np.int64)
    for i in range(len(table)):
        resolve_row(table[i], bases, limits, lengths, cfg, out[i], terms)
    return out
