"""Row statistics of the vector unit: reductions, dividers and contexts together."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.contexts import MEAN_BITS, VectorContexts
from gemmule.hw.vector.divide import VectorDivide
from gemmule.hw.vector.ops import token_layout, traits_layout
from gemmule.hw.vector.sums import STAGES, VectorSums

__all__ = ["MEAN_CYCLES", "READY", "STAGES", "VectorStats"]

READY = 12
"""A row's statistic is in the context, or waits for a divider, as many cycles after its last read."""
MEAN_CYCLES = 4
"""How much longer the statistics of LayerNorm are held back."""


class VectorStats(wiring.Component):
    """Maxima and sums of rows, their reciprocals and roots, and what later commands read back.

    Throughput: one column group a cycle; rows start in order on divider ``row % dividers``. Latency: READY cycles
    (with MEAN: MEAN_CYCLES more) from a row's last read to its statistic, then the serial cycles of
    :class:`ReciprocalEngine`. Exact up to the reciprocals, which truncate.

    Members
    -------
    command: In(vector_layout), traits: In(traits_layout), begin: In(1)
        Held from ``begin`` until the last quotient.
    token: In(token_layout).array(STAGES + 1)
        Element k is stage k.
    plain, factor, score, power: In
        Per lane: stage 3, 3, 5, 8.
    mean: Out(signed(32)), row_mult: Out(signed(18)), row_shift: Out(6), maximum: Out(signed(24))
        Of the row in stages 2, 3 and 3 (softmax weights: 8) and 5.
    done: Out(1)
        High in the cycle that stores the command's last quotient.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__({
            "command": In(vector_layout(config)), "traits": In(traits_layout()), "begin": In(1),
            "token": In(token_layout(config)).array(STAGES + 1),
            "plain": In(signed(16)).array(lanes), "factor": In(signed(33)).array(lanes),
            "score": In(signed(32)).array(lanes), "power": In(21).array(lanes),
            "mean": Out(signed(MEAN_BITS)), "row_mult": Out(signed(18)), "row_shift": Out(6),
            "maximum": Out(signed(24)), "done": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        token, traits = self.token, self.traits
        m.submodules.sums = sums = VectorSums(config=self.config)
        m.submodules.divide = divide = VectorDivide(config=self.config)
        m.submodules.contexts = contexts = VectorContexts(config=self.config)
        ready, held_back = Signal(), Signal(MEAN_CYCLES)
        m.d.comb += [
            *(part.command.eq(self.command) for part in (sums, divide, contexts)),
            *(part.traits.eq(traits) for part in (sums, contexts)),
            *(to.eq(of) for part in (sums, contexts) for to, of in zip(part.token, token)),
            *(to.eq(of) for name in ("plain", "factor", "score", "power")
              for to, of in zip(getattr(sums, name), getattr(self, name))),
            sums.begin.eq(self.begin), sums.maximum.eq(contexts.maximum), sums.total.eq(contexts.total),
            sums.rise.eq(contexts.rise),
            ready.eq(token[STAGES].valid & token[STAGES].final & traits.divides),
            divide.begin.eq(self.begin), divide.fill.eq(sums.fill),
            divide.ready.eq(Mux(traits.mean, held_back[-1], ready)),
            contexts.found.eq(sums.found), contexts.kept.eq(sums.kept), contexts.summed.eq(sums.summed),
            contexts.divided.eq(divide.divided),
            self.mean.eq(contexts.mean), self.row_mult.eq(contexts.row_mult),
            self.row_shift.eq(contexts.row_shift), self.maximum.eq(contexts.maximum.value),
            self.done.eq(divide.done),
        ]
        m.d.sync += held_back.eq(Cat(ready, held_back))
        return m
