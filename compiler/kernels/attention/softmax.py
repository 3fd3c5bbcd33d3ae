"""Which exponential a softmax takes: the device's own, or one that is there for comparison."""

from __future__ import annotations

from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Attention, Graph
from gemmule.config import Config

__all__ = ["check_exponentials", "exponential"]


def exponential(node: Attention) -> dict[str, Any]:
    """The field of SOFTMAX_EXP that chooses it."""
    return {"period": node.kind} if node.kind else {}


def check_exponentials(graph: Graph, config: Config) -> None:
    """Refuse exponentials that the device lacks; raises CompileError."""
    for node in graph.attentions:
        if node.softmax and not config.comparison_modes:
            raise CompileError(f"softmax {node.softmax} needs a device with comparison_modes, not {config.name}: use "
                               "exact, or a configuration with them")
