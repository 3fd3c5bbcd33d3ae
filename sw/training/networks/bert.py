"""The encoder in torch: a small BERT, post-norm, under the names of Hugging Face's ``BertForSequenceClassification``.

LayerNorm, GELU, learned positions, the first token pooled (Devlin et al. 2019).
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from gemmule.sw.training.data.folds import CLASSES
from gemmule.sw.training.data.tokenizer import VOCAB_SIZE
from gemmule.sw.training.recipe import EncoderRecipe

__all__ = ["EPSILON", "Bert"]

EPSILON = 1e-5


class SelfAttention(nn.Module):
    """Every token sees every token."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(plan.hidden, plan.hidden) for _ in range(3))
        self.heads = plan.heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in (self.query, self.key, self.value))  # [batch, heads, tokens, head_dim]
        # written out: on a CPU the backward pass of torch's own kernel takes longer than all else together
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return (torch.softmax(scores, -1).to(v.dtype) @ v).transpose(1, 2).flatten(-2)


class Output(nn.Module):
    """A projection, added to what came before, and LayerNorm."""

    def __init__(self, inner: int, plan: EncoderRecipe) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, plan.hidden)
        self.LayerNorm = nn.LayerNorm(plan.hidden, eps=EPSILON)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(before + self.dense(x))
        return normed


class BertLayer(nn.Module):
    """LayerNorm(x + attention(x)), then LayerNorm(x + mlp(x))."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(plan), "output": Output(plan.hidden, plan)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(plan.hidden, plan.inner)})
        self.output = Output(plan.inner, plan)

    @property
    def self_attention(self) -> SelfAttention:
        return cast(SelfAttention, self.attention["self"])

    @property
    def attended(self) -> Output:
        """The projection and the norm behind attention."""
        return cast(Output, self.attention["output"])

    @property
    def up(self) -> nn.Linear:
        return cast(nn.Linear, self.intermediate["dense"])

    def forward(self, x: Tensor) -> Tensor:
        x = self.attended(self.self_attention(x), x)
        after: Tensor = self.output(functional.gelu(self.up(x)), x)
        return after


class Embeddings(nn.Module):
    """Words, positions and the only type, normed."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB_SIZE, plan.hidden)
        self.position_embeddings = nn.Embedding(plan.window, plan.hidden)
        self.token_type_embeddings = nn.Embedding(1, plan.hidden)
        self.LayerNorm = nn.LayerNorm(plan.hidden, eps=EPSILON)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word_embeddings(tokens) + self.position_embeddings.weight[: tokens.shape[1]]
        normed: Tensor = self.LayerNorm(x + self.token_type_embeddings.weight[0])
        return normed


class Bert(nn.Module):
    """Token windows to class scores; parameters have the names of the checkpoint."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.bert = nn.ModuleDict({
            "embeddings": Embeddings(plan),
            "encoder": nn.ModuleDict({"layer": nn.ModuleList(BertLayer(plan) for _ in range(plan.layers))}),
            "pooler": nn.ModuleDict({"dense": nn.Linear(plan.hidden, plan.hidden)})})
        self.classifier = nn.Linear(plan.hidden, len(CLASSES))
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    @property
    def embeddings(self) -> Embeddings:
        return cast(Embeddings, self.bert["embeddings"])

    @property
    def layers(self) -> list[BertLayer]:
        found = cast(nn.ModuleList, cast(nn.ModuleDict, self.bert["encoder"])["layer"])
        return [cast(BertLayer, layer) for layer in found]

    @property
    def pooler(self) -> nn.Linear:
        return cast(nn.Linear, cast(nn.ModuleDict, self.bert["pooler"])["dense"])

    def forward(self, tokens: Tensor) -> Tensor:
        """Class scores  # [batch, classes]."""
        x: Tensor = self.embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.classifier(torch.tanh(self.pooler(x[:, 0])))
        return scores
