"""Autoregressive decoding: one token a pass."""

from __future__ import annotations

from gemmule.sw.decoding.methods.method import Method
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.device.runtime import Forward

__all__ = ["METHOD", "Autoregressive"]


class Autoregressive:
    """Proposes nothing: every pass commits exactly one token."""

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        pass

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], [])

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        pass


METHOD = Method(name="ar", make=lambda request: Autoregressive(), option=None, num_tokens=0)
