"""The networks whose outputs are compared with transformers: committed ones in test_vectors.py, fresh in parity.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Cache, FloatInterpreter, Rows

from ..families import make, write

TOKENS = 40
"""More than Mistral's window of 7."""
SEED = 3
MOST_ERROR = 1e-4
"""Of a logit, relative to the largest."""


@dataclass(frozen=True)
class Case:
    """A checkpoint and how it is written."""

    label: str
    family: str
    keys: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    shards: int = 1

    def write(self, folder: Path) -> Path:
        """Its directory; keys of null are left out where the family has others for them."""
        made = make(self.family, SEED, **self.keys)
        for key in ("rotary_pct", "rotary_emb_base", "partial_rotary_factor"):
            if made.config.get(key, 0) is None:
                del made.config[key]
        return write(folder / "model", made, dtype=self.dtype, shards=self.shards)


LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 20}
LINEAR = {"type": "linear", "factor": 4.0}
NEWER: dict[str, Any] = {"rope_theta": None, "rope_scaling": None}
"""What transformers 5 writes no more."""

CASES = (
    Case("gpt2", "gpt2"), Case("gpt2 head 80", "gpt2", {"head_dim": 80}),
    Case("gpt2 exact gelu, untied", "gpt2", {"activation_function": "gelu", "tie_word_embeddings": False}),
    Case("gpt2 scales", "gpt2", {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}),
    Case("gpt2 float16", "gpt2", dtype="float16", shards=2),
    Case("opt", "opt"), Case("opt head 80", "opt", {"head_dim": 80}),
    Case("opt no bias, untied", "opt", {"enable_bias": False, "tie_word_embeddings": False}),
    Case("llama", "llama"), Case("llama head 80", "llama", {"head_dim": 80}), Case("llama tied", "llama-tied"),
    Case("llama biases", "llama", {"attention_bias": True, "mlp_bias": True}),
    Case("llama relu2", "llama", {"hidden_act": "relu2", "rope_theta": 500.0}),
    Case("llama rope_parameters", "llama", {
        "rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    Case("llama bfloat16", "llama", dtype="bfloat16", shards=3),
    Case("llama 3", "llama3"), Case("llama linear", "llama", {"rope_scaling": LINEAR}),
    Case("mistral", "mistral"), Case("mistral no window", "mistral", {"sliding_window": None}),
    Case("qwen2", "qwen2"), Case("qwen2 untied, windows from layer 2 on", "qwen2", {
        "tie_word_embeddings": False, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2}),
    Case("qwen3", "qwen3"), Case("qwen3 biases, head 80", "qwen3", {"head_dim": 80, "attention_bias": True}),
    Case("phi", "phi"), Case("phi head 80, 0.4 rotated", "phi", {"head_dim": 80, "partial_rotary_factor": 0.4}),
    Case("phi fewer KV heads, all rotated", "phi", {"num_key_value_heads": 1, "partial_rotary_factor": 1.0}),
    Case("pythia", "gpt_neox"), Case("pythia head 80", "gpt_neox", {"head_dim": 80}),
    Case("gpt-neox in turn, no biases of attention", "gpt_neox", {
        "use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0}),
    Case("bert", "bert"), Case("bert head 80", "bert", {"head_dim": 80}),
    Case("bert one type, tanh gelu", "bert", {"type_vocab_size": 1, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}),
    Case("bert classifier", "bert-classifier", {"labels": 20}),
    Case("bert float16", "bert-classifier", {"type_vocab_size": 3}, dtype="float16", shards=2),
)
"""Their logits are committed, in part."""


def _more(family: str, **variants: dict[str, Any]) -> Iterator[Case]:
    for name, keys in variants.items():
        yield Case(f"{family}: {name.replace('_', ' ')}", family, {"layers": 2} | keys)


MORE = (
    *_more("gpt2", tanh={"activation_function": "tanh"}, silu={"activation_function": "silu"},
           relu={"activation_function": "relu"}, one_layer={"layers": 1}, eps={"layer_norm_epsilon": 1e-2},
           gelu_fast={"activation_function": "gelu_fast"}, two_columns={"head_dim": 2}),
    *_more("opt", gelu={"activation_function": "gelu"}, no_bias={"enable_bias": False},
           silu={"activation_function": "silu"}, two_columns={"head_dim": 2}, untied={"tie_word_embeddings": False}),
    *_more("llama", llama3_tight={"rope_scaling": LLAMA3},
           llama3_of_a_new_file=NEWER | {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}},
           llama3_without_its_length={"rope_scaling": {
               key: value for key, value in LLAMA3.items() if key != "original_max_position_embeddings"}},
           llama3_wide={"rope_scaling": LLAMA3 | {"low_freq_factor": 0.5, "high_freq_factor": 32.0, "factor": 2}},
           llama3_head_80={"rope_scaling": LLAMA3, "head_dim": 80},
           linear_of_a_new_file=NEWER | {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 3e3}},
           one_by_one={"rope_scaling": {"type": "linear", "factor": 1.0}},
           default={"rope_scaling": {"rope_type": "default"}}, theta={"rope_theta": 1e6},
           biases_of_attention={"attention_bias": True}, biases_of_the_mlp={"mlp_bias": True},
           a_kv_head={"num_key_value_heads": 1}, every_head={"num_key_value_heads": 6},
           kv_heads_of_null={"num_key_value_heads": None}, eps={"rms_norm_eps": 1e-2}, gelu={"hidden_act": "gelu"},
           gelu_tanh={"hidden_act": "gelu_pytorch_tanh"}, relu={"hidden_act": "relu"}, two_columns={"head_dim": 2},
           columns_by_hidden={"head_dim": 12}),
    *_more("mistral", window_of_one={"sliding_window": 1}, window_of_all={"sliding_window": 64},
           tied={"tie_word_embeddings": True}, linear={"rope_scaling": LINEAR}, every_head={"num_key_value_heads": 6},
           gelu={"hidden_act": "gelu"}, head_80={"head_dim": 80}),
    *_more("qwen2", untied={"tie_word_embeddings": False}, windows_everywhere={
               "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
           windows_by_name={"use_sliding_window": True, "sliding_window": 9,
                            "layer_types": ["sliding_attention", "full_attention"]},
           windows_too_late={"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2},
           full_by_name={"layer_types": ["full_attention"] * 2}, theta={"rope_theta": 1e6},
           linear={"rope_scaling": LINEAR}, llama3={"rope_scaling": LLAMA3}, a_kv_head={"num_key_value_heads": 1},
           head_80={"head_dim": 80}, new_file=NEWER | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    *_more("qwen3", untied={"tie_word_embeddings": False}, biases={"attention_bias": True},
           windows={"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
           eps={"rms_norm_eps": 1e-2}, theta={"rope_theta": 1e6}, linear={"rope_scaling": LINEAR},
           a_kv_head={"num_key_value_heads": 1}, two_columns={"head_dim": 2},
           new_file=NEWER | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    *_more("phi", quarter={"partial_rotary_factor": 0.25}, tied={"tie_word_embeddings": True},
           linear={"rope_scaling": LINEAR}, llama3={"rope_scaling": LLAMA3}, silu={"hidden_act": "silu"},
           new_file=NEWER | {"partial_rotary_factor": None, "rope_parameters": {
               "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}),
    *_more("gpt_neox", in_turn={"use_parallel_residual": False}, tied={"tie_word_embeddings": True},
           no_biases_of_attention={"attention_bias": False}, all_rotated={"rotary_pct": 1.0},
           half_rotated={"rotary_pct": 0.5}, base={"rotary_emb_base": 500}, linear={"rope_scaling": LINEAR},
           tanh={"hidden_act": "gelu_new"}, eps={"layer_norm_eps": 1e-2}, one_layer={"layers": 1},
           new_file={"rotary_pct": None, "rotary_emb_base": None, "rope_parameters": {
               "rope_type": "default", "rope_theta": 2e4, "partial_rotary_factor": 0.5}}),
    *_more("bert", three_types={"type_vocab_size": 3}, relu={"hidden_act": "relu"}, two_columns={"head_dim": 2}),
)
"""Compared only where transformers is."""


def tokens() -> np.ndarray:
    """The text of every case  # int64 [TOKENS]."""
    return (np.random.PCG64(SEED).random_raw(TOKENS) % np.uint64(1003)).astype(np.int64)


def texts(classifies: bool) -> list[list[int]]:
    """The sequences that an encoder gets: the text, or for a classifier all ends of it."""
    text = tokens().tolist()
    return [text[at:] for at in range(TOKENS)] if classifies else [text]


def types(count: int, most: int) -> list[int]:
    """Token types of a sequence of an encoder with ``most``: the last one from the 18th token on."""
    return [0] * min(count, 17) + [most - 1] * max(0, count - 17)


def ours(folder: Path) -> np.ndarray:
    """Logits or hidden rows of the float interpreter  # float32 [TOKENS, columns]."""
    network = load_network(folder)
    graph = network.graph
    if not graph.encoder:
        return FloatInterpreter(network).forward(Rows.chain(list(tokens())), Cache(graph))
    given = texts(bool(graph.heads))
    rows = Rows.ragged(given, [0] * len(given)).typed([at for text in given for at in types(len(text), graph.types)])
    found = FloatInterpreter(network).forward(rows, Cache(graph))
    return found[rows.positions == 0] if graph.heads else found


def theirs(folder: Path) -> np.ndarray:
    """Logits or hidden rows of transformers, which must be installed  # float32 [TOKENS, columns]."""
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = json.loads((folder / "config.json").read_text())
    classifies = config["architectures"] == ["BertForSequenceClassification"]
    kind = transformers.AutoModelForCausalLM
    if config["model_type"] == "bert":
        kind = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        if config["model_type"] != "bert":
            found: np.ndarray = model(torch.tensor(tokens())[None]).logits[0].numpy()
            return found
        parts = []
        for text in texts(classifies):
            of_types = torch.tensor([types(len(text), config["type_vocab_size"])])
            out = model(torch.tensor([text]), token_type_ids=of_types)
            parts.append((out.logits if classifies else out.last_hidden_state[0]).numpy())
    return np.concatenate(parts)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest logit."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
