"""One lane of the vector unit's pipeline."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.vector.exp import Exponential
from gemmule.hw.vector.gelu import GeluFactor
from gemmule.hw.vector.ops import capture_layout, lane_control_layout
from gemmule.hw.vector.round import RESULT_BITS, RoundingShift, beyond, fits, limited
from gemmule.hw.vector.word import PLACE, WordLookup

__all__ = ["STAGES", "VectorLane"]

STAGES = 11
"""Register stages up to the write register of a late result; stage k is k cycles after the row's last read."""


class VectorLane(wiring.Component):
    """Capture, three multipliers (33 x 18, 22 x 18, 16 x 16), two rounding shifters, write byte.

    Latency: ``result`` is there in stage 9 (late results: 12), the low plane of a result of 16 bits one stage earlier.
    Throughput: one pass a cycle. Rounding: half up, as in ``gemmule.numerics``.

    | stage | register at its end |
    |---|---|
    | 1 | operands ``main``, ``aux``, ``sine`` from the memories; column parameters |
    | 2 | ``factor``: main plus bias; main * main or aux; ``mean`` - n * main; ADD: main * mult and aux * command.aux |
    | 3 | product with the multiplier (command, column or row); ADD: the sum |
    | 4 | ``score``: rounded, ReLU, saturated to 24 (32) bits; ABSMAX: magnitude - 1; the residual rounded |
    | 5 | sum with the residual, saturated; or times cosine, sine, gamma; or distance to the maximum |
    | 6 | limits; or sum of the pair, or plus beta; or mantissa of the exponential; or word of a table |
    | 7 | shift of the second rounding; or ``power``; or byte of the table |
    | 8 | ``result``: its sum, limited; or ``second``: power times the row's multiplier, or I_GELU's product |
    | 9 | that shifted; or ``second``: rise times weight of the word table |
    | 10 | ``late``: the rounded value; or the interpolated word shifted |
    | 11 | ``result`` |

    Registers that only some operations load are 0 from ``begin`` on, so that results are combined by OR.

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
    mean: In(signed(32)), row_mult: In(signed(18)), row_shift: In(6), maximum: In(signed(24))
        Of the rows in stages 2, 3 (negative with ``norm``), 3 (softmax weights: 8) and 5.
    weigh_mult: In(17)
        Of the row in stage 8; 0 unless ``weigh``.
    partner: In(signed(16)), x: Out(signed(16))
        The other lane's and the own value of a rotated pair, stage 5.
    place: Out(PLACE)
        In the tables, in stages 6 and, of word tables, 7.
    low, high: In(8), words_end: In(16)
        The bytes there, one cycle later, and the word table's last entry.
    plain, factor, score, power: Out
        Seen in stages 3, 3, 5 and 8: int16 operands, squares, scores or magnitudes - 1 or rescaled accumulators,
        exponentials.
    result: Out(8)

    Parameters
    ----------
    odd: bool
        Second lane of a pair (RoPE).
    """

    def __init__(self, *, config: Config, odd: bool) -> None:
        self.config, self._odd = config, odd
        self._far = Signal()  # the score of NORM_APPLY or ROPE has more than 16 bits
        super().__init__({
            "control": In(lane_control_layout()), "begin": In(1), "capture": In(capture_layout(config)),
            "r0": In(8), "r1": In(8), "acc": In(signed(32)),
            "valid": In(STAGES), "visible": In(STAGES),
            "mean": In(signed(32)), "row_mult": In(signed(18)), "row_shift": In(6), "maximum": In(signed(24)),
            "weigh_mult": In(17), "partner": In(signed(16)), "x": Out(signed(16)),
            "place": Out(PLACE), "low": In(8), "high": In(8),
            "words_end": In(16), "plain": Out(signed(16)),
            "factor": Out(signed(33)), "score": Out(signed(32)), "power": Out(21), "result": Out(8),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        op, valid = self.control, self._valid
        main, aux, scaler, sine = (Signal(signed(bits), name=name) for name, bits in (
            ("main", 32), ("aux", 16), ("scaler", 16), ("sine", 16)))
        mult, shift, bias = Signal(16), Signal(6), Signal(signed(32))
        self._capture(m, main, (aux, scaler, sine), (mult, shift, bias))

        # One multiplier: command.aux in stage 2, sine in 5, softmax weights and GELU in 8, interpolation in 9.
        m.submodules.words = words = WordLookup()
        second, product = Signal(signed(38)), Signal(signed(38))
        second_a, second_b = Signal(signed(22)), Signal(signed(18))
        sine5 = Signal(signed(16))
        a: Value = sine5 | words.rise | self.power | op.aux
        b: Value = Mux(op.rotate, self.partner, 0) | words.weight | self.weigh_mult | scaler
        multiplies = ((valid[2] & (op.residual | op.add)) | (valid[5] & op.rotate) | (valid[8] & (op.weigh | op.gelu))
                      | (valid[9] & op.interpolate))

        aux3, aux5, sine3, beta3, beta5 = self._first_sum(m, main, aux, sine, bias)
        scaled = self._scale(m, mult, second)
        shift4, again_shift, from_second = self._shifts(m, shift)
        again, addend5 = self._round(m, scaled, shift4)
        with m.If(valid[4] & (op.norm | op.rotate)):
            m.d.sync += [aux5.eq(aux3), sine5.eq(sine3), beta5.eq(beta3)]
        word16, by_aux, narrow = self._add_residual(m, addend5, aux5)
        limited, passed, total = self._limit(m, word16, narrow, by_aux, second, beta5)
        self._look_up(m, words, limited, word16)
        exponential, gelu = self._exponential(m, word16)
        if gelu is not None:
            a, b = a | gelu.held, b | gelu.factor
        m.d.comb += [second_a.eq(a), second_b.eq(b), product.eq(second_a * second_b)]
        with m.If(multiplies):
            m.d.sync += second.eq(product)
        m.d.comb += again.value.eq(Mux(from_second, second, total))
        value = self._round_again(m, again, again_shift, words, passed)
        self._write(m, value, exponential)
        with m.If(self.begin):
            m.d.sync += [register.eq(0) for register in (sine3, sine5, beta3, beta5, addend5, by_aux, passed)]
        return m

    @property
    def _valid(self) -> list[Value]:
        """By number of a stage, from 1 on: it holds a pass."""
        return [Const(0), *self.valid]

    @property
    def _visible(self) -> list[Value]:
        """By number of a stage, from 1 on: this lane is a column of its row."""
        return [Const(0), *self.visible]

    def _capture(self, m: Module, main: Signal, operands: tuple[Signal, ...], parameters: tuple[Signal, ...]) -> None:
        """Stage 1: read data. Low planes wait for their high plane, a bias shifts in from the top."""
        op, capture, (aux, scaler, sine), (mult, shift, bias) = self.control, self.capture, operands, parameters
        low0, low1 = Signal(8), Signal(8)
        pair0, pair1 = Cat(low0, self.r0).as_signed(), Cat(low1, self.r1).as_signed()
        operand = Mux(op.pair, self.r1.as_signed(), pair1)
        with m.If(capture.low0):
            m.d.sync += low0.eq(self.r0)
        with m.If(capture.low1):
            m.d.sync += low1.eq(self.r1)
        with m.If(capture.main):
            m.d.sync += main.eq(Mux(op.planes, pair0, Mux(op.pair, self.r0.as_signed(), self.acc)))
        with m.If(capture.aux):
            m.d.sync += aux.eq(operand)
        with m.If(capture.aux & ~op.rotate):
            m.d.sync += scaler.eq(operand)
        with m.If(capture.sine):
            m.d.sync += sine.eq(pair1)
        with m.If(self.begin):
            m.d.sync += [mult.eq(op.mult), shift.eq(op.shift)]
        with m.If(capture.mult):
            m.d.sync += mult.eq(pair1)
        with m.If(capture.shift):  # modulo 64, limited
            m.d.sync += shift.eq(limited(self.r1))
        with m.If(capture.bias):
            m.d.sync += bias.eq(Cat(bias[8:], self.r1))
        with m.If(self.begin):
            m.d.sync += [bias.eq(0), scaler.eq(0), sine.eq(0)]

    def _first_sum(self, m: Module, main: Signal, aux: Signal, sine: Signal, bias: Signal) -> tuple[Signal, ...]:
        """Stage 2: first product or sum. A pass with aux operands holds them for two cycles a stage.

        The registers in which operands wait for stages 3 to 5.
        """
        op, valid = self.control, self._valid
        other, of, to, total2 = Signal(signed(17)), Signal(signed(33)), Signal(signed(33)), Signal(signed(35))
        aux3, aux5 = Signal(signed(16)), Signal(signed(16))
        sine3, beta3, beta5 = Signal(signed(16)), Signal(signed(32)), Signal(signed(32))
        product2 = Signal(signed(33))
        m.d.comb += [
            other.eq(Mux(op.by_n, op.n, Mux(op.product, aux, main[:16].as_signed()))),
            product2.eq(main[:16].as_signed() * other),
            of.eq(Mux(op.norm, ~product2, Mux(op.by_n | op.product | op.square, product2, main))),
            to.eq(Mux(op.norm, self.mean, bias)),
            total2.eq(Cat(1, of).as_signed() + Cat(op.norm, to).as_signed()),
            self.plain.eq(main[:16]),  # planes: holds in stage 3
        ]
        with m.If(valid[2]):
            m.d.sync += self.factor.eq(total2[1:])
            with m.If(~(op.by_n | op.product | op.square)):  # wraps
                m.d.sync += self.factor[-1].eq(total2[32])
        with m.If(valid[2] & (op.norm | op.rotate)):
            m.d.sync += [aux3.eq(aux), sine3.eq(sine)]
        with m.If(valid[2] & op.norm):
            m.d.sync += beta3.eq(bias)
        return aux3, aux5, sine3, beta3, beta5

    def _scale(self, m: Module, mult: Signal, second: Signal) -> Signal:
        """Stage 3: multiplier. ADD: both products, so that no path goes from one multiplier to the other's sum."""
        op, valid = self.control, self._valid
        scaled, by = Signal(signed(51)), Signal(signed(18))
        m.d.comb += by.eq(Mux(op.by_row, self.row_mult, mult))
        with m.If(valid[3] & ~op.square):
            m.d.sync += scaled.eq(Mux(
                op.add, self.factor[:26].as_signed() + second[:26].as_signed(), self.factor * by))
        return scaled

    def _shifts(self, m: Module, shift: Signal) -> tuple[Signal, Signal, Signal]:
        """Shifts stand in registers of their own in front of the shifters, whose wide multiplexers they steer.

        The first shifter's and the second's, and whether the second's value is that of the second multiplier.
        """
        op, valid = self.control, self._valid
        shift4, again_shift, from_second = Signal(6), Signal(6), Signal()
        m.d.sync += [
            shift4.eq(Mux(op.by_row, self.row_shift, shift)),
            again_shift.eq(Mux(op.weigh, self.row_shift, op.shift2)),
            from_second.eq(op.weigh | op.interpolate | op.gelu | (op.residual & valid[3])),
        ]
        return shift4, again_shift, from_second

    def _round(self, m: Module, scaled: Signal, shift4: Signal) -> tuple[RoundingShift, Signal]:
        """Stage 4: rounding shift, and the second one's, of the residual, which is returned with its register.

        A rescaled residual has up to 32 bits and may cancel as many.
        """
        op, valid = self.control, self._valid
        m.submodules.round = first = RoundingShift(51)
        over, rounded, kept = Signal(), first.result, Signal(signed(32))
        addend5 = Signal(signed(32))
        m.d.comb += [
            first.value.eq(scaled), first.shift.eq(shift4),
            first.flip.eq(op.absmax & first.sign),  # ~x = magnitude - 1
            first.add.eq(Cat(~first.flip, (op.absmax & ~first.sign).replicate(32))),
            # A magnitude is that of an int32.
            over.eq(first.over | ~(op.absmax | Mux(
                op.full, fits(first.floor, first.half, 32), fits(first.floor, first.half, 24)))),
            kept.eq(Mux(over, Cat((~first.sign).replicate(23), (first.sign ^ op.full).replicate(8), first.sign),
                        rounded)),
        ]
        with m.If(valid[4] & ~op.square):
            m.d.sync += [self.score.eq(kept), self._far.eq(first.over | ~fits(first.floor, first.half, 16))]
            with m.If(op.relu & first.sign):
                m.d.sync += self.score.eq(0)
        m.submodules.second_round = again = RoundingShift(38)
        with m.If(valid[4] & op.residual):
            m.d.sync += addend5.eq(again.result)
        return again, addend5

    def _add_residual(self, m: Module, addend5: Signal, aux5: Signal) -> tuple[Signal, Signal, Signal]:
        """Stage 5: residual, int8 or int16; or second multiplication. Both registers, and whether a result is int8."""
        op, valid = self.control, self._valid
        active, word16, by_aux = Signal(signed(33)), Signal(signed(16)), Signal(signed(32))
        narrow, minus, x = Signal(), Signal(), Signal(signed(16))
        m.d.comb += [
            active.eq(self.score + addend5), minus.eq(active[-1]), narrow.eq(op.store & ~op.wide),
            x.eq(Mux(beyond(active[15:32], minus) | (narrow & beyond(active[7:15], minus)),
                          Cat((~minus).replicate(7), (minus ^ ~narrow).replicate(8), minus), active)),
        ]
        with m.If(valid[5] & ~op.exp & ~op.square):
            m.d.sync += word16.eq(x)
        sign = self.score[-1]
        # What is multiplied has no residual: the adder need not come first.
        m.d.comb += self.x.eq(Mux(self._far, Cat((~sign).replicate(15), sign), self.score))
        with m.If(valid[5] & (op.norm | op.rotate)):
            m.d.sync += by_aux.eq(self.x * aux5)
        return word16, by_aux, narrow

    def _limit(self, m: Module, word16: Signal, narrow: Signal, by_aux: Signal, second: Signal,
               beta5: Signal) -> tuple[Signal, Signal, Signal]:
        """Stage 6: limits of an int8 result, with which the byte table is read; or sum of the pair.

        The limited byte, the register of it with its high plane, and that of the sum.
        """
        op, valid = self.control, self._valid
        byte, limited, passed = Signal(signed(8)), Signal(8), Signal(16)
        total, plus, carry = Signal(signed(33)), Signal(signed(33)), 0 if self._odd else op.rotate
        m.d.comb += [
            byte.eq(word16),
            limited.eq(Mux(narrow & (byte > op.high), op.high, Mux(narrow & (byte < op.low), op.low, byte))),
            plus.eq(Mux(op.rotate, second[:33] if self._odd else ~second[:33], beta5)),
        ]
        with m.If(valid[6]):
            m.d.sync += total.eq((Cat(1, by_aux).as_signed() + Cat(carry, plus).as_signed()) >> 1)
        with m.If(valid[6] & op.store):
            m.d.sync += passed.eq(Cat(limited, word16[8:]))
        return limited, passed, total

    def _look_up(self, m: Module, words: WordLookup, limited: Signal, word16: Signal) -> None:
        """Stages 6 to 8: a result looks up its byte, or two words and the weight between them."""
        op, begin = self.control, self.begin
        m.d.comb += [
            words.clear.eq(begin), words.lookup.eq(op.lookup), words.enable.eq(Mux(op.interpolate, self.valid[5:8], 0)),
            words.x.eq(Cat(limited, word16[8:])), self.place.eq(words.place),
            words.low.eq(self.low), words.high.eq(self.high), words.end.eq(self.words_end),
        ]

    def _exponential(self, m: Module, word16: Signal) -> tuple[Exponential, GeluFactor | None]:
        """Stages 5 to 7 of the softmax weights and of I_GELU."""
        op, begin, visible = self.control, self.begin, self._visible
        modes = self.config.comparison_modes
        m.submodules.exponential = exponential = Exponential(comparison_modes=modes)
        m.d.comb += [
            exponential.clear.eq(begin), exponential.kind.eq(op.kind),
            exponential.enable.eq(Mux(op.exp, self.valid[4:7], 0)),
            exponential.visible.eq(visible[7]),
            exponential.score.eq(self.score),
            exponential.maximum.eq(self.maximum),
            self.power.eq(exponential.p),
        ]
        if not modes:
            return exponential, None
        m.submodules.gelu = gelu = GeluFactor()
        m.d.comb += [gelu.clear.eq(begin), gelu.enable.eq(Mux(op.gelu, self.valid[5:7], 0)), gelu.x.eq(word16)]
        return exponential, gelu

    def _round_again(self, m: Module, again: RoundingShift, again_shift: Signal, words: WordLookup,
                     passed: Signal) -> Signal:
        """Stage 4: the residual. Stage 7 (late results: 9, 10): second rounding, of an interpolation with its word.

        A residual's rows stand in stages 4 and 7 in different cycles: they are an odd number apart.
        """
        op, valid = self.control, self._valid
        value, of8, over8 = Signal(16), Signal(signed(RESULT_BITS)), Signal()
        floor, half = Signal.like(again.floor), Signal()
        over, sign = Signal(), Signal()
        base, whole = Signal.like(words.base), Signal.like(passed)
        looked, byte = Signal(), Signal(8)
        fit = [fits(floor, half, bits) for bits in (8, 9, 16, 17)]
        m.d.comb += [
            again.shift.eq(again_shift), again.add.eq(1),
            # The next stage adds and limits. An interpolated word lies between two others. Weights have no sign bit.
            of8.eq((Cat(half, floor).as_signed() + Cat(1, base).as_signed()) >> 1),
            over8.eq(over | ~(op.interpolate | Mux(
                op.wide, Mux(op.weigh, fit[3], fit[2]), Mux(op.weigh, fit[1], fit[0])))),
            value.eq(whole | Mux(over8, Cat(
                (~sign).replicate(7), sign ^ (op.wide | op.weigh), (~sign).replicate(7), sign ^ op.weigh), of8)),
        ]
        with m.If(looked):
            m.d.comb += value[:8].eq(byte)
        with m.If(Mux(op.late, (valid[9] & ~op.interpolate) | (valid[10] & op.interpolate), valid[7])):
            m.d.sync += [
                floor.eq(again.floor), half.eq(again.half), over.eq(again.over), sign.eq(again.sign),
                base.eq(words.base), whole.eq(passed), looked.eq(op.lookup), byte.eq(words.byte),
            ]
        with m.If(self.begin):
            m.d.sync += [register.eq(0) for register in (floor, half, over, base, whole, looked)]
        return value

    def _write(self, m: Module, value: Signal, exponential: Exponential) -> None:
        """Stages 8 and 11: write register; the low plane of a result of 16 bits goes one cycle earlier."""
        op, valid, visible = self.control, self._valid, self._visible
        early, late, held, delayed, seen = Signal(), Signal(8), Signal(8), Signal(), Signal()
        passes, kept = Signal(), Signal(8)  # the result is what ``value`` was loaded with; another one
        writes = early | Mux(op.late, valid[11], valid[8])
        m.d.comb += [
            delayed.eq(op.weigh | op.gelu),
            early.eq(op.wide & Mux(op.late, valid[10], valid[7])),
            held.eq(Mux(op.wide, value[8:], value[:8])),
            seen.eq(Mux(op.late, Mux(early, visible[10], visible[11]), Mux(early, visible[7], visible[8]))),
            self.result.eq(Mux(passes, value[:8], kept)),
        ]
        m.d.sync += [late.eq(held), passes.eq(early & ~delayed & seen)]
        with m.If(writes):
            m.d.sync += kept.eq(Mux(early, value[:8], Mux(delayed, late, held | exponential.weight)))
        with m.If(writes & ~seen):
            m.d.sync += kept.eq(0)
