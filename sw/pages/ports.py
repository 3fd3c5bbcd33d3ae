"""Ports of the RTL's blocks, as they declare them."""

from __future__ import annotations

from functools import cache

from amaranth.hdl import Fragment
from amaranth.lib.wiring import Member

from gemmule.config import load_config
from gemmule.hw.flow.verilog import UNITS
from gemmule.timing import Timing

__all__ = ["ports_of_block"]


@cache
def ports_of_block(block: str, preset: str = "tiny") -> dict[str, Member]:
    """Ports of an exported block, by name."""
    config = load_config(preset)
    component = UNITS[block](config, Timing.of(config))
    Fragment.get(component, None)  # Amaranth warns of components that nobody elaborates
    return dict(component.signature.members.items())
