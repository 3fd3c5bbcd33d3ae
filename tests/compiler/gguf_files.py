"""Checkpoints as GGUF files, by the rules of llama.cpp's converters: names, turned rows, metadata."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .families import Checkpoint

__all__ = ["CONVERTERS", "write_gguf"]

Tensors = dict[str, np.ndarray]


def _renamed(table: list[tuple[str, str]], tensors: Tensors) -> Tensors:
    found = {}
    for name, value in tensors.items():
        for pattern, new in table:
            name = re.sub(pattern, new, name)
        found[name] = value
    return found


_LLAMA = [
    (r"^model\.layers\.", "blk."), ("^model.embed_tokens", "token_embd"), ("^model.norm", "output_norm"),
    ("^lm_head", "output"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
    (r"self_attn\.([qkv])_(proj|norm)", r"attn_\1_\2"), ("_proj", ""), (r"self_attn\.o", "attn_output"),
    (r"mlp\.", "ffn_")]


def _halves_to_pairs(value: np.ndarray, heads: int) -> np.ndarray:
    """What converters of Llama do to q and k."""
    return value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def _llama(config: dict[str, Any], tensors: Tensors) -> tuple[str, dict[str, Any], Tensors]:
    found = _renamed(_LLAMA, tensors)
    if config["model_type"] in ("llama", "mistral"):
        heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
        found = {name: _halves_to_pairs(value, heads[match[1]]) if (match := re.search(r"attn_([qk])\.", name))
                 else value for name, value in found.items()}
    architecture = "llama" if config["model_type"] == "mistral" else config["model_type"]
    return architecture, {
        "block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config.get("rope_theta") or 10000.0, "vocab_size": config["vocab_size"]} | (
            {"rope.dimension_count": config["head_dim"], "attention.key_length": config["head_dim"],
             "attention.value_length": config["head_dim"]} if config.get("head_dim") else {}) | (
            {"attention.sliding_window": config["sliding_window"]} if config["model_type"] == "mistral" else {}), (
                found | _factors(config))


def _factors(config: dict[str, Any]) -> Tensors:
    """Llama 3's scaling: by what each pair's rate is divided."""
    scaling = config.get("rope_scaling")
    if not scaling:
        return {}
    found = []
    for pair in range(config["head_dim"] // 2):
        length = 2 * np.pi * config["rope_theta"] ** (2 * pair / config["head_dim"])
        turns = scaling["original_max_position_embeddings"] / length
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        found.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return {"rope_freqs.weight": np.array(found, np.float32)}


def _gpt2(config: dict[str, Any], tensors: Tensors) -> tuple[str, dict[str, Any], Tensors]:
    found = _renamed([
        (r"^transformer\.", ""), (r"^h\.", "blk."), ("^wte", "token_embd"), ("^wpe", "position_embd"),
        ("^ln_f", "output_norm"), ("^lm_head", "output"), ("ln_1", "attn_norm"), ("ln_2", "ffn_norm"),
        (r"attn\.c_attn", "attn_qkv"), (r"attn\.c_proj", "attn_output"), (r"mlp\.c_fc", "ffn_up"),
        (r"mlp\.c_proj", "ffn_down")], tensors)
    return "gpt2", {
        "block_count": config["n_layer"], "context_length": config["n_positions"], "embedding_length": config["n_embd"],
        "feed_forward_length": config["n_inner"], "attention.head_count": config["n_head"],
        "attention.layer_norm_epsilon": config["layer_norm_epsilon"]}, {
            name: value.T if name.startswith("blk") and value.ndim == 2 else value for name, value in found.items()}


def _phi(config: dict[str, Any], tensors: Tensors) -> tuple[str, dict[str, Any], Tensors]:
    found = _renamed([
        (r"^model\.layers\.", "blk."), ("^model.embed_tokens", "token_embd"), ("^model.final_layernorm", "output_norm"),
        ("^lm_head", "output"), ("input_layernorm", "attn_norm"), (r"self_attn\.([qkv])_proj", r"attn_\1"),
        (r"self_attn\.dense", "attn_output"), (r"mlp\.fc1", "ffn_up"), (r"mlp\.fc2", "ffn_down")], tensors)
    for layer in range(config["num_hidden_layers"]):  # as files of the first Phi-2 have it: q, k and v in one
        for role in ("weight", "bias"):
            parts = [found.pop(f"blk.{layer}.attn_{part}.{role}") for part in "qkv"]
            found[f"blk.{layer}.attn_qkv.{role}"] = np.concatenate(parts)
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    return "phi2", {
        "block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config.get("num_key_value_heads") or config["num_attention_heads"],
        "attention.layer_norm_epsilon": config["layer_norm_eps"],
        "rope.dimension_count": int(config["partial_rotary_factor"] * head_dim)}, found


def _neox(config: dict[str, Any], tensors: Tensors) -> tuple[str, dict[str, Any], Tensors]:
    heads = config["num_attention_heads"]
    found = _renamed([
        (r"^gpt_neox\.layers\.", "blk."), ("^gpt_neox.embed_in", "token_embd"),
        ("^gpt_neox.final_layer_norm", "output_norm"), ("^embed_out", "output"), ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"), (r"attention\.query_key_value", "attn_qkv"),
        (r"attention\.dense", "attn_output"), (r"mlp\.dense_h_to_4h", "ffn_up"), (r"mlp\.dense_4h_to_h", "ffn_down")],
        tensors)
    found = {name: value.reshape(heads, 3, -1, *value.shape[1:]).swapaxes(0, 1).reshape(value.shape)
             if "attn_qkv" in name else value for name, value in found.items()}
    share = config.get("rotary_pct") or (config.get("rope_parameters") or {}).get("partial_rotary_factor") or 0.25
    return "gptneox", {
        "block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads, "attention.layer_norm_epsilon": config["layer_norm_eps"],
        "use_parallel_residual": config.get("use_parallel_residual", True),
        "rope.dimension_count": int(share * (config["hidden_size"] // heads))}, found


Converter = Callable[[dict[str, Any], Tensors], tuple[str, dict[str, Any], Tensors]]
CONVERTERS: dict[str, Converter] = {
    "llama": _llama, "mistral": _llama, "qwen2": _llama, "qwen3": _llama, "gpt2": _gpt2, "phi": _phi,
    "gpt_neox": _neox}
"""By model_type: (architecture, its metadata, its tensors) of a checkpoint."""


def write_gguf(path: Path, made: Checkpoint, *, dtype: str = "F32", metadata: dict[str, Any] | None = None,
               extra: Tensors | None = None) -> Path:
    """Write a checkpoint. ``dtype`` holds for matrices whose columns divide into its blocks; ``metadata``: further
    pairs with their whole names, None leaves one out; ``extra``: further tensors. Returns the path."""
    architecture, keys, tensors = CONVERTERS[made.config["model_type"]](made.config, dict(made.tensors))
    writer = gguf.GGUFWriter(path, architecture)
    pairs = {f"{architecture}.{key}": value for key, value in keys.items()} | (metadata or {})
    for key, value in pairs.items():
        if value is not None:
            _add(writer, key, value)
    kind = gguf.GGMLQuantizationType[dtype]
    for name, value in (tensors | (extra or {})).items():
        if value.ndim == 2 and value.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 and dtype != "F32":
            writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(value), kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)
