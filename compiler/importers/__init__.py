"""Checkpoints of known families as float networks: ``config.json`` and safetensors in, a graph and its tensors out."""

from gemmule.compiler.importers.load import FAMILIES, end_tokens, label_names, load_network

__all__ = ["FAMILIES", "end_tokens", "label_names", "load_network"]
