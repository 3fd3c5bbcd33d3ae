"""Measure a bundled pair on held-out text, into a file of numbers.

    python -m gemmule.sw.training.measure --train build/train --pair sw/models/default --out docs/results/models.json

Needs no torch: the float numbers are those of the checkpoints below ``--train`` in numpy, the others those of the
shipped integers in the golden interpreter, token by token what the device computes. Parts that are in the output for
the same files already are kept, so that a killed run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from gemmule.compiler.checkpoint import Checkpoint
from gemmule.compiler.interpreter import Interpreter, KvCache
from gemmule.compiler.qmodel import QuantModel, load_quantized
from gemmule.compiler.quality import float_predictor, integer_predictor
from gemmule.compiler.reference import float_forward
from gemmule.sw.bundled import bundled_file
from gemmule.sw.training import copies
from gemmule.sw.training.bundle import load_trained
from gemmule.sw.training.corpus import Document, load_corpus
from gemmule.sw.training.export import write_json
from gemmule.sw.training.packages import SECOND, choose, read_package
from gemmule.sw.training.tokenizer import EOS_ID, encode, token_stream
from gemmule.sw.training.yardstick import (
    CONTEXT,
    Floats,
    Predictor,
    Tokens,
    acceptance_by_place,
    by_position,
    distinct_share,
    matches,
    token_nats,
)

__all__ = ["exit_agreement", "greedy", "lengths", "measure"]

PROMPTS = Path("benchmarks/prompts.json")
NEW_TOKENS = 128
DRAFTS = 8
EXIT_WINDOWS = 24
LIKE = 0.8
"""Similarity from which a function counts as reproduced."""


def lengths(tokenizer: Tokenizer, documents: list[Document], predict: Predictor, window: int) -> dict[str, Any]:
    """Code length of documents one behind the other, windows of ``window`` tokens.

    Bits per byte of all, of each file (its end-of-file token included), their mean, and nats by position in a window.
    """
    stream = token_stream(tokenizer, documents)
    nats = token_nats(predict, stream, window)
    ends = np.flatnonzero(stream == EOS_ID)[1:]  # of each file; nats[i] is that of stream[i + 1]
    parts: list[Floats] = np.split(nats, ends)[:len(documents)]
    sizes = [len(text.encode()) for _, text in documents]
    files = {path: float(part.sum() / np.log(2) / size)
             for (path, _), part, size in zip(documents, parts, sizes, strict=True)}
    return {"bits_per_byte": float(nats.sum() / np.log(2) / sum(sizes)),
            "mean_of_files": statistics.mean(files.values()), "files": files,
            "nats_by_position": by_position(nats, window)}


def greedy(model: QuantModel, prompt: list[int], count: int) -> list[int]:
    """The ``count`` tokens that the integers find likeliest behind a prompt, fewer where the context is full."""
    interpreter, cache = Interpreter(model), KvCache(model)
    rows, position, found = prompt, 0, []
    for _ in range(min(count, model.shape.max_positions - len(prompt))):
        logits = interpreter.forward(rows, position, cache)
        position += len(rows)
        rows = [int(logits[-1].argmax())]
        found += rows
    return found


def texts_of(tokenizer: Tokenizer, model: QuantModel, draft: QuantModel, path: Path) -> dict[str, Any]:
    """Greedy text behind the prompts of ``path``: how much of it repeats, and what the draft foresees."""
    record = json.loads(path.read_text(encoding="utf-8"))
    prompts = [encode(tokenizer, prompt["text"])[:CONTEXT // 2] for prompt in record["prompts"]]
    predict = integer_predictor(draft)
    distinct, rows, texts = [], [], []
    for prompt in prompts:
        text = greedy(model, prompt, NEW_TOKENS)
        texts.append(text)
        distinct.append(distinct_share(np.array([text])))
        rows.append(matches(predict, np.array([prompt + text]), len(prompt))[0])
    return {
        "prompts": len(prompts), "sha256": record["sha256"], "new_tokens": NEW_TOKENS, "distinct_4grams": distinct,
        "distinct_4grams_median": statistics.median(distinct),
        "agreement": float(np.concatenate(rows).mean()),
        "acceptance": {str(drafts): acceptance_by_place(rows, drafts) for drafts in (1, 3, DRAFTS)},
        "texts": [tokenizer.decode(text) for text in texts],
    }


def exit_agreement(checkpoint: Checkpoint, windows: Tokens) -> list[float]:
    """The share of tokens at which the exit behind each layer has the last one's best token (float)."""
    found: list[np.ndarray] = []
    float_forward(checkpoint, windows, lambda name, value: found.append(value) if name == "x" else None)
    best = []
    for x in found[2::2]:  # the embedding, then behind attention and MLP of every layer
        scale = np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(checkpoint.shape.rms_eps))
        best.append((x / scale * checkpoint.norm @ checkpoint.head.T).argmax(-1))
    return [float((one == best[-1]).mean()) for one in best]


def exits_of(tokenizer: Tokenizer, checkpoint: Checkpoint, documents: list[Document]) -> dict[str, Any]:
    """:func:`exit_agreement` on held-out windows of 256 tokens, spread evenly."""
    stream = token_stream(tokenizer, documents)
    starts = np.linspace(0, len(stream) - CONTEXT, EXIT_WINDOWS).astype(np.int64)
    shares = [exit_agreement(checkpoint, stream[None, start:start + CONTEXT]) for start in starts]
    return {"windows": EXIT_WINDOWS, "agreement": np.mean(shares, axis=0).tolist()}


def copies_of(tokenizer: Tokenizer, model: QuantModel, path: Path) -> dict[str, Any]:
    """The copy test: how much of each copy's body the model writes."""
    rows: list[dict[str, Any]] = []
    for copy in copies.load_copies(path):
        prompt, wanted = encode(tokenizer, copy.prompt), encode(tokenizer, copy.wanted)
        found = greedy(model, prompt, len(wanted))
        rows.append({"where": copy.where, "edits": len(copy.edits), "tokens": len(wanted),
                     "similarity": copies.similarity(found, wanted)})
    return {"functions": len(rows), "like": LIKE, "reproduced": sum(row["similarity"] >= LIKE for row in rows),
            "rows": rows}


def measure(train: Path, pair: Path, out: Path, *, prompts: Path, tests: Path) -> dict[str, Any]:
    """All parts, written to ``out`` as they are done.

    Raises:
        ValueError: a file is missing, damaged or of another kind.
    """
    tokenizer, checkpoints = load_trained(train)
    files = {name: bundled_file(pair, name) for name in ("target", "draft", "tokenizer")}
    models = {name: load_quantized(files[name]) for name in ("target", "draft")}
    marks = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    marks |= {f"{name} in float": hashlib.sha256((train / name / "model.safetensors").read_bytes()).hexdigest()
              for name in models}
    corpus = load_corpus()
    sets = {"held_out": corpus.held_out, "second": choose(read_package(SECOND).documents)}
    predictors: dict[str, dict[str, Predictor]] = {
        name: {"float": float_predictor(checkpoints[name]), "int8": integer_predictor(models[name])} for name in models}
    own = models["target"].shape.max_positions
    parts: dict[str, Callable[[], Any]] = {}
    for name, kinds in predictors.items():
        for kind, predict in kinds.items():
            for chosen, documents in sets.items():
                for window in (CONTEXT, own)[:1 if (kind, chosen) == ("int8", "second") else 2]:  # a quarter of an hour
                    parts[f"{name}, {kind}, {chosen}, {window}"] = (
                        lambda predict=predict, documents=documents, window=window:  # type: ignore[misc]
                        lengths(tokenizer, documents, predict, window))
    parts["exits"] = lambda: exits_of(tokenizer, checkpoints["target"], corpus.held_out)
    parts["texts"] = lambda: texts_of(tokenizer, models["target"], models["draft"], prompts)
    parts["copies"] = lambda: copies_of(tokenizer, models["target"], tests)
    record: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    if record.get("files") != marks:
        record = {"files": marks, "splits": corpus.digests(), "context": own, "seconds": {}}
    for name, part in parts.items():
        if name not in record:
            began = time.monotonic()
            record[name] = part()
            record["seconds"][name] = round(time.monotonic() - began)
            write_json(out, record)
            print(f"measured: {name}, {record['seconds'][name]} s", flush=True)
    return record


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, default=Path("build/train"), help="what training wrote")
    parser.add_argument("--pair", type=Path, default=Path("sw/models/default"))
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--copies", type=Path, default=copies.FILE)
    parser.add_argument("--out", type=Path, default=Path("docs/results/models.json"))
    args = parser.parse_args()
    try:
        measure(args.train, args.pair, args.out, prompts=args.prompts, tests=args.copies)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
