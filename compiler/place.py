"""Where things stand: cutting evenly, rounding up, rows one after another, and the plan that tells the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["Cursor", "Cut", "Plan", "cut_evenly", "cut_off", "number", "place_regions", "round_up"]

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


class Cursor:
    """Hands out rows one after another."""

    def __init__(self, start: int) -> None:
        self.next = start

    def take(self, rows: int) -> int:
        start = self.next
        self.next += rows
        return start


def place_regions(config: Config, groups: Sequence[Sequence[tuple[str, int]]], first: int = 0,
                  last: int | None = None) -> dict[str, int] | None:
    """First rows of named regions in rows ``first .. last - 1``: a fresh bank for each group if there are enough.

    Regions begin at multiples of ``config.preload``. None when they do not fit.
    """
    last = config.spm_rows if last is None else last
    for align in (config.spm_bank_rows, config.preload):
        found, at = {}, first
        for group in groups:
            at = round_up(at, align)
            for name, rows in group:
                found[name] = at = round_up(at, config.preload)
                at += rows
        if at <= last:
            return found
    return None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the rows of an operator are cut, and where everything stands on the device."""

    blocks: tuple[Cut, ...]
    """Blocks of rows, (first, rows), that pass through the device one after another."""
    row: Mapping[str, int] = field(default_factory=dict)
    """First scratchpad row by buffer name."""
    accumulators: tuple[int, ...]
    """First rows of equal accumulator slots."""

    def slots(self, name: str) -> tuple[int, ...]:
        """First rows of a buffer of several slots, whose names end in 0, 1, .."""
        found: list[int] = []
        while f"{name}{len(found)}" in self.row:
            found.append(self.row[f"{name}{len(found)}"])
        return tuple(found)


def number(name: str, rows: Sequence[int]) -> dict[str, int]:
    """Names of slots, as :meth:`Plan.slots` finds them."""
    return {f"{name}{i}": row for i, row in enumerate(rows)}
