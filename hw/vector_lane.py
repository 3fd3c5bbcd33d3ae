"""One lane of the vector unit's pipeline."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.hw.vector_exp import Exponential
from gemmule.hw.vector_sequencer import TABLE_BYTES, capture_layout

__all__ = ["STAGES", "VectorLane", "lane_control_layout"]

STAGES = 8
"""Register stages up to the write register; stage k is k cycles after the row's last read."""


def lane_control_layout() -> data.StructLayout:
    """The command, decoded once for all lanes. Shifts are limited already."""
    return data.StructLayout({
        "product": 1, "rotate": 1, "square": 1, "norm": 1, "exp": 1, "planes": 1,
        "relu": 1, "residual": 1, "wide": 1, "lookup": 1, "by_row": 1,
        "mult": 16, "shift": 6, "shift2": 6, "n": LENGTH_BITS,
    })


def saturated(value: Value, bits: int) -> Value:
    """``value`` limited to signed ``bits``."""
    high, low = (1 << bits - 1) - 1, -(1 << bits - 1)
    return Mux(value > high, high, Mux(value < low, low, value))


class VectorLane(wiring.Component):
    """Capture, two multipliers (33 x 18; 16 x 16, twice for RoPE), two rounding shifters, write byte.

    Latency: ``result`` is a register of stage 9; the low plane of an int16 result stands there in stage 8.
    Throughput: one pass a cycle. Rounding: half up, as in ``gemmule.numerics``.

    | stage | register at its end |
    |---|---|
    | 1 | operands ``main``, ``aux``, ``sine`` from the memories; column parameters |
    | 2 | ``factor``: main, or main times itself, n or aux |
    | 3 | product with the multiplier (command, column or row) |
    | 4 | ``score``: rounded and saturated to 24 bits |
    | 5 | activation, residual; or times cosine, sine, gamma; or distance to the maximum |
    | 6 | sum of the pair; or mantissa of the exponential; or word of the byte table |
    | 7 | second rounding; or ``power``; or byte of the table |
    | 8 | ``result`` |

    Members
    -------
    control: In(lane_control_layout)
        Held from ``begin`` until the last write.
    begin: In(1)
        Loads the command's multiplier and shift; column parameters replace them.
    capture: In(capture_layout)
        With the read data ``r0``, ``r1``, ``acc``.
    valid, visible: In(STAGES)
        Bit k - 1: stage k holds a pass; this lane is a column of its row.
    row_mult: In(18), row_shift: In(6), maximum: In(signed(24))
        Of the rows in stages 3, 4 and 5.
    partner: In(signed(16)), x: Out(signed(16))
        The other lane's and the own value of a rotated pair, stage 5.
    word: In(8 * dim), address: Out
        Byte table: word addressed in stage 6, data in stage 7.
    factor, score, power: Out
        Seen in stages 3, 5 and 8: squares, softmax scores, exponentials.
    result: Out(8)

    Parameters
    ----------
    odd: bool
        Second lane of a pair (RoPE).
    """

    def __init__(self, *, config: Config, odd: bool) -> None:
        self.config, self._odd = config, odd
        super().__init__({
            "control": In(lane_control_layout()), "begin": In(1), "capture": In(capture_layout()),
            "r0": In(8), "r1": In(8), "acc": In(signed(32)),
            "valid": In(STAGES), "visible": In(STAGES),
            "row_mult": In(18), "row_shift": In(6), "maximum": In(signed(24)),
            "partner": In(signed(16)), "x": Out(signed(16)),
            "word": In(8 * config.dim), "address": Out(range(TABLE_BYTES // config.dim)),
            "factor": Out(signed(33)), "score": Out(signed(24)), "power": Out(21), "result": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, capture = self.control, self.capture
        valid, visible = [None, *self.valid], [None, *self.visible]

        # Stage 1: read data. Low planes wait for their high plane.
        low0, low1 = Signal(8), Signal(8)
        main, aux, sine = Signal(signed(32)), Signal(signed(16)), Signal(signed(16))
        mult, shift = Signal(16), Signal(6)
        pair0, pair1 = Cat(low0, self.r0).as_signed(), Cat(low1, self.r1).as_signed()
        with m.If(capture.low0):
            m.d.sync += low0.eq(self.r0)
        with m.If(capture.low1):
            m.d.sync += low1.eq(self.r1)
        with m.If(capture.main):
            m.d.sync += main.eq(Mux(op.planes, pair0, Mux(op.product, self.r0.as_signed(), self.acc)))
        with m.If(capture.aux):
            m.d.sync += aux.eq(Mux(op.product, self.r1.as_signed(), pair1))
        with m.If(capture.sine):
            m.d.sync += sine.eq(pair1)
        with m.If(self.begin):
            m.d.sync += [mult.eq(op.mult), shift.eq(op.shift)]
        with m.If(capture.mult):
            m.d.sync += mult.eq(pair1)
        with m.If(capture.shift):  # modulo 64, limited to 47
            m.d.sync += shift.eq(Mux(self.r1[4:6] == 3, 47, self.r1))

        # Stage 2: first product. A pass with aux operands holds them for two cycles a stage.
        other = Signal(signed(17))
        aux3, sine3, aux5, sine5 = (Signal(signed(16), name=n) for n in ("aux3", "sine3", "aux5", "sine5"))
        paired = Signal()
        m.d.comb += [
            other.eq(Mux(op.norm, op.n, Mux(op.product, aux, main[:16].as_signed()))),
            paired.eq(op.norm | op.rotate | op.residual),
        ]
        with m.If(valid[2]):
            with m.If(op.norm | op.product | op.square):
                m.d.sync += self.factor.eq(main[:16].as_signed() * other)
            with m.Else():
                m.d.sync += self.factor.eq(main)
        with m.If(valid[2] & paired):
            m.d.sync += [aux3.eq(aux), sine3.eq(sine)]

        # Stage 3: multiplier.
        scaled = Signal(signed(51))
        with m.If(valid[3] & ~op.square):
            m.d.sync += scaled.eq(self.factor * Mux(op.by_row, self.row_mult, mult))

        # Stage 4: rounding shift (one fraction bit kept, then half up), saturated to 24 bits.
        shifted = Signal(signed(52))
        m.d.comb += shifted.eq(Cat(0, scaled).as_signed() >> Mux(op.by_row, self.row_shift, shift))
        with m.If(valid[4] & ~op.square):
            m.d.sync += self.score.eq(saturated((shifted + 1) >> 1, 24))
        with m.If(valid[4] & paired):
            m.d.sync += [aux5.eq(aux3), sine5.eq(sine3)]

        # Stage 5: activation and residual, or second multiplication.
        active, word16 = Signal(signed(25)), Signal(signed(16))
        by_aux, by_sine = Signal(signed(32)), Signal(signed(32))
        m.d.comb += [
            self.x.eq(saturated(self.score, 16)),
            active.eq(Mux(op.relu & (self.score < 0), 0, self.score) + Mux(op.residual, aux5, 0)),
        ]
        with m.If(valid[5] & ~op.exp & ~op.square):
            m.d.sync += word16.eq(Mux(op.wide, saturated(active, 16), saturated(active, 8)))
        with m.If(valid[5] & (op.norm | op.rotate)):
            m.d.sync += by_aux.eq(self.x * aux5)
        with m.If(valid[5] & op.rotate):
            m.d.sync += by_sine.eq(self.partner * sine5)

        # Stage 6: sum of the pair; the byte table is read beside it.
        total, passed = Signal(signed(33)), Signal(signed(16))
        signed_sine = by_sine if self._odd else -by_sine
        m.d.comb += self.address.eq(word16[exact_log2(self.config.dim):8])
        with m.If(valid[6]):
            m.d.sync += [passed.eq(word16), total.eq(by_aux + Mux(op.rotate, signed_sine, 0))]

        # Stage 7: second rounding, or the table's byte.
        entries = Array(self.word.word_select(i, 8) for i in range(self.config.dim))
        shifted2, value = Signal(signed(34)), Signal(signed(16))
        m.d.comb += shifted2.eq(Cat(0, total).as_signed() >> op.shift2)
        with m.If(valid[7]):
            with m.If(op.norm | op.rotate):
                m.d.sync += value.eq(saturated((shifted2 + 1) >> 1, 8))
            with m.Elif(op.lookup):
                m.d.sync += value.eq(entries[passed[:exact_log2(self.config.dim)]])
            with m.Else():
                m.d.sync += value.eq(passed)

        # Stages 5 to 7 of the softmax weights.
        m.submodules.exponential = exponential = Exponential()
        m.d.comb += [
            exponential.enable.eq(Mux(op.exp, self.valid[4:7], 0)),
            exponential.visible.eq(visible[7]),
            exponential.score.eq(self.score),
            exponential.maximum.eq(self.maximum),
            self.power.eq(exponential.p),
        ]

        # Stage 8: write register; the low plane of an int16 result goes one cycle earlier.
        with m.If(valid[7] & op.wide):
            m.d.sync += self.result.eq(Mux(visible[7], passed[:8], 0))
        with m.Elif(valid[8]):
            high_or_low = Mux(op.wide, value[8:], value[:8])
            m.d.sync += self.result.eq(Mux(visible[8], Mux(op.exp, exponential.weight, high_or_low), 0))
        return m
