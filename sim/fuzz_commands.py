"""Random single commands. They need not be legal; the builder in ``fuzz.py`` drops those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, Dyn, Length, MatrixFlag, Unit, VectorFlag, VOp

__all__ = ["Draw"]


class Draw:
    """Draws commands; knows which statistics contexts and tables have been set up so far."""

    def __init__(self, config: Config, random: np.random.Generator, lengths: np.ndarray) -> None:
        self.config, self.random, self.lengths = config, random, lengths
        self.contexts: dict[tuple[str, int], int] = {}
        self.table = False
        # Programs differ in what they are made of, and in how many banks they crowd into.
        self.weights = random.dirichlet([2.0, 1.5, 2.0, 4.0])
        self.ops = random.dirichlet([2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.3])
        self.banks = int(random.integers(min(3, config.spm_banks), config.spm_banks + 1))
        self.near = float(random.choice([0.1, 0.4, 0.7]))

    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def choice(self, values: list[Any]) -> Any:
        return values[self.integer(0, len(values) - 1)]

    def size(self, groups: int) -> int:
        """A length in rows or columns: often ragged, sometimes whole, seldom zero."""
        dim = self.config.dim
        if self.chance(0.04):
            return 0
        whole = dim * self.integer(1, groups)
        return whole if self.chance(0.4) else self.integer(1, whole)

    def length(self, value: int) -> Length:
        """A length field that resolves to ``value``, through a register when one fits."""
        if self.chance(0.5):
            return Length(value)
        reg = self.integer(1, 15)
        have = int(self.lengths[reg])
        if have < value:
            return Length(value)
        if 0 <= have - value < 256 and self.chance(0.6):
            return Length(min(65535, value + self.integer(0, 40)), reg, have - value)
        return Length(value, reg, self.integer(0, min(255, have - value)))

    def dynamic(self, which: Dyn, values: dict[str, Any], name: str) -> tuple[Dyn, int, int]:
        """Move a part of the row into register times stride, if it fits."""
        reg, stride = self.integer(1, 15), self.integer(0, 9)
        part = int(self.lengths[reg]) * stride
        if self.chance(0.7) or part > values[name]:
            return (Dyn.NONE, self.integer(0, 15), self.integer(0, 1023))
        values[name] -= part
        return (which, reg, stride)

    def junk(self) -> set[int]:
        """Flag bits that a command ignores."""
        return set(np.flatnonzero(self.random.integers(0, 2, 8)).tolist()) if self.chance(0.1) else set()

    def row(self, space: str = "spm") -> int:
        """A row, often near a bank's start, in the banks that this program likes."""
        config = self.config
        rows = config.spm_bank_rows if space == "spm" else config.acc_bank_rows
        banks = self.banks if space == "spm" else config.acc_banks
        bank = self.integer(0, banks - 1)
        reach = min(rows - 1, 3 * config.dim) if self.chance(self.near) else rows - 1
        return bank * rows + self.integer(0, reach)

    def stride(self, rows: int, *, planes: int = 1) -> int:
        """Distance of column groups: mostly without overlap."""
        slack = self.choice([0, 0, 1, self.config.dim, 7])
        return planes * (rows + slack) + (self.integer(0, 1) if planes == 1 and self.chance(0.3) else 0)

    def command(self) -> tuple[Command, tuple[Any, ...]]:
        """A command and what :meth:`accept` must know when it is taken."""
        unit = Unit(int(self.random.choice(4, p=self.weights)))
        if unit in (Unit.LOAD, Unit.STORE):
            return self._move(unit), ()
        return (self._matrix(), ()) if unit is Unit.MATRIX else self._vector()

    def accept(self, note: tuple[Any, ...]) -> None:
        """A command with this note has become part of the program."""
        if note and note[0] == "table":
            self.table = True
        elif note:
            kind, context, rows = note
            self.contexts[kind, context] = max(rows, self.contexts.get((kind, context), 0))

    def _move(self, unit: Unit) -> Command:
        config = self.config
        bus, dim = config.bus_bytes, config.dim
        rows = self.size(3) if self.chance(0.7) else self.integer(1, 2)
        most = 4 * dim if self.chance(0.8) else 3 * config.burst_bytes
        size = 0 if self.chance(0.03) else self.integer(1, most)
        stride = (size + bus - 1) // bus * bus + bus * self.choice([0, 0, 1, self.integer(0, 64)])
        blocks = max(1, -(-size // dim))
        layout = self.choice(["rows", "blocks", "free"])
        row_stride, block_stride = {
            "rows": (1, rows + self.integer(0, 3)), "blocks": (blocks, 1),
            "free": (self.integer(1, 2 * blocks), self.integer(1, 2 * max(rows, 1))),
        }[layout]
        low, high = (0, 15) if unit is Unit.LOAD and self.chance(0.8) else (16, 31)
        values: dict[str, Any] = {
            "base": max(1, self.integer(low, high)), "offset": self.integer(0, 4096 // bus) * bus,
            "stride": stride, "bytes": size, "row": self.row(), "row_stride": row_stride,
            "block_stride": block_stride,
        }
        dyn = self.dynamic(Dyn.DST if unit is Unit.LOAD else Dyn.SRC0, values, "row")
        return Command.make(unit, flags=self.junk(), dyn=dyn, rows=self.length(rows), **values)

    def _matrix(self) -> Command:
        preload = self.config.preload
        m, n, k = self.size(2 if self.chance(0.8) else 4), self.size(4), self.size(4)
        transposed = self.chance(0.4)
        b_stride = self.stride(n if transposed else k)
        optional = (MatrixFlag.A_UNSIGNED, MatrixFlag.ACCUMULATE)
        flags: list[int] = [flag for flag in optional if self.chance(0.5)]
        values: dict[str, Any] = {
            "a_row": self.row(), "a_stride": self.stride(m),
            "b_row": self.row() // preload * preload, "b_stride": -(-b_stride // preload) * preload,
            "c_row": self.row("acc"), "c_stride": self.stride(m),
        }
        dyn = self.dynamic(*self.choice([(Dyn.SRC0, values, "a_row"), (Dyn.SRC1, values, "b_row")]))
        flags += [bit for bit in self.junk() if bit >= len(MatrixFlag)]
        return Command.make(
            Unit.MATRIX, flags=[*flags, MatrixFlag.B_TRANSPOSED] if transposed else flags, dyn=dyn,
            m=self.length(m), n=self.length(n), k=self.length(k), **values)

    def _context(self, kind: str) -> tuple[int, int] | None:
        """A context that holds this kind of statistic, and for how many rows."""
        known = [(context, rows) for (what, context), rows in self.contexts.items() if what == kind]
        return self.choice(known) if known else None

    def _vector(self) -> tuple[Command, tuple[Any, ...]]:
        config = self.config
        op = VOp(int(self.random.choice(8, p=self.ops)))
        m, n = self.size(2), self.size(4)
        flags: set[VectorFlag] = set()
        note: tuple[Any, ...] = ()
        context = self.integer(0, config.stat_contexts - 1)
        need = {VOp.RMS_APPLY: "rms", VOp.SOFTMAX_EXP: "max"}.get(op)
        if op is VOp.REQUANT:
            need = self._requant_flags(flags)
        elif op is VOp.ROPE and self.chance(0.5):
            flags.add(VectorFlag.COLUMN)
        elif op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP) and self.chance(0.5):
            flags.add(VectorFlag.CAUSAL)
        if need:
            found = self._context(need)
            if found is None:  # set it up first
                op = VOp.RMS_STAT if need == "rms" else VOp.SOFTMAX_MAX
                if need == "sum" and self._context("max"):
                    op, context = VOp.SOFTMAX_EXP, self._context("max")[0]  # type: ignore[index]
                    m = min(m, self.contexts["max", context])
                flags = set()
            else:
                context, m = found[0], min(m, found[1])
        produced = {VOp.RMS_STAT: "rms", VOp.SOFTMAX_MAX: "max", VOp.SOFTMAX_EXP: "sum"}.get(op)
        if produced and m and n:
            note = (produced, context, m)
        if op is VOp.TABLE:
            note = ("table",)
        planes = 2 if op in (VOp.RMS_STAT, VOp.RMS_APPLY) else 1
        wide = bool(flags & {VectorFlag.WIDE, VectorFlag.RESIDUAL})
        memory = "spm" if op in (VOp.PRODUCT, VOp.RMS_STAT, VOp.RMS_APPLY, VOp.TABLE) else "acc"
        values: dict[str, Any] = {
            "src0": self.row(memory), "src0_stride": self.stride(m, planes=planes), "src1": self.row(),
            "aux": self.stride(m) if op is VOp.PRODUCT else self.row(), "dst": self.row(),
            "dst_stride": self.stride(m, planes=2 if wide else 1), "context": context,
            "period": self.choice([0, 0, 1, 2]) if op is VOp.ROPE else self.integer(0, 7),
            "mult": self.choice([1, self.integer(0, 255), self.integer(0, 65535)]),
            "shift": self.choice([self.integer(0, 20), self.integer(8, 24), self.integer(0, 63)]),
            "shift2": self.choice([14, self.integer(0, 40)]),
        }
        if memory == "spm" and op is not VOp.TABLE and self.chance(0.2):  # in place
            values["dst"], values["dst_stride"] = values["src0"], values["src0_stride"]
        which = self.choice([(Dyn.SRC0, "src0"), (Dyn.SRC1, "src1"), (Dyn.DST, "dst")])
        dyn = self.dynamic(which[0], values, which[1])
        extra = self.junk() if op is not VOp.REQUANT else set()
        used = {VOp.ROPE: {VectorFlag.COLUMN}, VOp.SOFTMAX_MAX: {VectorFlag.CAUSAL},
                VOp.SOFTMAX_EXP: {VectorFlag.CAUSAL}}.get(op, set())
        return Command.make(
            Unit.VECTOR, op=op, flags=flags | (extra - used), dyn=dyn, m=self.length(m), n=self.length(n),
            **values), note

    def _requant_flags(self, flags: set[VectorFlag]) -> str | None:
        """Random modes of a requantisation; the statistic it needs, if any."""
        for flag, share in ((VectorFlag.COLUMN, 0.4), (VectorFlag.ROW, 0.25), (VectorFlag.WIDE, 0.3),
                            (VectorFlag.RESIDUAL, 0.25), (VectorFlag.RELU, 0.3)):
            if self.chance(share):
                flags.add(flag)
        if self.table and self.chance(0.3):
            flags.add(VectorFlag.LOOKUP)
        return "sum" if VectorFlag.ROW in flags else None
