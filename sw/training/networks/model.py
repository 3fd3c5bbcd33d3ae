"""The decoder-only transformer in torch: every bundled decoder is a size of this one class.

Pre-RMSNorm, rotary positions on adjacent pairs, causal multi-head attention, an MLP with tanh-GELU or squared ReLU, no
biases, tied embedding and LM head. Parameter names are the Hugging Face Llama names. Training may leave layers out and
may read the next token off any depth, through the same final norm and head (LayerSkip, Elhoushi et al. 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from gemmule.sw.training.networks.export import ModelShape
from gemmule.sw.training.yardstick import Predictor

KvCache = list[tuple[Tensor, Tensor]]
"""Per layer the rotated keys and the values, room for all positions  # each [batch, heads, length, head_dim]."""
CHUNK = 128
"""Queries whose scores are in memory at a time."""


def rope_tables(shape: ModelShape) -> tuple[Tensor, Tensor]:
    """Cosine and sine per position and pair  # each [max_positions, head_dim / 2]."""
    exponent = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angle = torch.outer(torch.arange(shape.max_positions, dtype=torch.float64), shape.rope_theta**-exponent)
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the adjacent pairs (2i, 2i+1) of x  # [batch, heads, tokens, head_dim]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k' / sqrt(d)) v over the tokens up to each row's own  # [batch, heads, tokens, head_dim].

    On a CPU in blocks of queries, each with the keys that it can see: compiled, this takes two thirds of the time of
    torch's own kernel.
    """
    if q.is_cuda:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    q = q * (1 / math.sqrt(q.shape[-1]))
    mask = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    parts = []
    for start in range(0, q.shape[2], CHUNK):
        end = min(start + CHUNK, q.shape[2])
        seen = functional.pad(mask[: end - start, : end - start], (start, 0), value=True)
        scores = (q[:, :, start:end] @ k[:, :, :end].transpose(-1, -2)).float()
        parts.append(torch.softmax(scores.masked_fill(~seen, -1e30), -1).to(v.dtype) @ v[:, :, :end])
    return torch.cat(parts, dim=2)


def row_attention(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q k' / sqrt(d)) v of a single row, which sees every key  # [batch, heads, 1, head_dim].

    In float32: torch's kernel, and products in bfloat16, take several times as long for one row on a CPU.
    """
    with torch.autocast(q.device.type, enabled=False):
        scores = q.float() @ keys.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        return torch.softmax(scores, -1) @ values


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, always in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    """Causal multi-head self-attention, no biases."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width = shape.num_heads * shape.head_dim
        self.head_dim = shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, shape.hidden_size, bias=False)

    def heads(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated q and k, and v  # [batch, tokens, width] -> three of [batch, heads, tokens, head_dim]."""
        joint = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))  # one product for three
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for part in functional.linear(x, joint).chunk(3, -1))
        return rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype), v

    def mix(self, context: Tensor) -> Tensor:
        """The output projection  # [batch, heads, tokens, head_dim] -> [batch, tokens, width]."""
        mixed: Tensor = self.o_proj(context.transpose(1, 2).flatten(-2))
        return mixed


class Mlp(nn.Module):
    """down(activation(up(x))), no biases."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)
        self.squared = shape.activation == "relu2"

    def forward(self, x: Tensor) -> Tensor:
        up = self.up_proj(x)
        hidden = functional.relu(up).square() if self.squared else functional.gelu(up, approximate="tanh")
        down: Tensor = self.down_proj(hidden)
        return down


class Layer(nn.Module):
    """One transformer block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Of whole rows from position 0  # [batch, tokens, hidden]."""
        x = x + self.self_attn.mix(causal_attention(*self.self_attn.heads(self.input_layernorm(x), cos, sin)))
        after: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return after

    def extend(self, x: Tensor, cos: Tensor, sin: Tensor, past: tuple[Tensor, Tensor], start: int) -> Tensor:
        """Of the tokens at ``start`` and behind, which become part of the cache; a single one where it is not empty."""
        q, k, v = self.self_attn.heads(self.input_layernorm(x), cos, sin)
        keys, values = (part[:, :, : start + x.shape[1]] for part in past)
        keys[:, :, start:], values[:, :, start:] = k, v
        context = row_attention(q, keys, values) if start else causal_attention(q, k, v)
        x = x + self.self_attn.mix(context)
        after: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return after


class Decoder(nn.Module):
    """Embedding, layers and final norm: everything that carries the "model." prefix."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)


class LanguageModel(nn.Module):
    """Token ids to next-token logits."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.blocks: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = [*self.model.layers]
        self.loss: Callable[[Tensor, Tensor], Tensor] = self.cross_entropy
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # The two projections that write to the residual stream shrink with depth (GPT-2).
                writes_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                depth_scale = math.sqrt(2 * shape.num_layers) if writes_residual else 1.0
                nn.init.normal_(weight, std=0.02 / depth_scale)

    def compile(self) -> None:  # type: ignore[override]
        """Compile each layer and the loss for training on windows of one length; needs a C++ compiler."""
        torch._dynamo.config.recompile_limit = 64  # layers share their code: each counts as one more
        self.blocks = [torch.compile(layer, dynamic=False) for layer in self.model.layers]
        self.loss = torch.compile(self.cross_entropy, dynamic=False)

    def logits(self, x: Tensor) -> Tensor:
        """The final norm and the head  # [.., hidden] -> [.., vocab]."""
        return functional.linear(self.model.norm(x), self.model.embed_tokens.weight)

    def cross_entropy(self, x: Tensor, following: Tensor) -> Tensor:
        """Mean next-token cross-entropy in nats of rows x [batch, tokens, hidden]."""
        return functional.cross_entropy(self.logits(x).float().flatten(0, 1), following.flatten())

    def _angles(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        if start + count > self.shape.max_positions:
            raise ValueError(f"at most {self.shape.max_positions} positions, not {start + count}")
        return self.get_buffer("cos")[start : start + count], self.get_buffer("sin")[start : start + count]

    def hidden(self, tokens: Tensor, left_out: frozenset[int] = frozenset()) -> list[Tensor]:
        """The residual stream at every depth, the embedding first  # each [batch, tokens, hidden]."""
        cos, sin = self._angles(0, tokens.shape[1])
        found = [self.model.embed_tokens(tokens).float()]
        for index, block in enumerate(self.blocks):
            found.append(found[-1] if index in left_out else block(found[-1], cos, sin))
        return found

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits  # [batch, tokens, vocab]."""
        return self.logits(self.hidden(tokens)[-1])

    def cache(self, batch: int, length: int) -> KvCache:
        """An empty one."""
        size, device = (batch, self.shape.num_heads, length, self.shape.head_dim), self.get_buffer("cos").device
        return [(torch.empty(size, device=device), torch.empty(size, device=device)) for _ in self.model.layers]

    def extend(self, tokens: Tensor, cache: KvCache, start: int) -> Tensor:
        """Logits of the last of the tokens at ``start`` and behind  # [batch, vocab]; the cache gets them all."""
        cos, sin = self._angles(start, tokens.shape[1])
        x = self.model.embed_tokens(tokens).float()  # [batch, tokens, hidden]
        for layer, past in zip(self.model.layers, cache, strict=True):
            assert isinstance(layer, Layer)
            x = layer.extend(x, cos, sin, past, start)
        return self.logits(x[:, -1])


@torch.no_grad()
def generate(model: LanguageModel, prompts: Tensor, length: int, temperatures: Tensor, seed: int,
             hear: Callable[[Tensor], None] | None = None) -> Tensor:
    """Extend prompts [batch, tokens] to [batch, length]; a temperature of 0 means greedy  # [batch].

    ``hear`` gets the logits of every token that is written  # [batch, vocab].
    """
    generator = torch.Generator(prompts.device).manual_seed(seed)
    tokens, fresh, cache = prompts, prompts, model.cache(len(prompts), length)
    greedy = temperatures == 0
    scale = temperatures.masked_fill(greedy, 1.0)[:, None]
    while tokens.shape[1] < length:
        row = model.extend(fresh, cache, tokens.shape[1] - fresh.shape[1]).float()  # [batch, vocab]
        if hear:
            hear(row)
        drawn = torch.multinomial(torch.softmax(row / scale, -1), 1, generator=generator)
        fresh = torch.where(greedy[:, None], row.argmax(-1, keepdim=True), drawn)
        tokens = torch.cat((tokens, fresh), dim=1)
    return tokens


def predictor(model: LanguageModel) -> Predictor:
    """The model as numpy sees it: token ids to float32 logits."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def predict(ids):  # type: ignore[no-untyped-def]
        return model(torch.from_numpy(ids).to(device)).float().cpu().numpy()

    return predict
