"""How long the parts of an import take beside each other, so that its progress can tell the time left.

Units are seconds of one 3-GHz core, roughly; only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Callable

from gemmule.compiler.ir import Embedding, Graph, Linear, Node

__all__ = ["Progress", "calibration_work", "measuring_work", "rounding_work", "silent"]

FLOAT, INTEGER = 2e-11, 6e-11
"""Of a weight and a token of a pass."""
OBSERVED = 3e-9
"""Of a number that calibration observes; of a column of a linear's input and another one with second-order rounding."""
NEAREST, SECOND_ORDER = 1.3e-7, 8e-7
"""Of a weight."""
SEARCHED = 0.05
"""Of a node's scales."""

Progress = Callable[[str, float], None]
"""Gets the name of a step, and the work that was done since it was last called."""


def silent(step: str, work: float) -> None:
    """Tell nobody."""


def _weights(node: Node) -> int:
    match node:
        case Linear():
            return node.depth * node.columns
        case Embedding():
            return node.vocab * node.columns
    return 0


def _linears(graph: Graph) -> int:
    return sum(_weights(node) for node in graph.nodes if isinstance(node, Linear))


def calibration_work(graph: Graph, tokens: int) -> float:
    """Of a pass that calibration observes."""
    return tokens * (_linears(graph) * FLOAT + sum(node.columns for node in graph.nodes) * OBSERVED)


def rounding_work(node: Node, *, second_order: bool) -> float:
    """Of a node that becomes integers."""
    return SEARCHED + _weights(node) * (SECOND_ORDER if second_order else NEAREST)


def measuring_work(graph: Graph, tokens: int, passes: int) -> float:
    """Of a pass in float beside ``passes`` of the integers."""
    return tokens * (_linears(graph) * (FLOAT + passes * INTEGER))
