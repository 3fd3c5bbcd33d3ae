"""The SystemVerilog testbench around the device: behavioural DRAM, host access to it, checks of AXI and claims."""

from pathlib import Path

__all__ = ["CHECKED", "FST_HEADERS", "SOURCES", "TOP"]

TOP = "gemmule_tb"
"""Top module; its parameters are set by ``gemmule.sim.rtl.testbench``."""
CHECKED = ("claims", "scratchpad", "accumulator")
"""Instances that ``claims_check.sv`` looks into, each with a name of its own in the device."""
SOURCES = tuple(Path(__file__).with_name(name) for name in ("gemmule_tb.sv", "dram.sv", "claims_check.sv"))
FST_HEADERS = tuple(Path(__file__).with_name(name) for name in ("lz4.h", "zlib.h"))
"""C++ headers for simulators that write waveforms."""
