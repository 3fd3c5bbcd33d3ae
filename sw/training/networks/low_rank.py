"""A trained decoder whose linear layers get changes of low rank, and streams that guess further tokens (LoRA).

Hu et al. 2021: a product of two thin matrices is added to each matrix of a layer, which itself stays as it is. Query,
key and value share one. Streams (Bhendawade et al. 2024, Speculative Streaming) are further rows of the last layers:
stream ``j`` at position ``t`` begins with a learned row, sees what the token at ``t`` sees, that token, and the streams
before it, and says which token stands at ``t + 1 + j``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from gemmule.sw.training.networks.export import ModelShape
from gemmule.sw.training.networks.model import rope_tables, rotate

__all__ = ["PARTS", "LowRank", "Weights"]

Weights = dict[str, NDArray[np.float32]]
"""Of a checkpoint, by name."""
PARTS = {"qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), "out": ("self_attn.o_proj",),
         "up": ("mlp.up_proj",), "down": ("mlp.down_proj",)}
"""What changes of a layer, and the matrices that a change is of, one below the other."""
NORMS = ("input_layernorm", "post_attention_layernorm")


class LowRank(nn.Module):
    """The decoder; only changes and streams are learned."""

    def __init__(self, shape: ModelShape, weights: Weights, ranks: tuple[int, ...], streams: int, first: int) -> None:
        """``ranks``: by layer; ``streams``: rows behind a token; ``first``: layers that they do not run."""
        super().__init__()
        self.shape, self.first = shape, first
        cos, sin = rope_tables(shape)
        given = {"cos": cos, "sin": sin, "embedding": torch.from_numpy(weights["model.embed_tokens.weight"]),
                 "norm": torch.from_numpy(weights["model.norm.weight"])}
        for layer, rank in enumerate(ranks):
            at = f"model.layers.{layer}."
            for part, names in PARTS.items():
                whole = torch.cat([torch.from_numpy(weights[f"{at}{name}.weight"]) for name in names])
                given[f"{part}{layer}"] = whole
                narrow = torch.randn(rank, whole.shape[1]) / math.sqrt(whole.shape[1])
                self.register_parameter(f"a_{part}{layer}", nn.Parameter(narrow))
                self.register_parameter(f"b_{part}{layer}", nn.Parameter(torch.zeros(whole.shape[0], rank)))
            for name in NORMS:
                given[f"{name}{layer}"] = torch.from_numpy(weights[f"{at}{name}.weight"])
        for name, value in given.items():
            self.register_buffer(name, value, persistent=False)
        self.streams = nn.Parameter(torch.zeros(streams, shape.hidden_size))

    def _linear(self, x: Tensor, part: str) -> Tensor:
        narrow = functional.linear(x, self.get_parameter(f"a_{part}"))
        return functional.linear(x, self.get_buffer(part)) + functional.linear(narrow, self.get_parameter(f"b_{part}"))

    def _normed(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.shape.rms_norm_eps)
        return x * scale * self.get_buffer(name)

    def _heads(self, x: Tensor, layer: int, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated q and k, and v  # [batch, rows, hidden], positions [.., rows] -> three [batch, heads, rows, size]."""
        joint = self._linear(self._normed(x, f"input_layernorm{layer}"), f"qkv{layer}")
        q, k, v = (part.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2) for part in joint.chunk(3, -1))
        cos, sin = (self.get_buffer(name)[positions] for name in ("cos", "sin"))
        if positions.dim() > 1:
            cos, sin = cos[:, None], sin[:, None]
        return rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype), v

    def _behind(self, x: Tensor, context: Tensor, layer: int) -> Tensor:
        """The stream behind attention and MLP; ``context`` [batch, heads, rows, size]."""
        x = x + self._linear(context.transpose(1, 2).flatten(-2), f"out{layer}")
        up = functional.relu(self._linear(self._normed(x, f"post_attention_layernorm{layer}"), f"up{layer}"))
        return x + self._linear(up.square(), f"down{layer}")

    def last_norm(self, x: Tensor) -> Tensor:
        """What the head reads."""
        return self._normed(x, "norm")

    def hidden(self, tokens: Tensor, left_out: frozenset[int] = frozenset(), behind: Tensor | None = None) \
            -> tuple[list[Tensor], Tensor | None]:
        """The residual stream at every depth, the embedding first, and the streams' behind the last layer.

        Args:
            tokens: [batch, tokens]
            left_out: layers that are not run.
            behind: positions that have streams  # [batch, chosen]; None: no position has.

        Returns:
            [batch, tokens, hidden] each, and [batch, chosen, streams, hidden].
        """
        count = tokens.shape[1]
        positions = torch.arange(count, device=tokens.device)
        found = [functional.embedding(tokens, self.get_buffer("embedding"))]
        rows, own, seen = None, positions, positions
        if behind is not None:
            streams = len(self.streams)
            rows = self.streams.expand(*behind.shape, -1, -1).flatten(1, 2)  # [batch, chosen * streams, hidden]
            own = (behind[..., None] + 1 + torch.arange(streams, device=tokens.device)).flatten(1)
            seen = (positions <= behind[..., None]).repeat_interleave(streams, 1)[:, None]  # [batch, 1, rows, tokens]
        for layer in range(self.shape.num_layers):
            x = found[-1]
            if layer in left_out:
                found.append(x)
                continue
            q, k, v = self._heads(x, layer, positions)
            found.append(self._behind(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True), layer))
            if rows is not None and layer >= self.first:
                rows = self._through(rows, layer, own, seen, k, v)
        return found, None if behind is None or rows is None else rows.unflatten(1, (behind.shape[1], -1))

    def _through(self, rows: Tensor, layer: int, own: Tensor, seen: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Streams through a layer whose tokens have these keys and values."""
        streams = len(self.streams)
        q, k, v = self._heads(rows, layer, own)
        one, its, its_v = (part.unflatten(2, (-1, streams)) for part in (q, k, v))  # [batch, heads, chosen, streams, .]
        scale = 1 / math.sqrt(self.shape.head_dim)
        far = (q @ keys.transpose(-1, -2)).float().mul(scale).masked_fill(~seen, -1e30)
        near = (one @ its.transpose(-1, -2)).float().mul(scale)
        near = near.masked_fill(torch.ones(streams, streams, dtype=torch.bool, device=q.device).triu(1), -1e30)
        shares = torch.softmax(torch.cat((far, near.flatten(2, 3)), -1), -1).to(v.dtype)
        far, near = shares.split((keys.shape[2], streams), -1)
        context = far @ values + (near.unflatten(2, (-1, streams)) @ its_v).flatten(2, 3)
        return self._behind(rows, context, layer)
