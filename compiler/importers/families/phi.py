"""Phi: attention and MLP of a block read one LayerNorm, part of a head's columns is rotated, biases also at the logits.

Phi-1, Phi-1.5 and Phi-2; what is called Phi-3 is another family.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gemmule.compiler.importers.build import GraphBuilder
from gemmule.compiler.importers.config import (
    ACTIVATIONS,
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

__all__ = ["PHI", "PhiKeys"]

class PhiKeys(RotaryKeys):
    """config.json of Phi, defaults as in transformers."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"resid_pdrop", "embd_pdrop"})
    SHARE: ClassVar[float] = 0.5

    vocab_size: Vocab
    hidden_size: Depth
    intermediate_size: Depth
    num_hidden_layers: Layers
    num_attention_heads: HeadCount
    num_key_value_heads: HeadCount | None = None
    hidden_act: ActivationName = "gelu_new"
    layer_norm_eps: Eps = 1e-5
    tie_word_embeddings: bool = False
    qk_layernorm: Literal[False] = Field(default=False, description="norms of q and k are not supported")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_heads("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.num_attention_heads % self.kv_heads:
            raise ValueError(f"num_attention_heads must be a multiple of num_key_value_heads = {self.kv_heads:,}, not "
                             f"{self.num_attention_heads:,}")
        self.turned(self.head_dim)
        return self

    @property
    def kv_heads(self) -> int:
        """Heads of k and v."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        return self.hidden_size // self.num_attention_heads


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    keys = parse_keys(PhiKeys, config)
    prefix = prefix_of(names, "model.", "embed_tokens.weight")
    hidden, inner, head_dim = keys.hidden_size, keys.intermediate_size, keys.head_dim
    turned = keys.turned(head_dim)
    heads = {"query": keys.num_attention_heads, "key": keys.kv_heads, "value": keys.kv_heads}
    table = Source.of(f"{prefix}embed_tokens.weight", keys.vocab_size, hidden)
    build = GraphBuilder()

    def norm(name: str, x: str, stored: str) -> str:
        gamma, beta = (Source.of(f"{stored}.{part}", hidden) for part in ("weight", "bias"))
        return build.norm(name, x, gamma, beta, keys.layer_norm_eps)

    def linear(name: str, x: str, stored: str, depth: int, columns: int) -> str:
        return build.linear(name, x, Source.of(f"{stored}.weight", columns, depth),
                            Source.of(f"{stored}.bias", columns))

    def projected(name: str, x: str, stored: str) -> str:
        """q, k or v; the rows of q and k that are rotated in adjacent pairs."""
        columns = heads[name] * head_dim
        weight, bias = Source.of(f"{stored}.weight", columns, hidden), Source.of(f"{stored}.bias", columns)
        if name == "value":
            return build.linear(name, x, weight, bias)
        weight, bias = (part.adjacent_pairs(heads[name], turned) for part in (weight, bias))
        return build.rope(f"{name}_rope", build.linear(name, x, weight, bias), head_dim, keys.theta, keys.positions,
                          turned=turned if turned < head_dim else None, scaling=keys.scaling)

    x = build.embedding("embedding", table)
    for layer in range(keys.num_hidden_layers):
        build.layer = layer
        at = f"{prefix}layers.{layer}"
        normed = norm("norm", x, f"{at}.input_layernorm")
        query, key, value = (projected(name, normed, f"{at}.self_attn.{name[0]}_proj") for name in heads)
        y = build.attention("context", query, key, value, head_dim=head_dim, scale=head_dim ** -0.5)
        x = build.add("middle", x, linear("out", y, f"{at}.self_attn.dense", hidden, hidden))
        y = linear("up", normed, f"{at}.mlp.fc1", hidden, inner)
        y = build.activation("act", y, ACTIVATIONS[keys.hidden_act])
        x = build.add("end", x, linear("down", y, f"{at}.mlp.fc2", inner, hidden))
    build.layer = None
    head, tied = "lm_head", keys.tie_word_embeddings
    build.linear("logits", norm("norm", x, f"{prefix}final_layernorm"),
                 table if tied else Source.of(f"{head}.weight", *table.shape),
                 Source.of(f"{head}.bias", keys.vocab_size))
    return Blueprint(graph=build.graph("phi", keys.positions, "logits"), sources=build.sources,
                     copies={f"{head}.weight": table.name} if tied else {}, notes=keys.notes)


PHI = Family(
    model_types=("phi",), architectures=("PhiForCausalLM", "PhiModel"), describe=_describe,
    harmless=(re.compile(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),))  # angles, computed here
