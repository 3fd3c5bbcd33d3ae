"""Execute: what SET, PARAMS and REPEAT do, step by step, while they stay in the first stage of resolve."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.command.fields import control_fields, fields_of
from gemmule.hw.command.local import Local
from gemmule.hw.command.lookup import READS
from gemmule.hw.command.loops import RepeatControl
from gemmule.hw.interfaces import LENGTH_BITS
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    HEADER,
    MAX_LENGTH,
    NUM_LENGTHS,
    PARAMETER_BITS,
    PARAMS_WORDS,
    COp,
    Source,
    Target,
)
from gemmule.resolve import FAULTS
from gemmule.timing import Timing

__all__ = ["REFUSAL_BITS", "Execute"]

REFUSAL_BITS = 2
_ILLEGAL, _ROWS = FAULTS.index("illegal"), FAULTS.index("rows")
assert max(_ILLEGAL, _ROWS) < 1 << REFUSAL_BITS
_HEADER_BITS = sum(bits for _, bits in HEADER)
_OWN_BITS = sum(dict(HEADER)[name] for name in ("unit", "op"))
"""Of the header, what a control command has; the rest is 0."""
_REG_BITS = exact_log2(NUM_LENGTHS)


class Execute(wiring.Component):
    """Equal to ``gemmule.control.execute``, a step a cycle; holds the launch's registers.

    A control command is ``Timing.control`` cycles older than others when it leaves the first stage: so what it does
    is done before anything behind it is taken. With its first cycle there called age 0, the steps are:

    - SET: LEN[source_reg] │ address of a parameter │ operand │ sum │ wrapped, limited, written;
    - PARAMS: a word in each;
    - REPEAT: LEN[times_reg] │ less offset │ rounded up, limited │ the body begins │ fetch has gone there.

    One value register goes through them. A command that is refused does nothing, and is the last one that is taken.

    Members
    -------
    clear: In(1)
        Start strobe.
    length_index, initial, ready:
        Length registers as the host gave them, in turn, and that all have been set, see
        :class:`gemmule.hw.command.local.Local`.
    registers, lengths: In, Out
        Look-up of length registers, see :class:`gemmule.hw.command.local.Local`.
    displacement: Out
        Of the base register that the command in the first stage names.
    enter: In(1)
        A command enters the first stage at the end of this cycle.
    present, word: In
        Command in the first stage.
    length: In
        The length register that it names as a control command.
    control, held: Out(1)
        It is a control command; it must stay.
    refusal: Out
        Fault code of a refused control command from its last age on, until ``clear``; else 0.
    repeat: Out(RepeatControl)
        To fetch.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "clear": In(1), "length_index": Out(range(NUM_LENGTHS)), "initial": In(LENGTH_BITS), "ready": Out(1),
            "registers": In(data.StructLayout(dict.fromkeys(READS, range(NUM_LENGTHS)))),
            "lengths": Out(data.StructLayout(dict.fromkeys(READS, LENGTH_BITS))),
            "displacement": Out(config.address_bits),
            "enter": In(1), "present": In(1), "word": In(8 * COMMAND_BYTES), "length": In(LENGTH_BITS),
            "control": Out(1), "held": Out(1), "refusal": Out(REFUSAL_BITS), "repeat": Out(RepeatControl()),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, refusal = self.config, self.refusal
        last_age = Timing.of(config).control
        assert last_age == 4, "as many as there are steps below, less one"
        word_bits = exact_log2(config.parameter_words)
        m.submodules.local = local = Local(config=config)
        header, move, _, _, _ = fields_of(self.word)
        change, bring, repeat = (control_fields(self.word, op) for op in COp)

        age = Signal(range(last_age + 1))
        waits = Signal()  # for the bus to accept a request
        at = [Signal(name=f"at_{i}") for i in range(last_age + 1)]  # a control command of this age
        changes, brings, repeats = (Signal(name=f"is_{op.name.lower()}") for op in COp)
        m.d.comb += [
            self.control.eq(self.present & (header.unit == CONTROL)),
            self.held.eq(self.control & (age != last_age)),
            *(is_op.eq(header.op == op) for is_op, op in zip((changes, brings, repeats), COp)),
            *(signal.eq(self.control & (age == i)) for i, signal in enumerate(at)),
            waits.eq(at[3] & repeats & self.repeat.standing),
        ]
        with m.If(self.enter):
            m.d.sync += age.eq(0)
        with m.Elif((age != last_age) & ~waits):
            m.d.sync += age.eq(age + 1)

        # Refusals, found at age 0, 1 (a parameter that is not there) and 2 (a body that may not begin here).
        source, target_reg = change.source, change.target_reg
        to_length = change.target == Target.LENGTH
        of_parameter = (source == Source.WORD) | (source == Source.HALF)
        high_register, high_target = change.source_reg[_REG_BITS:].any(), target_reg[_REG_BITS:].any()
        illegal, too_many, beyond = Signal(), Signal(), Signal()
        m.d.comb += [
            illegal.eq(
                self.word[_OWN_BITS:_HEADER_BITS].any() | ~(changes | brings | repeats)
                | changes & ((source > Source.HALF) | (source != Source.DISPLACEMENT) & high_register
                             | Mux(to_length, (target_reg == 0) | high_target, change.modulus != 0))),
            too_many.eq(bring.first + PARAMS_WORDS > config.parameter_words),
        ]
        with m.If(at[0] & illegal):
            m.d.sync += refusal.eq(_ILLEGAL)
        with m.Elif(at[0] & brings & too_many | at[1] & changes & of_parameter & beyond & ~refusal.any()):
            m.d.sync += refusal.eq(_ROWS)
        with m.Elif(at[2] & repeats & ~self.repeat.allows):
            m.d.sync += refusal.eq(_ILLEGAL)
        with m.If(self.clear):
            m.d.sync += refusal.eq(0)

        # The value: a length, then what a SET starts from or how often a REPEAT wants its body, then a SET's sum.
        value = Signal(signed(max(config.address_bits + 1, len(change.amount)) + 1))
        length = value[:LENGTH_BITS]
        found, number = Signal(LENGTH_BITS + 1), Signal(LENGTH_BITS + 1)
        operand = Signal(signed(max(config.address_bits, PARAMETER_BITS) + 1))
        less = length - repeat.times_offset
        quotient, remains = Signal(LENGTH_BITS), Signal()
        m.d.comb += [
            found.eq(change.index + length),
            number.eq(Mux(source == Source.HALF, found >> 1, found)),
            beyond.eq(number[word_bits:].any()), local.asked.eq(number),
            quotient.eq(length >> repeat.times_shift),
            remains.eq((length & Cat(repeat.times_shift > i for i in range(LENGTH_BITS - 1))).any()),
        ]
        parameter = local.parameter
        with m.Switch(source):
            with m.Case(Source.LENGTH):
                m.d.comb += operand.eq(length)
            with m.Case(Source.DISPLACEMENT):
                m.d.comb += operand.eq(local.displacement)
            with m.Case(Source.WORD):
                m.d.comb += operand.eq(parameter.as_signed())
            with m.Case(Source.HALF):
                m.d.comb += operand.eq(Mux(found[0], parameter[LENGTH_BITS:], parameter[:LENGTH_BITS]))
        with m.If(at[0]):
            m.d.sync += value.eq(Mux(changes & of_parameter & (change.source_reg == 0), 0, self.length))
        with m.If(at[1] & repeats):
            m.d.sync += value.eq(Mux(less < 0, 0, less))
        with m.If(at[2]):
            m.d.sync += value.eq(Mux(repeats, Mux(quotient < repeat.times_cap, quotient + remains, repeat.times_cap),
                                     operand))
        with m.If(at[3] & changes):
            m.d.sync += value.eq(value + change.amount.as_signed())

        # A length wraps once and is limited to 0 .. MAX_LENGTH. Beyond twice that, either way, modulus or not is alike.
        negative, high = value[-1], value[LENGTH_BITS + 1:-1]
        modulus = Cat(change.modulus, 0, 0)
        wrapped = Signal(LENGTH_BITS + 2)  # + modulus of a negative sum, - modulus of another one
        limited = Signal(LENGTH_BITS)
        m.d.comb += wrapped.eq((Cat(1, value[:LENGTH_BITS + 1]) + Cat(~negative, Mux(negative, modulus, ~modulus)))[1:])
        turned, low = wrapped[-1], wrapped[:LENGTH_BITS]  # it passed 0
        with m.If(negative):
            m.d.comb += limited.eq(Mux(high.all() & turned, low, 0))
        with m.Elif(high.any()):
            m.d.comb += limited.eq(MAX_LENGTH)
        with m.Else():
            m.d.comb += limited.eq(Mux(turned, length, Mux(wrapped[LENGTH_BITS], MAX_LENGTH, low)))

        acts = ~refusal.any()
        m.d.comb += [
            local.clear.eq(self.clear), self.length_index.eq(local.index), local.initial.eq(self.initial),
            self.ready.eq(local.ready), local.registers.eq(self.registers), self.lengths.eq(local.lengths),
            local.base.eq(Mux(self.control, change.source_reg, move.base)), self.displacement.eq(local.displacement),
            local.set_length.eq(at[4] & changes & to_length & acts),
            local.set_displacement.eq(at[4] & changes & ~to_length & acts),
            local.number.eq(target_reg), local.value.eq(Mux(to_length, limited, value)),
            local.set_word.eq(self.control & brings & ~illegal & ~too_many),
            local.word_number.eq(bring.first + age),
            local.word.eq(Array(bring[f"word{i}"] for i in range(PARAMS_WORDS))[age]),
            self.repeat.body.eq(repeat.body), self.repeat.times.eq(value),
            self.repeat.pause.eq(at[3] & repeats), self.repeat.effect.eq(at[3] & repeats & ~waits & acts),
        ]
        return m
