"""Select commands on data: operands per docs/numerics.md, section Select unit."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from gemmule import numerics
from gemmule.isa import (
    TABLE_FIELDS,
    ArgmaxFlag,
    CommitFlag,
    CompareFlag,
    ImportanceFlag,
    KeysFlag,
    ListFlag,
    SOp,
    TopKFlag,
)
from gemmule.resolve import OUT
from gemmule.sim.functional.memory import Memory

__all__ = ["select"]

_HALF_BITS, _LOWER = 16, 0xFFFF
"""What a scratchpad row holds of a list entry: its lower bits, or with HIGH those above them."""
_SRC0_STRIDE, _AUX, _SHIFT, _NUMBER = (
    TABLE_FIELDS.index(name) for name in ("src0_stride", "aux", "shift", "number"))
_OP, _FLAGS, _M, _N, _K, _SRC0, _FIRST, _DST = (
    OUT[name] for name in ("op", "flags", "m", "n", "k", "row0", "row1", "row2"))


class _Operands:
    """Fields and operands of one command."""

    def __init__(self, memory: Memory, raw: list[int], row: list[int]) -> None:
        self.memory, self.flags = memory, row[_FLAGS]
        self.m, self.n, self.k = row[_M], row[_N], row[_K]
        self.src0, self.dst, self.stride = row[_SRC0], row[_DST], raw[_SRC0_STRIDE]
        self.first, self.aux, self.shift, self.number = row[_FIRST], raw[_AUX], raw[_SHIFT], raw[_NUMBER]
        self.positions = slice(self.first, self.first + self.n)

    def flag(self, flag: IntEnum) -> bool:
        return bool(self.flags >> flag & 1)

    def bytes(self, rows: int, offset: int = 0) -> np.ndarray:
        """Scratchpad operand uint8 ``[rows, n]``."""
        groups = -(-self.n // self.memory.dim)
        view = self.memory.spm_view(self.src0 + offset, self.stride, rows, groups)
        return view.reshape(rows, -1)[:, :self.n]

    def words(self, rows: int, *, signed: bool = True) -> np.ndarray:
        """Operand of 16 bits in two planes, int64 ``[rows, n]``."""
        return numerics.join_planes(self.bytes(rows), self.bytes(rows, self.stride // 2), signed=signed)

    def list_rows(self, row: int, mode: str = "r") -> np.ndarray:
        """Scratchpad rows that hold 16 bits of n list entries, as uint16 ``[entries of whole rows]``."""
        half = self.memory.dim // 2
        return self.memory.spm_view(row, 1, 1, -(-self.n // half), mode=mode).reshape(-1).view("<u2")


def select(memory: Memory, raw: list[int], row: list[int]) -> None:
    """Run one select command of non-zero length."""
    _OPS[SOp(row[_OP])](_Operands(memory, raw, row))


def _argmax(x: _Operands) -> None:
    memory, rows = x.memory, slice(0, x.m)
    index, value = numerics.argmax_rows(x.words(x.m))
    ids = x.first + index & memory.index_mask
    if x.flag(ArgmaxFlag.CONTINUE):
        best, best_ids = memory.best[rows], memory.best_ids[rows]
        stays = best >= value
        value, ids = np.where(stays, best, value), np.where(stays, best_ids, ids)
    memory.best[rows], memory.best_ids[rows] = value, ids
    memory.list[x.dst:x.dst + x.m] = ids


def _keys(x: _Operands) -> None:
    if x.flag(KeysFlag.FROM_IMPORTANCE):
        keys = numerics.importance_keys(x.memory.committed[x.positions], x.shift, x.aux & 255, x.aux >> 8)
    else:
        keys = x.words(1)[0] + 32768 << 8
    x.memory.keys[x.dst:x.dst + x.n] = keys
    if not x.flag(KeysFlag.KEEP_IDS):
        x.memory.ids[x.dst:x.dst + x.n] = x.first + np.arange(x.n)


def _top_k(x: _Operands) -> None:
    memory = x.memory
    if x.flag(TopKFlag.NONZERO):
        order = numerics.nonzero_first(memory.keys[:x.n])
        memory.mask[:x.n] = memory.keys[:x.n] != 0
        memory.list[x.dst:x.dst + x.n] = memory.ids[:x.n][order]
        return
    kept = numerics.top_k(memory.keys[:x.n], x.k)
    count = len(kept)
    memory.mask[:x.n] = False
    memory.mask[kept] = True
    keys, ids = memory.keys[:x.n][kept], memory.ids[:x.n][kept]
    if not x.flag(TopKFlag.KEEP):
        memory.keys[:count], memory.ids[:count] = keys, ids
    memory.list[x.dst:x.dst + count] = ids


def _importance(x: _Operands) -> None:
    probabilities = x.words(x.m, signed=False) if x.flag(ImportanceFlag.WIDE) else x.bytes(x.m)
    x.memory.shadow[x.positions] = numerics.accumulate_importance(x.memory.shadow[x.positions], probabilities)


def _commit(x: _Operands) -> None:
    memory, at = x.memory, x.positions
    if x.flag(CommitFlag.CLEAR):
        memory.committed[at] = 0
    elif x.flag(CommitFlag.FROM_KEYS):
        memory.committed[at] = memory.keys[at]
    elif not x.flag(CommitFlag.DISCARD):
        memory.committed[at] = np.minimum(memory.committed[at] + memory.shadow[at], numerics.IMPORTANCE_MAX)
    memory.shadow[at] = 0


def _compare(x: _Operands) -> None:
    threshold = x.aux
    if x.flag(CompareFlag.WIDE):
        threshold -= threshold >> 15 << 16
        largest = x.words(x.m).max()
    else:
        largest = x.bytes(x.m).max()
    x.memory.predicates[x.number] = bool(largest >= threshold) != x.flag(CompareFlag.INVERT)


def _list_load(x: _Operands) -> None:
    entries, values = slice(x.dst, x.dst + x.n), x.list_rows(x.src0)[:x.n].astype(np.int64)
    if x.flag(ListFlag.HIGH):
        values = x.memory.list[entries] & _LOWER | values << _HALF_BITS & x.memory.index_mask
    x.memory.list[entries] = values


def _list_store(x: _Operands) -> None:
    rows = x.list_rows(x.dst, mode="w")
    entries = x.memory.list[x.positions]
    rows[:x.n] = entries >> _HALF_BITS if x.flag(ListFlag.HIGH) else entries & _LOWER
    rows[x.n:] = 0


def _pack(x: _Operands) -> None:
    groups = -(-x.n // x.memory.dim)
    found = np.zeros((x.m, groups * x.memory.dim), dtype=np.uint8)
    mask = x.memory.mask[:x.n]
    found[:, :np.count_nonzero(mask)] = x.bytes(x.m)[:, mask]
    x.memory.spm_view(x.dst, x.stride, x.m, groups, mode="w")[:] = found.reshape(x.m, groups, -1)


_OPS = {
    SOp.ARGMAX: _argmax, SOp.KEYS: _keys, SOp.TOP_K: _top_k, SOp.IMPORTANCE: _importance, SOp.COMMIT: _commit,
    SOp.COMPARE: _compare, SOp.LIST_LOAD: _list_load, SOp.LIST_STORE: _list_store,
    SOp.PACK: _pack,
}
