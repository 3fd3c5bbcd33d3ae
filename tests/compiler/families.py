"""Small random checkpoints of every family in the Hugging Face layout, written without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["ENCODERS", "FAMILIES", "Checkpoint", "make", "packed", "write"]


@dataclass
class Checkpoint:
    """config.json and tensors by their stored names."""

    config: dict[str, Any]
    tensors: dict[str, np.ndarray] = field(default_factory=dict)


class _Draw:
    """Random tensors of a size that keeps values near one from layer to layer.

    From the raw bits of PCG64, which no version of numpy changes: committed vectors rest on them.
    """

    def __init__(self, seed: int, tensors: dict[str, np.ndarray]) -> None:
        self.bits, self.tensors = np.random.PCG64(seed), tensors

    def uniform(self, *shape: int) -> np.ndarray:
        """From -1 to 1."""
        return ((self.bits.random_raw(int(np.prod(shape))) >> 11) * 2.0 ** -52 - 1).reshape(shape)

    def matrix(self, name: str, rows: int, columns: int, depth: int | None = None) -> None:
        self.tensors[name] = (self.uniform(rows, columns) * 2 / np.sqrt(depth or columns)).astype(np.float32)

    def gamma(self, name: str, columns: int) -> None:
        self.tensors[name] = (1 + self.uniform(columns) / 2).astype(np.float32)

    def bias(self, name: str, columns: int) -> None:
        self.tensors[name] = (self.uniform(columns) / 3).astype(np.float32)


def _gpt2(seed: int, head_dim: int, layers: int, vocab: int, **keys: Any) -> Checkpoint:
    heads = 3
    width, inner, positions = heads * head_dim, 100, 64
    made = Checkpoint({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": vocab, "n_positions": positions,
        "n_ctx": positions, "n_embd": width, "n_layer": layers, "n_head": heads, "n_inner": inner,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "torch_dtype": "float32"} | keys)
    draw = _Draw(seed, made.tensors)
    draw.matrix("transformer.wte.weight", vocab, width)
    draw.matrix("transformer.wpe.weight", positions, width)
    for at in (f"transformer.h.{layer}." for layer in range(layers)):
        for norm in ("ln_1", "ln_2"):
            draw.gamma(f"{at}{norm}.weight", width)
            draw.bias(f"{at}{norm}.bias", width)
        for name, depth, columns in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                     ("mlp.c_fc", width, inner), ("mlp.c_proj", inner, width)):
            draw.matrix(f"{at}{name}.weight", depth, columns, depth)
            draw.bias(f"{at}{name}.bias", columns)
    draw.gamma("transformer.ln_f.weight", width)
    draw.bias("transformer.ln_f.bias", width)
    if not made.config.get("tie_word_embeddings", True):
        draw.matrix("lm_head.weight", vocab, width)
    return made


def _opt(seed: int, head_dim: int, layers: int, vocab: int, **keys: Any) -> Checkpoint:
    heads = 3
    width, inner, positions = heads * head_dim, 100, 64
    made = Checkpoint({
        "model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": vocab, "hidden_size": width,
        "max_position_embeddings": positions, "ffn_dim": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "activation_function": "relu", "do_layer_norm_before": True,
        "word_embed_proj_dim": width, "_remove_final_layer_norm": False, "dropout": 0.1} | keys)
    draw, biased = _Draw(seed, made.tensors), made.config.get("enable_bias", True)
    draw.matrix("model.decoder.embed_tokens.weight", vocab, width)
    draw.matrix("model.decoder.embed_positions.weight", positions + 2, width)
    for at in (f"model.decoder.layers.{layer}." for layer in range(layers)):
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            draw.gamma(f"{at}{norm}.weight", width)
            draw.bias(f"{at}{norm}.bias", width)
        for name, depth, columns in (*((f"self_attn.{part}_proj", width, width) for part in ("q", "k", "v", "out")),
                                     ("fc1", width, inner), ("fc2", inner, width)):
            draw.matrix(f"{at}{name}.weight", columns, depth)
            if biased:
                draw.bias(f"{at}{name}.bias", columns)
    draw.gamma("model.decoder.final_layer_norm.weight", width)
    draw.bias("model.decoder.final_layer_norm.bias", width)
    if not made.config.get("tie_word_embeddings", True):
        draw.matrix("lm_head.weight", vocab, width)
    return made


def _llama(seed: int, head_dim: int, layers: int, vocab: int, gated: bool = True, biased: str = "",
           head_norms: bool = False, **keys: Any) -> Checkpoint:
    """``biased``: projections with biases, whatever the config says."""
    heads, width, inner, positions = 6, 72, 100, 64
    made = Checkpoint({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": 3, "head_dim": head_dim, "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "hidden_act": "silu",
        "tie_word_embeddings": False} | keys)
    draw = _Draw(seed, made.tensors)
    config = made.config
    kv_heads = config.get("num_key_value_heads") or heads
    draw.matrix("model.embed_tokens.weight", vocab, width)
    for at in (f"model.layers.{layer}." for layer in range(layers)):
        draw.gamma(f"{at}input_layernorm.weight", width)
        draw.gamma(f"{at}post_attention_layernorm.weight", width)
        attention = [("q", heads * head_dim, width), *((part, kv_heads * head_dim, width) for part in "kv"),
                     ("o", width, heads * head_dim)]
        mlp = [*([("gate", inner, width)] if gated else []), ("up", inner, width), ("down", width, inner)]
        for part, parts, bias in (("self_attn", attention, "attention_bias"), ("mlp", mlp, "mlp_bias")):
            for name, columns, depth in parts:
                draw.matrix(f"{at}{part}.{name}_proj.weight", columns, depth)
                if config.get(bias) or name in biased:
                    draw.bias(f"{at}{part}.{name}_proj.bias", columns)
        for name in "qk" if head_norms else "":
            draw.gamma(f"{at}self_attn.{name}_norm.weight", head_dim)
    draw.gamma("model.norm.weight", width)
    if not config["tie_word_embeddings"]:
        draw.matrix("lm_head.weight", vocab, width)
    return made


def _mistral(*args: Any, **keys: Any) -> Checkpoint:
    return _llama(*args, **{"model_type": "mistral", "architectures": ["MistralForCausalLM"],
                            "sliding_window": 7} | keys)


def _qwen2(*args: Any, **keys: Any) -> Checkpoint:
    return _llama(*args, biased="qkv", **{
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False,
        "sliding_window": 32768, "max_window_layers": 21, "tie_word_embeddings": True} | keys)


def _qwen3(*args: Any, **keys: Any) -> Checkpoint:
    return _llama(*args, head_norms=True, **{
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "use_sliding_window": False,
        "sliding_window": None, "max_window_layers": 28, "rms_norm_eps": 1e-6, "tie_word_embeddings": True} | keys)


def _llama3(*args: Any, **keys: Any) -> Checkpoint:
    """Some pairs of its angles are slowed, some are not, some a little."""
    return _llama(*args, **{"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}, "tie_word_embeddings": True} | keys)


def _tied(*args: Any, **keys: Any) -> Checkpoint:
    return _llama(*args, **{"tie_word_embeddings": True} | keys)


def _gemmule(*args: Any, **keys: Any) -> Checkpoint:
    """What this project trains."""
    return _llama(*args, gated=False, **{
        "model_type": "gemmule", "architectures": ["GemmuleForCausalLM"], "rope_interleaved": True,
        "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True, "num_key_value_heads": 3} | keys)


def _phi(seed: int, head_dim: int, layers: int, vocab: int, **keys: Any) -> Checkpoint:
    heads = 3
    width, inner, positions = heads * head_dim, 100, 64
    made = Checkpoint({
        "model_type": "phi", "architectures": ["PhiForCausalLM"], "vocab_size": vocab, "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "max_position_embeddings": positions, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5, "qk_layernorm": False, "tie_word_embeddings": False} | keys)
    draw = _Draw(seed, made.tensors)

    def norm(name: str) -> None:
        draw.gamma(f"{name}.weight", width)
        draw.bias(f"{name}.bias", width)

    def linear(name: str, columns: int, depth: int) -> None:
        draw.matrix(f"{name}.weight", columns, depth)
        draw.bias(f"{name}.bias", columns)

    draw.matrix("model.embed_tokens.weight", vocab, width)
    kv = (made.config.get("num_key_value_heads") or heads) * head_dim
    for at in (f"model.layers.{layer}." for layer in range(layers)):
        norm(f"{at}input_layernorm")
        for name, columns in (("q_proj", width), ("k_proj", kv), ("v_proj", kv), ("dense", width)):
            linear(f"{at}self_attn.{name}", columns, width)
        linear(f"{at}mlp.fc1", inner, width)
        linear(f"{at}mlp.fc2", width, inner)
    norm("model.final_layernorm")
    linear("lm_head", vocab, width)
    if made.config["tie_word_embeddings"]:
        del made.tensors["lm_head.weight"]
    return made


def _gpt_neox(seed: int, head_dim: int, layers: int, vocab: int, **keys: Any) -> Checkpoint:
    """Pythia."""
    heads = 3
    width, inner, positions = heads * head_dim, 100, 64
    made = Checkpoint({
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "vocab_size": vocab, "hidden_size": width,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "max_position_embeddings": positions, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rotary_emb_base": 10000,
        "rotary_pct": 0.25, "use_parallel_residual": True, "tie_word_embeddings": False} | keys)
    draw, biased = _Draw(seed, made.tensors), made.config.get("attention_bias", True)

    def norm(name: str) -> None:
        draw.gamma(f"{name}.weight", width)
        draw.bias(f"{name}.bias", width)

    draw.matrix("gpt_neox.embed_in.weight", vocab, width)
    for at in (f"gpt_neox.layers.{layer}." for layer in range(layers)):
        norm(f"{at}input_layernorm")
        norm(f"{at}post_attention_layernorm")
        for name, columns, depth in (("attention.query_key_value", 3 * width, width), ("attention.dense", width, width),
                                     ("mlp.dense_h_to_4h", inner, width), ("mlp.dense_4h_to_h", width, inner)):
            draw.matrix(f"{at}{name}.weight", columns, depth)
            if biased or name.startswith("mlp"):
                draw.bias(f"{at}{name}.bias", columns)
    norm("gpt_neox.final_layer_norm")
    if not made.config["tie_word_embeddings"]:
        draw.matrix("embed_out.weight", vocab, width)
    return made


def _bert(seed: int, head_dim: int, layers: int, vocab: int, labels: int = 0, **keys: Any) -> Checkpoint:
    """An encoder: hidden rows, or with ``labels`` a classifier."""
    heads = 3
    width, inner, positions, types = heads * head_dim, 100, 64, keys.get("type_vocab_size", 2)
    made = Checkpoint({
        "model_type": "bert", "architectures": ["BertForSequenceClassification" if labels else "BertModel"],
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "max_position_embeddings": positions, "type_vocab_size": types,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1} | (
            {"id2label": {str(i): f"LABEL_{i}" for i in range(labels)}} if labels else {}) | keys)
    draw, prefix = _Draw(seed, made.tensors), "bert." if labels else ""

    def norm(name: str) -> None:
        draw.gamma(f"{name}.LayerNorm.weight", width)
        draw.bias(f"{name}.LayerNorm.bias", width)

    def linear(name: str, columns: int, depth: int) -> None:
        draw.matrix(f"{name}.weight", columns, depth)
        draw.bias(f"{name}.bias", columns)

    for name, rows in (("word", vocab), ("position", positions), ("token_type", types)):
        draw.matrix(f"{prefix}embeddings.{name}_embeddings.weight", rows, width)
    norm(f"{prefix}embeddings")
    for at in (f"{prefix}encoder.layer.{layer}." for layer in range(layers)):
        for name in ("query", "key", "value"):
            linear(f"{at}attention.self.{name}", width, width)
        linear(f"{at}attention.output.dense", width, width)
        norm(f"{at}attention.output")
        linear(f"{at}intermediate.dense", inner, width)
        linear(f"{at}output.dense", width, inner)
        norm(f"{at}output")
    linear(f"{prefix}pooler.dense", width, width)
    if labels:
        linear("classifier", labels, width)
    return made


def _classifier(*args: Any, **keys: Any) -> Checkpoint:
    return _bert(*args, **{"labels": 5} | keys)


FAMILIES: dict[str, Callable[..., Checkpoint]] = {
    "gpt2": _gpt2, "opt": _opt, "llama": _llama, "llama-tied": _tied, "llama3": _llama3, "mistral": _mistral,
    "gemmule": _gemmule, "qwen2": _qwen2, "qwen3": _qwen3, "phi": _phi, "gpt_neox": _gpt_neox}
"""Decoders."""
ENCODERS: dict[str, Callable[..., Checkpoint]] = {"bert": _bert, "bert-classifier": _classifier}


def make(family: str, seed: int = 1, *, head_dim: int = 24, layers: int = 5, vocab: int = 1003,
         **keys: Any) -> Checkpoint:
    """A random checkpoint; further arguments are keys of config.json."""
    return (FAMILIES | ENCODERS)[family](seed, head_dim, layers, vocab, **keys)


_WORDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "bool": "BOOL"}


def _stored(value: np.ndarray, dtype: str) -> tuple[str, bytes]:
    """(type in safetensors' words, bytes) of numbers; ``dtype`` holds for real ones."""
    if dtype != "bfloat16" or value.dtype.kind != "f":
        kind = value.dtype if value.dtype.kind != "f" else np.dtype(dtype)
        return _WORDS[kind.name], np.ascontiguousarray(value, dtype=kind).tobytes()
    bits = np.ascontiguousarray(value, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return _WORDS[dtype], ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()


def packed(tensors: dict[str, np.ndarray], dtype: str = "float32") -> bytes:
    """A safetensors file by the format's own words: length of the header, header in JSON, numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, value in tensors.items():
        kind, part = _stored(value, dtype)
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def write(folder: Path, made: Checkpoint, *, dtype: str = "float32", shards: int = 1) -> Path:
    """Write config.json and the weights; with several shards an index as well. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(made.config, indent=2))
    if shards == 1:
        (folder / "model.safetensors").write_bytes(packed(made.tensors, dtype))
        return folder
    places = {}
    for part, names in enumerate(_split(list(made.tensors), shards)):
        file = f"model-{part + 1:05}-of-{shards:05}.safetensors"
        (folder / file).write_bytes(packed({name: made.tensors[name] for name in names}, dtype))
        places |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": sum(value.nbytes for value in made.tensors.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return folder


def _split(names: list[str], parts: int) -> Iterator[list[str]]:
    for part in range(parts):
        yield names[part::parts]
