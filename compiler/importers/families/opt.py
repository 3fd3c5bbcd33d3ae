"""OPT: learned positions from row 2 on, LayerNorm before each half of a block, biases, ReLU, tied head."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from gemmule.compiler.importers.build import GraphBuilder
from gemmule.compiler.importers.config import (
    ACTIVATIONS,
    ActivationName,
    Depth,
    HeadCount,
    Keys,
    Layers,
    Positions,
    Vocab,
    check_heads,
    parse_keys,
)
from gemmule.compiler.importers.family import Blueprint, Family, prefix_of
from gemmule.compiler.importers.weights import Source

__all__ = ["OPT", "OptKeys"]

_EPS = 1e-5
"""Of every LayerNorm; config.json does not name it."""
_FIRST = 2
"""Row of the position table that stands for position 0."""


class OptKeys(Keys):
    """config.json of OPT, defaults as in transformers."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"dropout", "activation_dropout", "layerdrop", "init_std"})

    vocab_size: Vocab
    max_position_embeddings: Positions
    hidden_size: Depth
    ffn_dim: Depth
    num_hidden_layers: Layers
    num_attention_heads: HeadCount
    activation_function: ActivationName = "relu"
    enable_bias: bool = True
    tie_word_embeddings: bool = True
    word_embed_proj_dim: int | None = None
    do_layer_norm_before: Literal[True] = Field(
        default=True, description="norms after the halves of a block are not supported")
    layer_norm_elementwise_affine: Literal[True] = Field(
        default=True, description="norms without factors are not supported")
    remove_final_layer_norm: Literal[False] = Field(
        default=False, alias="_remove_final_layer_norm", description="the norm before the head cannot be left out")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_heads("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.word_embed_proj_dim not in (None, self.hidden_size):
            raise ValueError(f"word_embed_proj_dim must be hidden_size = {self.hidden_size:,}, not "
                             f"{self.word_embed_proj_dim}: projected embeddings are not supported")
        return self


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    keys = parse_keys(OptKeys, config)
    prefix = prefix_of(names, "model.", "decoder.embed_tokens.weight") + "decoder."
    width, inner, head_dim = keys.hidden_size, keys.ffn_dim, keys.hidden_size // keys.num_attention_heads
    table = Source.of(f"{prefix}embed_tokens.weight", keys.vocab_size, width)
    positions = Source.of(f"{prefix}embed_positions.weight", keys.max_position_embeddings + _FIRST, width)
    build = GraphBuilder()

    def norm(name: str, x: str, stored: str) -> str:
        gamma, beta = (Source.of(f"{stored}.{part}", width) for part in ("weight", "bias"))
        return build.norm(name, x, gamma, beta, _EPS)

    def linear(name: str, x: str, stored: str, depth: int, columns: int) -> str:
        bias = Source.of(f"{stored}.bias", columns) if keys.enable_bias else None
        return build.linear(name, x, Source.of(f"{stored}.weight", columns, depth), bias)

    x = build.add("start", build.embedding("embedding", table),
                  build.position("position", positions.rows(_FIRST, positions.shape[0])))
    for layer in range(keys.num_hidden_layers):
        build.layer = layer
        at = f"{prefix}layers.{layer}"
        y = norm("norm1", x, f"{at}.self_attn_layer_norm")
        query, key, value = (linear(name, y, f"{at}.self_attn.{name[0]}_proj", width, width)
                             for name in ("query", "key", "value"))
        y = build.attention("context", query, key, value, head_dim=head_dim, scale=head_dim ** -0.5)
        x = build.add("middle", x, linear("out", y, f"{at}.self_attn.out_proj", width, width))
        y = linear("up", norm("norm2", x, f"{at}.final_layer_norm"), f"{at}.fc1", width, inner)
        y = build.activation("act", y, ACTIVATIONS[keys.activation_function])
        x = build.add("end", x, linear("down", y, f"{at}.fc2", inner, width))
    build.layer = None
    head = "lm_head.weight"
    tied = keys.tie_word_embeddings
    y = norm("norm", x, f"{prefix}final_layer_norm")
    build.linear("logits", y, table if tied else Source.of(head, *table.shape))
    return Blueprint(graph=build.graph("opt", keys.max_position_embeddings, "logits"), sources=build.sources,
                     copies={head: table.name} if tied else {}, notes=keys.notes)


OPT = Family(
    model_types=("opt",), architectures=("OPTForCausalLM", "OPTModel"), describe=_describe,
    harmless=(re.compile(r"(model\.)?decoder\.version"),))
