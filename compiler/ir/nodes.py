"""The operations of a network: one class each, with its inputs, sizes and the tensors that it reads.

A node computes one value, named as the node: rows (one a token) of ``columns`` numbers of a type. The same
classes describe the network in float and in integers; what differs is the value's type and the node's
tensors, by the table of :mod:`gemmule.compiler.ir.signature`. In integers a value of a type is already rounded
and saturated to it; int32 stands for a requantised sum that what follows saturates.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

__all__ = [
    "GELUS", "RESCALE_BITS", "Activation", "Add", "AnyNode", "Attention", "Borrowed", "DType", "Embedding", "Form",
    "Function", "Linear", "Node", "Norm", "Plane", "Position", "Product", "Rope", "RopeScaling", "Softmax", "Type",
    "form_of", "softmax_of",
]

_FROZEN = ConfigDict(frozen=True, extra="forbid")
Size = Annotated[int, Field(ge=1, le=1 << 24)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class DType(StrEnum):
    """What a value's or a tensor's numbers are."""

    FLOAT32 = "float32"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    INT32 = "int32"


class Type(BaseModel):
    """Numbers of a value: ``real = (number + zero) * scale``, with a scale for each head where there are several."""

    model_config = _FROZEN

    dtype: DType = DType.FLOAT32
    scale: float | tuple[float, ...] = 1.0
    zero: int = Field(default=0, ge=-(1 << 15), le=1 << 15)
    """Of int8 values around an activation function, whose ranges are lopsided; tables and biases hold what it does."""

    def __str__(self) -> str:
        if self.dtype is DType.FLOAT32:
            return self.dtype
        scales = (self.scale,) if isinstance(self.scale, float) else self.scale
        return (f"{self.dtype}*{scales[0]:.4g}" + (f"{self.zero:+}" if self.zero else "")
                + (f".. ({len(scales)} scales)" if len(scales) > 1 else ""))

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a zero of 0, which files of before do not tell."""
        return {name: value for name, value in whole(self).items() if name != "zero" or value}


RESCALE_BITS = 12
"""A residual's step may shrink by two to this power from one sum to the next."""


class Node(BaseModel):
    """What all operations share."""

    model_config = _FROZEN
    INPUTS: ClassVar[tuple[str, ...]] = ()
    """Fields that name values, in order."""

    op: str
    name: Name
    columns: Size
    type: Type = Type()
    layer: int | None = Field(default=None, ge=0, le=4096)
    """Number of the repeated block that it belongs to; None before and after them."""
    tensors: Mapping[str, Name] = Field(default_factory=dict)
    """Tensors by role; nodes may share one (a tied head)."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the values that it reads."""
        return tuple(getattr(self, name) for name in self.INPUTS)


class Embedding(Node):
    """Row ``token`` of a table.

    float: ``table`` [vocab, columns]. Integers: ``codes`` int8 [vocab, columns], ``mult`` and ``shift`` [vocab]:
    int16 ``sat16(rshr(code * mult, shift))``.
    """

    op: Literal["embedding"] = "embedding"
    vocab: Size


class Borrowed(Node):
    """A row of another network's residual stream, int16: what stood behind ``depth`` of its layers.

    Which row of that network a row reads, :attr:`Rows.borrowed` tells. The interpreters are fed the values.

    With ``own`` it is a row of this network, which one of its earlier passes left behind so many of its layers. A row
    reads either one of those or rows of the other network: the ones that it does not read are 0.
    """

    op: Literal["borrowed"] = "borrowed"
    depth: Size
    step: float = Field(gt=0, allow_inf_nan=False)
    """``real = number * step``, as that network has it. Of own rows quantising sets it: it is the residual stream's."""
    own: bool = False

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what earlier files do not have, where it is not so."""
        return {name: value for name, value in whole(self).items() if name != "own" or value}


class Position(Node):
    """Row ``position`` of a learned table [positions, columns], in integers as int16.

    With token types (BERT) the table has a part of the graph's positions for each type, in order: a row of type t at
    position p reads ``table[t * graph.positions + p]``.
    """

    op: Literal["position"] = "position"
    positions: Size


class Add(Node):
    """Sum of two values on one scale: ``sat16(a + b)``, a int16, b int16 or int32 (requantised, not saturated).

    In integers the step of a may be ``2 ** rescale`` times that of the sum, so that each layer's residual has a step of
    its own: ``sat16(rshr(a * 2**12, 12 - rescale) + b)``.
    """

    op: Literal["add"] = "add"
    INPUTS: ClassVar[tuple[str, ...]] = ("a", "b")
    a: Name
    b: Name
    rescale: int = Field(default=0, ge=RESCALE_BITS - 47, le=RESCALE_BITS)

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a change of steps where there is none, which earlier files do not have."""
        return {name: value for name, value in whole(self).items() if name != "rescale" or value}


class Norm(Node):
    """LayerNorm with ``mean``, else RMSNorm: ``(x - mean) / sqrt(var + eps) * gamma + beta``.

    float: ``gamma`` [columns], ``beta`` [columns] (LayerNorm only). Integers: int16 x; ``gamma`` int16, ``beta`` int32,
    ``scalars`` int32 (shift, eps_mult, eps_shift) of :func:`gemmule.numerics.normalize` and ``norm_statistic``. With
    ``head_dim`` gamma is [head_dim] in float, and in integers [columns], as heads have scales of their own.

    Behind a sum (post-norm, BERT) a norm is read at two widths: as int8 by linears and as int16, on the residual's
    scale, by the next sum. Those are two nodes of one input, ``NAME`` and ``NAME.wide``. In integers they name the same
    gamma and beta and differ in the shift alone, the int8 step being the residual's times a power of two; or, where the
    ranges of what linears read were evened out, each has its own.
    """

    op: Literal["norm"] = "norm"
    INPUTS: ClassVar[tuple[str, ...]] = ("x",)
    x: Name
    mean: bool
    eps: float = Field(gt=0, lt=1, allow_inf_nan=False)
    head_dim: Annotated[int, Field(ge=2, le=8192)] | None = None
    """Each head of so many columns is normed by itself, all by one gamma (q and k of Qwen3); None: whole rows."""

    @property
    def width(self) -> int:
        """Columns of what is normed."""
        return self.head_dim or self.columns

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``head_dim`` where whole rows are normed, as files of before."""
        return {name: value for name, value in whole(self).items() if name != "head_dim" or value}


class Plane(StrEnum):
    """A byte of int16 numbers: ``x = 256 * high + low``, high signed, low unsigned."""

    HIGH = "high"
    LOW = "low"


class Linear(Node):
    """``x @ weight.T + bias``.

    float: ``weight`` [columns, depth], ``bias`` [columns] where there is one. Integers: int8 x; ``weight`` int8
    [columns, depth], or for ``bits`` 4 uint8 [columns, ceil(depth / 2)] with the even column in the low nibble, and
    with a ``group`` also ``scales`` uint8 [ceil(depth / group), columns] of 1 .. 15; ``bias`` int32; ``mult`` uint16
    and ``shift`` uint8 [columns]: ``requant(sum over groups of scale * (x @ weight.T) + bias, mult, shift)``.

    An int16 x takes two linears with the same weights, one for each ``plane``. Both results are added to the residual
    stream, the high plane's first; its scaling is 256 times the other's.
    """

    op: Literal["linear"] = "linear"
    INPUTS: ClassVar[tuple[str, ...]] = ("x",)
    x: Name
    depth: Size
    bias: bool
    bits: Literal[4, 8] = 8
    group: int = Field(default=0, ge=0, le=1 << 16)
    """Rows of depth that share an int4 scale; 0: none."""
    plane: Plane | None = None
    """In integers, of an int16 x."""
    listed: bool = False
    """On the device its weights lie row by row, and those are loaded whose column of x is not zero."""

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a plane where x is int8, and without ``listed`` where it is not, as in earlier files."""
        return {name: value for name, value in whole(self).items() if name not in ("plane", "listed") or value}


class RopeScaling(BaseModel):
    """How rotary angles were slowed so that a network takes longer texts than it was first trained on.

    All are divided by ``factor`` (linear). With ``bands`` (Llama 3) only those of slow pairs: a pair that turns fewer
    than ``slow`` times within ``within`` positions is slowed, one that turns more than ``fast`` times is not, and in
    between the rate is a mix of both.
    """

    model_config = _FROZEN

    factor: float = Field(ge=1, le=1e6, allow_inf_nan=False)
    bands: tuple[float, float, int] | None = None
    """(slow, fast, within)."""

    def __str__(self) -> str:
        bands = "" if self.bands is None else "".join(f"/{value:g}" for value in self.bands)
        return f"{self.factor:g}{bands}"

    def slowed(self, rates: np.ndarray) -> np.ndarray:
        """The rates that a network with this scaling has."""
        if self.bands is None:
            return rates / self.factor
        slow, fast, within = self.bands
        kept = np.clip((within * rates / (2 * np.pi) - slow) / (fast - slow), 0, 1)
        return rates * (kept + (1 - kept) / self.factor)


class Rope(Node):
    """Rotary positions on adjacent pairs of each head (RoFormer, equation 34).

    Integers: int16 x with seven fraction bits more than the int8 result; ``cosine`` and ``sine`` int16 Q1.14
    [positions, head_dim / 2]. In float the angles are ``position * rates``.
    """

    op: Literal["rope"] = "rope"
    INPUTS: ClassVar[tuple[str, ...]] = ("x",)
    x: Name
    head_dim: Annotated[int, Field(ge=2, le=8192, multiple_of=2)]
    theta: float = Field(ge=1, le=1e12, allow_inf_nan=False)
    positions: Size
    turned: Annotated[int, Field(ge=2, le=8192, multiple_of=2)] | None = None
    """Columns of a head that are rotated, the first ones (Phi); None: all."""
    scaling: RopeScaling | None = None

    @property
    def rates(self) -> np.ndarray:
        """Angle of pair i from a position to the next, ``theta ** (-2 i / turned)`` or what scaling makes of it, 0 of
        those that stay  # float64 [head_dim / 2]."""
        turned = self.turned or self.head_dim
        found = np.zeros(self.head_dim // 2)
        plain = self.theta ** (-np.arange(0, turned, 2) / turned)
        found[:turned // 2] = self.scaling.slowed(plain) if self.scaling else plain
        return found

    @property
    def angles(self) -> Hashable:
        """Equal of nodes whose angles are."""
        return self.theta, self.positions, self.head_dim, self.turned, self.scaling

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``turned`` where all columns are, and scaling where there is none, as files of before."""
        return {name: value for name, value in whole(self).items() if name not in ("turned", "scaling") or value}


class Softmax(StrEnum):
    """Other exponentials of a softmax than the device's own, for comparison; only with ``comparison_modes``."""

    IBERT = "ibert"
    SOFTERMAX = "softermax"

    @property
    def kind(self) -> int:
        """In :data:`gemmule.numerics.exponential.EXPONENTIAL`, and the ``period`` of a command."""
        return {Softmax.IBERT: 1, Softmax.SOFTERMAX: 2}[self]


def softmax_of(name: str) -> Softmax | None:
    """By the name of an option; ``exact``: the device's own."""
    return None if name == "exact" else Softmax(name)


class Attention(Node):
    """``softmax(scale * q k^T) v`` by head over the sequence's cached rows and the new ones that a row sees.

    The new rows' k and v are appended to the cache of its layer; where it is not ``causal`` (BERT) a row sees all rows
    of its sequence, which are those of the pass, and nothing is cached. Head h reads KV head
    ``h // (heads / kv_heads)``.
    Integers: int8 q, k, v with a scale a head; ``score`` and ``context`` int32 [heads, 2]: mult and shift of a head's
    scores (to base-2 exponent units, Q13.10) and of its context rows.

    With a ``prefix`` every sequence begins with that many constant cached rows, whose keys and values are tensors:
    ``prefix_key`` and ``prefix_value`` [prefix, KV heads * head_dim], float32 or int8 (PrefixQuant, Chen et al. 2024).
    """

    op: Literal["attention"] = "attention"
    INPUTS: ClassVar[tuple[str, ...]] = ("query", "key", "value")
    query: Name
    key: Name
    value: Name
    heads: Annotated[int, Field(ge=1, le=1024)]
    kv_heads: Annotated[int, Field(ge=1, le=1024)]
    head_dim: Annotated[int, Field(ge=1, le=8192)]
    scale: float = Field(gt=0, allow_inf_nan=False)
    causal: bool = True
    window: int | None = Field(default=None, ge=1)
    """A row sees only the last ``window`` positions, its own among them (Mistral)."""
    softmax: Softmax | None = None
    """In integers; None: the device's own exponential. The float network has the true one."""
    block: int | None = Field(default=None, ge=1, le=1 << 15)
    """In integers, online: keys are seen in blocks of so many, the maximum in whole octaves so far
    (:func:`gemmule.numerics.online.online_softmax`); None: the row's maximum comes first."""
    prefix: int = Field(default=0, ge=0, le=64)
    """Constant rows at positions 0 .. prefix - 1; tokens stand behind them."""

    @property
    def kind(self) -> int:
        """Of its exponential."""
        return self.softmax.kind if self.softmax else 0

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a softmax of the device's own, which files of before do not tell."""
        return {name: value for name, value in whole(self).items()
                if name not in ("softmax", "block", "prefix") or value}


class Function(StrEnum):
    """Activation functions by their Hugging Face names."""

    GELU = "gelu"
    GELU_TANH = "gelu_new"
    SILU = "silu"
    RELU = "relu"
    RELU2 = "relu2"
    TANH = "tanh"


GELUS = (Function.GELU, Function.GELU_TANH)


class Form(StrEnum):
    """Other ways to an activation function in integers than a table of 256 bytes, for comparison."""

    WORD = "word"
    IBERT = "ibert"
    """Only of GELU; only with ``comparison_modes``."""


def form_of(name: str) -> Form | None:
    """By the name of an option; ``table``: 256 bytes."""
    return None if name == "table" else Form(name)


class Activation(Node):
    """A function of each number.

    Integers, by ``form``: ``table`` uint8 [256] of int8 numbers to int8; ``words`` int16 [513] of int16 numbers, with
    lines between them, to int16, or to Q8.8 of which the high byte is taken (rounding is in the words); or int16
    numbers on the
    scale of :func:`gemmule.numerics.ibert.i_gelu_unit`, whose result is shifted by ``shift`` uint8 [1].
    """

    op: Literal["activation"] = "activation"
    INPUTS: ClassVar[tuple[str, ...]] = ("x",)
    x: Name
    function: Function
    form: Form | None = None
    """In integers; None: a table of bytes. The float network has the true function."""

    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without a form where it is a table of bytes, which files of before do not tell."""
        return {name: value for name, value in whole(self).items() if name != "form" or value}


class Product(Node):
    """Elementwise ``a * b``; in integers int8 or int16, all three, with ``scale`` int32 [2]: mult and shift."""

    op: Literal["product"] = "product"
    INPUTS: ClassVar[tuple[str, ...]] = ("a", "b")
    a: Name
    b: Name


AnyNode = Annotated[
    Embedding | Position | Borrowed | Add | Norm | Linear | Rope | Attention | Activation | Product,
    Field(discriminator="op")]
