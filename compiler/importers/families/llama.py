"""Llama and what differs from it in little: RMSNorm, rotary positions, grouped-query attention, gated MLP.

Mistral adds a window. ``gemmule`` is what this project trains: it may have no gate, and its rotary pairs are adjacent.
Qwen stands in a file of its own, which takes :func:`describe_llama`.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gemmule.compiler.importers.build import GraphBuilder
from gemmule.compiler.importers.config import (
    ACTIVATIONS,
    MOST_COLUMNS,
    ActivationName,
    Depth,
    Eps,
    HeadCount,
    Layers,
    Vocab,
    check_heads,
    parse_keys,
)
from gemmule.compiler.importers.family import Blueprint, Family, prefix_of
from gemmule.compiler.importers.rope import RotaryKeys
from gemmule.compiler.importers.weights import Source
from gemmule.compiler.ir import FamilyName
from gemmule.compiler.layout import MOST_DEPTH

__all__ = ["INV_FREQ", "LLAMA", "GemmuleKeys", "LlamaKeys", "LlamaKind", "MistralKeys", "describe_llama"]

INV_FREQ = re.compile(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
"""Angles, computed here, which old versions stored."""


class LlamaKind(RotaryKeys):
    """Keys that Llama and its kind share, defaults as in transformers; no biases, no windows, heads as they are."""

    vocab_size: Vocab
    hidden_size: Depth
    intermediate_size: Depth
    num_hidden_layers: Layers
    num_attention_heads: HeadCount
    num_key_value_heads: HeadCount | None = None
    head_dim: int | None = Field(default=None, ge=2, le=MOST_COLUMNS, multiple_of=2)
    hidden_act: ActivationName = "silu"
    rms_norm_eps: Eps = 1e-6
    tie_word_embeddings: bool = False
    rope_interleaved: Literal[False] = Field(
        default=False, description="adjacent rotary pairs are the layout of model_type gemmule")

    @model_validator(mode="after")
    def _check(self) -> Self:
        heads, kv_heads = self.num_attention_heads, self.kv_heads
        if heads % kv_heads:
            raise ValueError(
                f"num_attention_heads must be a multiple of num_key_value_heads = {kv_heads:,}, not {heads:,}")
        if self.head_dim is None:
            check_heads("hidden_size", self.hidden_size, "num_attention_heads", heads)
            if self.hidden_size // heads % 2:
                raise ValueError(f"hidden_size must be an even multiple of num_attention_heads = {heads:,} where "
                                 f"head_dim is not given, not {self.hidden_size:,}")
        if heads * self.columns >= MOST_DEPTH:
            raise ValueError(f"num_attention_heads * head_dim must be less than {MOST_DEPTH:,}, not "
                             f"{heads * self.columns:,}")
        if self.share != 1:
            raise ValueError(f"partial_rotary_factor must be 1, not {self.share:g}: only whole heads can be rotated")
        return self

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def columns(self) -> int:
        """Columns of a head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def interleaved(self) -> bool:
        """Rotary pairs are adjacent in q and k; else column i of a head's first half pairs with i of its second."""
        return False

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Whether q, k and v, what follows attention, and the MLP have biases."""
        return False, False, False

    @property
    def head_norms(self) -> bool:
        """Whether each head of q and k is normed before it is rotated."""
        return False

    def window(self, layer: int) -> int | None:
        """Positions that a row sees in a layer, where these are fewer than all."""
        return None


class LlamaKeys(LlamaKind):
    """config.json of Llama."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"use_sliding_window", "max_window_layers", "max_sequence_length"})

    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: None = Field(default=None, description="only Mistral and Qwen have one")

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """As the file says."""
        return self.attention_bias, self.attention_bias, self.mlp_bias


class MistralKeys(LlamaKind):
    """config.json of Mistral: a missing window is one of 4,096, null is none."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({
        "use_sliding_window", "max_window_layers", "max_sequence_length", "attention_bias", "mlp_bias"})

    num_key_value_heads: HeadCount | None = 8
    sliding_window: int | None = Field(default=4096, ge=1)

    def window(self, layer: int) -> int | None:
        """The same in every layer."""
        return self.sliding_window if (self.sliding_window or self.positions) < self.positions else None


class GemmuleKeys(LlamaKeys):
    """config.json of what this project trains."""

    rope_interleaved: bool = False  # type: ignore[assignment]

    @property
    def interleaved(self) -> bool:
        """As the file says."""
        return self.rope_interleaved


_KEYS: dict[str, type[LlamaKind]] = {"llama": LlamaKeys, "mistral": MistralKeys, "gemmule": GemmuleKeys}


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    return describe_llama("llama", parse_keys(_KEYS[model_type], config), names, ungated=model_type == "gemmule")


def describe_llama(family: FamilyName, keys: LlamaKind, names: frozenset[str], *, ungated: bool = False) -> Blueprint:
    """A network of Llama's kind; ``ungated``: where no gate is stored there is none."""
    prefix = prefix_of(names, "model.", "embed_tokens.weight")
    hidden, inner, head_dim = keys.hidden_size, keys.intermediate_size, keys.columns
    heads = {"query": keys.num_attention_heads, "key": keys.kv_heads, "value": keys.kv_heads}
    gated = not ungated or f"{prefix}layers.0.mlp.gate_proj.weight" in names
    inward, outward, within = keys.biases
    table = Source.of(f"{prefix}embed_tokens.weight", keys.vocab_size, hidden)
    build = GraphBuilder()

    def norm(name: str, x: str, stored: str) -> str:
        return build.norm(name, x, Source.of(f"{stored}.weight", hidden), None, keys.rms_norm_eps)

    def linear(name: str, x: str, stored: str, depth: int, columns: int, bias: bool) -> str:
        return build.linear(name, x, Source.of(f"{stored}.weight", columns, depth),
                            Source.of(f"{stored}.bias", columns) if bias else None)

    def projected(name: str, x: str, at: str) -> str:
        """q, k or v; the rows of q and k in adjacent pairs."""
        columns, stored = heads[name] * head_dim, f"{at}.{name[0]}_proj"
        parts = [Source.of(f"{stored}.weight", columns, hidden)]
        if inward:
            parts.append(Source.of(f"{stored}.bias", columns))
        if name == "value":
            return build.linear(name, x, *parts)
        if not keys.interleaved:
            parts = [part.adjacent_pairs(heads[name]) for part in parts]
        made = build.linear(name, x, *parts)
        if keys.head_norms:
            gamma = Source.of(f"{at}.{name[0]}_norm.weight", head_dim).adjacent_pairs(1)
            made = build.head_norm(f"{name}_norm", made, gamma, keys.rms_norm_eps)
        return build.rope(f"{name}_rope", made, head_dim, keys.theta, keys.positions, scaling=keys.scaling)

    x = build.embedding("embedding", table)
    for layer in range(keys.num_hidden_layers):
        build.layer = layer
        at = f"{prefix}layers.{layer}"
        y = norm("norm1", x, f"{at}.input_layernorm")
        query, key, value = (projected(name, y, f"{at}.self_attn") for name in heads)
        y = build.attention("context", query, key, value, head_dim=head_dim, scale=head_dim ** -0.5,
                            window=keys.window(layer))
        y = linear("out", y, f"{at}.self_attn.o_proj", heads["query"] * head_dim, hidden, outward)
        x = build.add("middle", x, y)
        z = norm("norm2", x, f"{at}.post_attention_layernorm")
        y = linear("gate" if gated else "up", z, f"{at}.mlp.{'gate' if gated else 'up'}_proj", hidden, inner, within)
        y = build.activation("act", y, ACTIVATIONS[keys.hidden_act])
        if gated:
            y = build.product("product", y, linear("up", z, f"{at}.mlp.up_proj", hidden, inner, within))
        x = build.add("end", x, linear("down", y, f"{at}.mlp.down_proj", inner, hidden, within))
    build.layer = None
    head, tied = "lm_head.weight", keys.tie_word_embeddings
    build.linear("logits", norm("norm", x, f"{prefix}norm"), table if tied else Source.of(head, *table.shape))
    return Blueprint(graph=build.graph(family, keys.positions, "logits"), sources=build.sources,
                     copies={head: table.name} if tied else {}, notes=keys.notes)


LLAMA = Family(
    model_types=("llama", "mistral", "gemmule"),
    architectures=("LlamaForCausalLM", "LlamaModel", "MistralForCausalLM", "MistralModel", "GemmuleForCausalLM"),
    describe=_describe, harmless=(INV_FREQ,))
