"""Watchdog: notices a memory that has stopped answering."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from gemmule.config import Config

__all__ = ["WATCHDOG_BITS", "Watchdog"]

WATCHDOG_BITS = 32


class Watchdog(wiring.Component):
    """Counts the cycles in which a transfer is due and no AXI channel transfers.

    A transfer is due while an address or data beat is offered and while an accepted burst lacks its last beat
    (reads) or its response (writes). ``expired`` rises in the ``limit``-th such cycle in a row, and stays
    while nothing transfers; limit 0: never.

    Parameters
    ----------
    config:
        Device; it bounds the outstanding bursts.

    Members
    -------
    enable: In(1)
        A launch runs; else the count is zero.
    limit: In
        Cycles.
    ar_valid, ar_ready, r_valid, r_ready, r_last, aw_valid, aw_ready, w_valid, w_ready, b_valid, b_ready: In(1)
        Handshakes of the DRAM port. Write data may go ahead of their address, which then stands offered.
    expired: Out(1)
        The launch must end.
    """

    def __init__(self, *, config: Config) -> None:
        self.config = config
        handshakes = [f"{channel}_{side}" for channel in ("ar", "r", "aw", "w", "b")
                      for side in ("valid", "ready")]
        super().__init__({
            "enable": In(1), "limit": In(WATCHDOG_BITS),
            **{name: In(1) for name in (*handshakes, "r_last")},
            "expired": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        ar, r, aw, w, b = (getattr(self, f"{channel}_valid") & getattr(self, f"{channel}_ready")
                           for channel in ("ar", "r", "aw", "w", "b"))
        reads = Signal(range(config.read_bursts + config.fetch_queue + 1))
        writes = Signal(range(config.write_bursts + 1))
        m.d.sync += [reads.eq(reads + ar - (r & self.r_last)), writes.eq(writes + aw - b)]

        due = Signal()
        silent = Signal(WATCHDOG_BITS)  # cycles before this one
        m.d.comb += [
            due.eq(self.ar_valid | self.aw_valid | self.w_valid | (reads != 0) | (writes != 0)),
            self.expired.eq(
                self.enable & due & ~(ar | r | aw | w | b) & (self.limit != 0) & (silent + 1 >= self.limit)),
        ]
        with m.If(~self.enable | ~due | ar | r | aw | w | b):
            m.d.sync += silent.eq(0)
        with m.Elif(~self.expired):
            m.d.sync += silent.eq(silent + 1)
        return m
