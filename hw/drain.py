"""Tags of results, and the sequencer that lets finished blocks of C leave the mesh."""

from __future__ import annotations

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS, ROW_BITS

__all__ = ["Drain", "result_tag"]

result_tag = data.StructLayout({"write": 1, "add": 1, "last": 1, "row": ROW_BITS})
"""Travels beside a result: where it goes, whether it is added there, and whether the command ends
with this cycle."""


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
    first: Out(1)
        Its first cycle.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "end": In(1), "row": In(ROW_BITS), "rows": In(LENGTH_BITS), "add": In(1), "last": In(1),
            "tag": Out(result_tag), "busy": Out(1), "first": Out(1),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        r = Signal(range(self.config.dim))
        row, rows = Signal.like(self.row), Signal.like(self.rows)
        add, last = Signal(), Signal()
        m.d.comb += [
            self.first.eq(self.busy & (r == 0)),
            self.tag.write.eq(self.busy & (r < rows)),
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
