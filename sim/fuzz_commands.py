"""Random single commands. They need not be legal; the builder in ``fuzz.py`` drops those that are not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import Command, Dyn, Length, MatrixFlag, MoveFlag, Unit, VectorFlag, VOp, legal_flags

__all__ = ["HOLLOW", "Draw", "legal_sets"]

HOLLOW = 48
"""Commands of a run of empty ones: they pass faster than fetch brings them."""
_F = VectorFlag


@cache
def legal_sets(unit: Unit, op: int = 0) -> tuple[frozenset[int], ...]:
    """Every set of flags that an operation may have."""
    return tuple(
        frozenset(bit for bit in range(8) if flags >> bit & 1) for flags in range(256)
        if legal_flags(unit, op, flags))


class Draw:
    """Draws commands; knows which statistics contexts and tables have been set up so far."""

    def __init__(self, config: Config, random: np.random.Generator, bases: np.ndarray, lengths: np.ndarray) -> None:
        self.config, self.random, self.bases, self.lengths = config, random, bases, lengths
        self.contexts: dict[tuple[str, int], int] = {}
        self.table = False
        self.hollow = 0
        self.sealed = False
        """Rows are drawn from the lower half of the memories."""
        # Large memories take longer to dump; larger products keep the balance.
        self.roomy = 2 if config.spm_bank_rows >= 128 * config.dim else 1
        # Programs differ in what they are made of, and in how many banks they crowd into.
        self.weights = random.dirichlet([10.0, 6.0, 18.0, 20.0])
        self.ops = random.dirichlet([8.0, 2.5, 3.5, *[2.5] * 4, 1.5, 3.0])
        self.banks = int(random.integers(min(3, config.spm_banks), config.spm_banks + 1))
        self.near = float(random.choice([0.1, 0.4, 0.7]))
        self.share = float(random.choice([0.1, 0.2, 0.5]))
        self.output = float(random.choice([0.1, 0.2, 0.5]))
        self.reuse = float(random.choice([0.1, 0.2]))
        # Units mostly work in a bank each, and take turns: what one has written another reads later.
        self.tidy = float(random.choice([0.5, 0.95, 1.0]))
        self.period = int(random.choice([12, 24, 48]))
        self.unit, self.taken = Unit.LOAD, 0

    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def choice(self, values: Sequence[Any]) -> Any:
        return values[self.integer(0, len(values) - 1)]

    def size(self, groups: int) -> int:
        """A length in rows or columns: often ragged, sometimes whole, seldom zero."""
        dim = self.config.dim
        if self.hollow or self.chance(0.05):
            return 0
        whole = dim * self.integer(1, groups)
        return whole if self.chance(0.4) else self.integer(1, whole)

    def length(self, value: int) -> Length:
        """A length field that resolves to ``value``, through a register when one fits."""
        if self.chance(0.4):
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
        reg, stride = self.integer(1, 15), self.integer(1, 9)
        have = int(self.lengths[reg])
        stride = min(stride, values[name] // have) if have else stride
        if self.chance(0.3) or not stride:
            return (Dyn.NONE, self.integer(0, 15), self.integer(0, 1023))
        values[name] -= have * stride
        return (which, reg, stride)

    def row(self, space: str = "spm", bank: int | None = None) -> int:
        """A row, often near a bank's start, in the bank of the unit's turn or in any that this program likes."""
        config = self.config
        rows = config.spm_bank_rows if space == "spm" else config.acc_bank_rows
        banks = self.banks if space == "spm" else config.acc_banks
        if self.sealed:
            rows, banks = (rows, banks // 2) if banks > 1 else (rows // 2, 1)
        if bank is None:
            turn = (self.unit + self.taken // self.period) % banks
            bank = turn if self.chance(self.tidy) else self.integer(0, banks - 1)
        reach = min(rows - 1, 3 * config.dim) if self.chance(self.near) else rows - 1
        return bank * rows + self.integer(0, reach)

    def partner(self, row: int, share: float) -> int:
        """A scratchpad row in the bank of ``row``, with chance ``share``, or in another one."""
        bank = row // self.config.spm_bank_rows
        if self.banks == 1 or self.chance(share):
            return self.row(bank=bank)
        # A tidy unit shares the bank before its own, which nobody writes while the turn lasts.
        away = self.banks - 1 if self.chance(self.tidy) else self.integer(1, self.banks - 1)
        return self.row(bank=(bank + away) % self.banks)

    def stride(self, rows: int, *, planes: int = 1) -> int:
        """Distance of column groups: mostly without overlap."""
        slack = self.choice([0, 0, 1, self.config.dim, 7])
        return planes * (rows + slack) + (self.integer(0, 1) if planes == 1 and self.chance(0.3) else 0)

    def command(self) -> tuple[Command, tuple[Any, ...]]:
        """A command and what :meth:`accept` must know when it is taken."""
        if not self.hollow and self.chance(0.003):
            self.hollow = HOLLOW
        unit = Unit(self.integer(0, 3) if self.hollow else int(self.random.choice(4, p=self.weights)))
        self.unit = unit
        if unit in (Unit.LOAD, Unit.STORE):
            return self._move(unit), ()
        return (self._matrix(), ()) if unit is Unit.MATRIX else self._vector()

    def accept(self, note: tuple[Any, ...]) -> None:
        """A command with this note has become part of the program."""
        self.hollow = max(0, self.hollow - 1)
        self.taken += 1
        if note and note[0] == "table":
            self.table = True
        elif note:
            kind, context, rows = note
            self.contexts[kind, context] = max(rows, self.contexts.get((kind, context), 0))

    def _move(self, unit: Unit) -> Command:
        config = self.config
        bus, dim = config.bus_bytes, config.dim
        flags: frozenset[int] = self.choice(legal_sets(unit)) if self.chance(0.7) else frozenset()
        words = MoveFlag.ACCUMULATOR in flags and MoveFlag.NARROW not in flags
        width, element = (4 * dim, 4) if words else (dim, 1)
        # Short ones mostly: DRAM is slow, and the other units are to keep up with it.
        rows = self.size(3) if self.chance(0.2) else self.size(1) and self.integer(1, 4)
        most = 4 * width if self.chance(0.8) else max(width, 3 * config.burst_bytes)
        size = 0 if self.chance(0.03) else self.integer(1, most // element) * element
        if self.chance(0.3):
            size = -(-size // width) * width
        if unit is Unit.LOAD and rows and self.chance(0.15):  # more bursts than may be in flight
            rows, size = config.read_bursts + self.integer(1, 24), self.integer(1, width // element) * element
        grain = bus if self.chance(0.4) else 1
        stride = -(-size // grain) * grain + grain * self.choice([0, 0, 1, self.integer(0, 64)])
        blocks = max(1, -(-size // width))
        layout = self.choice(["rows", "blocks", "free"])
        row_stride, block_stride = {
            "rows": (1, rows + self.integer(0, 3)), "blocks": (blocks, 1),
            "free": (self.integer(1, 2 * blocks), self.integer(1, 2 * max(rows, 1))),
        }[layout]
        low, high = (1, 15) if unit is Unit.LOAD and self.chance(0.9) else (16, 31)
        base, offset = self.integer(low, high), self.integer(0, 4096)
        if grain == bus or MoveFlag.BROADCAST in flags:
            offset += -(int(self.bases[base]) + offset) % bus
        values: dict[str, Any] = {
            "base": base, "offset": offset, "stride": stride, "bytes": size, "row_stride": row_stride,
            "row": self.row("acc" if MoveFlag.ACCUMULATOR in flags else "spm"), "block_stride": block_stride,
        }
        dyn = self.dynamic(Dyn.DST if unit is Unit.LOAD else Dyn.SRC0, values, "row")
        return Command.make(unit, flags=flags, dyn=dyn, rows=self.length(rows), **values)

    def _matrix(self) -> Command:
        preload, dim = self.config.preload, self.config.dim
        flags = self._matrix_flags()
        reuse = MatrixFlag.REUSE in flags
        m = self.size(2 if self.chance(0.6) else 4)
        n, k = (self.size(1 if reuse or self.chance(0.2) else 4 * self.roomy) for _ in range(2))
        depth, group = -(-k // dim), self.integer(0, 2) if self.chance(0.7) else self.integer(0, 15)
        b_lines = n if MatrixFlag.B_TRANSPOSED in flags else k
        if MatrixFlag.B_INT4 in flags:
            b_lines = -(-b_lines // 2)
        if MatrixFlag.GROUP_SCALES in flags and k:
            b_lines = depth * dim // 2 + (depth - 1 >> group) + 1
        a_row = self.row()
        b_row = self.partner(a_row, 0.0 if MatrixFlag.OUTPUT_STATIONARY in flags else self.share)
        values: dict[str, Any] = {
            "a_row": a_row, "a_stride": self.stride(k if MatrixFlag.A_TRANSPOSED in flags else m),
            "b_row": b_row // preload * preload, "b_stride": -(-self.stride(b_lines) // preload) * preload,
            "c_row": self.row("acc"), "c_stride": self.stride(m), "group": group,
        }
        dyn = self.dynamic(*self.choice([(Dyn.SRC0, values, "a_row"), (Dyn.SRC1, values, "b_row")]))
        return Command.make(
            Unit.MATRIX, flags=flags, dyn=dyn, m=self.length(m), n=self.length(n), k=self.length(k), **values)

    def _matrix_flags(self) -> frozenset[int]:
        """A legal set, of a dataflow that the program likes."""
        point, kind = float(self.random.random()), None
        if point < self.output:
            kind = MatrixFlag.OUTPUT_STATIONARY
        elif point < self.output + self.reuse:
            kind = MatrixFlag.REUSE
        special = {MatrixFlag.OUTPUT_STATIONARY, MatrixFlag.REUSE}
        found: frozenset[int] = self.choice(
            [flags for flags in legal_sets(Unit.MATRIX) if flags & special == ({kind} if kind is not None else set())])
        return found

    def _context(self, kind: str) -> tuple[int, int] | None:
        """A context that holds this kind of statistic, and for how many rows."""
        known = [(context, rows) for (what, context), rows in self.contexts.items() if what == kind]
        return self.choice(known) if known else None

    def _vector(self) -> tuple[Command, tuple[Any, ...]]:
        config = self.config
        op = VOp(int(self.random.choice(len(VOp), p=self.ops)))
        m, n = self.size(2), self.size(6 * self.roomy * self.roomy)
        if op is VOp.ROPE and self.chance(0.7):  # a row takes up to 16 rows of angles
            m = self.size(1)
        context = self.integer(0, config.stat_contexts - 1)
        flags = self.choice(legal_sets(Unit.VECTOR, op))
        if op is VOp.REQUANT and self.chance(0.2):
            flags = flags - {_F.WIDE, _F.RESIDUAL} | {_F.CLAMP}
        if op is VOp.REQUANT and self.chance(0.5):
            flags -= {_F.ROW}
        if _F.LOOKUP in flags and not self.table:
            op, flags = (VOp.TABLE, frozenset()) if self.chance(0.2) else (op, flags - {_F.LOOKUP})
        need = {VOp.RMS_APPLY: "rms", VOp.SOFTMAX_EXP: "max"}.get(op)
        if op is VOp.REQUANT and _F.ROW in flags:
            need = "sum"
        if need:
            found = self._context(need)
            if found is None:  # set it up first
                op, flags = VOp.RMS_STAT if need == "rms" else VOp.SOFTMAX_MAX, frozenset()
                known = self._context("max")
                if need == "sum" and known:
                    op, context, m = VOp.SOFTMAX_EXP, known[0], min(m, known[1])
            else:
                context, m = found[0], min(m, found[1])
        produced = {VOp.RMS_STAT: "rms", VOp.SOFTMAX_MAX: "max", VOp.SOFTMAX_EXP: "sum"}.get(op)
        note: tuple[Any, ...] = (produced, context, m) if produced and m and n else ()
        if op is VOp.TABLE:
            note = ("table",)
        values = self._operands(op, flags, m) | {
            "context": context, "period": self.choice([0, 0, 1, 2]) if op is VOp.ROPE else self.integer(0, 7),
            "mult": self.choice([1, self.integer(0, 255), self.integer(0, 65535)]),
            "shift": self.choice([self.integer(0, 20), self.integer(8, 24), self.integer(0, 63)]),
            "shift2": self.choice([14, self.integer(0, 40)]),
        }
        which = self.choice([(Dyn.SRC0, "src0"), (Dyn.SRC1, "src1"), (Dyn.DST, "dst")])
        dyn = self.dynamic(which[0], values, which[1])
        return Command.make(
            Unit.VECTOR, op=op, flags=flags, dyn=dyn, m=self.length(m), n=self.length(n), **values), note

    def _operands(self, op: VOp, flags: frozenset[int], m: int) -> dict[str, Any]:
        """Rows and strides; what ``aux`` means depends on the operation."""
        planes = 2 if op in (VOp.RMS_STAT, VOp.RMS_APPLY) else 1
        wide = bool(flags & {_F.WIDE, _F.RESIDUAL}) and op in (VOp.REQUANT, VOp.ADD)
        pair = op in (VOp.PRODUCT, VOp.ADD)
        inside = pair or planes == 2 or op is VOp.TABLE
        src0, stride = self.row("spm" if inside else "acc"), self.stride(m, planes=planes)
        src1 = self.partner(src0, self.share) if inside else self.row()
        dst, dst_stride = self.row(), self.stride(m, planes=2 if wide else 1)
        if inside and op is not VOp.TABLE and self.chance(0.2):  # in place
            dst, stride = src1 if pair and self.chance(0.3) else src0, max(stride, dst_stride)
            dst_stride = stride
        aux = self.stride(m)
        if op is VOp.ROPE:
            aux = self.choice([self.row(), self.integer(0, self.config.spm_rows - 1)])
        elif op in (VOp.REQUANT, VOp.ADD):
            limits = self.integer(-90, 20) & 255 | self.integer(-20, 127) << 8 & 0xFF00
            aux = self.choice([limits, self.integer(0, 65535)])
        elif op is VOp.PRODUCT and dst == src1:
            aux = dst_stride
        return {"src0": src0, "src0_stride": stride, "src1": src1, "aux": aux, "dst": dst, "dst_stride": dst_stride}
