"""A draft that chooses among the most frequent tokens alone (FR-Spec, Zhao et al. 2025).

Its logits layer has the rows of these tokens, so a pass loads that much less; it reads all tokens as before. What the
target says is verified among all tokens, so the text is the same. Tokens are counted in the texts of the datastore.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np

from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.ir import Graph, Linear, Network
from gemmule.sw.datastore.datastore import Datastore
from gemmule.sw.errors import InputError

__all__ = ["choosing", "frequent_tokens", "with_head_of"]


def choosing(file: ModelFile, tokens: np.ndarray) -> ModelFile:
    """The file of a network whose logits are those of some tokens."""
    return replace(file, network=with_head_of(file.network, tokens),
                   sha256=f"{file.sha256}-head-{sha256(tokens.tobytes()).hexdigest()[:16]}")


def frequent_tokens(datastore: Datastore, count: int, vocab: int) -> np.ndarray:
    """The most frequent tokens of texts, of equally frequent ones the lower ids; rising, int64 [count].

    Raises:
        InputError: there are not more tokens than that.
    """
    if count >= vocab:
        raise InputError(f"--draft-vocabulary must be less than the model's {vocab:,} tokens, not {count:,}")
    counts = np.bincount(np.asarray(datastore.tokens), minlength=vocab)[:vocab]
    return np.sort(np.argsort(-counts, kind="stable")[:count])


def with_head_of(network: Network, tokens: np.ndarray) -> Network:
    """The network whose logits are those of some tokens, in their order; the embedding stays whole."""
    graph = network.graph
    head = graph.by_name[graph.output]
    assert isinstance(head, Linear), "logits come from a linear"
    weights, names = dict(network.weights), {}
    for role in head.tensors:
        names[role] = f"{head.name}.{role}.some"
        weights[names[role]] = np.ascontiguousarray(network.tensor(head, role)[tokens])
    made = Graph.model_validate({
        "family": graph.family, "vocab": graph.vocab, "positions": graph.positions, "output": graph.output,
        "nodes": tuple(node if node.name != head.name else head.model_copy(
            update={"tensors": names, "columns": len(tokens)}) for node in graph.nodes)})
    return Network(made, {name: weights[name] for name in made.tensors})
