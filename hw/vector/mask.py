"""Tree masks of the softmax: which lanes of a column group a row's bitmap lets through."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.vector.ops import token_layout, traits_layout
from gemmule.hw.vector.sequencer import LEFT_BITS

__all__ = ["TreeMask"]

CHUNKS = 8
"""A bitmap row has DIM bytes: as many chunks of DIM bits, one for each column group (and of fewer for its parts)."""


class TreeMask(wiring.Component):
    """``numerics.tree_mask`` of one row and column group, combinational from registers, stage 2.

    The new tokens begin ``n + after - m`` columns after the piece's first one (before it when negative). With
    q and rest of that distance divided by the lanes, group g sees the bitmap's chunks g - q - 1 and g - q,
    shifted by rest; chunks before the bitmap are ones. Throughput: one group a cycle, in order.

    Members
    -------
    traits: In(traits_layout), begin: In(1), distance: In(signed(18))
        With ``begin``: n + after - m.
    bitmap: In(1), data: In(8 * dim)
        A row's bitmap on r1, in stage 1 of the row's first group.
    token: In(token_layout).array(2)
        Stages 1 and 2.
    mask: Out(lanes)
        Lanes that the row of stage 2 sees; all ones without TREE.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "traits": In(traits_layout()), "begin": In(1), "distance": In(signed(LEFT_BITS)),
            "bitmap": In(1), "data": In(8 * config.dim), "token": In(token_layout(config)).array(2),
            "mask": Out(config.lanes),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, token = self.config.lanes, self.token
        group_bits, chunks = exact_log2(lanes), CHUNKS * self.config.vector_passes
        start, chunk = Signal(signed(LEFT_BITS)), Signal(signed(LEFT_BITS - group_bits + 1))
        before = Signal.like(chunk)  # the chunk before
        bits = Signal(chunks * lanes)
        with m.If(self.begin):
            m.d.sync += start.eq(self.distance)
        with m.If(self.bitmap):
            m.d.sync += bits.eq(self.data)
        chunk_before = Signal.like(chunk)
        m.d.comb += chunk_before.eq(Mux(token[0].first, ~(start >> group_bits), chunk))
        with m.If(token[0].valid):
            m.d.sync += [before.eq(chunk_before), chunk.eq(chunk_before + 1)]

        lower, upper, pair = Signal(lanes), Signal(lanes), Signal(2 * lanes)
        for part, index in ((lower, before), (upper, chunk)):
            inside = ~index[exact_log2(chunks):].any()
            m.d.comb += part.eq(bits.word_select(index[:exact_log2(chunks)], lanes) & inside.replicate(lanes)
                                | index[-1].replicate(lanes))
        m.d.comb += [
            pair.eq(Cat(lower, upper) << start[:group_bits]),
            self.mask.eq(pair[lanes:] | (~self.traits.tree).replicate(lanes)),
        ]
        return m
