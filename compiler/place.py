"""Cutting rows into pieces, and rounding up."""

from __future__ import annotations

from gemmule.timing import ceil_div

__all__ = ["Cut", "cut_evenly", "cut_off", "round_up"]

Cut = tuple[int, int]
"""(first, count)"""


def round_up(value: int, step: int) -> int:
    """The next multiple of ``step``."""
    return ceil_div(value, step) * step


def cut_evenly(total: int, pieces: int) -> tuple[Cut, ...]:
    """Nearly equal pieces of ``total``."""
    edges = [total * i // pieces for i in range(pieces + 1)]
    return tuple((low, high - low) for low, high in zip(edges, edges[1:]))


def cut_off(total: int, size: int) -> tuple[Cut, ...]:
    """Pieces of ``size``, of which the last may be smaller."""
    return tuple((at, min(size, total - at)) for at in range(0, total, size))
