"""The decoder-only transformer in torch: both bundled models are sizes of this one class.

Pre-RMSNorm, rotary positions on adjacent pairs, causal multi-head attention, tanh-GELU MLP,
no biases, tied embedding and LM head.  Parameter names are the Hugging Face Llama names.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from gemmule.sw.training.export import ModelShape
from gemmule.sw.training.report import EVAL_BATCH, Predictor, RangeRecorder, Tokens

Observer = Callable[[str, Tensor], None]
"""Called with a tap name ("layers.0.gelu") and the activation found there."""
KvCache = list[tuple[Tensor, Tensor]]
"""Per layer the rotated keys and the values  # each [batch, heads, tokens, head_dim]."""


def rope_tables(shape: ModelShape) -> tuple[Tensor, Tensor]:
    """Cosine and sine per position and pair  # each [max_positions, head_dim / 2]."""
    exponent = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angle = torch.outer(torch.arange(shape.max_positions, dtype=torch.float64), shape.rope_theta**-exponent)
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the adjacent pairs (2i, 2i+1) of x  # [batch, heads, tokens, head_dim]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


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

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        past: tuple[Tensor, Tensor] | None,
        observe: Callable[[str, Tensor], None],
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # [batch, tokens, width] -> [batch, heads, tokens, head_dim]
        q, k, v = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        # Attention stays in float32 under autocast: torch's CPU kernel is slower in bfloat16.
        q, k, v = rotate(q, cos, sin).float(), rotate(k, cos, sin).float(), v.float()
        for name, value in (("q", q), ("k", k), ("v", v)):
            observe(name, value)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        # With a cache only single rows are fed, which may see every cached key: no mask.
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        mixed = mixed.transpose(1, 2).flatten(-2)  # [batch, tokens, width]
        observe("attention", mixed)
        return self.o_proj(mixed), (k, v)


class Mlp(nn.Module):
    """down(gelu_tanh(up(x))), no biases."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, observe: Callable[[str, Tensor], None]) -> Tensor:
        hidden = functional.gelu(self.up_proj(x), approximate="tanh")
        observe("gelu", hidden)
        return self.down_proj(hidden)


class Layer(nn.Module):
    """One transformer block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)


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
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # The two projections that write to the residual stream shrink with depth (GPT-2).
                writes_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                depth_scale = math.sqrt(2 * shape.num_layers) if writes_residual else 1.0
                nn.init.normal_(weight, std=0.02 / depth_scale)

    def forward(
        self, tokens: Tensor, cache: KvCache | None = None, observe: Observer | None = None
    ) -> tuple[Tensor, KvCache]:
        """Logits  # [batch, tokens, vocab], and the cache extended by these tokens."""
        start = 0 if cache is None else cache[0][0].shape[2]
        if start + tokens.shape[1] > self.shape.max_positions:
            raise ValueError(f"at most {self.shape.max_positions} positions, not {start + tokens.shape[1]}")
        cos = self.get_buffer("cos")[start : start + tokens.shape[1]]
        sin = self.get_buffer("sin")[start : start + tokens.shape[1]]
        tap: Observer = observe if observe is not None else lambda name, value: None
        x = self.model.embed_tokens(tokens).float()  # [batch, tokens, hidden]
        tap("embedding", x)
        extended: KvCache = []
        for index, layer in enumerate(self.model.layers):
            assert isinstance(layer, Layer)

            def layer_tap(name: str, value: Tensor, index: int = index) -> None:
                tap(f"layers.{index}.{name}", value)

            normed = layer.input_layernorm(x)
            layer_tap("input_norm", normed)
            past = None if cache is None else cache[index]
            attended, present = layer.self_attn(normed, cos, sin, past, layer_tap)
            extended.append(present)
            x = x + attended
            layer_tap("residual_attention", x)
            normed = layer.post_attention_layernorm(x)
            layer_tap("mlp_norm", normed)
            x = x + layer.mlp(normed, layer_tap)
            layer_tap("residual_mlp", x)
        x = self.model.norm(x)
        tap("final_norm", x)
        return functional.linear(x, self.model.embed_tokens.weight), extended


@torch.no_grad()
def generate(model: LanguageModel, prompts: Tensor, length: int, temperatures: Tensor, seed: int) -> Tensor:
    """Extend prompts [batch, tokens] to [batch, length]; a temperature of 0 means greedy  # [batch]."""
    generator = torch.Generator().manual_seed(seed)
    tokens = prompts
    logits, cache = model(prompts)
    greedy = temperatures == 0
    scale = temperatures.masked_fill(greedy, 1.0)[:, None]
    while True:
        row = logits[:, -1].float()  # [batch, vocab]
        drawn = torch.multinomial(torch.softmax(row / scale, -1), 1, generator=generator)
        chosen = torch.where(greedy[:, None], row.argmax(-1, keepdim=True), drawn)
        tokens = torch.cat((tokens, chosen), dim=1)
        if tokens.shape[1] >= length:
            return tokens
        logits, cache = model(chosen, cache)


def predictor(model: LanguageModel) -> Predictor:
    """The model as numpy sees it: token ids to float32 logits."""
    return lambda ids: model(torch.from_numpy(ids))[0].detach().numpy()


@torch.no_grad()
def activation_ranges(model: LanguageModel, windows: Tokens) -> dict[str, float]:
    """The largest magnitude at each tap of the model over windows [count, tokens]."""
    recorder = RangeRecorder()
    for start in range(0, len(windows), EVAL_BATCH):
        rows = torch.from_numpy(windows[start : start + EVAL_BATCH])
        logits, _ = model(rows, observe=lambda name, value: recorder.observe(name, value.numpy()))
        recorder.observe("logits", logits.numpy())
    return recorder.rounded()
