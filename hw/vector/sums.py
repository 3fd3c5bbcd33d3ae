"""Reductions of the vector unit: maximum, softmax sum, sum and sum of squares of each row."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.interfaces import vector_layout
from gemmule.hw.vector.contexts import MEAN_BITS, RISE_BITS, SUM_BITS, maximum_layout
from gemmule.hw.vector.divide import waiting_layout
from gemmule.hw.vector.ops import row_write, token_layout, traits_layout
from gemmule.hw.vector.serial import NORM_BITS
from gemmule.numerics import MAX_SHIFT
from gemmule.numerics.softmax import EMPTY, MAX_RISE

__all__ = ["STAGES", "VectorSums"]

STAGES = 11
"""Tokens of stages 0 to 11 are used."""
V_BITS = 64
SQUARES, POWERS = 3, 8
"""Stages in which the lanes' squares and exponentials are summed."""


def tree(values, join):  # type: ignore[no-untyped-def]
    """Balanced reduction of a power of two of values."""
    while len(values) > 1:
        values = [join(a, b) for a, b in zip(values[::2], values[1::2])]
    return values[0]


def plus(a: Value, b: Value, carry: Value) -> Value:
    """``a + b + carry`` in one adder; both signed or both not."""
    wide = Cat(1, a), Cat(carry, b)
    return (wide[0].as_signed() + wide[1].as_signed() if a.shape().signed else wide[0] + wide[1]) >> 1


def above(a: Value, b: Value) -> Value:
    """``a > b`` of signed values: the sign of a difference maps to one carry chain, a comparison to more."""
    return (b - a)[-1]


def saturated(value: Value, bits: int) -> Value:
    """Signed ``value`` limited to signed ``bits``: what the upper bits say, not two comparisons."""
    sign, upper = value[-1], value[bits - 1:]
    fits = upper.all() | ~upper.any()
    return Mux(fits, value[:bits], Cat((~sign).replicate(bits - 1), sign)).as_signed()


def by_bytes(m: Module, value: Value) -> tuple[Value, Value]:
    """``value`` (64 bits) moved left by whole bytes until its top one is not 0; and by how many (all ones for 0)."""
    used: Value = Cat(value.word_select(i, 8).any() for i in range(8))
    far: list[Signal] = []
    for step in (32, 16, 8):  # bytes with a bit, so that no level waits for the one before
        none, moved = Signal(name=f"none_{step}"), Signal(len(value), name=f"moved_{step}")
        upper, lower = used[len(used) // 2:], used[:len(used) // 2]
        m.d.comb += [none.eq(~upper.any()), moved.eq(Mux(none, value << step, value))]
        used = Mux(none, lower, upper)
        value, far = moved, [none, *far]
    return value, Cat(far)


def by_bits(m: Module, value: Value, pairs: Value) -> tuple[Value, Value]:
    """``value`` moved left until its top bit is set, up to 7 places, or with ``pairs`` by an even number until one of
    the top two is; and how far."""
    far: list[Signal] = []
    for step in (4, 2, 1):
        none, moved = Signal(name=f"none_{step}"), Signal(len(value), name=f"moved_{step}")
        m.d.comb += [
            none.eq(~value[-step:].any() & (~pairs if step == 1 else 1)), moved.eq(Mux(none, value << step, value)),
        ]
        value, far = moved, [none, *far]
    return value, Cat(far)


class VectorSums(wiring.Component):
    """What a row's lanes add up to, normalised (top bit set, for V one of the top two) for the dividers.

    Throughput: one column group a cycle (NORM_STAT: every other cycle). Latency: a maximum and a sum
    that is kept are written in stage 10, a mean in stage 5; the word for a divider is there in stage 11. With ROUND (a
    device with ``comparison_modes``) the mean is written in stage 8 and the word is there in stage 13. Exact.

    Members
    -------
    command: In(vector_layout), traits: In(traits_layout), begin: In(1)
        Held from ``begin`` on.
    token: In(token_layout).array(STAGES + 1)
    plain, factor, score, power: In
        Per lane: stage 3, 3, 5, 8. ABSMAX: the score is the magnitude - 1.
    maximum: In(maximum_layout), total: In(37), rise: In(6)
        Context of the row in stage 8, to go on from.
    found, kept, summed, fill: Out(row_write)
        Maximum and rise, softmax sum, mean; word for a divider.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__({
            "command": In(vector_layout(config)), "traits": In(traits_layout()),
            "begin": In(1), "token": In(token_layout(config)).array(STAGES + 1),
            "plain": In(signed(16)).array(lanes), "factor": In(signed(33)).array(lanes),
            "score": In(signed(32)).array(lanes), "power": In(21).array(lanes),
            "maximum": In(maximum_layout()), "total": In(SUM_BITS), "rise": In(RISE_BITS),
            "found": Out(row_write(config, maximum_layout())), "kept": Out(row_write(config, SUM_BITS)),
            "summed": Out(row_write(config, signed(MEAN_BITS))), "fill": Out(row_write(config, waiting_layout())),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        token, traits = self.token, self.traits
        norm, exp, absmax = traits.norm_stat, traits.softmax_exp, traits.absmax
        largest = self._find_maximum(m, absmax, traits)

        # Sums of squares and of int16 operands in stages 3 and 4, of exponentials in stages 8 and 9.
        group, total = Signal(37), Signal(46)
        terms = [Mux(norm, f[:31] & token[SQUARES].mask[i].replicate(31), power)
                 for i, (f, power) in enumerate(zip(self.factor, self.power))]
        with m.If(Mux(norm, token[SQUARES].valid, token[POWERS].valid & exp)):
            m.d.sync += group.eq(tree(terms, lambda a, b: a + b))
        # The sum to go on from, in stage 8; one fraction bit of a shifted one is kept and carries half up.
        start, carry, first = Signal(SUM_BITS), Signal(), Signal()
        with m.If(~traits.onward):
            m.d.sync += Cat(carry, start).eq(0)
        with m.Elif(token[POWERS].valid):
            m.d.sync += Cat(carry, start).eq(Cat(0, self.total) >> Mux(traits.online, self.rise, 0))
        m.d.comb += first.eq(Mux(norm, token[SQUARES + 1].first, token[POWERS + 1].first))
        with m.If(absmax):
            m.d.sync += total.eq(0)
        with m.Elif(Mux(norm, token[SQUARES + 1].valid, token[POWERS + 1].valid & exp)):
            m.d.sync += total.eq(plus(Mux(first, start, total), group, first & carry))
        v = self._variance(m, norm, traits, total)

        # Stages 10 and 11 (ROUND: 12 and 13): shift left until the top bit (NORM_STAT: of the top pair of bits) is set,
        # first by bytes, then by bits. Only one of the sources is not 0.
        whole, waiting, take, stored = Signal(V_BITS), Signal(waiting_layout()), Signal(), Signal(
            token_layout(self.config))
        upper, octets = Signal(NORM_BITS + 7), Signal(3)
        m.d.comb += whole.eq(v | ((total[:SUM_BITS] & (~norm).replicate(SUM_BITS)) | largest) << V_BITS - NORM_BITS)
        coarse, octets_far = by_bytes(m, whole)
        with m.If(take):
            m.d.sync += [upper.eq(coarse[-len(upper):]), octets.eq(octets_far)]
        moved, places = by_bits(m, upper, norm)
        far = Cat(places, octets)
        m.d.comb += [
            waiting.norm.eq(moved[-NORM_BITS:]),
            waiting.code.eq(Mux(norm | moved[-1], Mux(norm, 16, NORM_BITS) - Mux(norm, far >> 1, far), 0)),
        ]
        m.d.comb += [take.eq(token[10].valid), stored.eq(token[11])]
        if self.config.comparison_modes:
            later = [Signal(token_layout(self.config), name=f"later_{k}") for k in range(12, 14)]
            m.d.sync += [to.eq(of) for to, of in zip(later, [token[11], *later])]
            with m.If(traits.rounds):
                m.d.comb += [take.eq(later[0].valid), stored.eq(later[1])]
        m.d.comb += [
            self.fill.en.eq(stored.valid & stored.final), self.fill.row.eq(stored.row), self.fill.data.eq(waiting),
            self.kept.en.eq(token[10].valid & token[10].final & traits.more),
            self.kept.row.eq(token[10].row), self.kept.data.eq(total),
        ]
        return m

    def _find_maximum(self, m: Module, absmax: Value, traits: data.View) -> Signal:
        """Stages 5 to 7: over the lanes; stage 8: over the groups; stages 9 and 10: into the context, or ABSMAX's
        result, which is there in stage 10.

        ONLINE: the context's maximum is left out before stage 10, which has it and the row's in whole octaves.
        """
        token, online = self.token, traits.online
        find = traits.softmax_max
        seen = [(token[5].mask[i], score) for i, score in enumerate(self.score)]
        levels = exact_log2(len(seen))
        for k in range(3):  # a register in front of every comparison's operands keeps its multiplexer small
            for _ in range(levels // 3 + (k < levels % 3)):
                seen = [(a | b, Mux(a & (~b | above(x, y)), x, y))
                        for (a, x), (b, y) in zip(seen[::2], seen[1::2])]
            stage = [(Signal(name=f"seen_{k}_{i}"), Signal(signed(32), name=f"best_{k}_{i}")) for i in range(len(seen))]
            with m.If(token[5 + k].valid & (find | absmax)):
                m.d.sync += [to.eq(of) for pair, values in zip(stage, seen) for to, of in zip(pair, values)]
            seen = stage
        (any_lane, of_group), of_row, start = seen[0], Signal(signed(32)), Signal(signed(32))
        m.d.comb += start.eq(Mux(token[8].first, Mux(
            traits.onward & ~online, self.maximum.value, EMPTY), of_row))  # no score is lower
        with m.If(token[8].valid & (find | absmax)):
            m.d.sync += of_row.eq(Mux(any_lane & above(of_group, start), of_group, start))

        before, old = Signal(maximum_layout()), Signal(maximum_layout())  # stages 9 and 10
        value, octave, rise = Signal(signed(24)), Signal(signed(14)), Signal(signed(15))
        m.d.sync += [before.eq(self.maximum), old.eq(before)]
        with m.If(~traits.onward):
            m.d.sync += before.value.eq(EMPTY)
        m.d.comb += octave.eq(of_row[10:24])
        with m.If(token[9].valid & find):
            m.d.sync += value.eq(Cat(
                of_row[:10] & (~online).replicate(10), octave + (online & of_row[:10].any() & (octave != 8191))))
        m.d.comb += [
            # octaves less those of before, rounded up
            rise.eq(plus(value[10:].as_signed(), ~old.value[10:].as_signed(), ~old.value[:10].any())),
            self.found.en.eq(token[10].valid & token[10].final & find), self.found.row.eq(token[10].row),
            self.found.data.value.eq(Mux(online & (rise < 0), old.value, value)),
            self.found.data.rise.eq(Mux(rise[5:14].any() & (rise[6:14].any() | rise[3:5].any()), MAX_RISE, rise)),
        ]
        with m.If(~online):
            m.d.comb += self.found.data.rise.eq(old.rise)
        with m.Elif(rise < 0):
            m.d.comb += self.found.data.rise.eq(0)
        largest = Signal(32)
        with m.If(~absmax):
            m.d.sync += largest.eq(0)
        with m.Elif(token[9].valid):
            m.d.sync += largest.eq(of_row + 1)
        return largest

    def _variance(self, m: Module, norm: Value, traits: data.View, total: Signal) -> Signal:
        """Stages 3 to 9: ``max(1, n * Q - s * s + epsilon)``, the square in two halves; returns V of stage 10.

        0 if the command is another one. ROUND: without epsilon, plus the square of n times the mean's rounding error,
        for stage 12.
        """
        token, command = self.token, self.command
        at = [stage.valid & norm for stage in token]
        lanes = [(value[:16] & token[SQUARES].mask[i].replicate(16)).as_signed() for i, value in enumerate(self.plain)]
        part, s, of_row = Signal(signed(23)), Signal(signed(MEAN_BITS)), Signal(signed(MEAN_BITS))
        with m.If(~traits.mean):
            m.d.sync += part.eq(0)
        with m.Elif(at[3]):
            m.d.sync += part.eq(tree(lanes, lambda a, b: a + b))
        with m.If(at[4]):  # a row's last two stages never meet the next row's first
            m.d.sync += s.eq(s + part)
        with m.Elif(at[5] & token[5].final):
            m.d.sync += s.eq(0)
        m.d.comb += [
            self.summed.en.eq(at[5] & token[5].final), self.summed.row.eq(token[5].row), self.summed.data.eq(s),
        ]
        # epsilon: mult << min(shift, 40), eight places a cycle
        epsilon, steps, limited = Signal(56), Signal(3), Signal()
        m.d.comb += limited.eq(command.shift[5] & command.shift[3:5].any())
        with m.If(self.begin):
            m.d.sync += [
                epsilon.eq(command.mult << Mux(limited, 0, command.shift[:3])),
                steps.eq(Mux(limited, 5, command.shift[3:])),
            ]
        with m.Elif(steps != 0):
            m.d.sync += [epsilon.eq(epsilon << 8), steps.eq(steps - 1)]
        n_total, product, half = Signal(62), Signal(signed(49)), Signal(signed(17))
        v = [Signal(V_BITS, name=f"v_{k}") for k in range(4)]
        m.d.comb += half.eq(Mux(at[7], of_row[16:].as_signed(), of_row[:16]))
        with m.If(at[5]):
            m.d.sync += [n_total.eq(total * command.n), of_row.eq(s)]
        with m.If(at[6] | at[7]):  # a row's operands hold for two cycles
            m.d.sync += product.eq(of_row * half)
        with m.If(at[6]):
            m.d.sync += v[0].eq(n_total + epsilon)
        with m.If(at[7]):
            m.d.sync += v[1].eq(v[0] - product)
        with m.If(at[8]):
            m.d.sync += v[2].eq(Cat(v[1][:16], v[1][16:] - product))
        with m.If(~norm):
            m.d.sync += v[3].eq(0)
        with m.Elif(at[9]):
            m.d.sync += v[3].eq(v[2] | (v[2] == 0))
        if self.config.comparison_modes:
            self._round_mean(m, traits.rounds, at, s, of_row, v)
            with m.If(traits.rounds):
                m.d.sync += epsilon.eq(0)
        return v[3]

    def _round_mean(self, m: Module, rounds: Value, at: list[Value], s: Signal, of_row: Signal,
                    v: list[Signal]) -> None:
        """``norm_statistic`` with ``round_mean``: mean in stages 5 to 7, its square joins V in stages 10 and 11.

        Shifts and saturates 48 bits in a stage, as the lanes do.
        """
        command, limited = self.command, Signal(6)
        scaled, mean, whole = Signal(signed(49)), Signal(signed(16)), Signal(signed(MEAN_BITS))
        centre, error, square, corrected = Signal(signed(33)), Signal(signed(18)), Signal(35), Signal(V_BITS)
        m.d.comb += limited.eq(Mux(command.shift > MAX_SHIFT, MAX_SHIFT, command.shift))
        with m.If(at[5]):
            m.d.sync += scaled.eq(s * command.mult)
        with m.If(at[6]):
            m.d.sync += mean.eq(saturated(((Cat(0, scaled).as_signed() >> limited) + 1) >> 1, 16))
        with m.If(at[7]):
            m.d.sync += [centre.eq(mean * command.n), whole.eq(of_row)]
        with m.If(at[8]):
            m.d.sync += error.eq(saturated(centre - whole, 18))
        with m.If(at[9]):
            m.d.sync += square.eq(error * error)
        with m.If(at[10]):
            m.d.sync += corrected.eq(v[2] + square)
        with m.If(rounds):
            with m.If(at[11]):
                m.d.sync += v[3].eq(corrected | (corrected == 0))
            m.d.comb += [
                self.summed.en.eq(at[8] & self.token[8].final), self.summed.row.eq(self.token[8].row),
                self.summed.data.eq(centre),
            ]
