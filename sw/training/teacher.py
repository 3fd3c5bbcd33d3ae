"""The target as a teacher of drafts: the one that training wrote, or the shipped one, restored to float."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from gemmule.compiler.ir import Network
from gemmule.compiler.model_file import load_model
from gemmule.compiler.quantize.restore import restore_network
from gemmule.sw.training.export import ModelShape, load_checkpoint
from gemmule.sw.training.model import LanguageModel
from gemmule.sw.training.running import Place

__all__ = ["shipped_weights", "shipped_teacher", "trained_teacher"]

NAMES = {
    "norm1": "input_layernorm", "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
    "out": "self_attn.o_proj", "norm2": "post_attention_layernorm", "up": "mlp.up_proj", "down": "mlp.down_proj"}
"""Of a layer's nodes, in a checkpoint."""


def shipped_weights(network: Network) -> dict[str, Tensor]:
    """The weights of a decoder in integers in float, under the names of a checkpoint."""
    restored = restore_network(network)
    weights = {}
    for node in restored.graph.nodes:
        for role in node.tensors:
            match node.name.split("."):
                case ["embedding"]:
                    name = "model.embed_tokens"
                case ["norm"]:
                    name = "model.norm"
                case [layer, part]:
                    name = f"model.layers.{layer}.{NAMES[part]}"
                case _:
                    continue  # the head is the embedding
            weights[f"{name}.weight"] = torch.tensor(restored.tensor(node, role))
    return weights


def trained_teacher(shape: ModelShape, folder: Path, place: Place) -> LanguageModel:
    """Of the checkpoint in ``folder``."""
    return _teacher(shape, {name: torch.from_numpy(weight) for name, weight in load_checkpoint(folder, shape).items()},
                    place)


def shipped_teacher(shape: ModelShape, file: Path, place: Place) -> LanguageModel:
    """Of a quantised model file.

    Raises:
        ValueError: it is damaged, or of another shape.
    """
    weights = shipped_weights(load_model(file).network)
    if {name: tuple(weight.shape) for name, weight in weights.items()} != shape.weight_shapes():
        raise ValueError(f"{file}: is of another shape than the recipe's target: train the target too")
    return _teacher(shape, weights, place)


def _teacher(shape: ModelShape, weights: dict[str, Tensor], place: Place) -> LanguageModel:
    model = LanguageModel(shape)
    model.load_state_dict(weights)
    return model.to(place.device).eval().requires_grad_(False)
