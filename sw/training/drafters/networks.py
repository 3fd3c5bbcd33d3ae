"""Drafters on a frozen target: a sequential one (EAGLE-like) and a one-pass one (PARD-like).

A drafter stands at an *anchor*: position i, whose hidden rows the target has computed, with the token that it chose for
i + 1. It drafts tokens i + 2, i + 3, … . All anchors of a text are computed at once: the rows that stand for the text
see each other causally, and the drafted rows of an anchor see the text up to the anchor and each other, no one else's.

Every product is a plain matrix, every norm an RMS norm before it; logits are the target's own head over a reduced
vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from gemmule.sw.training.drafters.packed import Shape
from gemmule.sw.training.drafters.recipe import NetworkRecipe
from gemmule.sw.training.drafters.target import normed, rotate, rotations

__all__ = ["Drafter", "Eagle", "Parallel", "build"]


class Norm(nn.Module):
    """RMS norm in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, rows: Tensor) -> Tensor:
        """Over the last axis."""
        return normed(rows.float(), self.weight, self.eps)


def _matrix(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    """A layer like the target's."""

    def __init__(self, shape: Shape, inner: int) -> None:
        super().__init__()
        self.shape = shape
        dim = shape.head_dim
        self.attn_norm, self.ffn_norm = (Norm(shape.hidden, shape.eps) for _ in range(2))
        self.q, self.k, self.v = (_matrix(shape.hidden, heads * dim)
                                  for heads in (shape.heads, shape.kv_heads, shape.kv_heads))
        self.out = _matrix(shape.heads * dim, shape.hidden)
        self.gate, self.up, self.down = (_matrix(shape.hidden, inner), _matrix(shape.hidden, inner),
                                         _matrix(inner, shape.hidden))

    def qkv(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of rows [texts, …, hidden] at positions [… or broadcast]  # [texts, …, KV heads, (queries,) head_dim]."""
        rows, dim = self.attn_norm(x), self.shape.head_dim
        turn = rotations(positions, dim, self.shape.theta)
        turn = (turn[0][..., None, :], turn[1][..., None, :])
        q, k, v = (part(rows).unflatten(-1, (-1, dim)) for part in (self.q, self.k, self.v))
        return rotate(q, turn).unflatten(-2, (self.shape.kv_heads, -1)), rotate(k, turn), v

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention: ``mixed`` [texts, …, KV heads, queries, head_dim]."""
        x = x + self.out(mixed.flatten(-3))
        rows = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(rows)) * self.up(rows))

    def read(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of the text  # [texts, tokens, hidden]; with their keys and values."""
        q, k, v = self.qkv(x, torch.arange(x.shape[1], device=x.device))
        mixed = F.scaled_dot_product_attention(q.flatten(-3, -2).transpose(1, 2), k.transpose(1, 2),
                                               v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return self.rest(x, mixed.transpose(1, 2).unflatten(2, (self.shape.kv_heads, -1))), k, v

    def draft(self, x: Tensor, anchors: Tensor, step: int, text: tuple[Tensor, Tensor],
              own: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Drafted rows of each anchor  # [texts, anchors, drafted, hidden]; with their keys and values.

        The first stands ``step`` positions behind its anchor. ``text`` holds keys and values of the text [texts,
        tokens, KV heads, head_dim], which an anchor sees up to itself; ``own`` those of rows that the anchor drafted
        before.
        """
        count = x.shape[2]
        q, k, v = self.qkv(x, anchors[:, None] + torch.arange(step, step + count, device=x.device))
        before = own[0].shape[2] if own else 0
        keys = torch.cat([own[0], k], 2) if own else k
        values = torch.cat([own[1], v], 2) if own else v
        scale = self.shape.head_dim ** -0.5
        tokens = text[0].shape[1]
        near = torch.einsum("banhqd,bamhd->bahnqm", q, keys) * scale
        far = torch.einsum("banhqd,bthd->bahnqt", q, text[0]) * scale
        causal = torch.arange(tokens, device=x.device) <= anchors[:, None]
        among = torch.ones(count, before + count, dtype=torch.bool, device=x.device).tril(before)
        far = far.masked_fill(~causal[None, :, None, None, None, :], float("-inf"))
        near = near.masked_fill(~among[:, None, :], float("-inf"))
        share = torch.cat([far, near], -1).softmax(-1, dtype=torch.float32).to(v.dtype)
        mixed = torch.einsum("bahnqt,bthd->banhqd", share[..., :tokens], text[1])
        mixed = mixed + torch.einsum("bahnqm,bamhd->banhqd", share[..., tokens:], values)
        return self.rest(x, mixed), k, v


class Drafter(nn.Module, ABC):
    """What all have: a head over a reduced vocabulary, and a way to draft at all anchors at once."""

    embedding: Tensor
    head: Tensor
    vocabulary: Tensor

    def __init__(self, shape: Shape, embedding: Tensor, vocabulary: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("vocabulary", vocabulary, persistent=False)
        self.register_buffer("head", embedding[vocabulary], persistent=False)
        self.norm = Norm(shape.hidden, shape.eps)

    def logits(self, rows: Tensor) -> Tensor:
        """Over the reduced vocabulary, in float32."""
        with torch.autocast(rows.device.type, enabled=False):
            return F.linear(self.norm(rows), self.head)

    @abstractmethod
    def draft(self, tokens: Tensor, rows: Tensor, anchors: Tensor, count: int) -> list[Tensor]:
        """Rows before the head for ``count`` drafted positions  # [texts, anchors, hidden].

        Those of the first position come for every token of the texts. A sequential drafter reads the text's own tokens
        behind the anchor: what it then proposes is what it would propose had it read its own, up to the first mistake,
        where drafting is over.

        Args:
            tokens: of the texts  # [texts, length].
            rows: the target's hidden rows at its depths  # [texts, length, depths, hidden].
            anchors: positions at which more than one token is drafted, increasing.
            count: positions that are drafted.
        """


class Eagle(Drafter):
    """One layer over [the token's embedding; the fused rows], which then reads its own rows and tokens."""

    def __init__(self, shape: Shape, recipe: NetworkRecipe, embedding: Tensor, vocabulary: Tensor) -> None:
        super().__init__(shape, embedding, vocabulary)
        hidden, depths = shape.hidden, len(recipe.depths)
        self.depth_norms = nn.ModuleList(Norm(hidden, shape.eps) for _ in range(depths))
        self.fuse = _matrix(depths * hidden, hidden)
        self.token_norm, self.row_norm = (Norm(hidden, shape.eps) for _ in range(2))
        self.join = _matrix(2 * hidden, hidden)
        self.block = Block(shape, recipe.eagle_inner)

    def _joined(self, tokens: Tensor, rows: Tensor) -> Tensor:
        read = self.token_norm(F.embedding(tokens, self.embedding))
        return self.join(torch.cat([read, self.row_norm(rows)], -1)).float()

    def draft(self, tokens: Tensor, rows: Tensor, anchors: Tensor, count: int) -> list[Tensor]:
        """One position after another."""
        fused = self.fuse(torch.cat([norm(rows[:, :, at]) for at, norm in enumerate(self.depth_norms)], -1))
        y, *text = self.block.read(self._joined(_ahead(tokens, 1), fused))
        found, last = [y], y[:, anchors]
        own: tuple[Tensor, Tensor] | None = None
        for step in range(1, count):
            x = self._joined(_ahead(tokens, step + 1)[:, anchors], last)[:, :, None]
            z, k, v = self.block.draft(x, anchors, step, (text[0], text[1]), own)
            own = (torch.cat([own[0], k], 2), torch.cat([own[1], v], 2)) if own else (k, v)
            found.append(last := z[:, :, 0])
        return found


class Parallel(Drafter):
    """A few layers that draft all positions in one pass: masks, each a learned row beside the anchor's fused rows."""

    def __init__(self, shape: Shape, recipe: NetworkRecipe, embedding: Tensor, vocabulary: Tensor) -> None:
        super().__init__(shape, embedding, vocabulary)
        hidden, depths = shape.hidden, len(recipe.depths)
        self.norms = nn.ModuleList(Norm(hidden, shape.eps) for _ in range(depths + 1))
        self.join = _matrix((depths + 1) * hidden, hidden)
        masks = torch.randn(recipe.positions - 1, hidden, device=embedding.device)
        self.mask_embedding = nn.Parameter(masks * embedding.std())
        self.blocks = nn.ModuleList(Block(shape, recipe.parallel_inner) for _ in range(recipe.parallel_layers))

    def draft(self, tokens: Tensor, rows: Tensor, anchors: Tensor, count: int) -> list[Tensor]:
        """The first position from the text's last row, the others from masks."""
        hidden = self.shape.hidden
        token, *depths = cast("list[Norm]", list(self.norms))
        of_rows = torch.cat([norm(rows[:, :, at]) for at, norm in enumerate(depths)], -1)
        of_tokens = token(F.embedding(_ahead(tokens, 1), self.embedding))
        of_masks = F.linear(token(self.mask_embedding[:count - 1]), self.join.weight[:, :hidden])
        base = F.linear(of_rows, self.join.weight[:, hidden:])
        x = (base + F.linear(of_tokens, self.join.weight[:, :hidden])).float()
        masks = (base[:, anchors, None] + of_masks).float()
        for block in cast("list[Block]", list(self.blocks)):
            x, k, v = block.read(x)
            if count > 1:
                masks, _, _ = block.draft(masks, anchors, 1, (k, v))
        return [x, *masks.unbind(2)]


def _ahead(tokens: Tensor, count: int) -> Tensor:
    """The token ``count`` positions further; behind the end the last one."""
    return torch.cat([tokens[:, count:], tokens[:, -1:].expand(-1, count)], 1)


def build(kind: str, shape: Shape, recipe: NetworkRecipe, embedding: Tensor, vocabulary: Tensor) -> Drafter:
    """A drafter by name, its matrices drawn from torch's generator."""
    kinds: dict[str, Callable[[Shape, NetworkRecipe, Tensor, Tensor], Drafter]] = {
        "eagle": Eagle, "parallel": Parallel}
    made = kinds[kind](shape, recipe, embedding, vocabulary)
    for name, weight in made.named_parameters():
        if weight.dim() == 2 and "mask" not in name:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            if name.endswith(("out.weight", "down.weight")):
                nn.init.zeros_(weight)
    return made.to(embedding.device)
