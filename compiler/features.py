"""What a network needs that not every device has."""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Form, Graph, Linear
from gemmule.compiler.ir.nodes import Activation
from gemmule.config import Config

__all__ = ["check_features"]


def check_features(graph: Graph, config: Config, *, packed: bool = False) -> None:
    """Refuse what the device lacks. ``packed``: cached rows have 4 bits.

    Raises:
        CompileError: names what needs the first lacking feature of :attr:`gemmule.config.Config.features`.
    """
    for feature, what, use in _needs(graph, packed):
        if feature not in config.features:
            raise CompileError(f"{what} needs a device with {feature}, not {config.name}: {use}a configuration that "
                               f"has {feature}")


def _needs(graph: Graph, packed: bool) -> Iterator[tuple[str, str, str]]:
    """Feature, what needs it, and what to use instead."""
    if graph.attentions:
        yield "transposition", "attention, which multiplies by transposed keys,", "use "
    if any(isinstance(node, Linear) and node.bits == 4 for node in graph.nodes):
        yield "int4", "a network with int4 weights", "use int8, or "
    if packed:
        yield "int4", "a cache with rows of 4 bits", "use whole rows, or "
    for attention in graph.attentions:
        if attention.softmax:
            yield "comparison_modes", f"softmax {attention.softmax}", "use exact, or "
    if any(isinstance(node, Activation) and node.form is Form.IBERT for node in graph.nodes):
        yield "comparison_modes", "activation ibert", "use table, word, or "
