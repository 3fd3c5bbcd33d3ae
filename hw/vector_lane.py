"""One lane of the vector unit's pipeline."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.vector_exp import Exponential
from gemmule.hw.vector_ops import TABLE_BYTES, WORDS, capture_layout, lane_control_layout
from gemmule.hw.vector_word import WordLookup

__all__ = ["STAGES", "VectorLane"]

STAGES = 11
"""Register stages up to the write register of a late result; stage k is k cycles after the row's last read."""


def saturated(value: Value, bits: int) -> Value:
    """``value`` limited to signed ``bits``."""
    high, low = (1 << bits - 1) - 1, -(1 << bits - 1)
    return Mux(value > high, high, Mux(value < low, low, value))


def shifted_right(value: Value, shift: Value) -> Value:
    """``numerics.rshr``: one fraction bit is kept, then half up."""
    return ((Cat(0, value).as_signed() >> shift) + 1) >> 1


class VectorLane(wiring.Component):
    """Capture, three multipliers (33 x 18, 22 x 18, 16 x 16), two rounding shifters, write byte.

    Latency: ``result`` is a register of stage 9 (late results: 12); the low plane of a result of 16 bits stands there
    one stage earlier. Throughput: one pass a cycle. Rounding: half up, as in ``gemmule.numerics``.

    | stage | register at its end |
    |---|---|
    | 1 | operands ``main``, ``aux``, ``sine`` from the memories; column parameters |
    | 2 | ``factor``: main plus bias, or main times itself, aux or n (less ``mean``); ``second``: aux by command.aux |
    | 3 | product with the multiplier (command, column or row); ADD: plus ``second`` |
    | 4 | ``score``: rounded and saturated to 24 bits; ABSMAX: magnitude - 1; RESCALE: 32 bits, and ``second`` rounded |
    | 5 | activation, residual, int16; or times cosine, sine, gamma; or distance to the maximum |
    | 6 | int8 or other limits; or sum of the pair, or plus beta; or mantissa of the exponential; or word of a table |
    | 7 | second rounding; or ``power``; or byte of the table |
    | 8 | ``result``; or ``second``: power times the row's multiplier |
    | 9 | ``value``: that rounded; or ``second``: rise times weight of the word table |
    | 10 | ``late``: value, or the interpolated word |
    | 11 | ``result`` |

    Members
    -------
    control: In(lane_control_layout)
        Held from ``begin`` until the last write.
    begin: In(1)
        Loads the command's multiplier and shift and a bias of 0; column parameters replace them.
    capture: In(capture_layout)
        With the read data ``r0``, ``r1``, ``acc``.
    valid, visible: In(STAGES)
        Bit k - 1: stage k holds a pass; this lane is a column of its row.
    mean: In(signed(32)), row_mult: In(18), row_shift: In(6), maximum: In(signed(24))
        Of the rows in stages 2, 3 (weights: 8), 4 (weights: 9) and 5.
    partner: In(signed(16)), x: Out(signed(16))
        The other lane's and the own value of a rotated pair, stage 5.
    word: In(8 * dim), address: Out
        Byte table: word addressed in stage 6, data in stage 7.
    words_low, words_high: In(8 * dim), words_end: In(16), place: Out
        Word table: rows addressed in stages 6 and 7, data one cycle later.
    plain, factor, score, power: Out
        Seen in stages 3, 3, 5 and 8: int16 operands, squares, softmax scores or magnitudes - 1, exponentials.
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
            "mean": In(signed(32)), "row_mult": In(18), "row_shift": In(6), "maximum": In(signed(24)),
            "partner": In(signed(16)), "x": Out(signed(16)),
            "word": In(8 * config.dim), "address": Out(range(TABLE_BYTES // config.dim)),
            "words_low": In(8 * config.dim), "words_high": In(8 * config.dim), "words_end": In(16),
            "place": Out(range(WORDS // config.dim)), "plain": Out(signed(16)),
            "factor": Out(signed(33)), "score": Out(signed(32)), "power": Out(21), "result": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, capture = self.control, self.capture
        valid, visible = [None, *self.valid], [None, *self.visible]

        # Stage 1: read data. Low planes wait for their high plane, a bias shifts in from the top.
        low0, low1 = Signal(8), Signal(8)
        main, aux, sine = Signal(signed(32)), Signal(signed(16)), Signal(signed(16))
        mult, shift, bias = Signal(16), Signal(6), Signal(signed(32))
        pair0, pair1 = Cat(low0, self.r0).as_signed(), Cat(low1, self.r1).as_signed()
        with m.If(capture.low0):
            m.d.sync += low0.eq(self.r0)
        with m.If(capture.low1):
            m.d.sync += low1.eq(self.r1)
        with m.If(capture.main):
            m.d.sync += main.eq(Mux(op.planes, pair0, Mux(op.pair, self.r0.as_signed(), self.acc)))
        with m.If(capture.aux):
            m.d.sync += aux.eq(Mux(op.pair, self.r1.as_signed(), pair1))
        with m.If(capture.sine):
            m.d.sync += sine.eq(pair1)
        with m.If(self.begin):
            m.d.sync += [mult.eq(op.mult), shift.eq(op.shift), bias.eq(0)]
        with m.If(capture.mult):
            m.d.sync += mult.eq(pair1)
        with m.If(capture.shift):  # modulo 64, limited to 47
            m.d.sync += shift.eq(Mux(self.r1[4:6] == 3, 47, self.r1))
        with m.If(capture.bias):
            m.d.sync += bias.eq(Cat(bias[8:], self.r1))

        # Stage 2: first product. A pass with aux operands holds them for two cycles a stage.
        other, biased = Signal(signed(17)), Signal(signed(32))
        aux3 = Signal(signed(16))
        aux5, side3, side5 = (Signal(signed(32), name=n) for n in ("aux5", "side3", "side5"))  # side: sine or beta
        paired = Signal()
        m.d.comb += [
            other.eq(Mux(op.norm, op.n, Mux(op.product, aux, main[:16].as_signed()))),
            biased.eq(main + bias),  # wraps
            paired.eq(op.norm | op.rotate | op.residual),
            self.plain.eq(main[:16]),  # planes: holds in stage 3
        ]
        with m.If(valid[2]):
            with m.If(op.norm | op.product | op.square):
                m.d.sync += self.factor.eq(main[:16].as_signed() * other - self.mean)
            with m.Else():
                m.d.sync += self.factor.eq(biased)
        with m.If(valid[2] & paired):
            m.d.sync += [aux3.eq(aux), side3.eq(Mux(op.norm, bias, sine))]

        # One multiplier: command.aux in stage 2, sine in stage 5, softmax weights in stage 8, interpolation in stage 9.
        m.submodules.words = words = WordLookup(config=self.config)
        second, second_a, second_b = Signal(signed(40)), Signal(signed(22)), Signal(signed(18))
        multiplies = Signal()
        with m.If(op.rotate):
            m.d.comb += [second_a.eq(self.partner), second_b.eq(side5), multiplies.eq(valid[5])]
        with m.Elif(op.weigh):
            m.d.comb += [second_a.eq(self.power), second_b.eq(self.row_mult[:17]), multiplies.eq(valid[8])]
        with m.Elif(op.interpolate):
            m.d.comb += [second_a.eq(words.rise), second_b.eq(words.weight), multiplies.eq(valid[9])]
        with m.Else():
            m.d.comb += [second_a.eq(op.aux), second_b.eq(aux), multiplies.eq(valid[2] & (op.add | op.rescale))]
        with m.If(multiplies):
            m.d.sync += second.eq(second_a * second_b)

        # Stage 3: multiplier, and the other product of a sum.
        scaled = Signal(signed(51))
        with m.If(valid[3] & ~op.square):
            m.d.sync += scaled.eq(self.factor * Mux(op.by_row, self.row_mult, mult) + Mux(op.add, second, 0))

        # Stage 4: rounding shift. A rescaled residual has up to 32 bits and may cancel as many.
        total, rounded, rounded2 = Signal(signed(33)), Signal(signed(51)), Signal(signed(40))
        score = self.score
        m.d.comb += [
            rounded.eq(shifted_right(scaled, Mux(op.by_row, self.row_shift, shift))),
            rounded2.eq(shifted_right(  # stage 4, 7 or 9
                Mux(op.rescale | op.weigh, second, total), Mux(op.weigh, self.row_shift, op.shift2))),
        ]
        with m.If(valid[4] & ~op.square):
            with m.If(op.absmax):
                m.d.sync += score.eq(Mux(rounded < 0, ~rounded, rounded - 1))
            with m.Else():
                m.d.sync += score.eq(Mux(op.rescale, saturated(rounded, 32), saturated(rounded, 24)))
        with m.If(valid[4] & paired):
            m.d.sync += [aux5.eq(Mux(op.rescale, rounded2, aux3)), side5.eq(side3)]

        # Stage 5: activation and residual, or second multiplication.
        active, word16, by_aux = Signal(signed(33)), Signal(signed(16)), Signal(signed(32))
        m.d.comb += [
            self.x.eq(saturated(score, 16)),
            active.eq(Mux(op.relu & (score < 0), 0, score) + Mux(op.residual, aux5, 0)),
        ]
        with m.If(valid[5] & ~op.exp & ~op.square):
            m.d.sync += word16.eq(saturated(active, 16))
        with m.If(valid[5] & (op.norm | op.rotate)):
            m.d.sync += by_aux.eq(self.x * aux5[:16].as_signed())

        # Stage 6: limits of the result, with which the byte table is read; or sum of the pair.
        limited, passed = Signal(signed(16)), Signal(signed(16))
        signed_sine = second[:32].as_signed() if self._odd else -second[:32].as_signed()
        m.d.comb += [
            limited.eq(Mux(word16 > op.high, op.high, Mux(word16 < op.low, op.low, word16))),
            self.address.eq(limited[exact_log2(self.config.dim):8]),
        ]
        with m.If(valid[6]):
            m.d.sync += [passed.eq(limited), total.eq(by_aux + Mux(op.rotate, signed_sine, side5))]
        m.d.comb += [
            words.enable.eq(Mux(op.interpolate, self.valid[5:8], 0)), words.x.eq(word16), self.place.eq(words.row),
            words.low.eq(self.words_low), words.high.eq(self.words_high), words.end.eq(self.words_end),
        ]

        # Stage 7: second rounding, or the table's byte. Stage 9: rounded softmax weights.
        entries = Array(self.word.word_select(i, 8) for i in range(self.config.dim))
        value, value7 = Signal(16), Signal(16)
        with m.If(op.norm | op.rotate):
            m.d.comb += value7.eq(Mux(op.wide, saturated(rounded2, 16), saturated(rounded2, 8)))
        with m.Else():
            m.d.comb += value7.eq(passed)
        with m.If(valid[7] & ~op.late):
            m.d.sync += value.eq(Mux(op.lookup, entries[passed[:exact_log2(self.config.dim)]], value7))
        with m.If(valid[9] & op.late):
            top = Mux(op.wide, 0xFFFF, 0xFF)
            m.d.sync += value.eq(Mux(rounded2 > top, top, rounded2))

        # Stages 5 to 7 of the softmax weights.
        m.submodules.exponential = exponential = Exponential()
        m.d.comb += [
            exponential.enable.eq(Mux(op.exp, self.valid[4:7], 0)),
            exponential.visible.eq(visible[7]),
            exponential.score.eq(self.score),
            exponential.maximum.eq(self.maximum),
            self.power.eq(exponential.p),
        ]

        # Stage 10: interpolation between the two words.
        late, late10 = Signal(16), Signal(16)
        m.d.comb += late10.eq(Mux(op.interpolate, words.base + ((second + 64) >> 7), value))
        with m.If(valid[10] & op.late):
            m.d.sync += late.eq(late10)

        # Stages 8 and 11: write register; the low plane of a result of 16 bits goes one cycle earlier.
        high_or_low = Signal(8)
        with m.If(op.late):
            m.d.comb += high_or_low.eq(Mux(op.wide, late[8:], late[:8]))
            with m.If(valid[10] & op.wide):
                m.d.sync += self.result.eq(Mux(visible[10], late10[:8], 0))
            with m.Elif(valid[11]):
                m.d.sync += self.result.eq(Mux(visible[11], high_or_low, 0))
        with m.Else():
            m.d.comb += high_or_low.eq(Mux(op.wide, value[8:], value[:8]))
            with m.If(valid[7] & op.wide):
                m.d.sync += self.result.eq(Mux(visible[7], value7[:8], 0))
            with m.Elif(valid[8]):
                m.d.sync += self.result.eq(Mux(visible[8], Mux(op.exp, exponential.weight, high_or_low), 0))
        return m
