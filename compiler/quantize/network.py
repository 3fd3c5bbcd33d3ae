"""A float network in integers: every constant that the device uses is fixed here.

Scales are static: activations by calibration, weights by column or group, keys, values and queries by KV head, the
residual stream one for all that sums join, or one a layer.

Where norms stand in that stream (post-norm) what linears read of them has factors of its own if ranges were evened out;
else a power of two of the stream's step, and both widths come from one set of factors. Ranges around an activation
function are lopsided: they have zeros, which its table and the biases around it take up.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import (
    RESCALE_BITS,
    Activation,
    Add,
    Attention,
    Borrowed,
    DType,
    Embedding,
    Form,
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
    residuals,
)
from gemmule.compiler.quantize.activation import POLYNOMIAL_STEP, activation_form, with_activation
from gemmule.compiler.quantize.prefix import with_prefix
from gemmule.compiler.quantize.rotate import can_rotate, rotated
from gemmule.compiler.quantize.scale import MULT_MAX, pair, to_mult_shift
from gemmule.compiler.quantize.smooth import smooth
from gemmule.compiler.quantize.steps import (
    activation_step,
    doublings,
    head_steps,
    int8_step,
    lopsided_activation,
    lopsided_step,
    word_step,
)
from gemmule.compiler.quantize.taps import Taps, observe
from gemmule.compiler.quantize.weights import codes, packed
from gemmule.compiler.quantize.work import Progress, rounding_work, silent
from gemmule.numerics import norm_fraction, saturate

__all__ = ["Options", "Quantized", "quantize_network"]

INT16_MAX, INT32_MAX = (1 << 15) - 1, (1 << 31) - 1
ROPE_BITS = 7
"""Fraction bits that a rotation rounds away."""
CONTEXT_BITS = 12
"""A context's step is at most so many bits finer than its values'."""
IDLE = 0.5
"""A column of a linear whose products stay below so many steps of its output is 0."""
IDLE_RATIO = 2.0 ** -8
"""Step of its bias in steps of the output."""
RESIDUAL_ROOM, INNER_ROOM, LOGIT_ROOM = 1.25, 1.25, 1.5
"""Room beyond the largest value seen."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How weights and activations become integers."""

    bits: Literal[4, 8] = 8
    group: int = 32
    """Rows of depth that share an int4 scale; 0: one a column."""
    method: Literal["nearest", "second-order"] = "nearest"
    smooth: bool = True
    seed: int = 0
    prefix: tuple[int, ...] = ()
    """Tokens whose keys and values stand in front of every sequence, as constants."""
    rotate: bool = False
    """Turn the residual stream, where the network allows it, so that no channel stands out."""
    residual: Literal["one", "layer"] = "one"
    """Steps of the residual stream: one, or one a layer, a power of two apart."""
    inner: Literal[8, 16] = 8
    """Bits of an MLP's inner values: before and behind its function, and of its product."""
    down: Literal[4, 8] | None = None
    """Bits of the weights behind an MLP's inner values; None: ``bits``."""


@dataclass(frozen=True)
class Quantized:
    """A network in integers, and the float one that it stands for (ranges evened out, the same function)."""

    network: Network
    reference: Network


def quantize_network(network: Network, windows: np.ndarray, options: Options, progress: Progress = silent,
                     feed: Mapping[str, np.ndarray] = MappingProxyType({})) -> Quantized:
    """Quantise with calibration tokens [windows, length].

    The logits' linear stays int8 with ``bits`` 4: it is a small share of a decoder's weights and decides its tokens.
    Equal inputs and options give equal bytes. ``feed``: rows of another network that this one reads at each token of
    the windows, by node  # float32 [windows * length, columns]

    Raises:
        CompileError: tokens that the network does not have; scales that the device cannot express.
    """
    if options.inner == 16 and (form := activation_form(network.graph)):
        raise CompileError(f"16 bits within the MLP have a table of words as their activation, not {form}: use table")
    if options.inner == 16 and network.graph.encoder:
        raise CompileError("16 bits within the MLP are for decoders, not for an encoder: take 8")
    windows = np.atleast_2d(np.asarray(windows, dtype=np.int64))
    if windows.size == 0 or windows.min() < 0 or windows.max() >= network.graph.vocab:
        raise CompileError(f"calibration tokens must be from 0 to {network.graph.vocab - 1} and not empty")
    windows = windows[:, :network.graph.positions - len(options.prefix)]
    if options.prefix:
        network = with_prefix(network, options.prefix)
    if options.rotate and can_rotate(network.graph):
        network = rotated(network, options.seed)
    if options.smooth:
        network = smooth(network, observe(network, windows[:max(1, len(windows) // 2)], options.seed,
                                          progress=progress))
    taps = observe(network, windows, options.seed, grams=options.method == "second-order", progress=progress, feed=feed)
    made = _Quantizer(network, taps, options, progress).run()
    if options.inner == 16:
        return Quantized(made, network)
    shifts = {node.name: doublings(taps.sample(node.name), taps.peak(node.name), POLYNOMIAL_STEP)
              for node in network.graph.nodes if isinstance(node, Activation) and node.form is Form.IBERT}
    return Quantized(with_activation(made, activation_form(network.graph), shifts), network)


class _Quantizer:
    def __init__(self, network: Network, taps: Taps, options: Options, progress: Progress) -> None:
        self.network, self.graph, self.taps, self.options = network, network.graph, taps, options
        self.progress = progress
        self.nodes: list[Node] = []
        self.weights: dict[str, np.ndarray] = {}
        self.stream = self._stream()
        self.tables: dict[str, np.ndarray] = {}
        """Byte tables by activation."""
        self.angles: dict[Hashable, str] = {}
        """The first rotation by its base, positions and columns of a head."""
        self.words: dict[str, np.ndarray] = {}
        """Word tables by activation."""
        self.doubled: dict[str, int] = {}
        """Norms that share their factors with a wide twin: their step is the twin's, doubled so often."""
        self.partial: dict[str, str] = {}
        """Sums of which a high plane's product is already part: what they then go on from."""
        self.types = self._types()

    def run(self) -> Network:
        """The network in integers."""
        for node in self.graph.nodes:
            self._node(node)
            self.progress(f"rounding {node.name}", rounding_work(
                node, second_order=self.options.method == "second-order"))
        graph = Graph.model_validate({
            "family": self.graph.family, "vocab": self.graph.vocab, "positions": self.graph.positions,
            "nodes": tuple(self.nodes), "output": self.graph.output})
        return Network(graph, self.weights)

    # -- types

    def _types(self) -> dict[str, Type]:
        """The type of every value."""
        found: dict[str, Type] = {}
        for node in self.graph.nodes:
            if node.name in self.stream:
                found[node.name] = Type(dtype=DType.INT16, scale=self.stream[node.name])
            elif isinstance(node, Borrowed):
                found[node.name] = Type(dtype=DType.INT16, scale=node.step)
            elif isinstance(node, Product | Activation) and self.options.inner == 16:
                found[node.name] = self._int16(node.name)
            elif isinstance(node, Activation) and self._lopsided(node):
                step, zero = lopsided_step(self.taps.sample(node.name), *self.taps.ranges[node.name])
                found[node.name] = Type(dtype=DType.INT8, scale=step, zero=zero)
            elif isinstance(node, Norm | Attention | Product | Activation) and not _of_heads(node):
                found[node.name] = self._int8(node.name)
        for wide, narrow in self.graph.wide_norms.items():
            found[narrow] = Type(dtype=DType.INT8, scale=self._narrow_step(wide, narrow))
        for node in self.graph.nodes:
            if isinstance(node, Activation) and self.options.inner == 16:
                found[node.x] = self._before_words(node, found[node.name])
            elif isinstance(node, Activation):
                found[node.x] = self._before(node, found[node.name])
            elif isinstance(node, Attention):
                share = node.heads // node.kv_heads
                for name, heads in zip(node.inputs, (share, 1, 1), strict=True):
                    steps = head_steps(self.taps.sample(name), self.taps.largest[name], node.head_dim, heads)
                    found[name] = Type(dtype=DType.INT8, scale=tuple(map(float, steps)))
                # Where a sink whose value is 0 takes all attention, nothing is left to resolve.
                least = max(_all(found[node.value])) * 2.0 ** -CONTEXT_BITS
                found[node.name] = Type(dtype=DType.INT8, scale=max(_one(found[node.name]), least))
        for node in self.graph.nodes:
            if isinstance(node, Rope):
                scales = _all(found[node.name])
                found[node.x] = Type(dtype=DType.INT16, scale=tuple(step * 2.0 ** -ROPE_BITS for step in scales))
        for node in self.graph.nodes:
            if isinstance(node, Linear) and node.name not in found:
                readers = self.graph.readers(node.name)
                if node.name == self.graph.output:
                    found[node.name] = Type(
                        dtype=DType.INT16, scale=LOGIT_ROOM * (self.taps.peak(node.name) or 1.0) / INT16_MAX)
                elif all(isinstance(reader, Add) for reader in readers):
                    found[node.name] = Type(dtype=DType.INT32, scale=self.stream[readers[0].name])
                elif self.options.inner == 16 and any(isinstance(reader, Product) for reader in readers) or any(
                        _of_heads(reader) for reader in readers):
                    found[node.name] = self._int16(node.name)
                else:
                    found[node.name] = self._int8(node.name)
        return found

    def _stream(self) -> dict[str, float]:
        """The step of each value of the residual stream: one for all that sums join, so of a decoder's the whole.

        A norm begins another one, on the scale of the sum that reads it: it divides by whatever its input's is. With a
        step a layer, a decoder's are powers of two times that of its embeddings.
        """
        if self.options.residual == "layer" and not self.graph.encoder and not self.graph.wide_norms:
            return self._layered_stream()
        joined: dict[str, set[str]] = {}
        peaks: dict[str, float] = {}
        for node in self.graph.nodes:
            if isinstance(node, Embedding | Position | Add) or node.name in self.graph.wide_norms or _own(node):
                joined[node.name] = {node.name}
                peaks[node.name] = self.taps.peak(node.name)
            if isinstance(node, Embedding | Position):  # every token's counts, seen in calibration or not
                peaks[node.name] = max(peaks[node.name], float(np.abs(self.network.tensor(node, "table")).max()))
            if isinstance(node, Add):
                joined[node.name] |= set().union(*(joined.get(name, set()) for name in node.inputs))
                joined |= dict.fromkeys(joined[node.name], joined[node.name])
        for node in filter(_own, self.graph.nodes):  # an earlier pass left it, on the stream's step
            group = joined[node.name] | joined[residuals(self.graph)[-1]]
            joined |= dict.fromkeys(group, group)
        return {name: RESIDUAL_ROOM * max(peaks[other] for other in group) / INT16_MAX
                for name, group in joined.items()}

    def _layered_stream(self) -> dict[str, float]:
        """The residual's step by value: of each layer as large as its sums need."""
        layer_of: dict[str, int | None] = {}
        peaks: dict[int | None, float] = {}
        for node in self.graph.nodes:
            if isinstance(node, Embedding | Position | Add):
                layer_of[node.name] = node.layer
                peak = self.taps.peak(node.name)
                if not isinstance(node, Add):
                    peak = max(peak, float(np.abs(self.network.tensor(node, "table")).max()))
                peaks[node.layer] = max(peaks.get(node.layer, 0.0), peak)
        first = RESIDUAL_ROOM * (peaks[None] or 1.0) / INT16_MAX
        powers: dict[int | None, int] = {}
        before = 0
        for layer in (None, *range(self.graph.layers)):
            needed = RESIDUAL_ROOM * peaks.get(layer, 0.0) / INT16_MAX
            power = int(np.ceil(np.log2(needed / first))) if needed else before
            powers[layer] = before = 0 if layer is None else max(power, before - RESCALE_BITS)
        return {name: first * 2.0 ** powers[layer] for name, layer in layer_of.items()}

    def _narrow_step(self, wide: str, narrow: str) -> float:
        """The int8 step of a norm that linears read, whose twin stands in the residual stream."""
        sample, peak = self.taps.sample(narrow), self.taps.peak(narrow)
        readers = [node for node in self.graph.readers(narrow) if isinstance(node, Linear)]
        weights = [np.square(self.network.tensor(node, "weight"), dtype=np.float64).sum(axis=0) for node in readers]
        columns = np.sum(weights, axis=0) if weights else 1.0  # what an error of a column does to the products
        a, b = (self.graph.by_name[name] for name in (wide, narrow))
        tensor = self.network.tensor
        if all(np.array_equal(tensor(a, role), tensor(b, role)) for role in ("gamma", "beta")):
            self.doubled[narrow] = doublings(sample, peak, self.stream[wide], columns)
            return self.stream[wide] * 2.0 ** self.doubled[narrow]
        return int8_step(sample, peak, columns)

    def _lopsided(self, node: Activation) -> bool:
        """Whether the ranges around an activation function may have zeros: biases before and behind take them."""
        before, behind = self.graph.by_name[node.x], self.graph.readers(node.name)
        return bool(behind) and len(self.graph.readers(node.x)) == 1 and all(
            isinstance(linear, Linear) and linear.bias for linear in (before, *behind))

    def _before(self, node: Activation, after: Type) -> Type:
        """The type of an activation function's input; keeps its table."""
        sample, zero = self.taps.sample(node.x), 0
        if self._lopsided(node):
            step, zero, table = lopsided_activation(
                node.function, sample, *self.taps.ranges[node.x], _one(after), after.zero)
        else:
            step, table = activation_step(node.function, sample.reshape(-1), self.taps.peak(node.x), _one(after))
        self.tables[node.name] = table
        return Type(dtype=DType.INT8, scale=step, zero=zero)

    def _before_words(self, node: Activation, after: Type) -> Type:
        """The type of an activation function's int16 input; keeps its table."""
        step, self.words[node.name] = word_step(
            node.function, self.taps.sample(node.x).reshape(-1), self.taps.peak(node.x), _one(after))
        return Type(dtype=DType.INT16, scale=step)

    def _int16(self, name: str) -> Type:
        return Type(dtype=DType.INT16, scale=INNER_ROOM * (self.taps.peak(name) or 1.0) / INT16_MAX)

    def _int8(self, name: str) -> Type:
        return Type(dtype=DType.INT8, scale=int8_step(self.taps.sample(name).reshape(-1), self.taps.peak(name)))

    # -- nodes

    def _put(self, node: Node, tensors: dict[str, Any], **changed: Any) -> None:
        """Keep a node in integers; a tensor that stands for another node's is named instead of given."""
        named = {}
        for role, value in tensors.items():
            named[role] = value if isinstance(value, str) else f"{node.name}.{role}"
            if not isinstance(value, str):
                self.weights[named[role]] = np.ascontiguousarray(value)
        self.nodes.append(node.model_copy(update={"type": self.types[node.name], "tensors": named, **changed}))

    def _node(self, node: Node) -> None:
        match node:
            case Embedding():
                self._embedding(node)
            case Position():
                table = self.network.tensor(node, "table") / self.stream[node.name]
                self._put(node, {"table": saturate(np.rint(table).astype(np.int64), 16).astype(np.int16)})
            case Borrowed(own=True):
                self._put(node, {}, step=self.stream[node.name])
            case Borrowed():
                self._put(node, {})
            case Add():
                if (before := self.partial.get(node.name)) is not None:
                    self._put(node, {}, a=before)
                else:
                    self._put(node, {}, rescale=round(math.log2(self.stream[node.a] / self.stream[node.name])))
            case Norm():
                self._norm(node)
            case Linear():
                self._linear(node)
            case Rope():
                self._rope(node)
            case Attention():
                self._attention(node)
            case Activation() if node.name in self.words:
                self._put(node, {"words": self.words[node.name]}, form=Form.WORD)
            case Activation():
                self._put(node, {"table": self.tables[node.name]}, form=None)
            case Product():
                ratio = _one(self.types[node.a]) * _one(self.types[node.b]) / _one(self.types[node.name])
                self._put(node, {"scale": np.array(pair(ratio), dtype=np.int32)})

    def _embedding(self, node: Embedding) -> None:
        head = self.graph.by_name[self.graph.output]
        tied = isinstance(head, Linear) and head.tensors["weight"] == node.tensors["table"]
        table = self.network.tensor(node, "table")
        squares = self.taps.squares[head.x] if tied and isinstance(head, Linear) else np.ones(node.columns)
        gram = self.taps.gram.get(head.x) if tied and isinstance(head, Linear) else None
        found = codes(table, squares, gram, bits=8, group=0)
        mult, shift = to_mult_shift(found.step / self.stream[node.name])
        self._put(node, {"codes": found.codes, "mult": mult.astype(np.uint16), "shift": shift.astype(np.uint8)})
        self.tied = (f"{node.name}.codes", found) if tied else None

    def _rope(self, node: Rope) -> None:
        """Equal angles are one tensor, whichever node came first."""
        if first := self.angles.get(node.angles):
            self._put(node, {role: f"{first}.{role}" for role in ("cosine", "sine")})
            return
        self.angles[node.angles] = node.name
        angle = np.outer(np.arange(node.positions), node.rates)
        self._put(node, {role: np.rint(part * (1 << 14)).astype(np.int16)
                         for role, part in (("cosine", np.cos(angle)), ("sine", np.sin(angle)))})

    def _norm(self, node: Norm) -> None:
        doubled = self.doubled.get(node.name, 0)
        steps = np.array(_all(self.types[node.name])) / 2 ** doubled
        step = np.repeat(steps, node.columns // len(steps)) if node.head_dim else steps[0]
        given = _one(self.types[node.x])
        gamma = np.tile(self.network.tensor(node, "gamma").astype(np.float64), node.columns // node.width) / step
        beta = self.network.tensor(node, "beta").astype(np.float64) / step if node.mean else np.zeros(1)
        # Fraction bits of gamma: as many as int16 takes, and as the int32 of beta takes so many more of.
        more = norm_fraction(node.width)
        most = min(np.log2(INT16_MAX / (np.abs(gamma).max() or 1.0)),
                   np.log2(INT32_MAX / (np.abs(beta).max() or 1.0)) - more)
        bits = int(np.clip(np.floor(most), -10, 30))
        wanted = node.eps * node.width ** 2 / given ** 2  # epsilon in units of n * sum(x^2)
        eps_shift = max(0, int(np.ceil(np.log2(max(wanted, 1) / MULT_MAX))))
        if eps_shift > 40:
            raise CompileError(f"{node.name}: eps must be small beside the scale {given:.3g} of what is normed, not "
                               f"{node.eps}")
        tensors: dict[str, Any] = {"scalars": np.array(
            [more + bits + doubled, int(round(wanted / 2 ** eps_shift)), eps_shift], dtype=np.int32)}
        if (twin := self.graph.wide_norms.get(node.name, "")) in self.doubled:
            tensors |= {role: f"{twin}.{role}" for role in ("gamma", "beta")}
        else:
            tensors["gamma"] = saturate(np.rint(gamma * 2.0 ** bits).astype(np.int64), 16).astype(np.int16)
            if node.mean:
                tensors["beta"] = np.rint(beta * 2.0 ** (more + bits)).astype(np.int32)
        self._put(node, tensors)

    def _linear(self, node: Linear) -> None:
        options, head = self.options, node.name == self.graph.output
        wide = self.types[node.x].dtype is DType.INT16
        wanted = options.down or options.bits if isinstance(self.graph.by_name[node.x], Product | Activation) \
            else options.bits
        bits, group = (8, 0) if head or wanted == 8 else (4, options.group)
        if head and self.tied:
            name, found = self.tied
            tensors: dict[str, Any] = {"weight": name}
        else:
            found = codes(self.network.tensor(node, "weight"), self.taps.squares[node.x], self.taps.gram.get(node.x),
                          bits=bits, group=group)
            tensors = {"weight": found.codes if bits == 8 else packed(found.codes)}
            if found.scales is not None:
                tensors["scales"] = found.scales
        in_step = _one(self.types[node.x])
        out = np.array(_all(self.types[node.name]))
        out = np.repeat(out, node.columns // len(out))
        most = 127 * (INT16_MAX if wide else 127) * node.depth
        idle = found.step * in_step / out * most < IDLE
        if idle.any() and not (head and self.tied):
            found = found.without(idle, IDLE_RATIO * out / in_step)
            tensors["weight"] = found.codes if bits == 8 else packed(found.codes)
        mult, shift = to_mult_shift(found.step * in_step / out)
        tensors |= {"mult": mult.astype(np.uint16), "shift": shift.astype(np.uint8)}
        if node.bias:
            given, zeros = self.types[node.x].zero, self.types[node.name].zero * out
            bias = np.rint((self.network.tensor(node, "bias") - zeros) / (found.step * in_step))
            bias = bias + given * found.sums(group)
            if np.abs(bias).max(initial=0) > INT32_MAX // 2:
                raise CompileError(f"{node.name}: a bias must be below {INT32_MAX // 2} steps of its products, not "
                                   f"{np.abs(bias).max():.3g}")
            tensors["bias"] = bias.astype(np.int32)
        if wide:
            self._high(node, tensors, bits, group)
        self._put(node, tensors, bits=bits, group=group, plane=Plane.LOW if wide else None)

    def _high(self, node: Linear, tensors: dict[str, Any], bits: int, group: int) -> None:
        """The product of an int16 input's high plane, and its sum with the residual stream, before the low one's."""
        (add,) = self.graph.readers(node.name)
        assert isinstance(add, Add)
        if (least := int(tensors["shift"].min())) < 8:
            raise CompileError(f"{node.name}: a scaling must have a shift of at least 8, not {least}: take 8 bits for "
                               "the MLP's inner values")
        weights: dict[str, Any] = {role: f"{node.name}.{role}" for role in ("weight", "scales") if role in tensors}
        high, total = f"{node.name}.high", f"{add.name}.high"
        self.types |= {high: self.types[node.name], total: self.types[add.name]}
        self._put(node.model_copy(update={"name": high, "bias": False}), {
            **weights, "mult": tensors["mult"], "shift": tensors["shift"] - 8}, bits=bits, group=group,
            plane=Plane.HIGH)
        steps = self.stream[add.a] / self.stream[add.name]
        self._put(add.model_copy(update={"name": total, "b": high}), {}, rescale=round(math.log2(steps)))
        self.partial[add.name] = total

    def _attention(self, node: Attention) -> None:
        share = node.heads // node.kv_heads
        query, key, value = (np.array(_all(self.types[name])) for name in node.inputs)
        to_log2 = node.scale * math.log2(math.e) * 1024
        score = query * np.repeat(key, share) * to_log2
        context = np.repeat(value, share) / _one(self.types[node.name])
        tensors = {role: np.stack(to_mult_shift(ratio), axis=1).astype(np.int32)
                   for role, ratio in (("score", score), ("context", context))}
        for role, steps in (("prefix_key", key), ("prefix_value", value)) if node.prefix else ():
            rows = self.network.tensor(node, role) / np.repeat(steps, node.head_dim)
            tensors[role] = np.clip(np.rint(rows), -128, 127).astype(np.int8)
        self._put(node, tensors)


def _of_heads(node: Node) -> bool:
    """Whether it is a norm of heads, from int16 to int16."""
    return isinstance(node, Norm) and node.head_dim is not None


def _own(node: Node) -> bool:
    """Whether it is a row that an earlier pass of the network left."""
    return isinstance(node, Borrowed) and node.own


def _one(type_: Type) -> float:
    """The scale of a value that has but one."""
    assert isinstance(type_.scale, float)
    return type_.scale


def _all(type_: Type) -> tuple[float, ...]:
    return (type_.scale,) if isinstance(type_.scale, float) else type_.scale
