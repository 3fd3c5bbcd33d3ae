"""A cache of the first and the newest rows, which a drafter can keep of a text of any length (StreamingLLM, Xiao et al.
2024, with original positions)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmule.sw.kv.contiguous import ContiguousKV

__all__ = ["SinksKV"]


class SinksKV(ContiguousKV):
    """The cache of one text, of at most ``most`` rows before a pass: what is between is dropped.

    Dropping moves the newest rows, so a quarter of ``most`` is dropped at a time. A first prompt is passed whole.
    """

    def __init__(self, model: Any, room: int, *, sinks: int, most: int) -> None:
        """``sinks``: first rows that stay; ``room``: rows that a pass can see.

        Raises:
            ValueError: less than the first rows and a quarter stay.
        """
        super().__init__(model, room)
        if sinks + max(1, most // 4) >= most:
            raise ValueError(f"a cache must hold more than its {sinks} first rows and a quarter of all, not {most}")
        self.sinks, self.most = sinks, most

    def missing(self, ids: Sequence[int]) -> list[int]:
        found = super().missing(ids)
        if self.length > self.most:
            self.evict(self.sinks, self.length - self.most + self.most // 4)
        return found
