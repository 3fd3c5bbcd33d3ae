"""Local registers: lengths and displacements of one launch, and the parameter memory."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.command.lookup import READS
from gemmule.hw.interfaces import FREE, LENGTH_BITS
from gemmule.isa import MAX_LENGTH, NUM_BASES, NUM_LENGTHS, PARAMETER_BITS

__all__ = ["Local"]


class Local(wiring.Component):
    """What SET and PARAMS write. What is written in a cycle can be read in the next.

    Latency: ``ready`` stands ``NUM_BASES`` + 1 cycles after ``clear``; the registers are set one by one until then.

    Members
    -------
    clear: In(1)
        Start strobe: lengths become those of the host, displacements 0. Parameters stay.
    index, initial: Out, In
        Look-up of a length register as the host gave it, in the same cycle.
    ready: Out(1)
        That is done.
    registers, lengths: In, Out (structs by READS)
        Look-up of length registers, in the same cycle; number 0 is ``MAX_LENGTH``.
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
        super().__init__({
            "clear": In(1), "index": Out(range(NUM_LENGTHS)), "initial": In(LENGTH_BITS), "ready": Out(1, init=1),
            "registers": In(data.StructLayout(dict.fromkeys(READS, range(NUM_LENGTHS)))),
            "lengths": Out(data.StructLayout(dict.fromkeys(READS, LENGTH_BITS))),
            "base": In(range(NUM_BASES)), "displacement": Out(config.address_bits),
            "set_length": In(1), "set_displacement": In(1), "number": In(range(NUM_BASES)),
            "value": In(max(LENGTH_BITS, config.address_bits)),
            "set_word": In(1), "word_number": In(range(config.parameter_words)), "word": In(PARAMETER_BITS),
            "asked": In(range(config.parameter_words)), "parameter": Out(PARAMETER_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        # After ``clear`` all registers in turn, then those that commands write.
        turn, number, value = Signal(range(NUM_BASES)), Signal(range(NUM_BASES)), Signal(len(self.value))
        set_length, set_displacement = Signal(), Signal()
        initial = Mux(turn == 0, MAX_LENGTH, self.initial)
        m.d.comb += [
            self.index.eq(turn),
            number.eq(Mux(self.ready, self.number, turn)), value.eq(Mux(self.ready, self.value, initial)),
            set_length.eq(Mux(self.ready, self.set_length, turn < NUM_LENGTHS)),
            set_displacement.eq(~self.ready | self.set_displacement),
        ]
        with m.If(~self.ready):
            m.d.sync += [turn.eq(turn + 1), self.ready.eq(turn == NUM_BASES - 1)]
        with m.If(self.clear):
            m.d.sync += [turn.eq(0), self.ready.eq(0)]

        m.submodules.lengths = lengths = Memory(shape=LENGTH_BITS, depth=NUM_LENGTHS, init=[])
        write = lengths.write_port()
        m.d.comb += [write.addr.eq(number), write.en.eq(set_length), write.data.eq(value)]
        for name in READS:
            read = lengths.read_port(domain="comb")
            m.d.comb += [read.addr.eq(self.registers[name]), self.lengths[name].eq(read.data)]

        m.submodules.displacements = displacements = Memory(shape=config.address_bits, depth=NUM_BASES, init=[])
        write, read = displacements.write_port(), displacements.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(number), write.en.eq(set_displacement),
            write.data.eq(value & self.ready.replicate(config.address_bits)),
            read.addr.eq(self.base), self.displacement.eq(read.data),
        ]

        m.submodules.parameters = parameters = Memory(
            shape=PARAMETER_BITS, depth=config.parameter_words, init=[], attrs=FREE)
        put, get = parameters.write_port(), parameters.read_port()
        m.d.comb += [
            put.addr.eq(self.word_number), put.en.eq(self.set_word), put.data.eq(self.word),
            get.addr.eq(self.asked), self.parameter.eq(get.data),
        ]
        return m
