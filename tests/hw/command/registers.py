"""The start of a launch: its registers are set one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.isa import NUM_BASES

__all__ = ["launch_registers"]


async def launch_registers(ctx: Any, dut: Any, port: Any, lengths: Sequence[int]) -> None:
    """``clear``, then the host's length registers at ``port`` as ``dut`` asks for them."""
    ctx.set(dut.clear, 1)
    await ctx.tick()
    ctx.set(dut.clear, 0)
    for _ in range(NUM_BASES):
        ctx.set(port, lengths[ctx.get(dut.length_index)])
        await ctx.tick()
