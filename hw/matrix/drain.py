"""Tags of results, and the sequencer that lets finished blocks of C leave the mesh."""

from __future__ import annotations

from amaranth.hdl import Elaboratable, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS

__all__ = ["Drain", "at_most", "before", "result_tag"]

result_tag = data.StructLayout({"write": 1, "add": 1, "last": 1, "row": ROW_BITS})
"""Travels beside a result: where it goes, whether it is added there, and whether the command ends
with this cycle."""


def before(index: Value, count: Value) -> Value:
    """``index < count`` for an index of a few bits, without a comparison as wide as the count."""
    return count[len(index):].any() | (index < count[:len(index)])


def at_most(count: Value, limit: int) -> Value:
    """``count <= limit``, a power of two."""
    bits = exact_log2(limit)
    return ~(count[bits + 1:].any() | count[bits] & count[:bits].any())


class Drain(wiring.Component):
    """Output-stationary: tags of the DIM rows of a block, one per cycle, from the cycle after its end on.

    A block takes at least DIM cycles, so the next one ends when these tags are out, or later.

    Parameters
    ----------
    config: Config

    Members
    -------
    end: In(1)
        Last cycle of a block's products; the next four are valid then.
    row: In(ROW_BITS)
        Accumulator row of the block's first row.
    rows: In(LENGTH_BITS)
        Rows from there to the end of C.
    add, last: In(1)
        Add to what stands there; the command ends with this block.
    tag: Out(result_tag)
    busy: Out(1)
        A block leaves.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "end": In(1), "row": In(ROW_BITS), "rows": In(LENGTH_BITS), "add": In(1), "last": In(1),
            "tag": Out(result_tag), "busy": Out(1),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        r = Signal(range(self.config.dim))
        row, rows = Signal.like(self.row), Signal.like(self.rows)
        add, last = Signal(), Signal()
        m.d.comb += [
            self.tag.write.eq(self.busy & before(r, rows)),
            self.tag.add.eq(add),
            self.tag.last.eq(self.busy & last & r.all()),
            self.tag.row.eq(row + r),
        ]
        with m.If(self.busy):
            m.d.sync += [r.eq(r + 1), self.busy.eq(~r.all())]
        with m.If(self.end):
            m.d.sync += [
                self.busy.eq(1), r.eq(0), row.eq(self.row), rows.eq(self.rows), add.eq(self.add), last.eq(self.last),
            ]
        return m
