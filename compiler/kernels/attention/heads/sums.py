"""Importance of heads: what each head's contexts say, and which heads stay.

The vector unit makes magnitudes of a block's contexts by the byte table, a product with ones adds up each row, and the
select unit these sums by head, at the end of its importance memory, behind that of rows. Behind a layer's last head it
chooses, and flags of the heads that stay are scattered by its list into a table of zeros in DRAM
(:mod:`gemmule.compiler.kernels.attention.heads.gates`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention
from gemmule.compiler.ir.head_pruning import HeadSchedule
from gemmule.compiler.kernels.attention.heads.gates import HEADS_LEFT, flags_offset
from gemmule.compiler.kernels.constants import FixedRows
from gemmule.compiler.kernels.row_blocks import stored
from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Builder
from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.isa import (
    CommitFlag,
    ImportanceFlag,
    KeysFlag,
    Length,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
)
from gemmule.numerics import BYTE_TABLE_ENTRIES

__all__ = ["HeadSum", "HeadSums", "check_heads"]

MOST_COLUMNS = 255
"""Of a head: the magnitudes of a row's contexts then are a number of 15 bits."""
MAGNITUDES = FixedRows("magnitudes", np.abs(np.arange(BYTE_TABLE_ENTRIES).astype(np.uint8).view(np.int8).astype(
    np.int64)).astype(np.uint8).tobytes())


def check_heads(node: Attention, config: Config, sequence: int, *, rows: bool) -> None:
    """Refuse sizes with which no heads are chosen, beside the choice of ``rows``; raises CompileError."""
    if node.head_dim > MOST_COLUMNS:
        raise CompileError(f"heads are chosen of at most {MOST_COLUMNS} columns each, not {node.head_dim}: prune no "
                           "heads")
    most = config.list_entries - (sequence if rows else 0)
    if node.heads > most:
        raise CompileError(f"heads are chosen among at most {most} of them beside {sequence} rows (list_entries), not "
                           f"{node.heads}: use shorter sequences, or prune no heads")
    most = config.select_keys - (sequence if rows else 0)
    if node.heads > most:
        raise CompileError(f"rows and heads are chosen of sequences of at most {config.select_keys - node.heads} rows "
                           f"beside {node.heads} heads (select_keys), not {sequence}: use shorter ones, or prune one "
                           "of both")


class HeadSums:
    """Importance of a layer's heads, and the choice behind it."""

    def __init__(self, b: Builder, node: Attention, schedule: HeadSchedule) -> None:
        """Loads what sums need; the first layer begins anew."""
        dim, layer = b.config.dim, node.layer
        assert layer is not None
        self.b, self.node, self.schedule, self.layer = b, node, schedule, layer
        self.first = b.config.select_keys - node.heads
        """Place of the first head's importance."""
        rows = round_up(node.head_dim, b.config.preload)
        self.ones = At(Buffer(f"{node.name}: ones", rows, Bank.STREAM, b.config.preload))
        table = At(Buffer(f"{node.name}: table of magnitudes", MAGNITUDES.size // dim, Bank.STATE))
        b.load_constants(STATIC, [FixedRows(f"{rows * dim} ones", b"\1" * rows * dim)], self.ones,
                         f"{node.name}: ones")
        b.load_constants(STATIC, [MAGNITUDES], table, f"{node.name}: table of magnitudes")
        b.add(Unit.VECTOR, f"{node.name}: table of magnitudes", op=VOp.TABLE, src0=table)
        if layer == 0:
            self._select(SOp.COMMIT, "no head has importance yet", CommitFlag.CLEAR, first=self.first, n=node.heads)

    def head(self, number: int, stride: int, groups: int, blocks: int) -> HeadSum:
        """One head, whose contexts come in blocks of ``stride`` rows at most, ``groups`` of columns."""
        return HeadSum(self, number, stride, groups, blocks)

    def choose(self) -> None:
        """Flags of the heads that stay behind the layer, if any leave; their list stands at the end of the list memory.
        """
        b, node, heads, layer = self.b, self.node, self.node.heads, self.layer
        if layer not in self.schedule.choosing:
            return
        self._select(SOp.COMMIT, "importance of heads", first=self.first, n=heads)
        kept, entry = self.schedule.left[layer], b.config.list_entries - heads
        place, size = self.schedule.choices(layer), flags_offset(b.config, heads, 1)
        b.reserve(HEADS_LEFT, (place + 1) * size)
        either = At(Buffer(f"{node.name}: both flags", 2, Bank.STATE))
        b.load_constants(STATIC, [FixedRows("both flags", bytes(b.config.dim) + b"\1" * b.config.dim)], either,
                         f"{node.name}: both flags")
        shared: dict[str, Any] = {"region": stored(HEADS_LEFT), "offset": place * size, "stride": b.config.dim,
                                  "bytes": b.config.dim, "row_stride": 0, "block_stride": 1}
        b.add(Unit.STORE, f"{node.name}: no flags", row=either, rows=heads, **shared)
        self._select(SOp.KEYS, "numbers of heads", KeysFlag.FROM_IMPORTANCE, first=0, dst=0, n=heads)
        self._select(SOp.KEYS, "keys of heads", KeysFlag.FROM_IMPORTANCE, KeysFlag.KEEP_IDS, first=self.first, dst=0,
                     n=heads, shift=self.schedule.shift)
        self._select(SOp.TOP_K, f"{kept} of {heads} heads are left", TopKFlag.KEEP, n=heads, k=kept, dst=entry)
        b.add(Unit.STORE, f"{node.name}: flags of heads that are left", row=either + 1, rows=kept,
              flags={MoveFlag.INDEXED}, list=entry, last_index=heads - 1, **shared)

    def _select(self, op: SOp, note: str, *flags: int, **fields: Any) -> None:
        self.b.add(Unit.SELECT, f"{self.node.name}: {note}", op=op, flags=flags, **fields)


class HeadSum:
    """What a head's contexts say, block by block."""

    def __init__(self, layer: HeadSums, number: int, stride: int, groups: int, blocks: int) -> None:
        self.layer, self.b, self.node, self.stride = layer, layer.b, layer.node, stride
        self.name, self.first = f"{self.node.name}: head {number}", layer.first + number

        def buffers(what: str, rows: int, bank: Bank) -> list[At]:
            return [At(Buffer(f"{self.name}: {what} {i}", rows, bank)) for i in range(blocks)]

        self.magnitudes = buffers("magnitudes", groups * stride, Bank.OPERAND)
        self.totals, self.words = buffers("totals", stride, Bank.ACCUMULATOR), buffers("words", 2 * stride, Bank.RESULT)

    def multiply(self, block: int, sums: At, m: Length, scaling: dict[str, Any]) -> None:
        """Totals of a block's rows: of the contexts that ``scaling`` makes of ``sums``."""
        b, size, stride, ones = self.b, self.node.head_dim, self.stride, self.layer.ones
        b.add(Unit.VECTOR, f"{self.name}: magnitudes", op=VOp.REQUANT, flags={RequantFlag.ROW, RequantFlag.LOOKUP},
              src0=sums, src0_stride=stride, dst=self.magnitudes[block], dst_stride=stride, m=m, n=size, **scaling)
        b.add(Unit.MATRIX, f"{self.name}: totals of magnitudes", flags={MatrixFlag.A_UNSIGNED},
              a_row=self.magnitudes[block], a_stride=stride, b_row=ones, b_stride=ones.buffer.rows,
              c_row=self.totals[block], c_stride=stride, m=m, n=1, k=size)

    def add(self, block: int, m: Length) -> None:
        """These totals."""
        self.b.add(Unit.VECTOR, f"{self.name}: totals of magnitudes", op=VOp.REQUANT, flags={RequantFlag.WIDE},
                   src0=self.totals[block], src0_stride=self.stride, dst=self.words[block], dst_stride=2 * self.stride,
                   m=m, n=1, mult=1, shift=0)
        self.b.add(Unit.SELECT, f"{self.name}: importance of the head", op=SOp.IMPORTANCE,
                   flags={ImportanceFlag.WIDE}, src0=self.words[block], src0_stride=2 * self.stride, first=self.first,
                   m=m, n=1)
