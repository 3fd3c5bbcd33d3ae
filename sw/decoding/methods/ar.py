"""Autoregressive decoding: one token a pass."""

from __future__ import annotations

from gemmule.sw.decoding.methods.method import Method
from gemmule.sw.decoding.tree import Drafter, Tree

__all__ = ["METHOD", "Autoregressive"]


class Autoregressive(Drafter):
    """Proposes nothing: every pass commits exactly one token."""

    def propose(self, ids: list[int], budget: int) -> Tree:
        return Tree.chain(ids[-1], [])


METHOD = Method(
    name="ar",
    cuts="nothing: every token takes a pass",
    says="autoregressive, one token per pass", make=lambda request: Autoregressive())
