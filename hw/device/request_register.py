"""A register for read requests on their way to the bus."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config
from gemmule.hw.interfaces import read_request

__all__ = ["RequestRegister"]


class RequestRegister(wiring.Component):
    """Holds a read request from the cycle after it is accepted until the bus accepts it.

    What decides a request ends here, and what the bus decides begins here. Latency: 1 cycle. Throughput: one request
    per cycle. Beats pass unchanged.

    Parameters
    ----------
    config: Config

    Members
    -------
    clear: In(1)
        Drop the request, and what is offered: only when the bus has not seen any.
    offered: In(read_request)
        The requester.
    read: Out(read_request)
        Towards the bus.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        super().__init__({"clear": In(1), "offered": In(read_request(config)), "read": Out(read_request(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        offered, read = self.offered, self.read
        valid = Signal()
        m.d.comb += [
            read.req_valid.eq(valid), offered.req_ready.eq(~valid | read.req_ready),
            *(getattr(offered, name).eq(getattr(read, name)) for name in (
                "beat_valid", "beat_data", "beat_last", "beat_resp")),
        ]
        with m.If(offered.req_ready):
            m.d.sync += [valid.eq(offered.req_valid), read.req_addr.eq(offered.req_addr),
                         read.req_len.eq(offered.req_len)]
        with m.If(self.clear):
            m.d.sync += valid.eq(0)
        return m
