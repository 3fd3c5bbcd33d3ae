"""The networks whose logits are compared with transformers: committed ones in test_vectors.py, fresh in parity.py."""

from __future__ import annotations

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
)


def tokens() -> np.ndarray:
    """The text of every case  # int64 [TOKENS]."""
    return (np.random.PCG64(SEED).random_raw(TOKENS) % np.uint64(1003)).astype(np.int64)


def ours(folder: Path) -> np.ndarray:
    """Logits of the float interpreter  # float32 [TOKENS, vocab]."""
    network = load_network(folder)
    return FloatInterpreter(network).forward(Rows.chain(list(tokens())), Cache(network.graph))


def theirs(folder: Path) -> np.ndarray:
    """Logits of transformers, which must be installed  # float32 [TOKENS, vocab]."""
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        found: np.ndarray = model(torch.tensor(tokens())[None]).logits[0].numpy()
    return found


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest logit."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
