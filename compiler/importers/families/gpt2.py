"""GPT-2: learned positions, LayerNorm before each half of a block, fused q, k, v, biases everywhere, tied head.

Linear layers are ``Conv1D``: [in, out], so transposed here.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

from pydantic import model_validator

from gemmule.compiler.importers.build import GraphBuilder
from gemmule.compiler.importers.config import (
    ACTIVATIONS,
    ActivationName,
    Depth,
    Eps,
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
from gemmule.compiler.layout import MOST_DEPTH

__all__ = ["GPT2", "Gpt2Keys"]


class Gpt2Keys(Keys):
    """config.json of GPT-2, defaults as in transformers."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({
        "n_ctx", "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type", "summary_use_proj", "summary_activation",
        "summary_proj_to_labels", "summary_first_dropout", "reorder_and_upcast_attn"})

    vocab_size: Vocab
    n_positions: Positions
    n_embd: Depth
    n_layer: Layers
    n_head: HeadCount
    n_inner: Depth | None = None
    activation_function: ActivationName = "gelu_new"
    layer_norm_epsilon: Eps = 1e-5
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_heads("n_embd", self.n_embd, "n_head", self.n_head)
        if self.inner >= MOST_DEPTH:
            raise ValueError(f"4 * n_embd must be less than {MOST_DEPTH:,} where n_inner is not given, not "
                             f"{self.inner:,}")
        return self

    @property
    def inner(self) -> int:
        """Columns between the two products of the second half."""
        return self.n_inner or 4 * self.n_embd


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    keys = parse_keys(Gpt2Keys, config)
    prefix = prefix_of(names, "transformer.", "wte.weight")
    width, head_dim = keys.n_embd, keys.n_embd // keys.n_head
    table = Source.of(f"{prefix}wte.weight", keys.vocab_size, width)
    build = GraphBuilder()

    def norm(name: str, x: str, stored: str) -> str:
        gamma, beta = (Source.of(f"{stored}.{part}", width) for part in ("weight", "bias"))
        return build.norm(name, x, gamma, beta, keys.layer_norm_epsilon)

    def linear(name: str, x: str, stored: str, depth: int, columns: int) -> str:
        weight = Source.of(f"{stored}.weight", depth, columns).transposed()
        return build.linear(name, x, weight, Source.of(f"{stored}.bias", columns))

    def part(name: str, x: str, stored: str, which: int) -> str:
        """One of q, k, v, which lie side by side in the columns of c_attn."""
        first, stop = which * width, (which + 1) * width
        weight = Source.of(f"{stored}.weight", width, 3 * width).transposed().rows(first, stop)
        return build.linear(name, x, weight, Source.of(f"{stored}.bias", 3 * width).rows(first, stop))

    x = build.add("start", build.embedding("embedding", table),
                  build.position("position", Source.of(f"{prefix}wpe.weight", keys.n_positions, width)))
    for layer in range(keys.n_layer):
        build.layer = layer
        at = f"{prefix}h.{layer}"
        y = norm("norm1", x, f"{at}.ln_1")
        query, key, value = (part(name, y, f"{at}.attn.c_attn", which)
                             for which, name in enumerate(("query", "key", "value")))
        scale = (head_dim ** -0.5 if keys.scale_attn_weights else 1.0) / (
            layer + 1 if keys.scale_attn_by_inverse_layer_idx else 1)
        y = build.attention("context", query, key, value, head_dim=head_dim, scale=scale)
        x = build.add("middle", x, linear("out", y, f"{at}.attn.c_proj", width, width))
        y = linear("up", norm("norm2", x, f"{at}.ln_2"), f"{at}.mlp.c_fc", width, keys.inner)
        y = build.activation("act", y, ACTIVATIONS[keys.activation_function])
        x = build.add("end", x, linear("down", y, f"{at}.mlp.c_proj", keys.inner, width))
    build.layer = None
    head = "lm_head.weight"
    tied = keys.tie_word_embeddings
    build.linear("logits", norm("norm", x, f"{prefix}ln_f"), table if tied else Source.of(head, *table.shape))
    return Blueprint(graph=build.graph("gpt2", keys.n_positions, "logits"), sources=build.sources,
                     copies={head: table.name} if tied else {}, notes=keys.notes)


GPT2 = Family(
    model_types=("gpt2",), architectures=("GPT2LMHeadModel", "GPT2Model"), describe=_describe,
    harmless=(re.compile(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"),))  # causal masks
