"""Model shapes, and checkpoints in the Hugging Face layout: config.json and model.safetensors.

Free of torch, so that other code can share the shapes and the file format.
"""

import hashlib
import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from gemmule.io.files import write_atomically
from gemmule.sw.text.byte_level import EOS_ID, PAD_ID
from gemmule.sw.training.data.tokenizer import VOCAB_SIZE


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The sizes of one decoder-only transformer."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    head_dim: int = 32
    vocab_size: int = VOCAB_SIZE
    max_positions: int = 256
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    activation: str = "gelu_pytorch_tanh"

    def config(self) -> dict[str, Any]:
        """The keys of config.json."""
        return {
            "architectures": ["GemmuleForCausalLM"],
            "model_type": "gemmule",
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_interleaved": True,
            "hidden_act": self.activation,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
            "bos_token_id": None,
            "eos_token_id": EOS_ID,
            "pad_token_id": PAD_ID,
        }

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the checkpoint by name; linear weights are [out, in]."""
        hidden, inner, width = self.hidden_size, self.intermediate_size, self.num_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for index in range(self.num_layers):
            layer = f"model.layers.{index}."
            shapes[layer + "input_layernorm.weight"] = (hidden,)
            for name in "qkv":
                shapes[layer + f"self_attn.{name}_proj.weight"] = (width, hidden)
            shapes[layer + "self_attn.o_proj.weight"] = (hidden, width)
            shapes[layer + "post_attention_layernorm.weight"] = (hidden,)
            shapes[layer + "mlp.up_proj.weight"] = (inner, hidden)
            shapes[layer + "mlp.down_proj.weight"] = (hidden, inner)
        shapes["model.norm.weight"] = (hidden,)
        return shapes


SMALL_TARGET = ModelShape(hidden_size=128, intermediate_size=512, num_layers=6, num_heads=4)
SMALL_DRAFT = ModelShape(hidden_size=64, intermediate_size=256, num_layers=1, num_heads=2)
TARGET = ModelShape(hidden_size=256, intermediate_size=1024, num_layers=8, num_heads=8, max_positions=1024,
                    activation="relu2")


def parameters(shape: ModelShape) -> int:
    """How many numbers the checkpoint holds."""
    return sum(prod(size) for size in shape.weight_shapes().values())


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write JSON atomically: a reader sees the old file or the new one."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def check_weights(shape: ModelShape, weights: dict[str, NDArray[np.float32]]) -> None:
    """Reject a missing, extra or misshapen tensor by name."""
    expected = shape.weight_shapes()
    found = {name: weight.shape for name, weight in weights.items()}
    if found != expected:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ValueError(f"the checkpoint does not fit its shape at {', '.join(wrong)}")


def digest(weights: dict[str, NDArray[np.float32]]) -> str:
    """SHA-256 of all tensors in the order of their names."""
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


def save_checkpoint(folder: Path, shape: ModelShape, weights: dict[str, NDArray[np.float32]]) -> None:
    """Write config.json and model.safetensors (float32), each atomically."""
    contiguous = {name: np.ascontiguousarray(weight, dtype=np.float32) for name, weight in weights.items()}
    check_weights(shape, contiguous)
    write_json(folder / "config.json", shape.config())
    write_atomically(folder / "model.safetensors", save(contiguous, metadata={"format": "pt"}))


def load_checkpoint(folder: Path, shape: ModelShape) -> dict[str, NDArray[np.float32]]:
    """Read the weights that `save_checkpoint` wrote, checked against the shape."""
    weights: dict[str, NDArray[np.float32]] = load_file(folder / "model.safetensors")
    check_weights(shape, weights)
    return weights
