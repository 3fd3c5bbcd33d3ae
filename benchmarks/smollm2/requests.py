"""How long the integers' greedy answers are those of float, beside Q8_0; and Q8_0's perplexity on the same windows."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.common import write
from benchmarks.smollm2.asked import Asked, asked
from benchmarks.smollm2.greedy import alike, greedy
from benchmarks.smollm2.model import BITS, FOLDER, model_path, options, source
from benchmarks.smollm2.published import Published
from benchmarks.smollm2.texts import digest, windows_of
from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.quantize.likeness import LikenessSums

__all__ = ["FORMATS", "TOKENS", "answers", "behind", "requests"]

TOKENS = 96
"""New tokens of an answer at most."""
FLOAT = "float, transformers"
FORMATS = ("Q8_0", "Q4_0", "Q4_1")
BLOCK = 128
EXAMPLE = 5
"""Every so many-th request is shown."""

Record = dict[str, Any]


def requests(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: tokens that are those of float by what made them, perplexities of GGUF's formats."""
    every, texts = asked(), {name: answers(name) for name in (*BITS, FLOAT, *FORMATS[:2])}
    wanted = texts.pop(FLOAT)
    record["tokens"] = TOKENS
    record["rows"] = [_row(name, every, found, wanted) for name, found in texts.items()]
    record["examples"] = [
        {"category": one.category, "request": one.name, "text": one.text,
         "float": source().tokenizer.decode(wanted[at]),
         **{name: source().tokenizer.decode(found[at]) for name, found in texts.items()}}
        for at, one in enumerate(every) if at % EXAMPLE == 0]
    save()
    _formats(record.setdefault("formats", {}), save)


def answers(name: str) -> list[list[int]]:
    """Of all requests, by int8, int4, :data:`FLOAT` or one of :data:`FORMATS`; kept between parts."""
    every, ends, path = asked(), frozenset(source().ends), FOLDER / "answers.json"
    asking = hashlib.sha256(repr([TOKENS, [one.ids for one in every]]).encode()).hexdigest()
    kept = json.loads(path.read_text()) if path.is_file() else {}
    if kept.get("sha256") != asking:
        kept = {"sha256": asking}
    if name not in kept:
        if name in BITS:
            file = load_model(model_path(name))
            kept[name] = greedy(file.network, [behind(one, file.made.prefix) for one in every], TOKENS, ends)
        else:
            kept[name] = Published("" if name == FLOAT else name).greedy([one.ids for one in every], TOKENS, ends)
        write(path, kept)
    found: list[list[int]] = kept[name]
    return found


def behind(one: Asked, prefix: tuple[int, ...]) -> tuple[int, ...]:
    """The request without what stands in the cache."""
    return one.ids[len(prefix):] if one.ids[:len(prefix)] == prefix else one.ids


def _row(name: str, every: list[Asked], found: list[list[int]], wanted: list[list[int]]) -> Record:
    """``whole``: answers that are float's to their end, or as far as was asked."""
    counts = [alike(a, b) for a, b in zip(found, wanted, strict=True)]
    kinds = {one.category: [count for count, other in zip(counts, every, strict=True) if other.category == one.category]
             for one in every}
    return {"name": name, "median": statistics.median(counts), "mean": statistics.mean(counts), "least": min(counts),
            "whole": sum(a == b for a, b in zip(found, wanted, strict=True)), "requests": len(counts),
            "median by category": {kind: statistics.median(some) for kind, some in kinds.items()},
            "counts": " ".join(map(str, counts))}


def _formats(record: Record, save: Callable[[], None]) -> None:
    """Q8_0 and others beside float on the windows of ``quality``, both with the token of the prefix in front."""
    prefix = options("int8").prefix
    windows = windows_of(source(), prefix)
    if record.get("sha256") != digest(windows):
        record.clear()
        record["sha256"] = digest(windows)
    left = [name for name in FORMATS if name not in record]
    if not left:
        return
    real = Published()
    for name in left:
        other, kinds = Published(name), dict[str, LikenessSums]()
        for kind, some in windows.items():
            sums = kinds.setdefault(kind, LikenessSums())
            for window in some.tolist():
                whole = [*prefix, *window]
                pair = [model.logits(whole)[len(prefix):-1] for model in (real, other)]
                following = np.array(window[1:])
                for at in range(0, len(following), BLOCK):
                    part = slice(at, at + BLOCK)
                    sums.add(*(logits[part].astype(np.float64) for logits in pair), following[part])
        record[name] = {"whole": asdict(sum(kinds.values(), LikenessSums()).result()),
                        "kinds": {kind: asdict(sums.result()) for kind, sums in kinds.items()}}
        save()
