"""Control and status registers: byte offsets and bits, shared by RTL, test benches and host.

Registers are 32 bits wide, little-endian, byte-writable. ``CONTROL`` and ``IRQ_CLEAR`` act on writes
and read 0; ``STATUS``, ``FAULT_INDEX``, ``FAULT_PLACE``, ``IDENTITY``, ``CONFIGURATION``, ``CYCLES`` and the counters
ignore writes. All parameters are held over launches and over a device reset; they ignore writes while the device is
busy.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from .operations import Unit

__all__ = [
    "AFTER_RESET", "CAUSES", "CAUSE_MEANING", "COUNTERS", "COUNTER_BITS", "COUNTER_MEANING", "CSR_BITS", "FAULT_BITS",
    "FAULT_SHIFT", "IDENTITY", "READABLE", "TRAFFIC", "TRAFFIC_MEANING", "WATCHDOG_CYCLES", "WRITABLE", "Control",
    "Csr", "Status", "base_offset", "counter_offset", "length_offset", "limit_offset",
]

CSR_BITS = 12
"""Address bits of the register block (4 KiB)."""
FAULT_SHIFT = 8
"""``STATUS`` bits 8..11: the fault code (index into ``gemmule.resolve.FAULTS``)."""
FAULT_BITS = 4
"""Bits of the fault code in ``STATUS``."""
IDENTITY = 0x474D4C01
"""What ``IDENTITY`` reads: the letters GML, and version 1 of this map of registers."""


CAUSES = ("busy", "dram", "empty", "waiting", "ports")
"""What a unit does in a cycle (docs/timing.md, section Counters)."""
CAUSE_MEANING = {
    "busy": "a command is in flight (load and store: and data moves)",
    "dram": "load and store: a command is in flight, but no data moves",
    "empty": "no command is in flight or in the queue",
    "waiting": "the head of the queue waits for commands of other units",
    "ports": "the head waits for a port that another stream holds, or another unit issued in this cycle",
}
TRAFFIC = (
    "program_bytes", "load_bytes", "store_bytes", "program_bursts", "load_bursts", "store_bursts",
)
"""What crossed the DRAM bus: whole beats in bytes, and bursts."""
TRAFFIC_MEANING = {
    "program_bytes": "bytes of whole bus beats that fetch requested for commands",
    "load_bytes": "bytes of whole bus beats that the load unit requested",
    "store_bytes": "bytes of whole bus beats that the store unit sent",
    "program_bursts": "read bursts of fetch",
    "load_bursts": "read bursts of the load unit",
    "store_bursts": "write bursts of the store unit",
}
"""A read counts when its request is accepted, a write when it is sent."""
COUNTERS = tuple(
    f"{unit.label}_{cause}" for unit in Unit for cause in CAUSES) + TRAFFIC
"""Performance counters in the order of their registers."""
COUNTER_MEANING = {
    f"{unit.label}_{cause}": f"{unit.label}: cycles in which {CAUSE_MEANING[cause]}"
    for unit in Unit for cause in CAUSES
} | TRAFFIC_MEANING
"""What each counter counts, in the order of :data:`COUNTERS`."""
COUNTER_BITS = 48
WATCHDOG_CYCLES = 1 << 20
"""Value of ``WATCHDOG`` after power-up."""


class Csr(IntEnum):
    """Byte offsets. Arrays: ``LENGTH0 + 4 * i``, ``BASE_LO + 8 * i``, ``LIMIT_LO + 8 * i``, ``COUNTER_LO + 8 * i``."""

    CONTROL = 0x000
    STATUS = 0x004
    FAULT_INDEX = 0x008
    CYCLES = 0x00C
    CYCLES_HI = 0x010
    PROGRAM_LO = 0x014
    PROGRAM_HI = 0x018
    PROGRAM_COMMANDS = 0x01C
    IRQ_CLEAR = 0x020
    WATCHDOG = 0x024
    """Cycles without a bus transfer, while one is due, after which the launch ends with a fault; 0: never."""
    FAULT_PLACE = 0x028
    """Place in the image of the command that faulted."""
    IDENTITY = 0x02C
    """Reads :data:`IDENTITY`."""
    CONFIGURATION = 0x030
    """Reads ``gemmule.config.Config.identity``: programs compiled for another one do not run here."""
    LENGTH0 = 0x040
    BASE_LO = 0x100
    BASE_HI = 0x104
    LIMIT_LO = 0x200
    LIMIT_HI = 0x204
    COUNTER_LO = 0x300
    COUNTER_HI = 0x304


WRITABLE = frozenset({
    Csr.CONTROL, Csr.IRQ_CLEAR, Csr.PROGRAM_LO, Csr.PROGRAM_HI, Csr.PROGRAM_COMMANDS, Csr.WATCHDOG, Csr.LENGTH0,
    Csr.BASE_LO, Csr.BASE_HI, Csr.LIMIT_LO, Csr.LIMIT_HI,
})
"""Registers that take writes; the others ignore them."""
READABLE = frozenset(Csr) - {Csr.CONTROL, Csr.IRQ_CLEAR}
"""Registers that show something; the others read 0."""
AFTER_RESET = dict.fromkeys(Csr, 0) | {Csr.WATCHDOG: WATCHDOG_CYCLES, Csr.IDENTITY: IDENTITY}
"""What a register reads after a hardware reset; ``CONFIGURATION`` reads the device's. Bases, limits and lengths are
memories: this is their value after power-up."""


class Control(IntFlag):
    """Bits of ``CONTROL``."""

    START = 1
    RESET = 2
    """Clears queues, counters, status and faults. With AXI traffic outstanding, reset the bus too."""


class Status(IntFlag):
    """Bits of ``STATUS``."""

    BUSY = 1
    DONE = 2
    """From the end of a launch to the next start."""


def length_offset(index: int) -> int:
    """Length register ``index`` (16 bits); number 0 reads 65535 and ignores writes."""
    return Csr.LENGTH0 + 4 * index


def base_offset(index: int) -> int:
    """Low word of base register ``index``; the high word follows."""
    return Csr.BASE_LO + 8 * index


def limit_offset(index: int) -> int:
    """Low word of limit register ``index`` (bytes from the base); the high word follows."""
    return Csr.LIMIT_LO + 8 * index


def counter_offset(name: str) -> int:
    """Low word of a performance counter of :data:`COUNTERS`; the high word follows."""
    return Csr.COUNTER_LO + 8 * COUNTERS.index(name)
