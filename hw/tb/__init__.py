"""The SystemVerilog testbench around the device: behavioural DRAM, host access to it, checks of AXI and claims."""

from pathlib import Path

from gemmule.csr import COUNTERS

__all__ = ["CHECKED", "FST_HEADERS", "LEAP_CYCLES", "LEAP_CYCLES_AT", "LEAP_TOTAL_AT", "LEAP_UNIT_AT",
           "LEAP_UNIT_BITS", "LOOP", "SOURCES", "TOP"]

TOP = "gemmule_tb"
"""Top module; its parameters are set by ``gemmule.sim.rtl.testbench``."""
CHECKED = ("claims", "scratchpad", "accumulator")
"""Instances that ``claims_check.sv`` looks into, each with a name of its own in the device."""
SOURCES = tuple(Path(__file__).with_name(name) for name in ("gemmule_tb.sv", "dram.sv", "claims_check.sv"))
FST_HEADERS = tuple(Path(__file__).with_name(name) for name in ("lz4.h", "zlib.h"))
"""C++ headers for simulators that write waveforms."""
LOOP = Path(__file__).with_name("main.cpp")
"""The simulator's loop in C++, with the clock."""
LEAP_CYCLES_AT, LEAP_TOTAL_AT, LEAP_UNIT_AT = 0xFF0, 0xFF4, 0xFF8
"""Where a device with leaps (``gemmule.hw.flow.leaps``) has no registers: a write leaps over cycles, or commands."""
LEAP_UNIT_BITS = 3
"""Bits of the unit below the number of its commands."""
LEAP_CYCLES = len(COUNTERS) << 16
"""Cycles of the shortest leap; a longer one is so many times that."""
