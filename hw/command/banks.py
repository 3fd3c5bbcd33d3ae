"""Banks: the hulls of a command as claims on memory ports, and whether they lie in their memories."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.command.fields import CLAIMS, FIRST_BITS, named
from gemmule.hw.command.hulls import hulls_layout
from gemmule.hw.command.meaning import meaning_layout
from gemmule.hw.command.spans import ones
from gemmule.isa import MoveFlag, Unit, field_bits

__all__ = ["Banks"]


class Banks(wiring.Component):
    """Combinational. Outputs of a command that is illegal or of length zero mean nothing.

    Members
    -------
    meaning: In(meaning_layout)
    flags: In(8)
        Of the header.
    first: In(array)
        First row of each operand.
    angles: In
        First row of angles.
    hulls: In(hulls_layout)
    claims: Out(array)
        Port masks of the unit's streams, in their order: scratchpad reads, scratchpad writes, accumulator reads,
        accumulator writes.
    bad: Out(1)
        Rows outside their memory, or output-stationary operands that share a bank.
    apart: Out(1)
        Two operands share a bank.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "meaning": In(meaning_layout()), "flags": In(8), "first": In(data.ArrayLayout(FIRST_BITS, CLAIMS)),
            "angles": In(field_bits(Unit.VECTOR, "aux")), "hulls": In(hulls_layout(config)),
            "claims": Out(data.ArrayLayout(config.claim_bits, CLAIMS)), "bad": Out(1), "apart": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, means = self.config, self.meaning

        def banks(name: str, low: Value, hull: int, bank_rows: int, count: int) -> tuple[Signal, Signal]:
            """Mask of the banks of rows low..last, and whether they leave the memory; the mask is then anything."""
            last = self.hulls.last[hull]
            shift, end = exact_log2(bank_rows), exact_log2(bank_rows * count)
            mask = Signal(count, name=f"{name}_banks")
            m.d.comb += mask.eq(
                (ones(count) << low[shift:end]) & ~(ones(count) << 1 << last[shift:end])[:count])
            return mask, named(m, f"{name}_outside", self.hulls.beyond[hull] | last[end:].any())

        spm = config.spm_bank_rows, config.spm_banks
        acc = config.acc_bank_rows, config.acc_banks
        spm0, spm0_bad = banks("spm0", self.first[0], 0, *spm)
        acc0, acc0_bad = banks("acc0", self.first[0], 0, *acc)
        spm1, spm1_bad = banks("spm1", self.first[1], 1, *spm)
        spm2, spm2_bad = banks("spm2", self.first[2], 2, *spm)
        acc2, acc2_bad = banks("acc2", self.first[2], 2, *acc)
        angles, angles_bad = banks("angles", self.angles, 3, *spm)
        sums2 = means.matrix | means.rescales
        m.d.comb += [
            self.apart.eq((means.matrix & ~means.reuse | means.pair) & (spm0 & spm1).any()),
            self.bad.eq(
                means.uses0 & Mux(means.in_spm0, spm0_bad, acc0_bad) | means.uses1 & spm1_bad | sums2 & acc2_bad
                | (means.writes | means.list_store | means.pack) & spm2_bad | means.rope & angles_bad
                | means.stationary & self.apart),
        ]

        no_spm, no_acc = Const(0, config.spm_banks), Const(0, config.acc_banks)
        load0 = Mux(means.sums, Cat(no_spm, no_spm, Mux(self.flags[MoveFlag.ADD], acc0, 0), acc0), Cat(no_spm, spm0))
        read0 = Mux(means.in_spm0, spm0, Cat(no_spm, no_spm, acc0, no_acc))
        m.d.comb += [
            self.claims[0].eq(Mux(means.load, load0, Mux(means.uses0, read0, 0))),
            self.claims[1].eq(Mux(
                means.list_store | means.pack, Cat(no_spm, spm2),
                Mux(means.uses1, spm1, 0) | Mux(means.rope, angles, 0) | Mux(means.residual, spm2, 0))),
            self.claims[2].eq(Mux(
                sums2, Cat(no_spm, no_spm, Mux(means.matrix, acc2, 0), acc2), Mux(means.writes, Cat(no_spm, spm2), 0))),
        ]
        return m
