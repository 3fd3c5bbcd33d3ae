"""Greedy text of the float or integer interpreter, many texts at a time: rows of a pass do not depend on one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Network, Rows

__all__ = ["alike", "greedy"]


def greedy(network: Network, prompts: Sequence[Sequence[int]], count: int, ends: frozenset[int],
           tell: Callable[[int], None] = lambda done: None) -> list[list[int]]:
    """Up to ``count`` tokens behind each prompt; one that ends a text is its last."""
    graph = network.graph
    interpreter = IntegerInterpreter(network) if graph.integer else FloatInterpreter(network)
    cache, texts = Cache(graph), [list[int]() for _ in prompts]

    def answer(rows: Rows) -> np.ndarray:
        return np.asarray(interpreter.forward(rows, cache).argmax(axis=1))

    for number, prompt in enumerate(prompts):
        rows = Rows.chain(list(prompt), graph.prefix)
        texts[number].append(int(answer(replace(rows, sequences=np.full(len(prompt), number)))[-1]))
    for done in range(1, count):
        going = [number for number, text in enumerate(texts) if text[-1] not in ends]
        if not going:
            break
        tell(done)
        rows = Rows(tokens=np.array([texts[number][-1] for number in going]), sequences=np.array(going),
                    positions=np.array([graph.prefix + len(prompts[number]) + done - 1 for number in going]),
                    mask=np.eye(len(going), dtype=bool))
        for number, token in zip(going, answer(rows), strict=True):
            texts[number].append(int(token))
    return texts


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens before the first difference."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
