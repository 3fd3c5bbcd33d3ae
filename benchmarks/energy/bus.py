"""A host and a DRAM at the ports of a device of gates: one launch from reset to its interrupt."""

from __future__ import annotations

from collections import deque

import numpy as np

from benchmarks.energy.gates import Gates
from gemmule.config import Config
from gemmule.csr import Control, Csr, base_offset, length_offset, limit_offset
from gemmule.sim.launch import Launch

__all__ = ["run_launch"]

LATENCY = 30
"""Cycles of the DRAM from a request to its first beat; requests are served in order."""
WATCHDOG = 100_000
PATIENCE = 50


def _writes(case: Launch) -> list[tuple[int, int]]:
    """Register writes of a launch, without those of zero, which registers hold already; the start last."""
    writes = [(int(Csr.PROGRAM_LO), case.program), (int(Csr.PROGRAM_COMMANDS), len(case.image) // 32)]
    writes += [(length_offset(i), int(value)) for i, value in enumerate(case.lengths) if i]
    for offset, values in ((base_offset, case.bases), (limit_offset, case.limits)):
        writes += [(offset(i), int(value) & 0xFFFFFFFF) for i, value in enumerate(values)]
    return [(int(offset), value) for offset, value in writes if value] + [(int(Csr.CONTROL), int(Control.START))]


class _Dram:
    """In-order reads and writes, side by side; a beat a cycle."""

    def __init__(self, content: np.ndarray, bus: int) -> None:
        self.words = content.copy().reshape(-1, bus)
        self.bus = bus
        self.reads: deque[tuple[int, int]] = deque()
        self.writes: deque[int] = deque()
        self.wait = self.responses = self.write_at = 0
        self.read_beats = self.write_beats = 0

    def edge(self, device: Gates) -> dict[str, int]:
        """What the device's outputs before a clock edge do, and the inputs that it sees from then on."""
        if device.read("m_axi_arvalid"):
            self.reads.append((device.read("m_axi_araddr") // self.bus, device.read("m_axi_arlen") & 63))
        if device.read("m_axi_awvalid"):
            self.writes.append(device.read("m_axi_awaddr") // self.bus)
        if device.read("m_axi_wvalid"):
            data, strobes = device.read("m_axi_wdata"), device.read("m_axi_wstrb")
            for i in range(self.bus):
                if strobes >> i & 1:
                    self.words[self.writes[0] + self.write_at, i] = data >> 8 * i & 255
            self.write_at += 1
            self.write_beats += 1
            if device.read("m_axi_wlast"):
                self.writes.popleft()
                self.write_at = 0
                self.responses += 1
        shown = {"m_axi_rvalid": 0, "m_axi_bvalid": int(self.responses > 0)}
        self.responses -= shown["m_axi_bvalid"]
        if self.reads:
            if self.wait < LATENCY:
                self.wait += 1
            else:
                word, left = self.reads[0]
                self.reads[0] = word + 1, left - 1
                data = int.from_bytes(self.words[word].tobytes(), "little")
                shown |= {"m_axi_rvalid": 1, "m_axi_rdata": data, "m_axi_rlast": int(left == 0)}
                self.read_beats += 1
                if left == 0:
                    self.reads.popleft()
                    self.wait = LATENCY // 2 if self.reads else 0
        return shown


def run_launch(device: Gates, case: Launch, config: Config) -> tuple[int, np.ndarray, tuple[int, int]]:
    """From reset to the interrupt; the device counts from the start on.

    Returns:
        cycles from the start to the interrupt; the DRAM's content, uint8; bits read and written.

    Raises:
        ValueError: no interrupt, or registers that do not answer.
    """
    content = case.dram.copy()
    content[case.program:case.program + len(case.image)] = np.frombuffer(case.image, dtype=np.uint8)
    dram = _Dram(content, config.bus_bytes)
    steady = {"m_axi_arready": 1, "m_axi_awready": 1, "m_axi_wready": 1, "s_axil_bready": 1, "s_axil_rready": 1,
              "s_axil_wstrb": 15}
    device.step({"rst": 1} | steady)
    for _ in range(4):
        device.step({})
    device.step({"rst": 0})
    for offset, value in _writes(case):
        device.step({"s_axil_awaddr": offset, "s_axil_wdata": value, "s_axil_awvalid": 1, "s_axil_wvalid": 1})
        waiting = {"s_axil_awvalid": "s_axil_awready", "s_axil_wvalid": "s_axil_wready"}
        for _ in range(PATIENCE):
            taken = {valid: 0 for valid, ready in waiting.items() if device.read(ready)}
            device.step(taken)
            waiting = {valid: ready for valid, ready in waiting.items() if valid not in taken}
            if not waiting:
                break
        else:
            raise ValueError(f"register {offset:#x} takes no write")
    device.forget()
    while not device.read("irq"):
        device.step(dram.edge(device))
        if device.cycles > WATCHDOG:
            raise ValueError(f"no interrupt after {WATCHDOG} cycles")
    bits = 8 * config.bus_bytes
    return device.cycles, dram.words.reshape(-1), (bits * dram.read_beats, bits * dram.write_beats)
