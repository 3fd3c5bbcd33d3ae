"""The frozen target in torch: hidden rows and probabilities of given tokens, and batches of texts that it writes.

Rows stay in float32, products take bfloat16 (on a GPU), the head float32: logits in bfloat16 tie too often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from gemmule.sw.training.drafters.packed import Pack

__all__ = ["Target", "Written", "normed", "rotate", "rotations"]

BUCKET = 32
"""Positions by which the cache that attention reads grows."""


def normed(rows: Tensor, gain: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis."""
    return F.rms_norm(rows, (rows.shape[-1],), gain, eps)


def rotations(positions: Tensor, dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of positions  # [..., dim / 2]."""
    steps = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device) / dim)
    angles = positions.to(torch.float64)[..., None] * steps
    return angles.cos().float(), angles.sin().float()


def rotate(rows: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """RoPE of adjacent pairs; ``turn`` is broadcast against [..., dim / 2]."""
    cos, sin = turn
    even, odd = rows[..., 0::2].float(), rows[..., 1::2].float()
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2).to(rows.dtype)


@dataclass(frozen=True)
class Written:
    """Texts of a batch.

    Attributes:
        tokens: prompt and answer, padded at the end  # [texts, length].
        starts: where answers begin.
        ends: how many tokens count; the end token is one of them.
        closed: whether the end token was written.
        rows: where they were asked for, those before the head that chose the tokens of the answers, in float16
            # [texts, answer, hidden].
    """

    tokens: Tensor
    starts: Tensor
    ends: Tensor
    closed: Tensor
    rows: Tensor | None = None


class Target:
    """The network; nothing of it is trained."""

    def __init__(self, pack: Pack, device: torch.device, depths: Sequence[int]) -> None:
        self.shape, self.device, self.depths, self.end = pack.shape, device, tuple(depths), pack.end
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

        def load(name: str) -> Tensor:
            return torch.from_numpy(pack.tensors[name]).to(device)

        def product(*names: str) -> Tensor:
            return torch.cat([load(f"{name}.weight") for name in names]).to(self.dtype)

        self.embedding, self.gain = load("token_embd.weight"), load("output_norm.weight")
        self.blocks = [{
            "attn_norm": load(f"blk.{at}.attn_norm.weight"), "ffn_norm": load(f"blk.{at}.ffn_norm.weight"),
            "qkv": product(f"blk.{at}.attn_q", f"blk.{at}.attn_k", f"blk.{at}.attn_v"),
            "out": product(f"blk.{at}.attn_output"), "up": product(f"blk.{at}.ffn_gate", f"blk.{at}.ffn_up"),
            "down": product(f"blk.{at}.ffn_down")} for at in range(self.shape.layers)]

    def _qkv(self, block: dict[str, Tensor], x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values  # [texts, heads, tokens, head_dim]."""
        shape, dim = self.shape, self.shape.head_dim
        rows = F.linear(normed(x, block["attn_norm"], shape.eps).to(self.dtype), block["qkv"])
        rows = rows.unflatten(-1, (-1, dim)).transpose(1, 2)
        turned, v = rows.split([shape.heads + shape.kv_heads, shape.kv_heads], 1)
        q, k = rotate(turned, turn).split([shape.heads, shape.kv_heads], 1)
        return q, k, v

    def _rest(self, block: dict[str, Tensor], x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention in a layer."""
        x = x + F.linear(mixed.transpose(1, 2).flatten(-2), block["out"])
        gate, up = F.linear(normed(x, block["ffn_norm"], self.shape.eps).to(self.dtype), block["up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, block["down"])

    @torch.no_grad()
    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden rows behind ``depths`` layers, one after another, and rows before the head  # [texts, tokens, …].

        Padding at the end of a text changes nothing before it.
        """
        x = F.embedding(tokens, self.embedding)
        at = torch.arange(tokens.shape[1], device=self.device)
        turn = rotations(at, self.shape.head_dim, self.shape.theta)
        kept = []
        for depth, block in enumerate(self.blocks, 1):
            q, k, v = self._qkv(block, x, turn)
            x = self._rest(block, x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
            if depth in self.depths:
                kept.append(x)
        return torch.stack(kept, 2), normed(x, self.gain, self.shape.eps)

    def logits(self, rows: Tensor, vocabulary: Tensor | None = None) -> Tensor:
        """Of normed rows, over all tokens or a list of them."""
        head = self.embedding if vocabulary is None else self.embedding[vocabulary]
        return F.linear(rows, head)

    @torch.no_grad()
    def write(self, prompts: Sequence[Tensor], most: int, temperature: float, generator: torch.Generator,
              least_open: float = 0.0, chunk: int = 256, keep: bool = False) -> Written:
        """Continue prompts by at most ``most`` tokens, greedily at temperature 0.

        It stops when at most a share ``least_open`` of the texts are still open. ``keep``: rows come too.
        """
        shape, count = self.shape, len(prompts)
        longest = -(-max(len(prompt) for prompt in prompts) // 8) * 8  # fast masked attention wants multiples of 8
        room = -(-(longest + most) // BUCKET) * BUCKET
        tokens = torch.full((count, room), self.end, dtype=torch.long)
        for row, prompt in enumerate(prompts):  # prompts end at the same column
            tokens[row, longest - len(prompt):longest] = prompt
        tokens = tokens.to(self.device)
        pads = torch.tensor([longest - len(prompt) for prompt in prompts], device=self.device)
        sizes = (count, shape.kv_heads, room, shape.head_dim)
        cache = [(torch.zeros(sizes, dtype=self.dtype, device=self.device),
                  torch.zeros(sizes, dtype=self.dtype, device=self.device)) for _ in self.blocks]
        columns = torch.arange(room, device=self.device)
        turn = rotations((columns - pads[:, None]).clamp(min=0), shape.head_dim, shape.theta)
        seen = columns >= pads[:, None]  # [texts, columns]
        last = torch.cat([self._prefill(tokens[at:at + chunk, :longest], seen[at:at + chunk, :longest],
                                        (turn[0][at:at + chunk, :longest], turn[1][at:at + chunk, :longest]),
                                        [(k[at:at + chunk], v[at:at + chunk]) for k, v in cache])
                          for at in range(0, count, chunk)])
        ends = torch.full((count,), longest + most, device=self.device)
        is_open, kept = torch.ones(count, dtype=torch.bool, device=self.device), list[Tensor]()
        for column in range(longest, longest + most):
            if keep:
                kept.append(last.half().cpu())
            chosen = self._choose(self.logits(last), temperature, generator)
            tokens[:, column] = torch.where(is_open, chosen, self.end)
            ends = torch.where(is_open & (chosen == self.end), column + 1, ends)
            is_open &= chosen != self.end
            if column % 16 == 0 and float(is_open.float().mean()) <= least_open or column + 1 == longest + most:
                ends = torch.where(is_open, column + 1, ends)
                break
            last = self._decode(tokens[:, column], column, seen, turn, cache)
        lengths = ends - pads
        shifted = (columns + pads[:, None]).clamp(max=room - 1)
        moved = torch.where(columns < lengths[:, None], tokens.gather(1, shifted), self.end)
        return Written(moved[:, :longest + most], longest - pads, lengths, ~is_open,
                       torch.stack(kept, 1) if keep else None)

    def _prefill(self, tokens: Tensor, seen: Tensor, turn: tuple[Tensor, Tensor],
                 cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Fill the cache with prompts; the last row of each, before the head."""
        length = tokens.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=self.device)
        mask = (causal.tril() & seen[:, None, :]) | torch.eye(length, dtype=torch.bool, device=self.device)
        x = F.embedding(tokens, self.embedding)
        turn = (turn[0][:, None], turn[1][:, None])
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            q, k, v = self._qkv(block, x, turn)
            keys[:, :, :length], values[:, :, :length] = k, v
            x = self._rest(block, x, _attend(q, k, v, mask[:, None]))
        return normed(x[:, -1], self.gain, self.shape.eps)

    def _decode(self, tokens: Tensor, column: int, seen: Tensor, turn: tuple[Tensor, Tensor],
                cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One token of each text; its row before the head."""
        shape = self.shape
        reach = (column // BUCKET + 1) * BUCKET
        hidden = ~(seen[:, :reach] & (torch.arange(reach, device=self.device) <= column))
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))
        here = (turn[0][:, None, column:column + 1], turn[1][:, None, column:column + 1])
        x = F.embedding(tokens[:, None], self.embedding)
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            q, k, v = self._qkv(block, x, here)
            keys[:, :, column], values[:, :, column] = k[:, :, 0], v[:, :, 0]
            grouped = q.unflatten(1, (shape.kv_heads, -1))[:, :, :, 0]  # queries of a KV head as rows
            mixed = F.scaled_dot_product_attention(
                grouped, keys[:, :, :reach], values[:, :, :reach],
                attn_mask=mask[:, None, None, :].expand(-1, grouped.shape[1], grouped.shape[2], -1))
            x = self._rest(block, x, mixed.flatten(1, 2)[:, :, None])
        return normed(x[:, 0], self.gain, shape.eps)

    def _choose(self, logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
        if temperature == 0:
            return logits.argmax(-1)
        drawn = torch.empty_like(logits).exponential_(generator=generator)
        return (logits / temperature - drawn.clamp(min=1e-20).log()).argmax(-1)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Masked attention of grouped queries."""
    repeats = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1),
                                          attn_mask=mask)
