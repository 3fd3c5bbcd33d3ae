"""Vector unit: element-wise work, row statistics and requantisation on the accumulator and scratchpad."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, AccWrite, SpmRead, SpmWrite, UnitControl, vector_layout
from gemmule.hw.vector.datapath import WRITE, VectorDatapath
from gemmule.hw.vector.mask import TreeMask
from gemmule.hw.vector.ops import capture_layout, token_layout
from gemmule.hw.vector.sequencer import VectorSequencer
from gemmule.hw.vector.serial import ReciprocalEngine
from gemmule.hw.vector.stats import MEAN_CYCLES, READY, VectorStats
from gemmule.hw.vector.stats import STAGES as STAT_STAGES
from gemmule.timing import Timing

__all__ = ["Vector"]

FIRST = 1
READ = 2
"""Cycles that an address and its data wait in registers at the unit's ports: the way to the banks is long."""
RESCALED = 5
"""Stage in which a row is written back into the accumulator."""
LATENCIES = {
    "vector_first": FIRST, "vector_write": READ + WRITE, "vector_stat": READ + READY, "vector_rescale": READ + RESCALED,
    "vector_mean": MEAN_CYCLES, "norm_serial": ReciprocalEngine.ROOT_CYCLES,
    "softmax_serial": ReciprocalEngine.SOFTMAX_CYCLES,
}


class Vector(wiring.Component):
    """Vector unit: sequencer, lanes, row statistics; one command at a time.

    Latency and throughput: docs/timing.md, section Vector; steps run without gaps, each reads a cycle later, and every
    row is written ``vector_write`` cycles (late results: ``vector_stat``, RESCALE: ``vector_rescale``) after its last
    step. No backpressure.
    Arithmetic: docs/numerics.md.

    Parameters
    ----------
    config: Config
        Device configuration.
    timing: Timing
        Its vector and serial constants must be those of this implementation.

    Members
    -------
    control: In(UnitControl)
        Streams r0, r1, w, all released with the finish.
    r0, r1: Out(SpmRead)
        First operand; second operand, parameters, tables, residual, bitmaps.
    acc: Out(AccRead)
        First operand of REQUANT, ROPE, I_GELU, SOFTMAX_*, ABSMAX, RESCALE.
    w: Out(SpmWrite)
        Rows, part by part, a cycle after the result; lanes beyond n hold 0.
    acc_w: Out(AccWrite)
        RESCALE: rows, part by part.
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        for name, cycles in LATENCIES.items():
            if getattr(timing, name) != cycles:
                raise ValueError(f"{name} must be {cycles}, as built, not {getattr(timing, name)}")
        self.config = config
        super().__init__({
            "control": In(UnitControl(vector_layout(config), 3)),
            "r0": Out(SpmRead(config)), "r1": Out(SpmRead(config)), "acc": Out(AccRead(config)),
            "w": Out(SpmWrite(config)), "acc_w": Out(AccWrite(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control = self.config, self.control
        m.submodules.sequencer = sequencer = VectorSequencer(config=config)
        m.submodules.datapath = datapath = VectorDatapath(config=config)
        m.submodules.stats = stats = VectorStats(config=config)
        m.submodules.tree = tree = TreeMask(config=config)
        held, traits = sequencer.held, sequencer.traits

        busy = Signal()
        with m.If(control.start):
            m.d.sync += busy.eq(1)
        with m.Elif(control.finish):
            m.d.sync += busy.eq(0)

        # The ports, a register at each end; what goes with a read waits for its data.
        asked, asks = ([Signal(layout(config), name=f"{name}_{i}") for i in range(READ)] for name, layout in (
            ("asked", token_layout), ("asks", capture_layout)))
        for chain, first in ((asked, sequencer.token), (asks, sequencer.capture)):
            m.d.sync += [to.eq(of) for to, of in zip(chain, [first, *chain[:-1]], strict=True)]
        come = {}
        for port, name in ((self.r0, "r0"), (self.r1, "r1"), (self.acc, "acc")):
            come[name] = Signal.like(port.data, name=f"{name}_come")
            m.d.sync += [
                port.en.eq(getattr(sequencer, f"{name}_en")), port.row.eq(getattr(sequencer, f"{name}_row")),
                come[name].eq(port.data)]

        # A token travels beside its row; stage k is k cycles after its last data were read.
        # Beyond their write only statistics and late results go on: otherwise the next command may start then.
        token = [asked[-1]]
        for k in range(1, READY + 1):
            stage = Signal(token_layout(config), name=f"token_{k}")
            with m.If(token[-1].valid):
                m.d.sync += stage.eq(token[-1])
            goes_on = traits.by_rows | traits.late if k > WRITE else ~traits.rescales if k > RESCALED else 1
            m.d.sync += stage.valid.eq(token[-1].valid & goes_on)
            if k == 3:
                with m.If(token[-1].valid):
                    m.d.sync += stage.mask.eq(token[-1].mask & tree.mask)
            token.append(stage)
        capture = Signal(capture_layout(config))
        m.d.sync += capture.eq(asks[-1])

        passes = config.vector_passes

        def part_mask(part: Value) -> Value:
            """Lanes of a memory row that are one part of it."""
            return Cat(((part == i) if passes > 1 else Const(1)).replicate(config.lanes) for i in range(passes))

        m.d.comb += [
            sequencer.start.eq(control.start), sequencer.command.eq(control.command),
            datapath.start.eq(control.start), datapath.next.eq(control.command),
            datapath.command.eq(held), datapath.begin.eq(sequencer.begin), datapath.capture.eq(capture),
            datapath.r0_data.eq(come["r0"]), datapath.r1_data.eq(come["r1"]), datapath.acc_data.eq(come["acc"]),
            datapath.mean.eq(stats.mean), datapath.row_mult.eq(stats.row_mult), datapath.row_shift.eq(stats.row_shift),
            datapath.maximum.eq(stats.maximum),
            *(part.traits.eq(traits) for part in (datapath, stats, tree)),
            stats.command.eq(held), stats.begin.eq(sequencer.begin),
            tree.begin.eq(sequencer.begin), tree.distance.eq(sequencer.distance),
            tree.bitmap.eq(capture.bitmap), tree.data.eq(come["r1"]),
            *(port.eq(stage) for port, stage in zip(tree.token, token[1:])),
            self.acc_w.en.eq(token[RESCALED].valid & traits.rescales), self.acc_w.row.eq(token[RESCALED].dst),
            self.acc_w.mask.eq(part_mask(token[RESCALED].part)),
            self.acc_w.data.eq(Cat(datapath.score).replicate(passes)),
        ]
        # In a register too: nobody reads it before its command has visibly finished.
        m.d.sync += [
            self.w.en.eq(datapath.w_en), self.w.row.eq(datapath.w_row),
            self.w.mask.eq(part_mask(datapath.w_part)), self.w.data.eq(datapath.w_data.replicate(passes)),
        ]
        m.d.comb += [port.eq(stage) for port, stage in zip(datapath.token, token[1:])]
        m.d.comb += [port.eq(stage) for port, stage in zip(stats.token, token[:STAT_STAGES + 1])]
        for name in ("plain", "factor", "score", "power"):
            m.d.comb += [to.eq(of) for to, of in zip(getattr(stats, name), getattr(datapath, name))]

        # Commands end with their last write, maximum or sum; with a reciprocal of rows, with the last quotient.
        early = traits.by_rows | traits.late
        wrote = token[WRITE].valid & token[WRITE].last & ~early
        rescaled = token[RESCALED].valid & token[RESCALED].last & traits.rescales
        found = token[READY].valid & token[READY].last & early & ~traits.divides
        m.d.comb += [
            control.ready.eq(~busy),
            control.finish.eq(wrote | rescaled | found | stats.done),
            control.release.eq(control.finish.replicate(3)),
        ]
        return m
