"""Row statistics of the vector unit: reductions, contexts, reciprocals."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, WritePort
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.serial import CODE_BITS, NORM_BITS, ReciprocalEngine
from gemmule.hw.vector_ops import is_op, token_layout
from gemmule.isa import VOp
from gemmule.numerics import MAX_SHIFT

__all__ = ["READY", "STAGES", "VectorStats"]

STAGES = 11
"""Tokens of stages 0 to 11 are used."""
READY = 12
"""A row's statistic is in the context, or waits for a divider, as many cycles after its last read."""

EMPTY = -(1 << 23)
V_BITS = 64
SQUARES, POWERS = 3, 8
"""Stages in which the lanes' squares and exponentials are summed."""
RECIPROCAL = data.StructLayout({"r": 17, "length": CODE_BITS})
ROOT = data.StructLayout({"r": 18, "h": signed(CODE_BITS)})
WAITING = data.StructLayout({"norm": NORM_BITS, "code": CODE_BITS})


def tree(values: list[Value], join) -> Value:  # type: ignore[no-untyped-def]
    """Balanced reduction of a power of two of values."""
    while len(values) > 1:
        values = [join(a, b) for a, b in zip(values[::2], values[1::2])]
    return values[0]


class VectorStats(wiring.Component):
    """Maximum, sum and sum of squares per row; reciprocals; what later commands read back.

    Throughput: one column group a cycle; one row a cycle enters the waiting memory, rows start in order on
    divider ``row % dividers``. Latency: READY cycles from a row's last read to its statistic, then
    the serial cycles of :class:`ReciprocalEngine`. Exact up to the reciprocals, which truncate.

    The sum of squares becomes ``V = max(1, n * Q + epsilon)`` and either sum is normalised (top bit set, for
    V one of the top two) before it waits, so that the dividers share one multiplier and one shifter.

    Members
    -------
    command: In(vector_layout), begin: In(1)
        Held from ``begin`` until the last quotient.
    token: In(token_layout).array(STAGES + 1)
        Element k is stage k.
    factor, score, power: In
        Per lane: stage 3, 5, 8.
    row_mult: Out(18), row_shift: Out(6), maximum: Out(signed(24))
        Multiplier of the row in stage 3, its shift in stage 4, the maximum in stage 5.
    done: Out(1)
        High in the cycle that stores the command's last quotient.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        dim = config.dim
        super().__init__({
            "command": In(vector_layout(config)), "begin": In(1),
            "token": In(token_layout(config)).array(STAGES + 1),
            "factor": In(signed(33)).array(dim), "score": In(signed(24)).array(dim),
            "power": In(21).array(dim),
            "row_mult": Out(18), "row_shift": Out(6), "maximum": Out(signed(24)), "done": Out(1),
        })

    def _address(self, row: Value) -> Value:
        return Cat(row[:exact_log2(self.config.stat_rows)],
                   self.command.context[:exact_log2(self.config.stat_contexts)])

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self.config.stat_contexts * self.config.stat_rows
        m.submodules.maxima = maxima = Memory(shape=signed(24), depth=depth, init=[])
        m.submodules.reciprocals = reciprocals = Memory(shape=RECIPROCAL, depth=depth, init=[])
        m.submodules.roots = roots = Memory(shape=ROOT, depth=depth, init=[])
        rms = Signal()
        m.d.comb += rms.eq(is_op(self.command, VOp.RMS_STAT))
        self._read_back(m, maxima, reciprocals, roots)
        self._find_maximum(m, maxima.write_port())
        self._divide(m, self._add_up(m, rms), rms, reciprocals.write_port(), roots.write_port())
        return m

    def _read_back(self, m: Module, maxima: Memory, reciprocals: Memory, roots: Memory) -> None:
        """Contexts are read in stage 0 (the maximum in stage 4) and become a multiplier and a shift."""
        token, command = self.token, self.command
        norm = is_op(command, VOp.RMS_APPLY)
        maximum, reciprocal, root = maxima.read_port(), reciprocals.read_port(), roots.read_port()
        m.d.comb += [
            maximum.en.eq(token[4].valid & is_op(command, VOp.SOFTMAX_EXP)),
            maximum.addr.eq(self._address(token[4].row)),
            self.maximum.eq(maximum.data),
            reciprocal.en.eq(token[0].valid & is_op(command, VOp.REQUANT)),
            reciprocal.addr.eq(self._address(token[0].row)),
            root.en.eq(token[0].valid & norm),
            root.addr.eq(self._address(token[0].row)),
        ]
        # Stage 1: R * mult; the shift before the mantissa's own (22 + h, or shift + 3 + L).
        z, shift1 = Signal(33), Signal(signed(9))
        with m.If(token[1].valid):
            with m.If(norm):
                m.d.sync += [z.eq(root.data.r), shift1.eq(root.data.h + 22)]
            with m.Else():
                m.d.sync += [
                    z.eq(reciprocal.data.r * command.mult),
                    shift1.eq(command.shift + reciprocal.data.length + 3),
                ]
        # Stage 2: rounded to a mantissa of 17 bits.
        large, total, shift2 = Signal(), Signal(signed(9)), Signal(6)
        m.d.comb += [large.eq(z >= 1 << 31), total.eq(shift1 - Mux(norm, 0, 15 + large))]
        with m.If(token[2].valid):
            with m.If(norm):
                m.d.sync += self.row_mult.eq(z)
            with m.Elif(large):
                m.d.sync += self.row_mult.eq((z + (1 << 15)) >> 16)
            with m.Else():
                m.d.sync += self.row_mult.eq((z + (1 << 14)) >> 15)
            m.d.sync += shift2.eq(Mux(total < 0, 0, Mux(total > MAX_SHIFT, MAX_SHIFT, total)))
        with m.If(token[3].valid):
            m.d.sync += self.row_shift.eq(shift2)

    def _find_maximum(self, m: Module, port: WritePort) -> None:
        """Stage 5: over the lanes; stage 6: over the groups; stage 7: into the context."""
        token = self.token
        active = is_op(self.command, VOp.SOFTMAX_MAX)
        of_group, of_row = Signal(signed(24)), Signal(signed(24))
        seen = [Mux(token[5].mask[i], score, EMPTY) for i, score in enumerate(self.score)]
        with m.If(token[5].valid & active):
            m.d.sync += of_group.eq(tree(seen, lambda a, b: Mux(a > b, a, b)))
        with m.If(token[6].valid & active & (token[6].first | (of_group > of_row))):
            m.d.sync += of_row.eq(of_group)
        m.d.comb += [
            port.en.eq(token[7].valid & token[7].final & active),
            port.addr.eq(self._address(token[7].row)),
            port.data.eq(of_row),
        ]

    def _add_up(self, m: Module, rms: Value) -> Signal:
        """Sum, epsilon and normalisation of each row; returns the word that waits for a divider.

        Squares are summed in stage 3, exponentials in stage 8; the word is valid 5 and 3 stages later.
        """
        token, command = self.token, self.command
        exp = is_op(command, VOp.SOFTMAX_EXP)
        group, total = Signal(37), Signal(46)
        squares = [Mux(token[SQUARES].mask[i], f[:31], 0) for i, f in enumerate(self.factor)]
        terms = [Mux(rms, square, power) for square, power in zip(squares, self.power)]
        with m.If((token[SQUARES].valid & rms) | (token[POWERS].valid & exp)):
            m.d.sync += group.eq(tree(terms, lambda a, b: a + b))
        first = Mux(rms, token[SQUARES + 1].first, token[POWERS + 1].first)
        with m.If((token[SQUARES + 1].valid & rms) | (token[POWERS + 1].valid & exp)):
            m.d.sync += total.eq(Mux(first, 0, total) + group)

        # RMS stages 5 and 6: V = n * Q + epsilon, at least 1.
        epsilon, n_total, v = Signal(56), Signal(62), Signal(V_BITS)
        with m.If(token[1].valid & rms):
            m.d.sync += epsilon.eq(command.mult << Mux(command.shift > 40, 40, command.shift))
        with m.If(token[SQUARES + 2].valid & rms):
            m.d.sync += n_total.eq(total * command.n)
        with m.If(token[SQUARES + 3].valid & rms):
            m.d.sync += v.eq(Mux((n_total == 0) & (epsilon == 0), 1, n_total + epsilon))

        # RMS stage 7, softmax stage 10: shift left until the top bit (RMS: pair of bits) is set.
        raw, zeros, waiting = Signal(V_BITS), Signal(range(V_BITS + 1)), Signal(WAITING)
        moved = Signal(V_BITS)
        m.d.comb += [
            raw.eq(Mux(rms, v, total[:NORM_BITS] << V_BITS - NORM_BITS)),
            zeros.eq(V_BITS),
            moved.eq(raw << Cat(zeros[0] & ~rms, zeros[1:6])),
        ]
        for bit in range(V_BITS):
            with m.If(raw[bit]):
                m.d.comb += zeros.eq(V_BITS - 1 - bit)
        with m.If((token[SQUARES + 4].valid & rms) | (token[POWERS + 2].valid & exp)):
            m.d.sync += [
                waiting.norm.eq(moved[-NORM_BITS:]),
                waiting.code.eq(Mux(rms, 16 - (zeros >> 1), Mux(zeros[6], 0, NORM_BITS - zeros))),
            ]
        return waiting

    def _divide(self, m: Module, waiting: Signal, rms: Value, reciprocal: WritePort, root: WritePort) -> None:
        """Rows wait in a memory and run on the dividers in order; at most one starts and ends a cycle."""
        config, token, command = self.config, self.token, self.command
        m.submodules.queue = queue = Memory(shape=WAITING, depth=config.stat_rows, init=[])
        fill, head = queue.write_port(), queue.read_port(domain="comb")
        row_bits = exact_log2(config.stat_rows)
        stored = Mux(rms, token[SQUARES + 5].valid & token[SQUARES + 5].final,
                     token[POWERS + 3].valid & token[POWERS + 3].final)
        ready = token[STAGES].valid & token[STAGES].final & is_op(command, VOp.RMS_STAT, VOp.SOFTMAX_EXP)
        arrived, started, ended = (Signal(row_bits + 1, name=n) for n in ("arrived", "started", "ended"))
        m.d.comb += [
            fill.en.eq(stored),
            fill.addr.eq(Mux(rms, token[SQUARES + 5].row, token[POWERS + 3].row)[:row_bits]),
            fill.data.eq(waiting),
            head.addr.eq(started[:row_bits]),
        ]

        engines = [ReciprocalEngine() for _ in range(config.dividers)]
        turn = Signal(range(max(2, config.dividers)))
        start = Signal()
        done = Cat(engine.done for engine in engines)
        m.d.comb += start.eq((arrived != started) & ~Array(engine.busy for engine in engines)[turn])
        quotient, exponent = Signal(18), Signal(CODE_BITS)
        for i, engine in enumerate(engines):
            m.submodules[f"divider_{i}"] = engine
            m.d.comb += [
                engine.start.eq(start & (turn == i)), engine.rms.eq(rms),
                engine.norm.eq(head.data.norm), engine.code.eq(head.data.code),
            ]
            with m.If(engine.done):
                m.d.comb += [quotient.eq(engine.quotient), exponent.eq(engine.exponent)]
        with m.If(ready):
            m.d.sync += arrived.eq(arrived + 1)
        with m.If(start):
            m.d.sync += [
                started.eq(started + 1),
                turn.eq(Mux(turn == config.dividers - 1, Const(0), turn + 1)),
            ]
        with m.If(done.any()):
            m.d.sync += ended.eq(ended + 1)
        with m.If(self.begin):
            m.d.sync += [arrived.eq(0), started.eq(0), ended.eq(0), turn.eq(0)]
        m.d.comb += [
            self.done.eq(done.any() & (ended + 1 == command.m)),
            reciprocal.en.eq(done.any() & ~rms), reciprocal.addr.eq(self._address(ended)),
            reciprocal.data.r.eq(quotient), reciprocal.data.length.eq(exponent),
            root.en.eq(done.any() & rms), root.addr.eq(self._address(ended)),
            root.data.r.eq(quotient), root.data.h.eq(exponent.as_signed()),
        ]
