"""Dividers of the vector unit: rows wait, run in order, and come out with their reciprocal or root."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.contexts import quotient_layout
from gemmule.hw.vector.ops import is_op, row_write
from gemmule.hw.vector.serial import CODE_BITS, NORM_BITS, SCALE_BITS, ReciprocalEngine
from gemmule.isa import VOp

__all__ = ["VectorDivide", "waiting_layout"]


def waiting_layout() -> data.StructLayout:
    """A row's operand, normalised, and its exponent."""
    return data.StructLayout({"norm": NORM_BITS, "code": CODE_BITS})


class VectorDivide(wiring.Component):
    """Row i runs on divider i % dividers; at most one starts and one ends a cycle.

    Throughput: one row a cycle into the waiting memory. Latency: the cycles of :class:`ReciprocalEngine` from the
    cycle after ``ready``, or from the divider's row before.

    Members
    -------
    command: In(vector_layout), begin: In(1)
        Held from ``begin`` until the last quotient.
    fill: In(row_write)
        A row's word, at the latest with its ``ready``.
    ready: In(1)
        The next row may start from the next cycle on.
    divided: Out(row_write)
        A row's quotient.
    done: Out(1)
        High with the command's last quotient.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "command": In(vector_layout(config)), "begin": In(1), "fill": In(row_write(config, waiting_layout())),
            "ready": In(1), "divided": Out(row_write(config, quotient_layout())), "done": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, command = self.config, self.command
        root = is_op(command, VOp.NORM_STAT)
        m.submodules.queue = queue = Memory(shape=waiting_layout(), depth=config.stat_rows, init=[])
        fill, head = queue.write_port(), queue.read_port(domain="comb")
        row_bits = exact_log2(config.stat_rows)
        arrived, started, ended = (Signal(row_bits + 1, name=n) for n in ("arrived", "started", "ended"))
        m.d.comb += [
            fill.en.eq(self.fill.en), fill.addr.eq(self.fill.row[:row_bits]), fill.data.eq(self.fill.data),
            head.addr.eq(started[:row_bits]),
        ]

        engines = [ReciprocalEngine() for _ in range(config.dividers)]
        turn = Signal(range(max(2, config.dividers)))
        start = Signal()
        ends = Cat(engine.done for engine in engines)
        m.d.comb += start.eq((arrived != started) & ~Array(engine.busy for engine in engines)[turn])
        out, top = self.divided.data, Signal(SCALE_BITS)
        for i, engine in enumerate(engines):
            m.submodules[f"divider_{i}"] = engine
            m.d.comb += [
                engine.start.eq(start & (turn == i)), engine.root.eq(root),
                engine.norm.eq(head.data.norm), engine.code.eq(head.data.code),
            ]
            with m.If(engine.done):
                m.d.comb += [out.r.eq(engine.quotient), out.code.eq(engine.exponent), top.eq(engine.top)]
        with m.If(self.ready):
            m.d.sync += arrived.eq(arrived + 1)
        with m.If(start):
            m.d.sync += [
                started.eq(started + 1),
                turn.eq(Mux(turn == config.dividers - 1, Const(0), turn + 1)),
            ]
        with m.If(self.divided.en):
            m.d.sync += ended.eq(ended + 1)
        with m.If(self.begin):
            m.d.sync += [arrived.eq(0), started.eq(0), ended.eq(0), turn.eq(0)]
        m.d.comb += [
            self.done.eq(self.divided.en & (ended + 1 == command.m)),
            self.divided.en.eq(ends.any()), self.divided.row.eq(ended),
            # numerics.own_scale: the upper bits of the normalised magnitude, and 32 less its length.
            out.scale.r.eq(top), out.scale.length.eq(Mux(out.code == 0, 0, 32 - out.code)),
        ]
        return m
