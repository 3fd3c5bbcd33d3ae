"""Sentences as vectors: what the host makes of an encoder's hidden rows, in float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Network, PruningInterpreter, Rows
from gemmule.sw.errors import InputError

__all__ = ["Pooling", "embed", "embed_tokens", "pooled"]

Pooling = Literal["mean", "first"]
"""The mean of a sequence's rows (sentence-transformers), or its first row ([CLS])."""
PASS = 1024
"""Tokens of a pass, about."""


def pooled(hidden: np.ndarray, sequences: np.ndarray, pooling: Pooling = "mean") -> np.ndarray:
    """A vector of length 1 for each sequence, by its number in order.

    Args:
        hidden: rows of any type and scale, which the length takes out  # [rows, columns].
        sequences: number of each row's sequence  # int [rows].
        pooling: which rows count.

    Returns:
        float64 [sequences, columns]; 0 where all that counts is 0.
    """
    rows = np.asarray(hidden, dtype=np.float64)
    numbers, first, inverse, count = np.unique(sequences, return_index=True, return_inverse=True, return_counts=True)
    if pooling == "first":
        found = rows[first]
    else:
        found = np.zeros((len(numbers), rows.shape[1]))
        np.add.at(found, inverse, rows)
        found /= count[:, None]
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(length == 0, 1.0, length))


def embed(network: Network, tokenizer: Tokenizer, sentences: Sequence[str], pooling: Pooling = "mean") -> np.ndarray:
    """Vectors of sentences by an interpreter, the integer or the float one as the network is  # [sentences, columns].

    Raises:
        InputError: the network is no encoder without a classifier, or a sentence has more tokens than positions.
    """
    graph = network.graph
    if not graph.encoder or graph.heads:
        raise InputError(f"sentences must go through an encoder that ends in hidden rows, not in {graph.output!r}")
    tokens = [part.ids for part in tokenizer.encode_batch(list(sentences))]
    for sentence, ids in zip(sentences, tokens, strict=True):
        if len(ids) > graph.positions:
            raise InputError(f"a sentence must have at most {graph.positions:,} tokens, not {len(ids):,}: shorten "
                             f"{sentence[:40]!r}")
    return embed_tokens((IntegerInterpreter if graph.integer else FloatInterpreter)(network), tokens, pooling)


def embed_tokens(interpreter: IntegerInterpreter | FloatInterpreter, tokens: Sequence[Sequence[int]],
                 pooling: Pooling = "mean") -> np.ndarray:
    """Vectors of sequences of tokens; of one from which rows leave, those that are left count  # [sequences, columns].
    """
    graph = interpreter.network.graph
    parts, waiting, size = [np.zeros((0, graph.by_name[graph.output].columns))], list[Sequence[int]](), 0
    for number, ids in enumerate(tokens):
        waiting.append(ids)
        size += len(ids)
        if size >= PASS or number == len(tokens) - 1:
            rows = Rows.ragged(waiting, [0] * len(waiting))
            hidden = interpreter.forward(rows, Cache(graph))
            left = interpreter.left if isinstance(interpreter, PruningInterpreter) else rows
            parts.append(pooled(hidden, left.sequences, pooling))
            waiting, size = [], 0
    return np.concatenate(parts)
