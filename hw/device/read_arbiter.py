"""Read arbiter: fetch and load share one AXI4 read port."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import axi_read, read_request

__all__ = ["ReadArbiter"]


class ReadArbiter(wiring.Component):
    """Merges two requesters into one AXI4 read manager; fetch goes first.

    No latency: a request valid in cycle x is on the AR channel in x, an R beat accepted in y is at
    its requester in y. Throughput: one request and one beat a cycle. An AR request that was
    offered stands until it is accepted, even if fetch arrives meanwhile. R is always ready:
    requesters ask only for what they can take.

    Parameters
    ----------
    config: Config
        Device configuration; its limits bound the outstanding bursts.

    Members
    -------
    fetch, load: In(read_request)
        The requesters.
    axi: Out(axi_read)
        The shared port; one ID, so beats return in request order.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({
            "fetch": In(read_request(config)),
            "load": In(read_request(config)),
            "axi": Out(axi_read(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, fetch, load, axi = self.config, self.fetch, self.load, self.axi

        locked = Signal()
        owner = Signal()  # 1: load
        choice = Signal()
        accepted = Signal()
        m.d.comb += [
            choice.eq(Mux(locked, owner, ~fetch.req_valid)),
            axi.arvalid.eq(Mux(choice, load.req_valid, fetch.req_valid)),
            axi.araddr.eq(Mux(choice, load.req_addr, fetch.req_addr)),
            axi.arlen.eq(Mux(choice, load.req_len, fetch.req_len)),
            fetch.req_ready.eq(axi.arready & ~(locked & owner)),  # whether it requests or not
            load.req_ready.eq(axi.arready & choice),
            accepted.eq(axi.arvalid & axi.arready),
        ]
        m.d.sync += [locked.eq(axi.arvalid & ~axi.arready), owner.eq(choice)]

        # One tag per burst in flight; a fetch burst holds at least one reserved queue entry.
        m.submodules.tags = tags = SyncFIFO(width=1, depth=config.read_bursts + config.fetch_queue)
        m.d.comb += [
            tags.w_en.eq(accepted),
            tags.w_data.eq(choice),
            axi.rready.eq(1),
            tags.r_en.eq(axi.rvalid & axi.rlast),
            fetch.beat_valid.eq(axi.rvalid & ~tags.r_data),
            load.beat_valid.eq(axi.rvalid & tags.r_data),
        ]
        for requester in (fetch, load):
            m.d.comb += [
                requester.beat_data.eq(axi.rdata),
                requester.beat_last.eq(axi.rlast),
                requester.beat_resp.eq(axi.rresp),
            ]
        return m
