"""What commands do, field by field, as ``docs/isa.md`` and ``docs/numerics.md`` say it: element by element, no speed.

A second reading of the pages, for tests: it shares nothing with the functional model but the integer functions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    Command,
    CommitFlag,
    KeysFlag,
    ListFlag,
    MatrixFlag,
    MoveFlag,
    ProductFlag,
    RequantFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
)
from gemmule.numerics.fixed import requant, requant_row, rshr, saturate
from gemmule.numerics.rope import rope
from gemmule.numerics.select import top_k
from gemmule.numerics.softmax import row_absmax, softmax_reciprocal

__all__ = ["Statement"]


class Statement:
    """Memories of a device and what commands make of them; flags that the tests of fields do not use are not known."""

    def __init__(self, config: Config, dram: np.ndarray, bases: np.ndarray, lengths: np.ndarray) -> None:
        self.dim, self.dram, self.bases, self.lengths = config.dim, dram.astype(np.int64), bases, lengths
        self.spm = np.zeros((config.spm_rows, config.dim), dtype=np.int64)  # unsigned bytes
        self.acc = np.zeros((config.acc_rows, config.dim), dtype=np.int64)
        self.list = np.zeros(config.list_entries, dtype=np.int64)
        self.keys, self.ids = (np.zeros(config.select_keys, dtype=np.int64) for _ in range(2))
        self.shadow, self.committed = (np.zeros(config.select_keys, dtype=np.int64) for _ in range(2))
        self.mask: set[int] = set()
        self.predicates = [1, 0, 0, 0]
        self.contexts: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def run(self, command: Command) -> None:
        """Take one command."""
        if not self.predicates[command.predicate]:
            return
        fields = dict(command.fields)
        which, register, stride = command.dyn
        place = {Unit.LOAD: {2: "list", 3: "row"}, Unit.STORE: {1: "row", 2: "list"},
                 Unit.MATRIX: {1: "a_row", 2: "b_row", 3: "c_row"}, Unit.VECTOR: {1: "src0", 2: "src1", 3: "dst"},
                 Unit.SELECT: {1: "src0", 2: "first", 3: "dst"}}[command.unit]
        if which in place:
            fields[place[which]] = fields.get(place[which], 0) + self._register(register) * stride
        f = _Fields(fields)
        {Unit.LOAD: self._move, Unit.STORE: self._move, Unit.MATRIX: self._matrix, Unit.VECTOR: self._vector,
         Unit.SELECT: self._select}[command.unit](command, f)

    def _register(self, number: int) -> int:
        return 65535 if number == 0 else int(self.lengths[number])

    def _length(self, f: _Fields, name: str) -> int:
        return min(max(self._register(f[f"{name}_reg"]) - f[f"{name}_offset"], 0), f[f"{name}_cap"])

    def _move(self, command: Command, f: _Fields) -> None:
        words, dim = MoveFlag.ACCUMULATOR in command.flags, self.dim
        memory, size = (self.acc, 4) if words else (self.spm, 1)
        for r in range(self._length(f, "rows")):
            number = min(int(self.list[f["list"] + r]), f["last_index"]) if MoveFlag.INDEXED in command.flags else r
            for i in range(f["bytes"] // size):
                row = f["row"] + r * f["row_stride"] + i // dim * f["block_stride"]
                at = int(self.bases[f["base"]]) + f["offset"] + number * f["stride"] + i * size
                if command.unit is Unit.STORE:
                    self.dram[at:at + size] = [int(memory[row, i % dim]) >> 8 * b & 255 for b in range(size)]
                elif MoveFlag.ZERO in command.flags:
                    memory[row, i % dim] = 0
                else:
                    memory[row, i % dim] = int.from_bytes(bytes(self.dram[at:at + size].tolist()), "little",
                                                          signed=words)

    def _matrix(self, command: Command, f: _Fields) -> None:
        dim, (m, n, k) = self.dim, (self._length(f, name) for name in "mnk")
        if not m * n * k:
            return
        int4, scaled = (flag in command.flags for flag in (MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES))

        def b(row: int, column: int) -> int:
            block = f["b_row"] + column // dim * f["b_stride"]
            if not int4:
                return signed(int(self.spm[block + row, column % dim]), 8)
            value = signed(int(self.spm[block + row // 2, column % dim]) >> 4 * (row % 2), 4)
            behind = -(-k // dim) * dim // 2 + (row // dim >> f["group"])
            return value * (int(self.spm[block + behind, column % dim]) & 15) if scaled else value << min(4, f["group"])

        for j in range(-(-n // dim) * dim):
            for i in range(m):
                self.acc[f["c_row"] + j // dim * f["c_stride"] + i, j % dim] = 0 if j >= n else sum(
                    signed(int(self.spm[f["a_row"] + x // dim * f["a_stride"] + i, x % dim]), 8) * b(x, j)
                    for x in range(k))

    def _rows(self, memory: np.ndarray, first: int, stride: int, m: int, n: int) -> np.ndarray:
        """Elements [m, n] of an operand."""
        return np.array([[memory[first + j // self.dim * stride + i, j % self.dim] for j in range(n)]
                         for i in range(m)]).reshape(m, n)

    def _put(self, first: int, stride: int, values: np.ndarray, *, wide: bool = False) -> None:
        """Bytes (or int16 planes) of a result; lanes beyond it become 0."""
        for i, row in enumerate(values):
            for j in range(-(-len(row) // self.dim) * self.dim):
                value, at = int(row[j]) if j < len(row) else 0, first + j // self.dim * stride + i
                self.spm[at, j % self.dim] = value & 255
                if wide:
                    self.spm[at + stride // 2, j % self.dim] = value >> 8 & 255

    def _bytes(self, first: int, stride: int, m: int, n: int) -> np.ndarray:
        return signed(self._rows(self.spm, first, stride, m, n), 8)

    def _planes(self, first: int, stride: int, m: int, n: int) -> np.ndarray:
        low, high = (self._rows(self.spm, first + part, stride, m, n) for part in (0, stride // 2))
        return signed(low | high << 8, 16)

    def _vector(self, command: Command, f: _Fields) -> None:
        op, (m, n) = VOp(command.op), (self._length(f, name) for name in "mn")
        if register := f["scale_reg"]:
            f["mult"], shifts = self._register(register), self._register((register + 1) % 16)
            f["shift"], f["shift2"] = shifts % 64, shifts // 64 % 64
            if op is VOp.ADD or {RequantFlag.RESIDUAL, RequantFlag.RESCALE} <= command.flags:
                f["aux"] = self._register((register + 2) % 16)
        src, mult, shift = (f["src0"], f["src0_stride"], m, n), f["mult"], f["shift"]
        if op is VOp.PRODUCT and ProductFlag.WIDE in command.flags:
            self._word_product(command, f, m, n)
            return
        if op in (VOp.ADD, VOp.PRODUCT):
            a = self._bytes(*src)
            other = f["src0_stride"] if op is VOp.ADD else f["aux"]
            b = self._bytes(f["src1"], other, m, n)
            found = rshr(a * mult + b * f["aux"], shift) if op is VOp.ADD else requant(a * b, mult, shift)
            self._put(f["dst"], f["dst_stride"], saturate(found, 8))
            return
        x = self._rows(self.acc, *src)
        if op is VOp.ABSMAX:
            self.contexts[f["context"]] = softmax_reciprocal(row_absmax(x))
        elif op is VOp.ROPE:
            groups = 1 << f["period"]
            angles = [np.array([[signed(int(self.spm[
                f["aux"] + i * 4 * groups + j // self.dim % groups * 4 + part, j % self.dim]) | int(self.spm[
                    f["aux"] + i * 4 * groups + j // self.dim % groups * 4 + part + 1, j % self.dim]) << 8, 16)
                for j in range(n)] for i in range(m)]) for part in (0, 2)]
            self._put(f["dst"], f["dst_stride"],
                      rope(saturate(requant(x, mult, shift), 16), angles[0], angles[1], f["shift2"]))
        elif RequantFlag.RESIDUAL in command.flags:
            residual = self._planes(f["dst"], f["dst_stride"], m, n)
            total = requant(x, mult, shift) + requant(residual, f["aux"], f["shift2"])
            self._put(f["dst"], f["dst_stride"], saturate(total, 16), wide=True)
        else:
            found = (requant_row(x, *self.contexts[f["context"]], mult, shift) if RequantFlag.ROW in command.flags
                     else requant(x, mult, shift))
            self._put(f["dst"], f["dst_stride"], saturate(found, 8))

    def _word_product(self, command: Command, f: _Fields, m: int, n: int) -> None:
        """PRODUCT of int16 planes."""
        a = self._planes(f["src0"], f["src0_stride"], m, n)
        found = requant(a * self._planes(f["src1"], f["aux"], m, n), f["mult"], f["shift"])
        self._put(f["dst"], f["dst_stride"], saturate(found, 16), wide=True)

    def _select(self, command: Command, f: _Fields) -> None:
        op, (m, n, k) = SOp(command.op), (self._length(f, name) for name in "mnk")
        src, first, dst = (f["src0"], f["src0_stride"]), f["first"] + 65536 * f["first_high"], f["dst"]
        high = ListFlag.HIGH in command.flags and op in (SOp.LIST_LOAD, SOp.LIST_STORE)
        if op in (SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE, SOp.PACK) and not m * n:
            return
        if op is SOp.ARGMAX:
            self.list[dst:dst + m] = first + self._planes(*src, m, n).argmax(axis=1)
        elif op is SOp.KEYS:
            if KeysFlag.FROM_IMPORTANCE in command.flags:
                values = np.minimum(self.committed[first:first + n] >> min(f["shift"], 31), 2**24 - 1)
                low, high = f["aux"] & 255, f["aux"] >> 8
                sure = (np.arange(n) < low) | (np.arange(n) >= n - high)
                self.keys[dst:dst + n] = np.where(sure, 2**24 - 1, values)
            else:
                self.keys[dst:dst + n] = self._planes(*src, 1, n)[0] + 32768 << 8
            if KeysFlag.KEEP_IDS not in command.flags:
                self.ids[dst:dst + n] = first + np.arange(n)
        elif op is SOp.TOP_K and TopKFlag.NONZERO in command.flags:
            if k:
                self.mask = {j for j in range(n) if self.keys[j]} | {j for j in self.mask if j >= n}
                order = sorted(range(n), key=lambda j: self.keys[j] == 0)  # stable
                self.list[dst:dst + n] = [self.ids[j] for j in order]
        elif op is SOp.TOP_K:
            kept = top_k(self.keys[:n], k)
            if k:
                self.mask = {*kept.tolist()} | {j for j in self.mask if j >= n}
            self.list[dst:dst + len(kept)] = self.ids[kept]
            if TopKFlag.KEEP not in command.flags:
                self.keys[:len(kept)], self.ids[:len(kept)] = self.keys[kept], self.ids[kept]
        elif op is SOp.IMPORTANCE:
            self.shadow[first:first + n] += self._rows(self.spm, *src, m, n).sum(axis=0)
        elif op is SOp.COMMIT:
            if CommitFlag.FROM_KEYS in command.flags:
                self.committed[first:first + n] = self.keys[first:first + n]
            else:
                self.committed[first:first + n] = 0 if command.flags else (
                    self.committed + self.shadow)[first:first + n]
            self.shadow[first:first + n] = 0
        elif op is SOp.COMPARE:
            self.predicates[f["number"]] = int(self._rows(self.spm, *src, m, n).max() >= f["aux"])
        elif op is SOp.PACK:
            for i in range(m):
                places = iter(range(-(-n // self.dim) * self.dim))
                line = {at: self.spm[src[0] + j // self.dim * src[1] + i, j % self.dim]
                        for j in sorted(self.mask) if j < n for at in [next(places)]}
                for at in range(-(-n // self.dim) * self.dim):
                    self.spm[dst + at // self.dim * src[1] + i, at % self.dim] = line.get(at, 0)
        elif op is SOp.LIST_LOAD:
            for j in range(n):
                row, lane = f["src0"] + 2 * j // self.dim, 2 * j % self.dim
                half = int(self.spm[row, lane]) | int(self.spm[row, lane + 1]) << 8
                self.list[dst + j] = int(self.list[dst + j]) % 65536 + half % 4 * 65536 if high else half
        else:
            for j in range(-(-2 * n // self.dim) * self.dim):
                value = int(self.list[first + j // 2]) >> 8 * (j % 2) + 16 * high & 255 if j < 2 * n else 0
                self.spm[dst + j // self.dim, j % self.dim] = value


class _Fields:
    """Fields of a body; those that a command does not name are 0."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> int:
        return int(self._values.get(name, 0))

    def __setitem__(self, name: str, value: int) -> None:
        self._values[name] = value


def signed(value, bits: int):  # type: ignore[no-untyped-def]
    """Two's complement of the low bits, of a number or an array."""
    value = value & (1 << bits) - 1
    return value - ((value >> bits - 1) << bits)
