"""The matrix unit: C[M,N] (+)= A[M,K] . B[K,N] on a mesh that keeps weights or sums in place."""

from __future__ import annotations

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import AccRead, AccWrite, SpmRead, UnitControl, matrix_layout
from gemmule.hw.matrix.drain import result_tag
from gemmule.hw.matrix.edge import Edge
from gemmule.hw.matrix.mesh import Mesh
from gemmule.hw.matrix.pe import A_BITS, SUM_BITS
from gemmule.hw.matrix.preload import Preload
from gemmule.hw.matrix.skew import Skew, Stairs, delayed
from gemmule.hw.matrix.stream import Stream
from gemmule.hw.matrix.unpack import Unpack, weight_item
from gemmule.isa import MatrixFlag, Unit
from gemmule.operations import OPERATIONS
from gemmule.timing import Timing

__all__ = ["Matrix"]

READ = 2
"""Cycles that an address and its data wait in registers at the unit's ports: the way to the banks is long."""
LATE = READ + 1
"""Unpacked weights wait in a register too, and so does A."""
_FEATURES = {**OPERATIONS[Unit.MATRIX, 0].features, MatrixFlag.GROUP_SCALES: "int4"}  # scales need int4 weights


class Matrix(wiring.Component):
    """The whole unit: preload and stream sequencers, unpacker, edges, mesh, accumulate stage.

    Function: int8 weights (or int4, with scales per column and group of rows), signed or unsigned byte
    activations, int32 sums that wrap; A and B plain or transposed. Weight-stationary: tiles of DIM x DIM
    weights, N outer, K inner; the first K tile overwrites C unless ACCUMULATE; REUSE keeps the weights of
    the command before. Output-stationary: blocks of DIM x DIM sums, N outer, M, K inner. B beyond K and N
    counts as zero, so what memory holds in A beyond K does not matter. Timing and throughput:
    docs/timing.md, section Matrix; one row of A per cycle, commands follow each other without a drain
    bubble. A command of the other dataflow is started when nothing is in flight. No backpressure: ports
    are claimed at issue.

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
        Streams A, B, C. Commands of length zero do not come here.
    a: Out(SpmRead(config))
    b: Out(SpmRead(config, rows=preload))
    acc_read: Out(AccRead(config))
    acc_write: Out(AccWrite(config))
    """

    def __init__(self, *, config: Config, timing: Timing) -> None:
        if timing.matrix_first != 1 or timing.matrix_rmw < 2:
            raise ValueError("the matrix unit has matrix_first = 1 and matrix_rmw >= 2, "
                             f"not {timing.matrix_first} and {timing.matrix_rmw}")
        if timing.matrix_drain != 2 * config.dim + LATE:
            raise ValueError(
                f"matrix_drain must be 2 * dim + {LATE} = {2 * config.dim + LATE}, not {timing.matrix_drain}")
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
        m.submodules.unpack = unpack = Unpack(config=config)
        m.submodules.mesh = mesh = Mesh(config=config)

        # Sequencers. Flags of features that the device lacks are constants: nothing of them is left in the netlist.
        command, lacking = control.command, [flag for flag, name in _FEATURES.items() if name not in config.features]
        if lacking:
            command = Signal(matrix_layout(config))
            m.d.comb += [command.eq(control.command), *(command.flags[flag].eq(0) for flag in lacking)]
        outputs = Signal()  # dataflow of the command started last
        with m.If(control.start):
            m.d.sync += outputs.eq(command.flags[MatrixFlag.OUTPUT_STATIONARY])
        m.d.comb += [
            mesh.outputs.eq(outputs),
            loader.start.eq(control.start),
            loader.command.eq(command),
            loader.advance.eq(stream.advance),
            loader.reload.eq(stream.reload),
            stream.primed.eq(loader.primed),
            stream.current.eq(loader.current),
            control.ready.eq(loader.ready),
        ]
        # The ports, a register at each end; what goes with a read waits for its data.
        a_come, a_data, b_data = Signal.like(self.a.data), Signal.like(self.a.data), Signal.like(self.b.data)
        m.d.sync += [
            self.a.en.eq(stream.a.en), self.a.row.eq(stream.a.row), a_come.eq(self.a.data),
            a_data.eq(a_come),
            self.b.en.eq(Mux(outputs, stream.b.en, loader.b.en)),
            self.b.row.eq(Mux(outputs, stream.b.row, loader.b.row)), b_data.eq(self.b.data),
        ]
        item = Signal(weight_item(config))
        m.d.comb += item.eq(delayed(m, Mux(outputs, stream.item, loader.item), READ, name="item_delay"))

        # With the data: extend A to nine bits, unpack B.
        facts = Signal(data.StructLayout({"read": 1, "serial": 1, "unsigned": 1, "phase": range(dim)}))
        m.d.comb += facts.eq(delayed(
            m, Cat(stream.a.en, stream.serial, stream.unsigned, stream.phase), LATE + 1, name="facts_delay"))
        m.submodules.west = west = Edge(lanes=dim, width=A_BITS, serial=A_BITS)
        m.submodules.north = north = Edge(lanes=dim, width=8 * preload, serial=8)
        m.d.comb += [
            west.transpose.eq(facts.serial), west.load.eq(facts.read), west.index.eq(facts.phase),
            unpack.item.eq(item), unpack.data.eq(b_data),
            north.load.eq(1), north.index.eq(facts.phase),
        ]
        m.d.sync += [north.row.eq(unpack.weights), north.transpose.eq(unpack.single)]
        for lane in range(dim):
            byte = a_data.word_select(lane, 8)
            m.d.comb += west.row[lane].eq(Cat(byte, byte[7] & ~facts.unsigned))

        # A cycle later: edges, and the bits that go with them; swaps one before.
        stairs = [i + i // preload for i in range(dim)]
        for name, bit, delays in (
            ("swap", delayed(m, stream.swap, LATE + 1, name="swap_delay"), range(dim)),
            ("end", delayed(m, stream.end, LATE + 2, name="end_delay"), range(dim)),
            ("capture_row", delayed(m, unpack.capture_row, 2, name="row_delay"), stairs),
            ("capture_column", delayed(m, unpack.capture_column, 2, name="column_delay"), stairs),
        ):
            m.submodules[name] = steps = Stairs(delays=delays)
            m.d.comb += [steps.i.eq(bit), getattr(mesh, name).eq(steps.o)]
        m.d.comb += mesh.weights.eq(north.o)
        for lane in range(dim):
            m.d.comb += mesh.a[lane].eq(west.o[lane].as_signed())

        # Results: lined up again 2 * dim + 1 cycles after A's data, read of C one cycle before.
        m.submodules.deskew = deskew = Skew(lanes=dim, shape=signed(SUM_BITS), reverse=True)
        m.d.comb += deskew.i.eq(mesh.sums)
        reading = data.View(result_tag, delayed(m, stream.tag, 2 * dim + LATE, name="tags"))
        writing = Signal(result_tag)
        m.d.sync += writing.eq(reading)
        m.d.comb += [
            self.acc_read.en.eq(reading.write & reading.add), self.acc_read.row.eq(reading.row),
            self.acc_write.en.eq(writing.write), self.acc_write.row.eq(writing.row), self.acc_write.mask.eq(-1),
        ]
        for lane in range(dim):
            held = Mux(writing.add, self.acc_read.data.word_select(lane, 32), 0)
            m.d.comb += self.acc_write.data.word_select(lane, 32).eq(deskew.o[lane] + held)

        m.d.comb += [
            control.finish.eq(writing.last),
            control.release.eq(Cat(
                stream.release, Mux(outputs, stream.release, loader.release), writing.last)),
        ]
        return m
