"""The device: registers and core behind flat ports with fixed names."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from gemmule.config import Config
from gemmule.hw.device.core import TRACE_BITS, Core
from gemmule.hw.device.csr import CsrBlock, axi_lite
from gemmule.hw.interfaces import axi_read, axi_write
from gemmule.timing import Timing

__all__ = ["Gemmule"]


def _flat(prefix: str, signature: wiring.Signature) -> dict[str, wiring.Member]:
    return {f"{prefix}_{name}": member for name, member in signature.members.items()}


class Gemmule(Component):
    """The whole device with standard flat ports.

    Parameters
    ----------
    config:
        Device.
    timing:
        Constants; those of ``config`` by default.
    units:
        Stands in for the units in tests (``hw/device/units.py``).

    Members
    -------
    s_axil_*:
        AXI4-Lite subordinate: registers (``gemmule/csr.py``).
    m_axi_*:
        AXI4 manager: one ID, INCR bursts of full-width beats.
    irq: Out(1)
        Level; from the end of a launch until cleared or the next start.
    trace_start, trace_issue, trace_finish: Out
        Start strobe (cycle 0); bit u: a command of unit u issues, finishes.
    """

    def __init__(self, *, config: Config, timing: Timing | None = None,
                 units: Component | None = None) -> None:
        self.config = config
        self.core = Core(config=config, timing=timing, units=units)
        self.csr = CsrBlock(config=config)
        constants = {"id": 1, "size": 3, "burst": 2, "cache": 4, "prot": 3, "lock": 1, "qos": 4}
        super().__init__({
            **_flat("s_axil", axi_lite().flip()),
            **_flat("m_axi", axi_read(config)),
            **_flat("m_axi", axi_write(config)),
            **{f"m_axi_{channel}{name}": Out(bits)
               for channel in ("ar", "aw") for name, bits in constants.items()},
            "m_axi_rid": In(1), "m_axi_bid": In(1),
            "irq": Out(1),
            "trace_start": Out(1), "trace_issue": Out(TRACE_BITS), "trace_finish": Out(TRACE_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        reset = Signal()
        core, csr = self.core, self.csr
        m.submodules.csr = csr
        m.submodules.core = ResetInserter(reset)(core)
        m.d.sync += reset.eq(csr.reset)

        def attach(prefix: str, inner: wiring.PureInterface, inputs: wiring.Flow) -> None:
            for name, member in inner.signature.members.items():
                outer, port = getattr(self, f"{prefix}_{name}"), getattr(inner, name)
                m.d.comb += port.eq(outer) if member.flow == inputs else outer.eq(port)

        attach("s_axil", csr.bus, In)
        attach("m_axi", core.read, In)
        attach("m_axi", core.write, In)
        for channel in ("ar", "aw"):
            m.d.comb += [
                getattr(self, f"m_axi_{channel}size").eq(ceil_log2(self.config.bus_bytes)),
                getattr(self, f"m_axi_{channel}burst").eq(1),  # INCR
                getattr(self, f"m_axi_{channel}cache").eq(0b0011),  # normal, not cacheable, bufferable
            ]
        m.d.comb += [
            core.request.eq(csr.start),
            *(getattr(core, name).eq(getattr(csr, name)) for name in (
                "irq_clear", "program", "commands", "length", "base", "limit", "watchdog")),
            csr.length_index.eq(core.length_index), csr.base_index.eq(core.base_index),
            core.counter_index.eq(csr.counter_index),
            *(getattr(csr, name).eq(getattr(core, name)) for name in (
                "busy", "done", "code", "index", "place", "cycles", "counter")),
            self.irq.eq(core.irq),
            self.trace_start.eq(core.start),
            self.trace_issue.eq(core.issue),
            self.trace_finish.eq(core.finish),
        ]
        return m
