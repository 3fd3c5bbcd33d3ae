"""The read arbiter: offered requests stand, beats go to whoever asked for them."""

from __future__ import annotations

from amaranth.hdl import Cat, Mux, Signal

from gemmule.config import Config
from gemmule.hw.device.read_arbiter import ReadArbiter
from gemmule.hw.formal.bench import Bench

__all__ = ["read_arbiter"]


def read_arbiter(bench: Bench, config: Config) -> None:
    """One burst, any one, is watched from its request to its last beat."""
    m, dut = bench.m, bench.dut(ReadArbiter(config=config))
    axi, most = dut.axi, config.read_bursts + config.fetch_queue
    last = axi.rvalid & axi.rlast
    for name, side in (("fetch", dut.fetch), ("load", dut.load)):
        request = Cat(side.req_addr, side.req_len)
        stands = bench.before(side.req_valid & ~side.req_ready, f"{name}_waits")
        bench.assume(f"{name} stands", f"a request of {name} stands until it is accepted (target load-requests, fetch)",
                     ~stands | side.req_valid & (bench.before(request, f"{name}_request") == request))
    level = Signal(range(most + 2), name="bursts")
    bench.assume("beats", "the memory answers only what was requested", ~axi.rvalid | (level != 0))
    bench.assume("limit", "both together have no more bursts in flight than they may (target load-requests, fetch)",
                 ~axi.arvalid | (level < most))

    accepted = axi.arvalid & axi.arready
    m.d.sync += level.eq(level + accepted - last)
    watched, before, owner = Signal(), Signal(range(most + 1)), Signal()
    with m.If(watched & last):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += watched.eq(0)
    with m.If(accepted & ~watched & bench.choice(1, "watch")):
        m.d.sync += [watched.eq(1), before.eq(level - last), owner.eq(dut.load.req_valid & dut.load.req_ready)]

    tags = bench.part("tags")
    consume, produce = bench.register("tags.consume"), bench.register("tags.produce")
    place = Signal(range(2 * most))
    m.d.comb += place.eq(consume + before)
    slot = Mux(place < most, place, place - most)
    bench.lemma("tags", "one for each burst in flight", tags.level == level, consume < most, produce < most,
                (consume + level == produce) | (consume + level == produce + most))
    bench.lemma("watched", "its tag stands where it was written", ~watched | (before < level)
                & (bench.word("tags.storage", slot[:len(consume)]) == owner))
    waits = bench.before(axi.arvalid & ~axi.arready, "waits")
    request = Cat(axi.araddr, axi.arlen)
    choice = bench.before(bench.register("choice"), "choice")
    locked, own = bench.register("locked"), bench.register("owner")
    bench.lemma("locked", "the owner of a request that stands still has it", locked == waits, ~locked | (own == choice),
                ~locked | Mux(own, dut.load.req_valid, dut.fetch.req_valid),
                ~locked | (bench.before(request, "before") == Mux(own, Cat(dut.load.req_addr, dut.load.req_len),
                                                                  Cat(dut.fetch.req_addr, dut.fetch.req_len))))
    bench.always("stands", "an offered address stands unchanged until it is accepted, whoever asks meanwhile",
                 ~waits | axi.arvalid & (bench.before(request, "request") == request))
    bench.always("one", "an accepted request is that of one requester, which sees it accepted",
                 ~accepted | ((dut.fetch.req_valid & dut.fetch.req_ready) ^ (dut.load.req_valid & dut.load.req_ready)),
                 accepted | ~(dut.fetch.req_valid & dut.fetch.req_ready) & ~(dut.load.req_valid & dut.load.req_ready),
                 ~accepted | (request == Mux(dut.load.req_valid & dut.load.req_ready,
                                             Cat(dut.load.req_addr, dut.load.req_len),
                                             Cat(dut.fetch.req_addr, dut.fetch.req_len))))
    bench.always("room", "there is a tag for every burst that may be in flight", tags.w_rdy | ~accepted)
    now = watched & (before == 0) & axi.rvalid
    bench.always("matched", "a burst's beats go to whoever asked for it, in the order of the requests",
                 ~now | (dut.load.beat_valid == owner) & (dut.fetch.beat_valid == ~owner))
    bench.cover("both", "a watched burst of load ends behind one of fetch and before another", now & owner & last
                & (level == 2) & bench.before(dut.fetch.beat_valid & dut.fetch.beat_last, "fetch_ends"))
    bench.cover("locked", "load's request stands while fetch asks", waits & locked & own & dut.fetch.req_valid)
