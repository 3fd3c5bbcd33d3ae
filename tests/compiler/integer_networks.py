"""Random quantised decoders of every family, straight in integers: what kernels and passes are tested with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmule.compiler.ir import (
    Activation,
    Add,
    Attention,
    Borrowed,
    DType,
    Embedding,
    Form,
    Function,
    Graph,
    Linear,
    Network,
    Node,
    Norm,
    Plane,
    Position,
    Product,
    Rope,
    Type,
    signature,
)

SMALL = 1 << 16
"""Numbers of a tensor that is always drawn."""
INT8, INT16, INT32 = (Type(dtype=dtype) for dtype in (DType.INT8, DType.INT16, DType.INT32))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a random decoder; ``family`` says which norms, positions and MLP it has."""

    family: str
    hidden: int = 24
    inner: int = 40
    layers: int = 2
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 8
    vocab: int = 61
    positions: int = 64
    bits: int = 8
    group: int = 0
    wide: bool = False
    """16 bits within the MLP."""
    prefix: int = 0
    """Constant rows in front of every sequence."""
    steps: bool = False
    """The residual's step changes from sum to sum."""

    @property
    def parallel(self) -> bool:
        """Attention and MLP read one norm, logits have a bias."""
        return self.family == "phi"

    @property
    def side_by_side(self) -> bool:
        """Attention and MLP each have a norm, both of what the block is given."""
        return self.family == "gpt_neox"

    @property
    def partly(self) -> bool:
        """Half of each head is rotated."""
        return self.parallel or self.side_by_side

    @property
    def gated(self) -> bool:
        """RMSNorm and a gate."""
        return self.family in ("llama", "qwen2", "qwen3")


class Maker:
    """Random nodes with their tensors, in order."""

    def __init__(self, sizes: Sizes, seed: int, weights: bool) -> None:
        self.sizes, self.random, self.large = sizes, np.random.default_rng(seed), weights
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}

    def add(self, node: type[Node], name: str, *, tensors: dict[str, np.ndarray], shared: dict[str, str] | None = None,
            **fields: Any) -> str:
        """A node; ``shared`` names tensors that are there already."""
        named = {role: f"{name}.{role}" for role in tensors}
        made = node(name=name, tensors=named | (shared or {}), **fields)
        for role, tensor in signature(made).tensors.items():
            if role not in named:
                continue
            value = np.asarray(tensors[role]).astype(tensor.dtype)
            assert value.shape == tensor.shape, (name, role, value.shape, tensor.shape)
            self.weights[named[role]] = value
        self.nodes.append(made)
        return name

    def ints(self, low: int, high: int, *shape: int) -> np.ndarray:
        if not self.large and np.prod(shape) > SMALL:
            return np.zeros(shape, dtype=np.int8)
        return self.random.integers(low, high + 1, shape)

    def linear(self, name: str, x: str, depth: int, columns: int, type_: Type, spread: float, bias: bool,
               **fields: Any) -> str:
        """Results with a standard deviation of about ``spread``."""
        sizes = self.sizes
        four = sizes.bits == 4
        weight = self.ints(-8, 7, columns, depth) if four else self.ints(-127, 127, columns, depth)
        deviation = (5 if four else 73) * 40 * depth ** 0.5 * (8 if four and sizes.group else 1)
        plane = fields.get("plane")
        share = 1 if plane is None else 0.4 if plane is Plane.HIGH else 0.6 / 256
        ratio = spread / deviation * share * np.exp(self.random.standard_normal(columns) / 4)
        exponent = np.floor(np.log2(ratio)).astype(np.int64)
        shift = 15 - exponent
        tensors = {"mult": np.minimum(np.rint(ratio * 2.0 ** shift), 65535), "shift": shift}
        if four:
            padded = np.pad(weight, ((0, 0), (0, depth % 2))) & 15
            tensors["weight"] = padded[:, ::2] | padded[:, 1::2] << 4
            if sizes.group:
                tensors["scales"] = self.ints(1, 15, -(-depth // sizes.group), columns)
        else:
            tensors["weight"] = weight
        if bias:
            tensors["bias"] = self.ints(-int(deviation), int(deviation), columns)
        return self.add(Linear, name, tensors=tensors, columns=columns, depth=depth, type=type_, x=x, bias=bias,
                        bits=sizes.bits, group=sizes.group if four else 0, **fields)

    def project(self, name: str, sum_name: str, x: str, inner: str, bias: bool, layer: int) -> str:
        """The MLP's last linear and its sum with the residual stream ``x``."""
        sizes, rescale = self.sizes, (layer % 3 - 1) if self.sizes.steps else 0
        adds = {"tensors": {}, "columns": sizes.hidden, "type": INT16, "layer": layer}
        if not sizes.wide:
            down = self.linear(name, inner, sizes.inner, sizes.hidden, INT32, 3000, bias, layer=layer)
            return self.add(Add, sum_name, a=x, b=down, rescale=rescale, **adds)
        high = self.linear(name + ".high", inner, sizes.inner, sizes.hidden, INT32, 3000, False, layer=layer,
                           plane=Plane.HIGH)
        x = self.add(Add, sum_name + ".high", a=x, b=high, rescale=rescale, **adds)
        shared = {role: self.nodes[-2].tensors[role] for role in ("weight", "scales") if role in self.nodes[-2].tensors}
        low = self.linear(name, inner, sizes.inner, sizes.hidden, INT32, 3000, bias, layer=layer, plane=Plane.LOW)
        node = self.nodes[-1]
        for role, tensor in shared.items():
            del self.weights[node.tensors[role]]
            node.tensors[role] = tensor
        return self.add(Add, sum_name, a=x, b=low, **adds)

    def norm(self, name: str, x: str, mean: bool, layer: int | None) -> str:
        n = self.sizes.hidden
        tensors = {"gamma": self.ints(3000, 9000, n), "scalars": np.array([17, 9, 3])}
        if mean:
            tensors["beta"] = self.ints(-1 << 20, 1 << 20, n)
        return self.add(Norm, name, tensors=tensors, columns=n, type=INT8, x=x, mean=mean, eps=1e-5, layer=layer)

    def head_norm(self, name: str, x: str, columns: int, layer: int) -> str:
        """Of each head, to int16 numbers of a deviation of about 40 * 128."""
        tensors = {"gamma": self.ints(3000, 9000, columns), "scalars": np.array([10, 9, 3])}
        return self.add(Norm, name, tensors=tensors, columns=columns, type=INT16, x=x, mean=False, eps=1e-5,
                        layer=layer, head_dim=self.sizes.head_dim)

    def rope(self, name: str, x: str, columns: int, layer: int) -> str:
        sizes = self.sizes
        fields: dict[str, Any] = {
            "columns": columns, "type": INT8, "x": x, "head_dim": sizes.head_dim, "theta": 10000.0, "layer": layer,
            "positions": sizes.positions, "turned": (sizes.head_dim // 4 * 2 or None) if sizes.partly else None}
        angle = np.outer(np.arange(sizes.positions), Rope(name=name, **fields).rates)
        tensors = {"cosine": np.rint(np.cos(angle) * 16384), "sine": np.rint(np.sin(angle) * 16384)}
        return self.add(Rope, name, tensors=tensors, **fields)

    def table(self, name: str, x: str, columns: int, layer: int | None, function: Function = Function.GELU) -> str:
        if self.sizes.wide:
            words = np.cumsum(self.ints(-120, 130, 513))
            return self.add(Activation, name, tensors={"words": words}, columns=columns, type=INT16, x=x,
                            function=function, layer=layer, form=Form.WORD)
        return self.add(Activation, name, tensors={"table": self.ints(0, 255, 256)}, columns=columns, type=INT8, x=x,
                        function=function, layer=layer)


def random_network(sizes: Sizes, seed: int, *, weights: bool = True) -> Network:
    """A network whose int8 values fill their range and whose attention neither is flat nor sees one column alone.

    Without ``weights`` large tensors are 0: only its time is wanted.
    """
    make, rope = Maker(sizes, seed, weights), sizes.family not in ("gpt2", "opt")
    bias = mean = not sizes.gated
    within = (INT16, 9000.0) if sizes.wide else (INT8, 40.0)
    x = make.add(Embedding, "embedding", tensors={
        "codes": make.ints(-127, 127, sizes.vocab, sizes.hidden), "mult": make.ints(40000, 65535, sizes.vocab),
        "shift": make.ints(8, 9, sizes.vocab)}, columns=sizes.hidden, type=INT16, vocab=sizes.vocab)
    if not rope:
        p = make.add(Position, "position", tensors={"table": make.ints(-9000, 9000, sizes.positions, sizes.hidden)},
                     columns=sizes.hidden, type=INT16, positions=sizes.positions)
        x = make.add(Add, "embedded", tensors={}, columns=sizes.hidden, type=INT16, a=x, b=p)
    width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    for i in range(sizes.layers):
        at = f"layers.{i}."
        y = make.norm(at + "norm1", x, mean, i)
        z = make.norm(at + "norm2", x, mean, i) if sizes.side_by_side else ""
        parts = []
        for name, columns in (("query", width), ("key", kv_width), ("value", kv_width)):
            turned = rope and name != "value"
            part = make.linear(at + name, y, sizes.hidden, columns, INT16 if turned else INT8,
                               40 * 128 if turned else 40, bias or sizes.family == "qwen2", layer=i)
            if turned and sizes.family == "qwen3":
                part = make.head_norm(f"{at}{name}_norm", part, columns, i)
            parts.append(make.rope(f"{at}{name}_rope", part, columns, i) if turned else part)
        share = sizes.heads // sizes.kv_heads
        scalings = {name: np.repeat(np.stack([make.ints(30000, 65535, sizes.kv_heads), shift], 1), share, 0)
                    for name, shift in (("score", make.ints(17, 18, sizes.kv_heads)),
                                        ("context", np.full(sizes.kv_heads, 15)))}
        if sizes.prefix:
            scalings |= {role: make.ints(-127, 127, sizes.prefix, kv_width) for role in ("prefix_key", "prefix_value")}
        a = make.add(Attention, at + "attention", tensors=scalings, prefix=sizes.prefix, columns=width, type=INT8,
                     query=parts[0], key=parts[1], value=parts[2], heads=sizes.heads, kv_heads=sizes.kv_heads,
                     head_dim=sizes.head_dim, scale=sizes.head_dim ** -0.5, layer=i)
        o = make.linear(at + "output", a, width, sizes.hidden, INT32, 3000, bias, layer=i)
        x = make.add(Add, at + "attended", tensors={}, columns=sizes.hidden, type=INT16, a=x, b=o, layer=i,
                     rescale=(2 - i % 4) if sizes.steps else 0)
        if not sizes.parallel:
            y = z or make.norm(at + "norm2", x, mean, i)
        if sizes.gated:
            gate = make.linear(at + "gate", y, sizes.hidden, sizes.inner, *within, bias, layer=i)
            gate = make.table(at + "activation", gate, sizes.inner, i)
            up = make.linear(at + "up", y, sizes.hidden, sizes.inner, *within, bias, layer=i)
            inner = make.add(Product, at + "product", tensors={"scale": np.array([40000, 29 if sizes.wide else 21])},
                             columns=sizes.inner, type=within[0], a=gate, b=up, layer=i)
        else:
            up = make.linear(at + "up", y, sizes.hidden, sizes.inner, *within, bias, layer=i)
            inner = make.table(at + "activation", up, sizes.inner, i)
        x = make.project(at + "down", at + "out", x, inner, bias, i)
    y = make.norm("norm", x, mean, None)
    logits = make.linear("logits", y, sizes.hidden, sizes.vocab, INT16, 6000, sizes.parallel)
    graph = Graph.model_validate({"family": sizes.family, "vocab": sizes.vocab, "positions": sizes.positions,
                                  "nodes": tuple(make.nodes), "output": logits})
    return Network(graph, make.weights)


def scaled(network: Network) -> Network:
    """The same numbers with scales about its activation functions, other ones from layer to layer."""
    steps: dict[str, float] = {}
    for node in network.graph.nodes:
        if isinstance(node, Activation):
            steps |= {node.x: 0.02 * (1 + (node.layer or 0)), node.name: 0.01 * 2 ** (node.layer or 0)}
    nodes = tuple(node.model_copy(update={"type": node.type.model_copy(update={"scale": steps[node.name]})})
                  if node.name in steps else node for node in network.graph.nodes)
    return Network(network.graph.model_copy(update={"nodes": nodes}), network.weights)


def borrowing(network: Network, depths: tuple[int, ...], seed: int, *, own: bool = False) -> Network:
    """The network with rows of another one of as many columns, normed and multiplied, added to its embeddings.

    ``own``: added to a row that it left itself; the sum is normed, multiplied, and added to the embeddings.
    """
    nodes, hidden = network.graph.nodes, network.graph.nodes[0].columns
    make = Maker(Sizes(family=network.graph.family, hidden=hidden), seed, True)
    x = nodes[0].name
    if own:
        x = make.add(Borrowed, "own", tensors={}, columns=hidden, type=INT16, depth=network.graph.layers, step=1.0,
                     own=True)
    for depth in depths:
        row = make.add(Borrowed, f"hidden{depth}", tensors={}, columns=hidden, type=INT16, depth=depth, step=1.0)
        y = make.norm(f"hidden{depth}.norm", row, False, None)
        z = make.linear(f"hidden{depth}.join", y, hidden, hidden, INT32, 9000, False)
        x = make.add(Add, f"hidden{depth}.sum", tensors={}, columns=hidden, type=INT16, a=x, b=z)
    first = [nodes[0], *make.nodes]
    if own:
        z = make.linear("join", make.norm("fused", x, False, None), hidden, hidden, INT32, 9000, False)
        x = make.add(Add, "joined", tensors={}, columns=hidden, type=INT16, a=nodes[0].name, b=z)
        first = [*make.nodes[:-1], nodes[0], make.nodes[-1]]
    rest = [node.model_copy(update={name: x for name in node.INPUTS if getattr(node, name) == nodes[0].name})
            for node in nodes[1:]]
    graph = network.graph
    made = Graph.model_validate({"family": graph.family, "vocab": graph.vocab, "positions": graph.positions,
                                 "nodes": (*first, *rest), "output": graph.output})
    return Network(made, {**network.weights, **make.weights})
