"""The networks whose outputs are compared with transformers: committed ones in test_vectors.py, fresh in parity.py."""

from __future__ import annotations

import json
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
        """Its directory."""
        return write(folder / "model", make(self.family, SEED, **self.keys), dtype=self.dtype, shards=self.shards)


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
    Case("mistral", "mistral"), Case("mistral no window", "mistral", {"sliding_window": None}),
    Case("phi", "phi"), Case("phi head 80, 0.4 rotated", "phi", {"head_dim": 80, "partial_rotary_factor": 0.4}),
    Case("phi fewer KV heads, all rotated", "phi", {"num_key_value_heads": 1, "partial_rotary_factor": 1.0}),
    Case("bert", "bert"), Case("bert head 80", "bert", {"head_dim": 80}),
    Case("bert one type, tanh gelu", "bert", {"type_vocab_size": 1, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}),
    Case("bert classifier", "bert-classifier", {"labels": 20}),
    Case("bert float16", "bert-classifier", {"type_vocab_size": 3}, dtype="float16", shards=2),
)


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
