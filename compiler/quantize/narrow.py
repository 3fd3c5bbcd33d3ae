"""A network with int8 weights as one with int4 weights, from its integers alone: no float checkpoint, no calibration.

Scales of activations stay as they are. Rounding is to the nearest code, since what a second-order one needs, the
inputs' products, is not in the network; ``gemmule import --bits int4`` has it and is closer to float.
"""

from __future__ import annotations

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Linear, Network, Node
from gemmule.compiler.quantize.scale import to_mult_shift
from gemmule.compiler.quantize.weights import codes, packed

__all__ = ["NARROW_GROUP", "narrowed"]

NARROW_GROUP = 32
"""Rows of depth that share a scale."""


def narrowed(network: Network, group: int = NARROW_GROUP, *, head: bool = False) -> Network:
    """The same network with int4 weights by ``group``; without ``head`` the logits' linear stays int8, as in
    quantising.

    Raises:
        CompileError: it is no network in integers, or has int4 weights already.
    """
    graph = network.graph
    linears = [node for node in graph.nodes if isinstance(node, Linear)]
    if not graph.integer or any(node.bits != 8 for node in linears):
        raise CompileError("int4 weights are made of a network with int8 weights, not of this one: import it again "
                           "with --bits int4")
    weights, nodes = dict(network.weights), list[Node]()
    whole: dict[str, dict[str, str]] = {}
    """Names of a linear's tensors, by that of its weights before."""
    for node in graph.nodes:
        if not isinstance(node, Linear) or (node.name == graph.output and not head):
            nodes.append(node)
            continue
        tensors = _narrow(network, node, group)
        names = {role: f"{node.name}.{role}" for role in tensors}
        shared = whole.setdefault(node.tensors["weight"], names)  # the planes of an input have the same weights
        names |= {role: shared[role] for role in ("weight", "scales") if role in names}
        weights |= {names[role]: np.ascontiguousarray(tensor) for role, tensor in tensors.items()}
        nodes.append(node.model_copy(update={"tensors": names, "bits": 4, "group": group}))
    made = Graph.model_validate({"family": graph.family, "vocab": graph.vocab, "positions": graph.positions,
                                 "nodes": tuple(nodes), "output": graph.output})
    return Network(made, {name: weights[name] for name in made.tensors})


def _narrow(network: Network, node: Linear, group: int) -> dict[str, np.ndarray]:
    """``weight8 ~ codes * step * scales``; the step goes into the requantisation, and out of the bias."""
    wide = network.tensor(node, "weight").astype(np.int64)
    found = codes(wide, np.ones(node.depth), None, bits=4, group=group)
    ratio = network.tensor(node, "mult") * 2.0 ** -network.tensor(node, "shift").astype(np.float64)
    mult, shift = to_mult_shift(ratio * found.step)
    tensors = {"weight": packed(found.codes), "mult": mult.astype(np.uint16), "shift": shift.astype(np.uint8)}
    if found.scales is not None:
        tensors["scales"] = found.scales
    if node.bias:
        zero = network.graph.by_name[node.x].type.zero  # of a lopsided input, which the bias makes up for
        real = (network.tensor(node, "bias") - zero * wide.sum(axis=1)) / found.step
        tensors["bias"] = np.rint(real + zero * found.sums(group)).astype(np.int32)
    return tensors
