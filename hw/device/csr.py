"""Control and status registers behind AXI4-Lite; the map is ``gemmule/csr.py``."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from gemmule import csr
from gemmule.config import Config
from gemmule.csr import Csr
from gemmule.hw.command.resolve import FAULT_BITS
from gemmule.hw.device.control import CYCLE_BITS
from gemmule.hw.device.watchdog import WATCHDOG_BITS
from gemmule.hw.interfaces import COUNT_BITS, LENGTH_BITS
from gemmule.isa import MAX_LENGTH, NUM_BASES, NUM_LENGTHS

__all__ = ["CsrBlock", "axi_lite"]

WORD = 32


def axi_lite() -> wiring.Signature:
    """AXI4-Lite seen from the manager."""
    return wiring.Signature({
        "awaddr": Out(csr.CSR_BITS), "awvalid": Out(1), "awready": In(1),
        "wdata": Out(WORD), "wstrb": Out(WORD // 8), "wvalid": Out(1), "wready": In(1),
        "bresp": In(2), "bvalid": In(1), "bready": Out(1),
        "araddr": Out(csr.CSR_BITS), "arvalid": Out(1), "arready": In(1),
        "rdata": In(WORD), "rresp": In(2), "rvalid": In(1), "rready": Out(1),
    })


class CsrBlock(wiring.Component):
    """AXI4-Lite subordinate; every response is OKAY, unknown offsets read 0 and ignore writes.

    Throughput: a write in 2 cycles, a read in 3. Address and data of a write may come in any order.
    An action (start, reset, interrupt clear) is a pulse in the cycle in which the write takes
    effect, after both parts were accepted. Parameters ignore writes while busy.

    Members
    -------
    bus: In(axi_lite)
        Host.
    start, reset, irq_clear: Out(1)
        Pulses.
    program, commands, watchdog: Out
        Launch parameters.
    length_index, length:
        Look-up of one length register, in the same cycle.
    base_index, base, limit:
        Look-up of one base and limit register, in the same cycle.
    busy, done, code, index, place, cycles: In
        Status, see :class:`Control`.
    counter_index, counter:
        Look-up of one performance counter, in the same cycle, see :class:`Counters`.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "bus": In(axi_lite()),
            "start": Out(1), "reset": Out(1), "irq_clear": Out(1),
            "program": Out(config.address_bits), "commands": Out(COUNT_BITS),
            "length_index": In(range(NUM_LENGTHS)), "length": Out(LENGTH_BITS),
            "base_index": In(range(NUM_BASES)),
            "base": Out(config.address_bits), "limit": Out(config.address_bits),
            "busy": In(1), "done": In(1), "code": In(FAULT_BITS), "index": In(COUNT_BITS),
            "place": In(COUNT_BITS),
            "cycles": In(CYCLE_BITS),
            "watchdog": Out(WATCHDOG_BITS, init=csr.WATCHDOG_CYCLES),
            "counter_index": Out(range(len(csr.COUNTERS))), "counter": In(csr.COUNTER_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, bits = self.bus, self.config.address_bits

        # Write channel: one slot for the address, one for the data.
        has_address, has_data = Signal(), Signal()
        offset = Signal(csr.CSR_BITS)
        value, strobe = Signal(WORD), Signal(WORD // 8)
        write = Signal()
        m.d.comb += [
            bus.awready.eq(~has_address),
            bus.wready.eq(~has_data),
            write.eq(has_address & has_data & (~bus.bvalid | bus.bready)),
        ]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += [has_address.eq(0), has_data.eq(0), bus.bvalid.eq(1)]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [has_address.eq(1), offset.eq(bus.awaddr)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [has_data.eq(1), value.eq(bus.wdata), strobe.eq(bus.wstrb)]

        word = offset[2:]
        change = Signal()  # of a parameter
        m.d.comb += change.eq(write & ~self.busy)

        def writable(register: Value, where: int, low: int = 0) -> None:
            """The word at ``where`` writes ``register`` from bit ``low`` on."""
            part = register[low:low + WORD]
            for at in range(0, len(part), 8):
                with m.If(change & (word == where >> 2) & strobe[at // 8]):
                    m.d.sync += part[at:at + 8].eq(value[at:at + 8])

        def action(pulse: Signal, where: int, bit: int) -> None:
            m.d.comb += pulse.eq(write & (word == where >> 2) & strobe[0] & value[bit])

        action(self.start, Csr.CONTROL, 0)
        action(self.reset, Csr.CONTROL, 1)
        action(self.irq_clear, Csr.IRQ_CLEAR, 0)
        writable(self.program, Csr.PROGRAM_LO)
        writable(self.program, Csr.PROGRAM_HI, WORD)
        writable(self.commands, Csr.PROGRAM_COMMANDS)
        writable(self.watchdog, Csr.WATCHDOG)

        # Read channel.
        read_offset = Signal(csr.CSR_BITS)
        reading = Signal()
        told = Signal()  # a counter stands in a register, and what may be shown does a cycle later: their ways are long
        found = Signal()
        counter = Signal.like(self.counter)
        m.d.comb += bus.arready.eq(~reading & ~told & ~found & ~bus.rvalid)
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        m.d.sync += [reading.eq(0), told.eq(reading), found.eq(told), counter.eq(self.counter)]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [reading.eq(1), read_offset.eq(bus.araddr)]
        with m.If(found):
            m.d.sync += bus.rvalid.eq(1)
        shown: list[Value] = []  # what is not read shows 0

        def show(where: int, register: Value, low: int = 2) -> None:
            """The word at ``where`` reads ``register``; offsets count from bit ``low`` on, and bit 2."""
            if not len(register):
                return
            meant = (read_offset[low:] == where >> low) & (read_offset[2] == where >> 2 & 1)
            shown.append(register[:WORD] & meant.replicate(WORD)[:len(register)])

        for where, register in {
            Csr.STATUS: Cat(self.busy, self.done) | (self.code << csr.FAULT_SHIFT), Csr.FAULT_INDEX: self.index,
            Csr.FAULT_PLACE: self.place,
            Csr.CYCLES: self.cycles, Csr.CYCLES_HI: self.cycles[WORD:],
            Csr.PROGRAM_LO: self.program, Csr.PROGRAM_HI: self.program[WORD:],
            Csr.PROGRAM_COMMANDS: self.commands, Csr.WATCHDOG: self.watchdog,
            Csr.IDENTITY: Const(csr.IDENTITY, WORD), Csr.CONFIGURATION: Const(self.config.identity, WORD),
        }.items():
            show(where, register)

        # Length registers, in a small memory.
        m.submodules.lengths = lengths = Memory(shape=LENGTH_BITS, depth=NUM_LENGTHS, init=[])
        put, launch, host = lengths.write_port(granularity=8), lengths.read_port(domain="comb"), lengths.read_port(
            domain="comb")
        among = exact_log2(4 * NUM_LENGTHS)  # bits of an offset among them
        own = Csr.LENGTH0 >> among
        number = read_offset[2:among]
        m.d.comb += [
            put.addr.eq(offset[2:among]), put.data.eq(value),
            put.en.eq(Mux(change & (offset[among:] == own), strobe, 0)),
            launch.addr.eq(self.length_index), self.length.eq(launch.data),
            host.addr.eq(number),
        ]
        shown.append(Mux(read_offset[among:] == own, Mux(number == 0, MAX_LENGTH, host.data), 0))
        show(Csr.COUNTER_LO, counter, 8)
        show(Csr.COUNTER_HI, counter[WORD:], 8)
        m.d.comb += self.counter_index.eq(read_offset[3:8])

        # Base and limit registers: two words each, in small memories.
        width = -(-bits // 8) * 8
        for name, where, answer in (("bases", Csr.BASE_LO, self.base), ("limits", Csr.LIMIT_LO, self.limit)):
            memory = Memory(shape=width, depth=NUM_BASES, init=[])
            m.submodules[name] = memory
            port = memory.write_port(granularity=8)
            look_up = memory.read_port(domain="comb")
            host = memory.read_port(domain="comb")
            hit = change & (offset[8:] == where >> 8)
            high = offset[2]
            m.d.comb += [
                port.addr.eq(offset[3:8]),
                port.data.eq(Cat(value, value)),
                port.en.eq(Mux(hit, Mux(high, Cat(strobe & 0, strobe), strobe), 0)),
                look_up.addr.eq(self.base_index),
                answer.eq(look_up.data),
                host.addr.eq(read_offset[3:8]),
            ]
            show(where, host.data[:bits], 8)
            show(where + 4, host.data[:bits][WORD:], 8)
        some = [Signal(WORD, name=f"shown_{i}") for i in range(4)]
        m.d.sync += [at.eq(reduce(or_, shown[i::len(some)])) for i, at in enumerate(some)]
        with m.If(found):
            m.d.sync += bus.rdata.eq(reduce(or_, some))
        return m
