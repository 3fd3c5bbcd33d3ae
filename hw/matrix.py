"""The matrix unit: C[M,N] (+)= A[M,K] . B[K,N] on a weight-stationary mesh."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import ROW_BITS, AccRead, AccWrite, SpmRead, UnitControl, matrix_layout
from gemmule.hw.mesh import Mesh
from gemmule.hw.pe import psum_bits
from gemmule.hw.skew import Skew, Stairs, delayed
from gemmule.hw.weights import Injector, Preload
from gemmule.isa import MatrixFlag
from gemmule.timing import Timing

__all__ = ["Matrix", "Stream", "result_tag"]

result_tag = data.StructLayout({"write": 1, "add": 1, "last": 1, "row": ROW_BITS})
"""Travels beside a row of A: where its result goes, whether it is added there, and whether the
command ends with this cycle."""


class Stream(wiring.Component):
    """Stream sequencer: read row m of A for every tile, in cycle s + tile * slot + m.

    A command is taken from the preload sequencer (``primed``, ``current``) without a gap when one is
    there. slot = max(M, DIM / preload, R) keeps the weights of the next tile and the accumulator's
    read-modify-write in step.

    Parameters
    ----------
    config: Config
    timing: Timing

    Members
    -------
    primed: In(1)
    current: In(matrix_layout(config))
    advance: Out(1)
        In the next cycle a tile's stream begins.
    en, row: Out
        Read of A.
    unsigned: Out(1)
    swap: Out(1)
        First row of a tile.
    tag: Out(result_tag)
    release: Out(1)
        Last cycle of the command's stream (e - 1).
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        self.config = config
        self.shortest = max(config.dim // config.preload, timing.matrix_rmw)
        super().__init__({
            "primed": In(1),
            "current": In(matrix_layout(config)),
            "advance": Out(1),
            "en": Out(1),
            "row": Out(ROW_BITS),
            "unsigned": Out(1),
            "swap": Out(1),
            "tag": Out(result_tag),
            "release": Out(1),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        dim = self.config.dim
        command = Signal(matrix_layout(self.config))
        active = Signal()
        phase = Signal(16)
        phase_last = Signal(16)  # slot - 1
        k_left, n_left = Signal(16), Signal(16)
        a_tile, c_tile = Signal(ROW_BITS), Signal(ROW_BITS)
        add = Signal()

        in_rows = Signal()
        m.d.comb += [
            in_rows.eq(active & (phase < command.m)),
            self.en.eq(in_rows),
            self.row.eq(a_tile + phase),
            self.unsigned.eq(command.flags[MatrixFlag.A_UNSIGNED]),
            self.swap.eq(active & (phase == 0)),
            self.tag.write.eq(in_rows),
            self.tag.add.eq(add),
            self.tag.last.eq(self.release),
            self.tag.row.eq(c_tile + phase),
        ]

        tile_end, last_k, last_tile, begin = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            tile_end.eq(active & (phase == phase_last)),
            last_k.eq(k_left <= dim),
            last_tile.eq(last_k & (n_left <= dim)),
            self.release.eq(tile_end & last_tile),
            begin.eq(self.primed & (~active | self.release)),
            self.advance.eq(begin | (tile_end & ~last_tile)),
        ]
        m.d.sync += phase.eq(phase + 1)
        with m.If(tile_end):
            m.d.sync += [phase.eq(0), active.eq(~last_tile)]
            with m.If(last_k):
                m.d.sync += [
                    k_left.eq(command.k), n_left.eq(n_left - dim), a_tile.eq(command.a_row),
                    c_tile.eq(c_tile + command.c_stride), add.eq(command.flags[MatrixFlag.ACCUMULATE]),
                ]
            with m.Else():
                m.d.sync += [k_left.eq(k_left - dim), a_tile.eq(a_tile + command.a_stride), add.eq(1)]
        with m.If(begin):
            first = self.current
            m.d.sync += [
                command.eq(first), active.eq(1), phase.eq(0),
                phase_last.eq(Mux(first.m > self.shortest, first.m, self.shortest) - 1),
                k_left.eq(first.k), n_left.eq(first.n), a_tile.eq(first.a_row), c_tile.eq(first.c_row),
                add.eq(first.flags[MatrixFlag.ACCUMULATE]),
            ]
        return m


class Matrix(wiring.Component):
    """The whole unit: preload and stream sequencers, skews, mesh, accumulate stage.

    Function: tiles of DIM x DIM weights, N outer, K inner; int8 weights, signed or unsigned byte
    activations, int32 sums that wrap. The first K tile overwrites C unless ACCUMULATE. B beyond K
    and N counts as zero, so what memory holds in A beyond K does not matter. Timing and throughput:
    docs/timing.md, section Matrix; one row of A per cycle, commands follow each other without a
    drain bubble. No backpressure: ports are claimed at issue.

    Rows of C that two commands in a row both touch must stand at the same place of both, or the
    second must wait for the first: the accumulator's read-modify-write spans two cycles.

    Parameters
    ----------
    config: Config
    timing: Timing
        ``Timing.of(config)``; rejected if it does not say what this pipeline does.

    Members
    -------
    control: In(UnitControl(matrix_layout(config), 3))
        Streams A, B, C.
    a: Out(SpmRead(config))
    b: Out(SpmRead(config, rows=preload))
    acc_read: Out(AccRead(config))
    acc_write: Out(AccWrite(config))
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        if timing.matrix_first != 1 or timing.matrix_rmw < 2 or timing.matrix_zero < 1:
            raise ValueError("the matrix unit has matrix_first = 1, matrix_rmw >= 2 and matrix_zero >= 1, "
                             f"not {timing.matrix_first}, {timing.matrix_rmw} and {timing.matrix_zero}")
        if timing.matrix_drain != 2 * config.dim:
            raise ValueError(f"matrix_drain must be 2 * dim = {2 * config.dim}, not {timing.matrix_drain}")
        self.config, self.timing = config, timing
        super().__init__({
            "control": In(UnitControl(matrix_layout(config), 3)),
            "a": Out(SpmRead(config)),
            "b": Out(SpmRead(config, config.preload)),
            "acc_read": Out(AccRead(config)),
            "acc_write": Out(AccWrite(config)),
        })

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        config, control = self.config, self.control
        dim, preload = config.dim, config.preload
        m.submodules.preload = loader = Preload(config=config)
        m.submodules.stream = stream = Stream(config=config, timing=self.timing)
        m.submodules.injector = injector = Injector(config=config)
        m.submodules.mesh = mesh = Mesh(config=config)

        # Sequencers.
        empty = Signal()
        m.d.comb += [
            empty.eq(control.start & control.command.zero),
            loader.start.eq(control.start & ~control.command.zero),
            loader.command.eq(control.command),
            loader.advance.eq(stream.advance),
            stream.primed.eq(loader.primed),
            stream.current.eq(loader.current),
            control.ready.eq(loader.ready),
            self.b.en.eq(loader.b.en), self.b.row.eq(loader.b.row),
            self.a.en.eq(stream.en), self.a.row.eq(stream.row),
        ]

        # Weights: masked and registered two cycles after the read, then skewed.
        m.submodules.weight_skew = weight_skew = Skew(lanes=dim, shape=8 * preload)
        m.submodules.direction = direction = Stairs(delays=range(dim))
        stairs = [i + i // preload for i in range(dim)]
        m.submodules.capture_row = capture_row = Stairs(delays=stairs)
        m.submodules.capture_column = capture_column = Stairs(delays=stairs)
        m.d.comb += [
            injector.item.eq(loader.item), injector.data.eq(self.b.data),
            weight_skew.i.eq(injector.weights), mesh.weights.eq(weight_skew.o),
            direction.i.eq(injector.transposed), mesh.transposed.eq(direction.o),
            capture_row.i.eq(injector.capture_row), mesh.capture_row.eq(capture_row.o),
            capture_column.i.eq(injector.capture_column), mesh.capture_column.eq(capture_column.o),
        ]

        # Activations: extended to nine bits and registered two cycles after the read, then skewed.
        m.submodules.a_skew = a_skew = Skew(lanes=dim, shape=signed(9))
        m.submodules.swap = swap = Stairs(delays=range(dim))
        unsigned = Signal()
        m.d.sync += unsigned.eq(stream.unsigned)
        for lane in range(dim):
            byte = self.a.data.word_select(lane, 8)
            m.d.sync += a_skew.i[lane].eq(Cat(byte, byte[7] & ~unsigned).as_signed())
        m.d.comb += [
            swap.i.eq(delayed(m, stream.swap, 2, name="swap_delay")),
            mesh.a.eq(a_skew.o), mesh.swap.eq(swap.o),
        ]

        # Results: lined up again 2 * dim + 1 cycles after the read of A, read of C one cycle before.
        m.submodules.deskew = deskew = Skew(lanes=dim, shape=signed(psum_bits(dim)), reverse=True)
        m.d.comb += deskew.i.eq(mesh.sums)
        reading = data.View(result_tag, delayed(m, stream.tag, 2 * dim, name="tags"))
        writing = Signal(result_tag)
        m.d.sync += writing.eq(reading)
        m.d.comb += [
            self.acc_read.en.eq(reading.write & reading.add), self.acc_read.row.eq(reading.row),
            self.acc_write.en.eq(writing.write), self.acc_write.row.eq(writing.row),
        ]
        for lane in range(dim):
            held = Mux(writing.add, self.acc_read.data.word_select(lane, 32), 0)
            m.d.comb += self.acc_write.data.word_select(lane, 32).eq(deskew.o[lane] + held)

        nothing: Value = delayed(m, empty, self.timing.matrix_zero, name="zero_delay")
        m.d.comb += [
            control.finish.eq(writing.last | nothing),
            control.release.eq(Cat(stream.release, loader.release, writing.last)),
        ]
        return m
