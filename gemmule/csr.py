"""Control and status registers: byte offsets and bits, shared by RTL, test benches and host.

Registers are 32 bits wide, little-endian, byte-writable. ``CONTROL`` and ``IRQ_CLEAR`` act on writes
and read 0; ``STATUS``, ``FAULT_INDEX`` and ``CYCLES`` ignore writes. All parameters are held over
launches and over a device reset; they must not be written while the device is busy.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

__all__ = [
    "CSR_BITS", "FAULT_SHIFT", "Control", "Csr", "Status", "base_offset", "length_offset", "limit_offset",
]

CSR_BITS = 12
"""Address bits of the register block (4 KiB)."""
FAULT_SHIFT = 8
"""``STATUS`` bits 8..11: the fault code (index into ``gemmule.resolve.FAULTS``)."""


class Csr(IntEnum):
    """Byte offsets. Arrays: ``LENGTH0 + 4 * i``, ``BASE_LO + 8 * i``, ``LIMIT_LO + 8 * i``."""

    CONTROL = 0x000
    STATUS = 0x004
    FAULT_INDEX = 0x008
    CYCLES = 0x00C
    CYCLES_HI = 0x010
    PROGRAM_LO = 0x014
    PROGRAM_HI = 0x018
    PROGRAM_COMMANDS = 0x01C
    IRQ_CLEAR = 0x020
    LENGTH0 = 0x040
    BASE_LO = 0x100
    BASE_HI = 0x104
    LIMIT_LO = 0x200
    LIMIT_HI = 0x204


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
