"""Local registers: lengths and displacements of one launch, and the parameter memory."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import FREE, LENGTH_BITS
from gemmule.isa import MAX_LENGTH, NUM_BASES, NUM_LENGTHS, PARAMETER_BITS

__all__ = ["Local"]


class Local(wiring.Component):
    """What SET and PARAMS write. What is written in a cycle can be read in the next.

    Members
    -------
    clear, initial: In
        Start strobe: lengths as the host gave them, displacements 0. Parameters stay.
    lengths: Out(array)
        Number 0 is ``MAX_LENGTH``.
    base, displacement: In, Out
        Look-up of the displacement of a base register, in the same cycle.
    set_length, set_displacement, number, value: In
        Write a register.
    set_word, word_number, word: In
        Write a parameter.
    asked, parameter: In, Out
        Look-up of a parameter, in the next cycle.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        lengths = data.ArrayLayout(LENGTH_BITS, NUM_LENGTHS)
        super().__init__({
            "clear": In(1), "initial": In(lengths), "lengths": Out(lengths),
            "base": In(range(NUM_BASES)), "displacement": Out(config.address_bits),
            "set_length": In(1), "set_displacement": In(1), "number": In(range(NUM_BASES)),
            "value": In(max(LENGTH_BITS, config.address_bits)),
            "set_word": In(1), "word_number": In(range(config.parameter_words)), "word": In(PARAMETER_BITS),
            "asked": In(range(config.parameter_words)), "parameter": Out(PARAMETER_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.d.comb += self.lengths[0].eq(MAX_LENGTH)
        for i in range(1, NUM_LENGTHS):
            register = Signal(LENGTH_BITS, name=f"length_{i}")
            m.d.comb += self.lengths[i].eq(register)
            with m.If(self.set_length & (self.number == i)):
                m.d.sync += register.eq(self.value)
            with m.If(self.clear):
                m.d.sync += register.eq(self.initial[i])

        # A displacement that was not written in this launch is 0, whatever the memory holds.
        m.submodules.displacements = displacements = Memory(shape=config.address_bits, depth=NUM_BASES, init=[])
        write, read = displacements.write_port(), displacements.read_port(domain="comb")
        written = Signal(NUM_BASES)
        m.d.comb += [
            write.addr.eq(self.number), write.en.eq(self.set_displacement), write.data.eq(self.value),
            read.addr.eq(self.base),
            self.displacement.eq(read.data & written.bit_select(self.base, 1).replicate(config.address_bits)),
        ]
        with m.If(self.set_displacement):
            m.d.sync += written.bit_select(self.number, 1).eq(1)
        with m.If(self.clear):
            m.d.sync += written.eq(0)

        m.submodules.parameters = parameters = Memory(
            shape=PARAMETER_BITS, depth=config.parameter_words, init=[], attrs=FREE)
        put, get = parameters.write_port(), parameters.read_port()
        m.d.comb += [
            put.addr.eq(self.word_number), put.en.eq(self.set_word), put.data.eq(self.word),
            get.addr.eq(self.asked), self.parameter.eq(get.data),
        ]
        return m
