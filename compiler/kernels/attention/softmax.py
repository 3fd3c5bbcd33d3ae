"""Which exponential a softmax takes: the device's own, or one that is there for comparison."""

from __future__ import annotations

from typing import Any

from gemmule.compiler.ir import Attention

__all__ = ["exponential"]


def exponential(node: Attention) -> dict[str, Any]:
    """The field of SOFTMAX_EXP that chooses it."""
    return {"period": node.kind} if node.kind else {}
