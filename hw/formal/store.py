"""Store: the rules of AXI on its write channels, and what the reader promises to the sender."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from gemmule.config import Config
from gemmule.hw.formal.bench import Bench
from gemmule.hw.formal.bursts import PAGE
from gemmule.hw.move.store import Store
from gemmule.hw.move.store_read import StoreReader
from gemmule.timing import Timing

__all__ = ["store_reader", "store_sender"]


def store_reader(bench: Bench, config: Config) -> None:
    """The reader, with what the splitter of bursts is proved to keep in the place of the splitter."""
    m, dut = bench.m, bench.dut(StoreReader(config=config), cut=("bursts", "walker"))
    bursts = bench.part("bursts")
    offer = Cat(bursts.address, bursts.beats, bursts.row_end, bursts.last)
    stands = bench.before(bursts.valid & ~bursts.next, "stands")
    bench.assume("bursts", "an offered burst stands until the step, and has 1 to burst_beats beats (target bursts)",
                 ~stands | bursts.valid & (bench.before(offer, "offer") == offer),
                 ~bursts.valid | (bursts.beats != 0) & (bursts.beats <= config.burst_beats))
    filled, was_busy = bench.before(dut.fill, "fill"), bench.before(dut.busy, "busy")
    bench.assume("buffers", "a buffer becomes busy in the cycle after its burst's last beat, and never otherwise",
                 (dut.busy & ~was_busy & ~filled) == 0, (filled & ~dut.busy) == 0)
    turn, buffer, beat = Signal(), bench.register("buffer"), bench.register("beat")
    bench.assume("beat by beat", "the last beat of a burst is known as such (target bursts)",
                 ~bursts.valid | (bursts.burst_over == (beat + 1 == bursts.beats)))
    with m.If(dut.fill.any()):
        m.d.sync += turn.eq(~turn)
    bench.lemma("buffer", "the two are filled in turn", buffer == turn)
    bench.lemma("beat", "inside a burst its buffer is free, and the burst is offered",
                (beat == 0) | bursts.valid & (beat < bursts.beats) & ~dut.busy.bit_select(buffer, 1) & stands,
                bench.register("inside") == (beat != 0))
    taken = Cat(bursts.valid & ((beat != 0) | ~dut.busy.bit_select(buffer, 1)),
                beat[:exact_log2(config.burst_beats)], buffer)
    asked, come = (bench.register(name)[:len(taken)] for name in ("asked", "come"))  # the facts that come first
    busy_twice = bench.before(was_busy, "busy_twice")
    bench.lemma("last write", "a write comes three cycles after its beat", asked == bench.before(taken, "taken"),
                come == bench.before(asked, "asked"), Cat(dut.write_en, dut.write_beat) == bench.before(come, "come"),
                ~asked[0] | ~was_busy.bit_select(asked[-1], 1), ~come[0] | ~busy_twice.bit_select(come[-1], 1))
    bench.always("in turn", "bursts fill the buffers in turn, only free ones",
                 (dut.fill == 0) | (dut.fill == Mux(turn, 2, 1)), (dut.fill & dut.busy) == 0)
    bench.always("free before writing", "what is written goes to a buffer that was free three cycles before",
                 ~dut.write_en | ~bench.before(busy_twice, "busy_thrice").bit_select(dut.write_beat[-1], 1))
    bench.always("length", "a described burst has as many beats as were taken for it",
                 (dut.fill == 0) | (dut.burst.beats == beat + 1))
    bench.cover("two buffers", "a burst of three beats fills the second buffer while the first is busy",
                dut.fill[1] & dut.busy[0] & (dut.burst.beats == 3))


def store_sender(bench: Bench, config: Config) -> None:
    """The sender, whatever bursts the reader brings, as long as it keeps what is proved of it above."""
    m, dut = bench.m, bench.dut(Store(config=config, timing=Timing.of(config)), cut=("reader",))
    reader, axi, register = bench.part("reader"), dut.axi, bench.register
    low, bus, most = exact_log2(config.bus_bytes), config.bus_bytes, config.burst_beats
    busy, read, full, sending = register("busy"), register("read"), register("full"), register("sending")
    turn, was_busy = Signal(), bench.before(busy, "busy")
    earlier = bench.before(was_busy, "busy_twice")
    earliest = bench.before(earlier, "busy_thrice")
    with m.If(reader.fill.any()):
        m.d.sync += turn.eq(~turn)
    offset = reader.burst.address[low:exact_log2(config.burst_bytes)]
    bench.assume("reader", "bursts fill free buffers in turn, and writes go to a buffer that was free three cycles "
                           "before (target store-reader)",
                 (reader.fill == 0) | (reader.fill == Mux(turn, 2, 1)), (reader.fill & busy) == 0,
                 ~reader.write_en | ~earliest.bit_select(reader.write_beat[-1], 1))
    bench.assume("bursts", "a burst has 1 to burst_beats beats and ends at a boundary of burst_bytes (target bursts)",
                 (reader.fill == 0) | (reader.burst.beats != 0) & (offset + reader.burst.beats <= most)
                 & (reader.burst.address[:low] == 0))

    aw, w = axi.awvalid & axi.awready, axi.wvalid & axi.wready
    aw_done, w_done, send_slot = register("aw_done"), register("w_done"), register("send_slot")
    sent_beats, outstanding = register("sent_beats"), register("outstanding")
    open_, sent, answered = Signal(8, name="begun"), Signal(8, name="complete"), Signal(8, name="answered")
    begin, end = register("begin"), register("end")
    m.d.sync += [open_.eq(open_ + begin), sent.eq(sent + end), answered.eq(answered + (axi.bvalid & axi.bready))]
    unanswered = Signal(8)
    m.d.comb += unanswered.eq(sent - answered)
    bench.assume("responses", "the memory answers a burst once, after its address and its last beat",
                 ~axi.bvalid | (unanswered != 0))

    slots = [register(f"slot_{i}") for i in range(2)]
    bits = len(slots[0])
    beats = [bench.wire(bench.fields(slot, reader.burst.shape(), "beats"), f"beats_{i}") for i,
    slot in enumerate(slots)]
    places = [bench.fields(slot, reader.burst.shape(), "address") for slot in slots]
    slot_beats = Mux(send_slot, beats[1], beats[0])
    bench.lemma("buffers", "full ones are busy, and both are sent in the order in which they were filled",
                (full & ~read) == 0, (read & ~busy) == 0, (read & ~was_busy) == 0, (full & ~earlier) == 0,
                ((busy == 3) | (busy == 0)) & (send_slot == turn)
                | (busy == Mux(send_slot, 2, 1)) & (send_slot != turn))
    bench.lemma("bursts in buffers", "they are as the reader brought them", *(
        ~busy[i] | (beats[i] != 0) & (places[i][low:exact_log2(config.burst_bytes)] + beats[i] <= most)
        & (places[i][:low] == 0) for i in range(2)))
    bench.lemma("sending", "what is sent is full; what has been sent of it",
                ~sending | full.bit_select(send_slot, 1) & earliest.bit_select(send_slot, 1),
                sending | ~aw_done & ~w_done & (sent_beats == 0),
                ~(aw_done & w_done), w_done | (sent_beats < slot_beats) | ~sending)
    bench.lemma("last beat", "after it no beat is sent", ~w_done | ((sent_beats == slot_beats)
                                                                  | (sent_beats == 0) & (slot_beats == most)))
    in_flight = Signal(8)
    m.d.comb += in_flight.eq(open_ - answered)
    bench.lemma("in flight", "what is begun and not complete is being sent",
                (open_ - sent)[:8] == sending, outstanding == in_flight, bench.part("lasts").level == outstanding,
                unanswered <= config.write_bursts)

    bench.always("address stands", "an offered address stands unchanged until it is accepted",
                 *_stands(bench, "aw", axi.awvalid, axi.awready, Cat(axi.awaddr, axi.awlen)))
    bench.always("data stand", "offered data, strobes and the last beat's mark stand unchanged until they are accepted",
                 *_stands(bench, "w", axi.wvalid, axi.wready, Cat(axi.wdata, axi.wstrb, axi.wlast)))
    bench.always("boundary", "no burst is longer than burst_bytes or crosses 4 KiB, and it is aligned to the bus",
                 ~axi.awvalid | (axi.awlen < most) & (axi.awaddr[:low] == 0)
                 & (axi.awaddr[low:exact_log2(PAGE)] + axi.awlen < PAGE // bus))
    counted, length = Signal(range(most + 1), name="beats_counted"), Signal(range(most + 1), name="beats_due")
    with m.If(w):
        m.d.sync += counted.eq(Mux(axi.wlast, 0, counted + 1))
    m.d.comb += length.eq(slot_beats)
    bench.lemma("counted", "the sender's count of beats is right", ~sending | w_done | (counted == sent_beats),
                (sending & ~w_done) | (counted == 0))
    bench.always("last", "as many data beats as the address says: the last one of them, and no other, is marked",
                 ~axi.wvalid | (axi.wlast == (counted + 1 == length)), ~axi.awvalid | (axi.awlen + 1 == length))
    ahead = Signal(8)
    addresses, lasts = Signal(8, name="addresses"), Signal(8, name="last_beats")
    m.d.sync += [addresses.eq(addresses + aw), lasts.eq(lasts + (w & axi.wlast))]
    m.d.comb += ahead.eq(addresses - lasts)
    bench.lemma("ahead", "each channel is ahead of what is complete by its part of the burst that is sent",
                addresses == (sent + aw_done)[:8], lasts == (sent + w_done)[:8])
    bench.always("channels", "address and data are never more than one burst apart",
                 (ahead == 0) | (ahead == 1) | (ahead == 255))
    bench.always("outstanding", "no more bursts than write_bursts lack their response",
                 in_flight <= config.write_bursts, (addresses - answered)[:8] <= config.write_bursts)

    # One burst, any one, from its fill to its address.
    watched, place, burst = Signal(), Signal(), Signal(bits, name="watched_burst")
    with m.If(end & (send_slot == place)):
        m.d.sync += watched.eq(0)
    with m.If(reader.fill.any() & ~watched & bench.choice(1, "watch")):
        m.d.sync += [watched.eq(1), place.eq(reader.fill[1]), burst.eq(reader.burst)]
    bench.lemma("watched", "it stands in its buffer", ~watched | (Mux(place, slots[1], slots[0]) == burst)
                & busy.bit_select(place, 1))
    bench.always("kept", "every burst of the reader is sent, in order, with its own address and length",
                 ~(axi.awvalid & watched & (send_slot == place)) | (axi.awaddr == bench.fields(
                     burst, reader.burst.shape(), "address")) & (axi.awlen + 1 == bench.fields(
                         burst, reader.burst.shape(), "beats")))
    ends, before, kind = Signal(name="answer_due"), Signal(range(config.write_bursts + 1)), Signal(name="ends_command")
    response = axi.bvalid & axi.bready
    with m.If(ends & response):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += ends.eq(0)
    with m.If(begin & ~ends & bench.choice(1, "watch_answer")):
        m.d.sync += [ends.eq(1), before.eq(outstanding - response),
                     kind.eq(bench.fields(Mux(send_slot, slots[1], slots[0]), reader.burst.shape(), "last"))]
    head = bench.register("lasts.read__addr")
    bench.lemma("answer due", "the queue of ends holds it", ~ends | (before < outstanding)
                & (bench.word("lasts.memory", (head + before)[:len(head)]) == kind))
    bench.lemma("queue", "head and tail are level apart",
                (head + outstanding)[:len(head)] == bench.register("lasts.write__addr"))
    bench.always("finish", "a command finishes with the response of its last burst, and only with that",
                 ~dut.control.finish | response, ~(ends & (before == 0) & response) | (dut.control.finish == kind))
    bench.cover("data first", "data of a burst go ahead of its address", axi.awvalid & (ahead == 255))
    bench.cover("answered", "a command of two bursts has finished", (answered == 2) & ~ends & (sent == 2))


def _stands(bench: Bench, name: str, valid: Signal, ready: Signal, payload: Cat) -> tuple[object, ...]:
    """What AXI wants of a channel's source."""
    waits = bench.before(valid & ~ready, f"{name}_waits")
    return (~waits | valid & (payload == bench.before(payload, f"{name}_payload")),)
