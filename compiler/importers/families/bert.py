"""BERT encoders: token types, LayerNorm behind each half of a block, every row sees its whole sequence.

The table of token types is added into that of positions, a part for each type. ``BertModel`` ends in hidden rows (its
pooler is left out: sentence encoders take the mean of the rows or the first one), ``BertForSequenceClassification`` in
the logits of a classifier behind the pooler, whose first row of each sequence counts.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

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
from gemmule.compiler.ir import Function

__all__ = ["BERT", "BertKeys"]

MODEL, CLASSIFIER = "BertModel", "BertForSequenceClassification"
MOST_ROWS = 1 << 16
"""Of the table of positions and token types: its row numbers have 16 bits on the device."""


class BertKeys(Keys):
    """config.json of BERT, defaults as in transformers where these are not its sizes."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({
        "hidden_dropout_prob", "attention_probs_dropout_prob", "tie_word_embeddings", "directionality",
        "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"})

    vocab_size: Vocab
    max_position_embeddings: Positions
    type_vocab_size: Annotated[int, Field(ge=1, le=16)] = 2
    hidden_size: Depth
    intermediate_size: Depth
    num_hidden_layers: Layers
    num_attention_heads: HeadCount
    hidden_act: ActivationName = "gelu"
    layer_norm_eps: Eps = 1e-12
    position_embedding_type: Literal["absolute"] = Field(
        default="absolute", description="only learned positions are supported")
    is_decoder: Literal[False] = Field(default=False, description="only encoders have layers like these")
    id2label: dict[str, str] | None = None
    """Labels of a classifier by number."""
    num_labels: Annotated[int, Field(ge=1, le=1 << 16)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_heads("hidden_size", self.hidden_size, "num_attention_heads", self.num_attention_heads)
        if self.type_vocab_size * self.max_position_embeddings > MOST_ROWS:
            raise ValueError(f"type_vocab_size * max_position_embeddings must be at most {MOST_ROWS:,}, not "
                             f"{self.type_vocab_size * self.max_position_embeddings:,}")
        if self.id2label is not None and self.num_labels not in (None, len(self.id2label)):
            raise ValueError(f"num_labels must be that of id2label, {len(self.id2label):,}, not {self.num_labels:,}")
        if self.labels < 1:
            raise ValueError("id2label must name at least one label, not {}")
        return self

    @property
    def labels(self) -> int:
        """Labels of a classifier."""
        return (self.num_labels or 2) if self.id2label is None else len(self.id2label)


def _describe(model_type: str, config: dict[str, Any], names: frozenset[str]) -> Blueprint:
    keys = parse_keys(BertKeys, config)
    prefix = prefix_of(names, "bert.", "embeddings.word_embeddings.weight")
    width, inner, head_dim = keys.hidden_size, keys.intermediate_size, keys.hidden_size // keys.num_attention_heads
    # Checkpoints converted from TensorFlow have the names of its variables.
    factors = ("gamma", "beta") if f"{prefix}embeddings.LayerNorm.gamma" in names else ("weight", "bias")
    build = GraphBuilder()

    def norms(name: str, x: str, stored: str) -> tuple[str, str]:
        gamma, beta = (Source.of(f"{stored}.LayerNorm.{part}", width) for part in factors)
        return build.norms(name, x, gamma, beta, keys.layer_norm_eps)

    def linear(name: str, x: str, stored: str, depth: int, columns: int) -> str:
        weight, bias = Source.of(f"{stored}.weight", columns, depth), Source.of(f"{stored}.bias", columns)
        return build.linear(name, x, weight, bias)

    at = f"{prefix}embeddings"
    positions = Source.of(f"{at}.position_embeddings.weight", keys.max_position_embeddings, width)
    types = Source.of(f"{at}.token_type_embeddings.weight", keys.type_vocab_size, width)
    tokens = build.embedding("tokens", Source.of(f"{at}.word_embeddings.weight", keys.vocab_size, width))
    x = build.add("embed", tokens, build.position("positions", positions.for_each(types)))
    narrow, wide = norms("norm", x, at)
    for layer in range(keys.num_hidden_layers):
        build.layer = layer
        at = f"{prefix}encoder.layer.{layer}"
        query, key, value = (linear(name, narrow, f"{at}.attention.self.{name}", width, width)
                             for name in ("query", "key", "value"))
        y = build.attention("attention", query, key, value, head_dim=head_dim, scale=head_dim ** -0.5, causal=False)
        y = linear("output", y, f"{at}.attention.output.dense", width, width)
        narrow, wide = norms("attention_norm", build.add("attention_add", wide, y), f"{at}.attention.output")
        y = linear("up", narrow, f"{at}.intermediate.dense", width, inner)
        y = build.activation("activation", y, ACTIVATIONS[keys.hidden_act])
        y = linear("down", y, f"{at}.output.dense", inner, width)
        narrow, wide = norms("output_norm", build.add("output_add", wide, y), f"{at}.output")
    build.layer = None
    output, classified = wide, "classifier.weight" in names
    if classified:
        y = build.activation("pooled", linear("pooler", narrow, f"{prefix}pooler.dense", width, width), Function.TANH)
        output = linear("classifier", y, "classifier", width, keys.labels)
    return Blueprint(graph=build.graph("bert", keys.max_position_embeddings, output), sources=build.sources,
                     copies={}, notes=keys.notes, architecture=CLASSIFIER if classified else MODEL)


BERT = Family(
    model_types=("bert",), architectures=(MODEL, CLASSIFIER), describe=_describe,
    harmless=(re.compile(r"(bert\.)?embeddings\.position_ids"),  # 0, 1, 2, ..
              re.compile(r"(bert\.)?pooler\.dense\.(weight|bias)")))  # where no classifier reads it
