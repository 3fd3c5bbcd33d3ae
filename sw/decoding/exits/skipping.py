"""Fewer layers from token to token, the same for all texts: what SkipDecode does."""

from __future__ import annotations

from collections.abc import Callable

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.exits.early_exit import EarlyExit
from gemmule.sw.kv.depths import DepthKV
from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import Ask, Asking, Forward, LayerRange, Want

__all__ = ["Skipping"]


class Skipping(EarlyExit):
    """Each token's row goes through ranges of layers that hold those of every later token, so no key or value that a
    later one reads is ever missing.
    """

    def __init__(self, ranges: Callable[[int], list[tuple[int, int]]]) -> None:
        """``ranges``: first and number of each range of layers, by the number of the new token."""
        super().__init__()
        self.ranges = ranges

    def answers(self, cached: TextKV, rows: Rows, want: Want) -> Asking[Forward]:
        chosen = self.ranges(int(rows.positions[0]) + 1 - self.first)
        self._run.append(sum(count for _, count in chosen))
        if len(chosen) == 1:
            return (yield from cached.candidates(rows, want))
        out: Forward = yield Ask(cached.model, rows, want, DepthKV(cached, cached.length, self.turn), tuple(
            LayerRange(first=first, count=count) for first, count in chosen))
        cached.append(len(rows))
        return out
