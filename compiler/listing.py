"""Listings of emitted programs that people can read."""

from __future__ import annotations

from collections.abc import Iterable

from gemmule.isa import Command, disassemble

__all__ = ["listing"]


def listing(commands: Iterable[Command]) -> str:
    """One numbered line a command, ending with a newline."""
    return "".join(f"{i:5d}  {disassemble(command)}\n" for i, command in enumerate(commands))
