"""Another form of activation functions for a network: the scales before and behind them follow.

In integers it begins with tables of bytes. What they cover is covered again: int16 numbers before a function reach
twice as far, so that nothing is clipped there; behind a table of words the int8 step stays; I-BERT's polynomial has
powers of two of a step of its own and no zero, so what reads it is scaled anew. Which power, a sample tells where there
is one; else its step reaches over half of what the bytes covered or more: a few large values clipped cost less than a
step too coarse for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Activation, DType, Form, Graph, Linear, Network, Node, Product, Type, activate
from gemmule.compiler.ir.integer_interpreter import int4_weights
from gemmule.compiler.ir.nodes import GELUS
from gemmule.compiler.quantize.scale import pair, to_mult_shift
from gemmule.numerics.ibert import GELU_SCALE
from gemmule.numerics.table import word_table

__all__ = ["activation_form", "with_activation"]

ROOM = 2
"""Of int16 numbers, beyond what bytes covered."""
POLYNOMIAL_STEP = GELU_SCALE * 0.2888 / 128
"""Of i_gelu_unit's result before its shift."""


def activation_form(graph: Graph) -> Form | None:
    """The form of its activation functions that have another than a table of bytes."""
    return next((node.form for node in graph.nodes if isinstance(node, Activation) and node.form), None)


def with_activation(network: Network, form: Form | None,
                    shifts: Mapping[str, int] = MappingProxyType({})) -> Network:
    """The network with another form of its activation functions, of ``ibert`` of GELU alone.

    In float, or by shape, the nodes tell it and no more. ``shifts`` of the polynomial's results, by node, where a
    sample told them.

    Raises:
        CompileError: it has no GELU for ``ibert``; its integers have another form than tables of bytes, or do not tell
            their scales.
    """
    graph = network.graph
    found = [node for node in graph.nodes if isinstance(node, Activation)]
    chosen = {node.name for node in found if form is not Form.IBERT or node.function in GELUS}
    if form and not chosen:
        function = found[0].function if found else "none"
        raise CompileError(f"activation {form} needs a network with GELU, not {function}: use table or word")
    if activation_form(graph) == form:
        return network
    if activation_form(graph) and graph.integer:
        raise CompileError(f"activation {form or 'table'} is made of tables of bytes, not of {activation_form(graph)}: "
                           "import the network again with it")
    if graph.integer and all(node.type.scale == 1.0 for node in graph.nodes):
        raise CompileError(f"activation {form} needs the network's scales, which it does not tell: import its "
                           "checkpoint again, or use table")
    nodes: dict[str, Node] = {node.name: node for node in graph.nodes}
    weights = dict(network.weights) if graph.integer else network.weights
    for name in chosen:
        nodes[name] = nodes[name].model_copy(update={"form": form})
        if form and graph.integer:
            _Rescaling(graph, nodes, weights).run(name, form, shifts.get(name))  # type: ignore[arg-type]
    made = Graph.model_validate({"family": graph.family, "vocab": graph.vocab, "positions": graph.positions,
                                 "nodes": tuple(nodes.values()), "output": graph.output})
    return Network(made, {name: weights[name] for name in made.tensors} if graph.integer else weights, network.alike)


@dataclass
class _Rescaling:
    """What a function's form changes of the nodes and tensors about it, both of which it edits."""

    graph: Graph
    nodes: dict[str, Node]
    weights: dict[str, np.ndarray]

    def run(self, name: str, form: Form, shift: int | None) -> None:
        """One function."""
        node = self.nodes[name]
        assert isinstance(node, Activation)
        before, behind = self.nodes[node.x], self.graph.readers(name)
        assert isinstance(before, Linear)
        byte, after = before.type, node.type
        if form is Form.WORD:
            step = ROOM * _one(byte) * max(abs(byte.zero - 128), abs(byte.zero + 127)) / (1 << 15)
            function = node.function
            table = word_table(lambda x: activate(function, x) + (0.5 - after.zero) * _one(after), step,
                               _one(after) / (1 << 8))
            tensors = {"words": table}
        else:
            step, peak = GELU_SCALE, (127 + after.zero) * _one(after)
            if shift is None:
                shift = max(0, math.floor(math.log2(peak / 127 / POLYNOMIAL_STEP)))
            after = Type(dtype=DType.INT8, scale=POLYNOMIAL_STEP * 2.0 ** shift)
            tensors = {"shift": np.array([shift], dtype=np.uint8)}
            for reader in behind:
                self._reader(reader.name, node.type, after)
        self._source(before.name, step)
        self.weights |= {f"{name}.{role}": tensor for role, tensor in tensors.items()}
        self.nodes[name] = node.model_copy(update={
            "type": after, "tensors": {role: f"{name}.{role}" for role in tensors}})

    def _source(self, name: str, step: float) -> None:
        """The linear before it gives int16 numbers of a step, without a zero."""
        node = self.nodes[name]
        assert isinstance(node, Linear)
        ratio = self._ratio(node)
        if node.bias and node.type.zero:
            self._put(node, "bias", np.rint(self._get(node, "bias") + node.type.zero / ratio))
        self._scale(node, ratio * _one(node.type) / step)
        self.nodes[name] = node.model_copy(update={"type": Type(dtype=DType.INT16, scale=step)})

    def _reader(self, name: str, old: Type, new: Type) -> None:
        """What reads it takes another step and no zero, which only linears with a bias had."""
        node, share = self.nodes[name], _one(new) / _one(old)
        if isinstance(node, Product):
            mult, shift = (int(v) for v in self._get(node, "scale"))
            self._put(node, "scale", np.array(pair(mult * 2.0 ** -shift * share)))
            return
        assert isinstance(node, Linear)
        if node.bias:
            self._put(node, "bias", np.rint((self._get(node, "bias") - old.zero * self._sums(node)) / share))
        self._scale(node, self._ratio(node) * share)

    def _get(self, node: Node, role: str) -> np.ndarray:
        return self.weights[node.tensors[role]]

    def _put(self, node: Node, role: str, value: np.ndarray) -> None:
        self.weights[node.tensors[role]] = value.astype(self._get(node, role).dtype)

    def _ratio(self, node: Linear) -> np.ndarray:
        return self._get(node, "mult") * 2.0 ** -self._get(node, "shift").astype(np.float64)

    def _scale(self, node: Linear, ratio: np.ndarray) -> None:
        for role, value in zip(("mult", "shift"), to_mult_shift(ratio), strict=True):
            self._put(node, role, value)

    def _sums(self, node: Linear) -> np.ndarray:
        """Of each column's weights, by their groups' scales."""
        weight = self._get(node, "weight")
        wide = (int4_weights(weight, node.depth) if node.bits == 4 else weight).astype(np.int64)
        if node.group:
            wide = wide * np.repeat(self._get(node, "scales").T.astype(np.int64), node.group, axis=1)[:, :node.depth]
        return np.asarray(wide.sum(axis=1))


def _one(type_: Type) -> float:
    assert isinstance(type_.scale, float)
    return type_.scale
