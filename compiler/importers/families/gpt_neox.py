"""GPT-NeoX, of which Pythia is: attention and MLP side by side or in turn, part of a head rotated, biases, own head.

q, k and v of a head lie one behind the other in the rows of ``query_key_value``.
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
    Layers,
    Vocab,
    check_heads,
    parse_keys,
)
from gemmule.compiler.importers.family import Blueprint, Family, prefix_of
from gemmule.compiler.importers.rope import RotaryKeys, Share, Theta
from gemmule.compiler.importers.weights import Source

__all__ = ["GPT_NEOX", "GptNeoxKeys"]

PARTS = ("query", "key", "value")


class GptNeoxKeys(RotaryKeys):
    """config.json of GPT-NeoX, defaults as in transformers where these are not its sizes."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"hidden_dropout"})
    SHARE: ClassVar[float] = 0.25
    OTHER_NAMES: ClassVar[dict[str, str]] = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}

    vocab_size: Vocab
    hidden_size: Depth
    intermediate_size: Depth
    num_hidden_layers: Layers
    num_attention_heads: HeadCount
    hidden_act: ActivationName = "gelu"
    layer_norm_eps: Eps = 1e-5
    tie_word_embeddings: bool = False
    use_parallel_residual: bool = True
    attention_bias: bool = True
    rotary_pct: Share | None = None
    rotary_emb_base: Theta | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_heads("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        self.turned(self.head_dim)
        return self

    @property
    def head_dim(self) -> int:
        """Columns of a head."""
        return self.hidden_size // self.num_attention_heads


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    keys = parse_keys(GptNeoxKeys, config)
    prefix = prefix_of(names, "gpt_neox.", "embed_in.weight")
    hidden, inner, head_dim, heads = (keys.hidden_size, keys.intermediate_size, keys.head_dim,
                                      keys.num_attention_heads)
    turned = keys.turned(head_dim)
    table = Source.of(f"{prefix}embed_in.weight", keys.vocab_size, hidden)
    build = GraphBuilder()

    def norm(name: str, x: str, stored: str) -> str:
        gamma, beta = (Source.of(f"{stored}.{part}", hidden) for part in ("weight", "bias"))
        return build.norm(name, x, gamma, beta, keys.layer_norm_eps)

    def linear(name: str, x: str, stored: str, depth: int, columns: int, bias: bool = True) -> str:
        return build.linear(name, x, Source.of(f"{stored}.weight", columns, depth),
                            Source.of(f"{stored}.bias", columns) if bias else None)

    def projected(name: str, x: str, stored: str) -> str:
        """q, k or v; the rows of q and k that are rotated in adjacent pairs."""
        parts = [Source.of(f"{stored}.weight", 3 * hidden, hidden)]
        if keys.attention_bias:
            parts.append(Source.of(f"{stored}.bias", 3 * hidden))
        parts = [part.of_heads(heads, len(PARTS), PARTS.index(name)) for part in parts]
        if name == "value":
            return build.linear(name, x, *parts)
        parts = [part.adjacent_pairs(heads, turned) for part in parts]
        return build.rope(f"{name}_rope", build.linear(name, x, *parts), head_dim, keys.theta, keys.positions,
                          turned=turned if turned < head_dim else None, scaling=keys.scaling)

    x = build.embedding("embedding", table)
    for layer in range(keys.num_hidden_layers):
        build.layer = layer
        at = f"{prefix}layers.{layer}"
        y = norm("norm1", x, f"{at}.input_layernorm")
        # Side by side both halves read the block's input: the second norm stands before that is added to.
        z = norm("norm2", x, f"{at}.post_attention_layernorm") if keys.use_parallel_residual else ""
        query, key, value = (projected(name, y, f"{at}.attention.query_key_value") for name in PARTS)
        y = build.attention("context", query, key, value, head_dim=head_dim, scale=head_dim ** -0.5)
        x = build.add("middle", x, linear("out", y, f"{at}.attention.dense", hidden, hidden, keys.attention_bias))
        y = linear("up", z or norm("norm2", x, f"{at}.post_attention_layernorm"), f"{at}.mlp.dense_h_to_4h", hidden,
                   inner)
        y = build.activation("act", y, ACTIVATIONS[keys.hidden_act])
        x = build.add("end", x, linear("down", y, f"{at}.mlp.dense_4h_to_h", inner, hidden))
    build.layer = None
    head, tied = "embed_out.weight", keys.tie_word_embeddings
    build.linear("logits", norm("norm", x, f"{prefix}final_layer_norm"),
                 table if tied else Source.of(head, *table.shape))
    return Blueprint(graph=build.graph("gpt_neox", keys.positions, "logits"), sources=build.sources,
                     copies={head: table.name} if tied else {}, notes=keys.notes)


GPT_NEOX = Family(
    model_types=("gpt_neox",), architectures=("GPTNeoXForCausalLM", "GPTNeoXModel"), describe=_describe,
    harmless=(re.compile(r"(gpt_neox\.)?layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"),))
