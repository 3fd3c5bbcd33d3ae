"""Perplexity, divergence and agreement of the integers with float, by kind of text; what each remedy does to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.smollm2.model import ALL, BITS, VARIANTS, options, quantised, source
from benchmarks.smollm2.texts import CODE, LENGTH, digest, windows_of
from gemmule.compiler.ir import Cache, FloatInterpreter, Network, Rows
from gemmule.compiler.quantize.accuracy import compare, perplexity
from gemmule.compiler.quantize.likeness import Likeness, LikenessSums
from gemmule.compiler.quantize.network import Quantized

__all__ = ["FEW", "quality", "rows_of"]

FEW = 1
"""Windows of a kind where one remedy is left out, the first of those that the whole model is measured on."""
OF_INT8 = tuple(VARIANTS)[:6]
RAW = ("prose", "code")
"""Kinds of text that do not begin with the token of the prefix by themselves."""
BLOCK = 128
"""Rows whose logits are compared at a time."""

Record = dict[str, Any]


def rows_of() -> list[tuple[str, str]]:
    """(bits, variant) of every row of the table, the cheap and important ones first."""
    return [(bits, ALL) for bits in BITS] + [("int8", name) for name in OF_INT8[1:]] + [
        ("int4", name) for name in ("down in int8", "nearest", *OF_INT8[1:-1])]


def quality(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record`` row by row; rows that it has are passed over."""
    prefix = options("int8").prefix
    windows = windows_of(source(), prefix)
    conditions = {"window": LENGTH, "windows": sum(map(len, windows.values())), "sha256": digest(windows),
                  "code": list(CODE), "few": FEW * len(windows)}
    if record.get("conditions") != conditions:
        record.clear()
        record.update(conditions=conditions, rows=[])
    done = {(row["bits"], row["variant"]) for row in record["rows"]}
    if "float without the prefix" not in record:
        record["float without the prefix"] = {kind: perplexity(source().network, windows[kind]) for kind in RAW}
        save()
    for bits, variant in rows_of():
        if (bits, variant) in done:
            continue
        made, whole = quantised(bits, variant), variant == ALL
        few = {kind: some[:FEW] for kind, some in windows.items()}
        row = _row(bits, f"{ALL}, fewer windows" if whole else variant, made, few)
        if whole:
            rest = _row(bits, variant, made, {kind: some[FEW:] for kind, some in windows.items()})
            record["rows"].append(_both(rest, row))
        record["rows"].append(row)
        save()
        if whole and bits == "int8":
            record["alone"] = {name: asdict(found) for name, found in _alone(made, few)}
            save()


def _row(bits: str, variant: str, made: Quantized, texts: dict[str, np.ndarray]) -> Record:
    found = compare(made, texts, detailed=0)
    assert found.whole is not None
    return {"bits": bits, "variant": variant, "windows": sum(map(len, texts.values())),
            "whole": asdict(found.whole), "kinds": {kind: asdict(one) for kind, one in found.kinds.items()}}


def _both(rest: Record, few: Record) -> Record:
    """Two rows of other windows as one."""
    return rest | {"windows": rest["windows"] + few["windows"], "whole": _mean(rest["whole"], few["whole"]),
                   "kinds": {kind: _mean(one, few["kinds"][kind]) for kind, one in rest["kinds"].items()}}


def _mean(one: Record, other: Record) -> Record:
    """A likeness over the tokens of both."""
    count = one["tokens"] + other["tokens"]

    def mean(name: str, value: Callable[[float], float] = float) -> float:
        return (value(one[name]) * one["tokens"] + value(other[name]) * other["tokens"]) / count

    return {"tokens": count, "kl_mean": mean("kl_mean"), "top1_agreement": mean("top1_agreement"),
            **{name: math.exp(mean(name, math.log)) for name in ("perplexity_float", "perplexity_int")}}


def _alone(made: Quantized, texts: dict[str, np.ndarray]) -> Iterator[tuple[str, Likeness]]:
    """Float with one part in int8: the cache, then the head, its input and its weights."""
    real, sums = made.reference, {"int8 keys and values alone": LikenessSums(), "int8 head alone": LikenessSums()}
    graph, types = real.graph, made.network.graph.by_name
    head = graph.by_name[graph.output]
    weight = real.tensor(head, "weight")
    step = np.abs(weight).max(axis=1, keepdims=True) / 127
    rounded = np.where(step > 0, np.rint(weight / np.where(step > 0, step, 1)), 0) * step
    cached = {name for node in graph.attentions for name in (node.key, node.value)}

    def in_int8(name: str, value: np.ndarray) -> np.ndarray:
        scales = np.atleast_1d(np.asarray(types[name].type.scale))
        scale = np.repeat(scales, value.shape[1] // len(scales)).astype(np.float32)
        return np.asarray(np.clip(np.rint(value / scale), -128, 127) * scale)

    for window in (one for part in texts.values() for one in part):
        rows = Rows.chain(window.tolist(), graph.prefix)
        plain = _before_head(real, rows, lambda name, value: None)
        caches = _before_head(real, rows, lambda name, value: in_int8(name, value) if name in cached else None)
        last = in_int8(head.inputs[0], plain)
        for at in range(0, len(window) - 1, BLOCK):
            some = slice(at, min(at + BLOCK, len(window) - 1))
            wanted = (plain[some] @ weight.T).astype(np.float64)
            following = window[some.start + 1:some.stop + 1]
            for total, logits in zip(sums.values(), (caches[some] @ weight.T, last[some] @ rounded.T), strict=True):
                total.add(wanted, logits.astype(np.float64), following)
    for name, total in sums.items():
        yield name, total.result()


def _before_head(network: Network, rows: Rows,
                 change: Callable[[str, np.ndarray], np.ndarray | None]) -> np.ndarray:
    """What the head reads, values on the way changed  # float32 [rows, columns]."""
    graph = network.graph
    feed: dict[str, np.ndarray] = {}
    value = np.zeros(0)
    for node, value in islice(FloatInterpreter(network).steps(rows, Cache(graph), feed), len(graph.nodes) - 1):
        if (changed := change(node.name, value)) is not None:
            feed[node.name] = changed
    return value
