"""Registers: the rules of AXI4-Lite, one effect for each write, parameters that stand while the device is busy."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Mux, Signal

from gemmule import csr
from gemmule.config import Config
from gemmule.csr import Csr
from gemmule.hw.device.csr import CsrBlock
from gemmule.hw.formal.bench import Bench

__all__ = ["registers"]


def registers(bench: Bench, config: Config) -> None:
    """The host is free, but that it keeps the rules of its own side."""
    m, dut = bench.m, bench.dut(CsrBlock(config=config))
    bus = dut.bus
    for channel, payload in (("aw", bus.awaddr), ("w", Cat(bus.wdata, bus.wstrb)), ("ar", bus.araddr)):
        valid, ready = (getattr(bus, f"{channel}{side}") for side in ("valid", "ready"))
        waits = bench.before(valid & ~ready, f"{channel}_waits")
        bench.assume(f"{channel} stands", "what the host offers stands until it is accepted",
                     ~waits | valid & (bench.before(payload, f"{channel}_payload") == payload))
    aw, w, b = (getattr(bus, f"{name}valid") & getattr(bus, f"{name}ready") for name in ("aw", "w", "b"))
    ar = bus.arvalid & bus.arready

    # What the host has written: an address, data, or both; the effect; the answer.
    address, data, strobe = Signal(csr.CSR_BITS, name="address"), Signal(32, name="word"), Signal(4, name="bytes")
    has_address, has_data = Signal(name="address_held"), Signal(name="data_held")
    write = bench.wire(has_address & has_data & (~bus.bvalid | bus.bready), "effect")
    with m.If(write):
        m.d.sync += [has_address.eq(0), has_data.eq(0)]
    with m.If(aw):
        m.d.sync += [has_address.eq(1), address.eq(bus.awaddr)]
    with m.If(w):
        m.d.sync += [has_data.eq(1), data.eq(bus.wdata), strobe.eq(bus.wstrb)]
    m_write = bench.register("write")
    bench.lemma("held", "address and data of a write are held until its effect", bus.awready == ~has_address,
                bus.wready == ~has_data, ~has_address | (bench.register("offset") == address), m_write == write)
    held = bench.written("lengths")
    bench.lemma("held data", "data too", ~has_data | (held == data[:len(held)]))
    reading, told, found = (bench.register(name) for name in ("reading", "told", "found"))
    was_told = bench.before(told, "told")
    bench.always("one answer", "each write has one answer, right behind its effect, and each read one",
                 ~bench.before(write, "wrote") | bus.bvalid, ~(m_write & bus.bvalid & ~bus.bready),
                 ~(bus.bvalid & ~bench.before(bus.bvalid & ~bus.bready, "answer_waits")) | bench.before(write, "wrote"),
                 ~bench.before(ar, "asked") | reading, told == bench.before(reading, "reading"),
                 found == was_told, ~bench.before(found, "found") | bus.rvalid,
                 ~(bus.rvalid & ~bench.before(bus.rvalid & ~bus.rready, "word_waits")) | bench.before(found, "found"))
    bench.always("answers stand", "an answer stands unchanged until the host takes it",
                 ~bench.before(bus.bvalid & ~bus.bready, "b_waits") | bus.bvalid,
                 ~bench.before(bus.rvalid & ~bus.rready, "r_waits") | bus.rvalid
                 & (bench.before(bus.rdata, "rdata") == bus.rdata), bus.bresp == 0, bus.rresp == 0)

    def acts(where: Csr, bit: int) -> Signal:
        return bench.wire(write & (address[2:] == where >> 2) & strobe[0] & data[bit],
        f"wants_{where.name.lower()}_{bit}")

    bench.always("actions", "start, reset and interrupt clear act once for a write that wants them, and only then",
                 dut.start == acts(Csr.CONTROL, 0), dut.reset == acts(Csr.CONTROL, 1),
                 dut.irq_clear == acts(Csr.IRQ_CLEAR, 0))

    # A register of the bench's own beside each kind of parameter.
    change = write & ~dut.busy
    mirror = {}
    for name, where, register in (("program", Csr.PROGRAM_LO, dut.program), ("commands", Csr.PROGRAM_COMMANDS,
    dut.commands),
                                  ("watchdog", Csr.WATCHDOG, dut.watchdog)):
        own = Signal(len(register), name=f"own_{name}", init=register.init)
        for at in range(0, len(own), 8):
            part = own[at:at + 8]
            with m.If(change & (address[2:] == where >> 2) & strobe[at // 8]):
                m.d.sync += part.eq(data[at:at + 8])
        mirror[name] = (where, register, own)
    bench.always("written", "program, commands and watchdog hold the bytes that the host wrote last while it was "
                            "not busy", *(register == own for _, register, own in mirror.values()))
    which = bench.constant(4, "which")
    number = bench.constant(5, "number")
    words = [bench.word("lengths", which), bench.word("bases", number), bench.word("limits", number)]
    was_busy = bench.before(dut.busy, "busy")
    bench.always("stand", "lengths, bases and limits stand while the device is busy", *(
        ~was_busy | (word == bench.before(word, f"word_{i}")) for i, word in enumerate(words)))
    length = words[0]
    hit = change & (address[6:] == Csr.LENGTH0 >> 6) & (address[2:6] == which)
    new = bench.before(Cat(Mux(strobe[i], data[8 * i:8 * i + 8], length[8 * i:8 * i + 8]) for i in range(2)),
                       "new_length")
    bench.always("length", "a length register takes the bytes written to it, and no others",
                 bench.first | (length == Mux(bench.before(hit, "length_hit"), new, bench.before(length,
                 "old_length"))))
    asked = Signal(csr.CSR_BITS, name="asked_address")
    with m.If(ar):
        m.d.sync += asked.eq(bus.araddr)
    bench.lemma("asked", "the address that is read is held", bench.register("read_offset") == asked,
                reading + told + found <= 1, ~((reading | told | found) & bus.rvalid))
    shows = [(asked[2:] == where >> 2, register[:32]) for where, register, _ in mirror.values()]
    shown = reduce(or_, (bench.register(f"shown_{i}") for i in range(4)))
    asks = [was_told & bench.before(meant, f"meant_{i}") for i, (meant, _) in enumerate(shows)]
    was = [bench.before(register, f"register_{i}") for i, (_, register) in enumerate(shows)]
    bench.lemma("shown", "what is read stands in registers in parts", *(
        ~each | (shown == value) for each, value in zip(asks, was)))
    bench.always("read", "a read returns what the register held two cycles after its address was accepted", *(
        ~bench.before(each, f"shows_{i}") | (bus.rdata == bench.before(value, f"value_{i}"))
        for i, (each, value) in enumerate(zip(asks, was))))
    bench.cover("data first", "a write whose data came before its address starts a launch", dut.start
                & bench.before(has_data & ~has_address, "waited"))
    bench.cover("read back", "the host reads what it wrote into commands", bus.rvalid & (bus.rdata == 0x1234)
                & (asked == Csr.PROGRAM_COMMANDS))
