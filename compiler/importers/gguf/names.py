"""Tensors of GGUF files by their Hugging Face names, in the layouts that Hugging Face checkpoints have.

llama.cpp's converters rename tensors and turn some of them; here each is turned back, so that a file reads as the
checkpoint that it was made from. Whole rows move, blocks of quantised numbers lie along rows: no number changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.shards import Stored
from gemmule.io.reading import shown

__all__ = ["ARCHITECTURES", "View", "views"]


@dataclass(frozen=True)
class View:
    """A tensor of a Hugging Face checkpoint in a GGUF file."""

    origin: str
    """Its name in the file."""
    shape: tuple[int, ...]
    rows: np.ndarray | None = None
    """Rows of the stored tensor in the order in which the checkpoint has them; none: all, in order."""
    transposed: bool = False
    """Columns of the stored tensor are the checkpoint's rows."""


_LLAMA = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "blk.N.attn_norm": "model.layers.N.input_layernorm", "blk.N.ffn_norm": "model.layers.N.post_attention_layernorm",
    **{f"blk.N.attn_{a}": f"model.layers.N.self_attn.{b}" for a, b in (
        ("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("output", "o_proj"), ("q_norm", "q_norm"),
        ("k_norm", "k_norm"))},
    **{f"blk.N.ffn_{part}": f"model.layers.N.mlp.{part}_proj" for part in ("gate", "up", "down")},
}
ARCHITECTURES: dict[str, dict[str, str]] = {
    "llama": _LLAMA, "qwen2": _LLAMA, "qwen3": _LLAMA,
    "gpt2": {
        "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
        "output": "lm_head", "blk.N.attn_norm": "transformer.h.N.ln_1", "blk.N.ffn_norm": "transformer.h.N.ln_2",
        "blk.N.attn_qkv": "transformer.h.N.attn.c_attn", "blk.N.attn_output": "transformer.h.N.attn.c_proj",
        "blk.N.ffn_up": "transformer.h.N.mlp.c_fc", "blk.N.ffn_down": "transformer.h.N.mlp.c_proj"},
    "phi2": {
        "token_embd": "model.embed_tokens", "output_norm": "model.final_layernorm", "output": "lm_head",
        "blk.N.attn_norm": "model.layers.N.input_layernorm", "blk.N.attn_output": "model.layers.N.self_attn.dense",
        **{f"blk.N.attn_{part}": f"model.layers.N.self_attn.{part}_proj" for part in "qkv"},
        "blk.N.ffn_up": "model.layers.N.mlp.fc1", "blk.N.ffn_down": "model.layers.N.mlp.fc2"},
    "gptneox": {
        "token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out",
        "blk.N.attn_norm": "gpt_neox.layers.N.input_layernorm",
        "blk.N.ffn_norm": "gpt_neox.layers.N.post_attention_layernorm",
        "blk.N.attn_qkv": "gpt_neox.layers.N.attention.query_key_value",
        "blk.N.attn_output": "gpt_neox.layers.N.attention.dense",
        "blk.N.ffn_up": "gpt_neox.layers.N.mlp.dense_h_to_4h",
        "blk.N.ffn_down": "gpt_neox.layers.N.mlp.dense_4h_to_h"},
}
"""By ``general.architecture``: what a tensor is called there and here, without ``.weight`` or ``.bias``."""
_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)")


def views(architecture: str, stored: Mapping[str, Stored], heads: int, kv_heads: int) -> dict[str, View]:
    """The tensors of a file as those of a checkpoint, by their names there; one that no table names keeps its own.

    Raises:
        CompileError: two tensors are the same one of the checkpoint.
    """
    found: dict[str, View] = {}
    for name, tensor in stored.items():
        for there, view in _named(architecture, name, tensor.shape, heads, kv_heads):
            if there in found:
                raise CompileError(f"must hold one of {shown(found[there].origin)} and {shown(name)}, which are the "
                                   "same tensor")
            found[there] = view
    return found


def _named(architecture: str, name: str, shape: tuple[int, ...], heads: int, kv_heads: int) -> list[tuple[str, View]]:
    """(name in the checkpoint, view) of what one stored tensor is there."""
    table = ARCHITECTURES[architecture]
    stem, _, role = name.rpartition(".")
    match = _BLOCK.fullmatch(stem)
    layer, key = (match[1], f"blk.N.{match[2]}") if match else ("", stem)
    if role in ("weight", "bias") and architecture == "phi2" and key == "blk.N.attn_qkv":
        return [(f"model.layers.{layer}.self_attn.{part}_proj.{role}", View(name, (len(rows), *shape[1:]), rows))
                for part, rows in zip("qkv", _thirds(shape[0], heads, kv_heads))]
    if role in ("weight", "bias") and key in table:
        return [(f"{table[key].replace('.N.', f'.{layer}.')}.{role}",
                 _turned_back(architecture, key, View(name, shape), heads, kv_heads))]
    return [(name, View(name, shape))]


def _thirds(rows: int, heads: int, kv_heads: int) -> list[np.ndarray]:
    """Rows of q, of k and of v, which lie one behind the other."""
    columns = rows // (heads + 2 * kv_heads)
    return np.split(np.arange(rows), [heads * columns, (heads + kv_heads) * columns])


def _turned_back(architecture: str, key: str, view: View, heads: int, kv_heads: int) -> View:
    """How a tensor was turned by the converter of its architecture, undone."""
    rows = view.shape[0]
    if architecture == "llama" and key in ("blk.N.attn_q", "blk.N.attn_k"):
        count = heads if key == "blk.N.attn_q" else kv_heads
        if rows % (2 * count):
            return view  # its shape is wrong, which the check of all shapes says
        # Adjacent rotary pairs (2i, 2i + 1) back to halves (i, i + d/2).
        order = np.arange(rows).reshape(count, -1, 2).swapaxes(1, 2).reshape(-1)
        return View(view.origin, view.shape, order)
    if architecture == "gptneox" and key == "blk.N.attn_qkv":
        if rows % (3 * heads):
            return view
        # [q of all heads, k of all heads, v of all heads] back to [q, k, v] of each head.
        order = np.arange(rows).reshape(3, heads, -1).swapaxes(0, 1).reshape(-1)
        return View(view.origin, view.shape, order)
    if architecture == "gpt2" and len(view.shape) == 2 and key.startswith("blk."):
        return View(view.origin, view.shape[::-1], transposed=True)
    return view
