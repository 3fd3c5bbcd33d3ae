"""From scratchpad rows to the weights that enter the mesh: mask, int4 unpacking, shifts, group scales."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config

__all__ = ["Unpack", "weight_item"]


def weight_item(config: Config) -> data.StructLayout:
    """What is known of a weight item when it is read.

    ``rows``, ``lanes``: which of its rows, how many of its lanes are inside B. ``single``: one row
    (output-stationary) instead of ``preload``. ``int4``, ``half``: nibbles, of the second half of the
    read rows; ``shift``: to the left, at most 4, where they are not ``scaled``: times the group scales.
    ``scale``: the read is a row of scales. ``pick``: the
    row of the read, modulo ``preload``, that a single row or scales stand in.
    """
    return data.StructLayout({
        "first": 1, "transposed": 1, "single": 1, "rows": config.preload, "lanes": range(config.dim + 1),
        "int4": 1, "half": 1, "shift": range(5), "scaled": 1, "scale": 1, "pick": range(max(2, config.preload)),
    })


class Unpack(wiring.Component):
    """Zero what lies outside B, unpack int4, shift it or multiply by group scales, and regroup by lane.

    Latency: results belong to the cycle after the read, in which its data come. One item per cycle.
    An int4 read holds two items; when a tile has more than one, the second follows in the next cycle
    without a read, so that a row of scales may be read there. Scales hold from the item after their read.

    Parameters
    ----------
    config: Config

    Members
    -------
    item: In(weight_item(config))
        In the cycle of the read.
    data: In(preload * DIM * 8)
        Read data, one cycle after the read; lowest row in the lowest bits.
    weights: Out(ArrayLayout(8 * preload, DIM))
        By lane; a single row in the low bytes.
    capture_row, capture_column: Out(1)
        First item of a normal tile, of a transposed tile.
    single: Out(1)
        A single row of a transposed block.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "item": In(weight_item(config)),
            "data": In(config.preload * config.dim * 8),
            "weights": Out(data.ArrayLayout(8 * config.preload, config.dim)),
            "capture_row": Out(1),
            "capture_column": Out(1),
            "single": Out(1),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim, preload = self.config.dim, self.config.preload
        item = Signal(weight_item(self.config))  # waits for its data
        m.d.sync += item.eq(self.item)
        rows = data.View(data.ArrayLayout(data.ArrayLayout(8, dim), preload), self.data)
        picked = Signal(8 * dim)
        m.d.comb += picked.eq(self.data.word_select(item.pick, 8 * dim))

        for lane in range(dim):
            inside = Signal(name=f"inside_{lane}")
            m.d.comb += inside.eq(lane < item.lanes)

            # Nibbles in the order of B's rows; the second half waits for its item.
            nibbles = Cat(rows[i][lane] for i in range(preload))
            low, high = nibbles[:4 * preload], nibbles[4 * preload:]
            if dim > preload:
                waiting = Signal(4 * preload, name=f"waiting_{lane}", reset_less=True)
                with m.If(item.int4 & ~item.half):
                    m.d.sync += waiting.eq(high)
                high = waiting
            chosen = Mux(item.half, high, low)
            scale = Signal(unsigned(4), name=f"scale_{lane}", reset_less=True)
            with m.If(item.scale):
                m.d.sync += scale.eq(picked.word_select(lane, 8)[:4])
            factor = Mux(item.scaled, scale, 1 << item.shift)

            for i in range(preload):
                # A single row is there as it is read: on the low bytes, with zeros above.
                byte: Value = rows[i][lane] if i else Mux(item.single, picked.word_select(lane, 8), rows[0][lane])
                nibble = chosen.word_select(i, 4).as_signed()
                weight = Mux(item.int4 & ~item.single, nibble * factor, byte)  # fits: -8 * 16 = -128
                here = item.rows[i] & inside & ~item.single if i else item.rows[0] & inside
                m.d.comb += self.weights[lane][8 * i:8 * i + 8].eq(Mux(here, weight, 0))
        m.d.comb += [
            self.capture_row.eq(item.first & ~item.transposed),
            self.capture_column.eq(item.first & item.transposed),
            self.single.eq(item.transposed & item.single),
        ]
        return m
