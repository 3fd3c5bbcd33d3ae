"""Random quantised BERT encoders, straight in integers: post-norm, norms at two widths, with or without a head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import (
    Add,
    Attention,
    Embedding,
    Function,
    Graph,
    Network,
    Norm,
    Position,
    Type,
)

from .integer_networks import INT8, INT16, INT32, Maker, Sizes

__all__ = ["EncoderSizes", "random_encoder"]

UNIT = 23
"""Fraction bits of a norm's factors times its normalised rows: 13 and 10."""
NARROW, WIDE = 5, 12
"""Fraction bits of int8 and int16 values of the normalised stream."""


@dataclass(frozen=True, kw_only=True)
class EncoderSizes:
    """Of a random encoder; without ``labels`` its output are hidden rows.

    ``shared``: both widths of a norm have the same factors, as without evened ranges; else each its own.
    """

    hidden: int = 24
    inner: int = 40
    layers: int = 2
    heads: int = 3
    vocab: int = 61
    positions: int = 40
    types: int = 2
    labels: int = 0
    bits: int = 8
    group: int = 0
    shared: bool = False


def _norms(make: Maker, name: str, x: str, layer: int | None, shared: bool) -> tuple[str, str]:
    """(int8, int16) of one norm."""
    columns = make.sizes.hidden

    def norm(name: str, type_: Type, fraction: int, tensors: dict[str, np.ndarray], shared: dict[str, str]) -> str:
        scalars = {"scalars": np.array([UNIT - fraction, 17, 4])}
        return make.add(Norm, name, tensors=tensors | scalars, shared=shared, columns=columns, type=type_, x=x,
                        mean=True, eps=1e-12, layer=layer)

    def factors() -> dict[str, np.ndarray]:
        return {"gamma": make.ints(5700, 10600, columns), "beta": make.ints(-1 << 20, 1 << 20, columns)}

    narrow = norm(name, INT8, NARROW, factors(), {})
    if shared:
        return narrow, norm(f"{name}.wide", INT16, WIDE, {}, {role: f"{name}.{role}" for role in ("gamma", "beta")})
    return narrow, norm(f"{name}.wide", INT16, WIDE, factors(), {})


def random_encoder(sizes: EncoderSizes, seed: int, *, weights: bool = True) -> Network:
    """A network whose int8 values fill their range, as importers and the quantiser put one together.

    Without ``weights`` large tensors are 0: only its time is wanted.
    """
    hidden, heads = sizes.hidden, sizes.heads
    make = Maker(Sizes(family="bert", hidden=hidden, inner=sizes.inner, heads=heads, kv_heads=heads,
                       head_dim=hidden // heads, vocab=sizes.vocab, positions=sizes.positions, bits=sizes.bits,
                       group=sizes.group), seed, weights)
    tokens = make.add(Embedding, "tokens", tensors={
        "codes": make.ints(-127, 127, sizes.vocab, hidden), "mult": make.ints(40000, 65535, sizes.vocab),
        "shift": make.ints(8, 9, sizes.vocab)}, columns=hidden, type=INT16, vocab=sizes.vocab)
    rows = sizes.types * sizes.positions
    positions = make.add(Position, "positions", tensors={"table": make.ints(-9000, 9000, rows, hidden)},
                         columns=hidden, type=INT16, positions=rows)
    x = make.add(Add, "embed", tensors={}, columns=hidden, type=INT16, a=tokens, b=positions)
    narrow, wide = _norms(make, "norm", x, None, sizes.shared)
    for i in range(sizes.layers):
        query, key, value = (make.linear(f"{i}.{name}", narrow, hidden, hidden, INT8, 40, True, layer=i)
                             for name in ("query", "key", "value"))
        scalings = {name: np.stack([make.ints(30000, 65535, heads), shift], 1) for name, shift in (
            ("score", make.ints(17, 18, heads)), ("context", np.full(heads, 15)))}
        y = make.add(Attention, f"{i}.attention", tensors=scalings, columns=hidden, type=INT8, query=query, key=key,
                     value=value, heads=heads, kv_heads=heads, head_dim=hidden // heads,
                     scale=(hidden // heads) ** -0.5, causal=False, layer=i)
        y = make.linear(f"{i}.output", y, hidden, hidden, INT32, 3000, True, layer=i)
        x = make.add(Add, f"{i}.attention_add", tensors={}, columns=hidden, type=INT16, a=wide, b=y, layer=i)
        narrow, wide = _norms(make, f"{i}.attention_norm", x, i, sizes.shared)
        y = make.linear(f"{i}.up", narrow, hidden, sizes.inner, INT8, 40, True, layer=i)
        y = make.table(f"{i}.activation", y, sizes.inner, i)
        y = make.linear(f"{i}.down", y, sizes.inner, hidden, INT32, 3000, True, layer=i)
        x = make.add(Add, f"{i}.output_add", tensors={}, columns=hidden, type=INT16, a=wide, b=y, layer=i)
        narrow, wide = _norms(make, f"{i}.output_norm", x, i, sizes.shared)
    output = wide
    if sizes.labels:
        y = make.linear("pooler", narrow, hidden, hidden, INT8, 40, True)
        y = make.table("pooled", y, hidden, None, Function.TANH)
        output = make.linear("classifier", y, hidden, sizes.labels, INT16, 6000, True)
    graph = Graph.model_validate({"family": "bert", "vocab": sizes.vocab, "positions": sizes.positions,
                                  "nodes": tuple(make.nodes), "output": output})
    return Network(graph, make.weights)
