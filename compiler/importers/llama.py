"""Llama and what differs from it in little: RMSNorm, rotary positions, grouped-query attention, gated MLP.

Mistral adds a window. ``gemmule`` is what this project trains: it may have no gate, and its rotary pairs are adjacent.
"""

from __future__ import annotations

import re
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from gemmule.compiler.importers.build import Builder
from gemmule.compiler.importers.config import (
    ACTIVATIONS,
    MOST_COLUMNS,
    ActivationName,
    Depth,
    Eps,
    Heads,
    Keys,
    Layers,
    Positions,
    RopeParameters,
    Theta,
    Vocab,
    Whole,
    check_heads,
    parse_keys,
)
from gemmule.compiler.importers.family import Blueprint, Family, prefix_of
from gemmule.compiler.importers.weights import Source
from gemmule.compiler.layout import MOST_DEPTH
from gemmule.io.reading import shown

__all__ = ["LLAMA", "LlamaKeys", "MistralKeys"]


class LlamaKeys(Keys):
    """config.json of Llama, defaults as in transformers."""

    vocab_size: Vocab
    max_position_embeddings: Positions = Field(
        description="beyond, lower it in config.json: the first positions stay as they are")
    hidden_size: Depth
    intermediate_size: Depth
    num_hidden_layers: Layers
    num_attention_heads: Heads
    num_key_value_heads: Heads | None = None
    head_dim: int | None = Field(default=None, ge=2, le=MOST_COLUMNS, multiple_of=2)
    hidden_act: ActivationName = "silu"
    rms_norm_eps: Eps = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: Theta | None = None
    rope_parameters: RopeParameters | None = None
    rope_scaling: None = Field(default=None, description="only plain rotary positions are supported")
    partial_rotary_factor: Whole = 1.0
    rope_interleaved: bool = False
    """Rotary pairs are adjacent in q and k; else column i of a head's first half pairs with i of its second."""
    sliding_window: None = Field(default=None, description="only Mistral has a window")

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
        if self.rope_theta and self.rope_parameters and self.rope_parameters.rope_theta not in (None, self.rope_theta):
            raise ValueError(f"rope_theta must be that of rope_parameters, {shown(self.rope_parameters.rope_theta)}, "
                             f"not {shown(self.rope_theta)}: keep one")
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
    def theta(self) -> float:
        """Base of the rotary angles."""
        return (self.rope_parameters and self.rope_parameters.rope_theta) or self.rope_theta or 10000.0

    @property
    def window(self) -> int | None:
        """Positions that a row sees, where these are fewer than all."""
        return None


class MistralKeys(LlamaKeys):
    """config.json of Mistral, defaults as in transformers: a missing window is one of 4,096, null is none."""

    num_key_value_heads: Heads | None = 8
    attention_bias: Literal[False] = Field(default=False, description="Mistral has no biases")
    mlp_bias: Literal[False] = Field(default=False, description="Mistral has no biases")
    sliding_window: int | None = Field(default=4096, ge=1)  # type: ignore[assignment]

    @property
    def window(self) -> int | None:
        """Positions that a row sees, where these are fewer than all."""
        return self.sliding_window if (self.sliding_window or 1 << 16) < self.max_position_embeddings else None


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    keys: LlamaKeys = parse_keys(MistralKeys if model_type == "mistral" else LlamaKeys, config)
    prefix = prefix_of(names, "model.", "embed_tokens.weight")
    hidden, inner, head_dim = keys.hidden_size, keys.intermediate_size, keys.columns
    heads = {"query": keys.num_attention_heads, "key": keys.kv_heads, "value": keys.kv_heads}
    gated = model_type != "gemmule" or f"{prefix}layers.0.mlp.gate_proj.weight" in names
    table = Source.of(f"{prefix}embed_tokens.weight", keys.vocab_size, hidden)
    build = Builder()

    def norm(name: str, x: str, stored: str) -> str:
        return build.norm(name, x, Source.of(f"{stored}.weight", hidden), None, keys.rms_norm_eps)

    def linear(name: str, x: str, stored: str, depth: int, columns: int, bias: bool) -> str:
        return build.linear(name, x, Source.of(f"{stored}.weight", columns, depth),
                            Source.of(f"{stored}.bias", columns) if bias else None)

    def projected(name: str, x: str, stored: str) -> str:
        """q, k or v; the rows of q and k in adjacent pairs."""
        columns = heads[name] * head_dim
        parts = [Source.of(f"{stored}.weight", columns, hidden)]
        if keys.attention_bias:
            parts.append(Source.of(f"{stored}.bias", columns))
        if name == "value":
            return build.linear(name, x, *parts)
        if not keys.rope_interleaved:
            parts = [part.adjacent_pairs(heads[name]) for part in parts]
        return build.rope(f"{name}_rope", build.linear(name, x, *parts), head_dim, keys.theta,
                          keys.max_position_embeddings)

    x = build.embedding("embedding", table)
    for layer in range(keys.num_hidden_layers):
        build.layer = layer
        at = f"{prefix}layers.{layer}"
        y = norm("norm1", x, f"{at}.input_layernorm")
        query, key, value = (projected(name, y, f"{at}.self_attn.{name[0]}_proj") for name in heads)
        y = build.attention("context", query, key, value, head_dim=head_dim, scale=head_dim ** -0.5,
                            window=keys.window)
        y = linear("out", y, f"{at}.self_attn.o_proj", heads["query"] * head_dim, hidden, keys.attention_bias)
        x = build.add("middle", x, y)
        z = norm("norm2", x, f"{at}.post_attention_layernorm")
        y = linear("gate" if gated else "up", z, f"{at}.mlp.{'gate' if gated else 'up'}_proj", hidden, inner,
                   keys.mlp_bias)
        y = build.activation("act", y, ACTIVATIONS[keys.hidden_act])
        if gated:
            y = build.product("product", y, linear("up", z, f"{at}.mlp.up_proj", hidden, inner, keys.mlp_bias))
        x = build.add("end", x, linear("down", y, f"{at}.mlp.down_proj", inner, hidden, keys.mlp_bias))
    build.layer = None
    head, tied = "lm_head.weight", keys.tie_word_embeddings
    build.linear("logits", norm("norm", x, f"{prefix}norm"), table if tied else Source.of(head, *table.shape))
    return Blueprint(graph=build.graph("llama", keys.max_position_embeddings, "logits"), sources=build.sources,
                     copies={head: table.name} if tied else {})


LLAMA = Family(
    model_types=("llama", "mistral", "gemmule"),
    architectures=("LlamaForCausalLM", "LlamaModel", "MistralForCausalLM", "MistralModel", "GemmuleForCausalLM"),
    describe=_describe,
    harmless=(re.compile(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),))  # angles, computed here
