"""Measure a bundled pair on held-out text, into a file of numbers.

    python -m gemmule.sw.training.measure --train build/train --pair sw/models/default --out docs/results/models.json

Needs no torch: the float numbers are those of the checkpoints below ``--train`` in numpy, those of int8 the shipped
integers' in the golden interpreter, token by token what the device computes; int4 is quantised here, on the same text.
Parts that are in the output for the same files already are kept, so that a killed run goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Cache, FloatInterpreter, IntegerInterpreter, Network, Rows
from gemmule.compiler.quantize.accuracy import layer_outputs, predictor
from gemmule.compiler.quantize.network import quantize_network
from gemmule.sw.models.bundled import bundled_file
from gemmule.sw.prompts import copies
from gemmule.sw.text.byte_level import EOS_ID, encode, load_tokenizer
from gemmule.sw.text.corpus import Document, load_corpus
from gemmule.sw.training.data.packages import SECOND, choose, read_package
from gemmule.sw.training.data.tokenizer import token_stream
from gemmule.sw.training.networks.export import write_json
from gemmule.sw.training.networks.trained import calibration_windows, load_networks, options
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

__all__ = ["exit_agreement", "greedy", "lengths", "measure", "measure_draft"]

PROMPTS = Path(__file__).resolve().parents[1] / "prompts" / "completion.json"
NEW_TOKENS = 128
DRAFTS = 8
EXIT_WINDOWS = 24
METHODS: tuple[Literal["nearest", "second-order"], ...] = ("nearest", "second-order")
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


def greedy(network: Network, prompt: list[int], count: int) -> list[int]:
    """The ``count`` tokens that the integers find likeliest behind a prompt, fewer where the context is full."""
    interpreter, cache = IntegerInterpreter(network), Cache(network.graph)
    rows, position, found = prompt, 0, []
    for _ in range(min(count, network.graph.positions - len(prompt))):
        logits = interpreter.forward(Rows.chain(rows, position), cache)
        position += len(rows)
        rows = [int(logits[-1].argmax())]
        found += rows
    return found


def texts_of(tokenizer: Tokenizer, network: Network, draft: Network, path: Path) -> dict[str, Any]:
    """Greedy text behind the prompts of ``path``: how much of it repeats, and what the draft foresees."""
    record = json.loads(path.read_text(encoding="utf-8"))
    prompts = [encode(tokenizer, prompt["text"])[:CONTEXT // 2] for prompt in record["prompts"]]
    predict = predictor(draft)
    distinct, rows, texts = [], [], []
    for prompt in prompts:
        text = greedy(network, prompt, NEW_TOKENS)
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


def exit_agreement(network: Network, windows: Tokens) -> list[float]:
    """The share of tokens at which the exit behind each layer has the last one's best token (float)."""
    graph, interpreter = network.graph, FloatInterpreter(network)
    ends, found = layer_outputs(network), dict[str, np.ndarray]()
    rows = Rows.ragged(windows.tolist(), [0] * len(windows))
    interpreter.forward(rows, Cache(graph), lambda name, value: found.update({name: value}) if name in ends else None)
    best = [interpreter.forward(rows, Cache(graph), feed={ends[-1]: found[name]}).argmax(-1) for name in ends]
    return [float((one == best[-1]).mean()) for one in best]


def exits_of(tokenizer: Tokenizer, network: Network, documents: list[Document]) -> dict[str, Any]:
    """:func:`exit_agreement` on held-out windows of 256 tokens, spread evenly."""
    stream = token_stream(tokenizer, documents)
    starts = np.linspace(0, len(stream) - CONTEXT, EXIT_WINDOWS).astype(np.int64)
    shares = [exit_agreement(network, stream[None, start:start + CONTEXT]) for start in starts]
    return {"windows": EXIT_WINDOWS, "agreement": np.mean(shares, axis=0).tolist()}


def copies_of(tokenizer: Tokenizer, network: Network, path: Path) -> dict[str, Any]:
    """The copy test: how much of each copy's body the model writes."""
    rows: list[dict[str, Any]] = []
    for copy in copies.load_copies(path):
        prompt, wanted = encode(tokenizer, copy.prompt), encode(tokenizer, copy.wanted)
        found = greedy(network, prompt, len(wanted))
        rows.append({"where": copy.where, "edits": len(copy.edits), "tokens": len(wanted),
                     "similarity": copies.similarity(found, wanted)})
    return {"functions": len(rows), "like": LIKE, "reproduced": sum(row["similarity"] >= LIKE for row in rows),
            "rows": rows}


def measure(train: Path, pair: Path, out: Path, *, prompts: Path, tests: Path) -> dict[str, Any]:
    """All parts, written to ``out`` as they are done.

    Raises:
        ValueError: a file is missing, damaged or of another kind.
    """
    tokenizer, networks = load_networks(train)
    files = {name: bundled_file(pair, name) for name in ("target", "draft", "tokenizer")}
    models = {name: load_model(files[name]) for name in networks}
    integers = {name: model.network for name, model in models.items()}
    marks = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    marks |= {f"{name} in float": hashlib.sha256((train / name / "model.safetensors").read_bytes()).hexdigest()
              for name in models}
    corpus = load_corpus()
    sets = {"held_out": corpus.held_out, "second": choose(read_package(SECOND).documents)}
    predictors: dict[str, dict[str, Predictor]] = {
        name: {"float": predictor(networks[name]), "int8": predictor(integers[name])} for name in models}
    own = networks["target"].graph.positions
    parts: dict[str, Callable[[], Any]] = {}

    def add(name: str, chosen: str, windows: tuple[int, ...]) -> None:
        for window, (kind, predict) in product(windows, predictors[name].items()):
            if (kind, chosen, window) != ("int8", "second", own):  # a quarter of an hour
                parts[f"{name}, {kind}, {chosen}, {window}"] = (
                    lambda predict=predict, window=window: lengths(  # type: ignore[misc]
                        tokenizer, sets[chosen], predict, window))

    add("target", "held_out", (CONTEXT,))  # what the bars ask for first
    parts["copies"] = lambda: copies_of(tokenizer, integers["target"], tests)
    parts["texts"] = lambda: texts_of(tokenizer, integers["target"], integers["draft"], prompts)
    parts["exits"] = lambda: exits_of(tokenizer, networks["target"], corpus.held_out)
    add("target", "held_out", (own,))
    add("draft", "held_out", (CONTEXT, own))
    add("target", "second", (CONTEXT, own))
    add("draft", "second", (CONTEXT, own))

    def int4(method: Literal["nearest", "second-order"]) -> dict[str, Any]:
        seed = models["target"].made.seed
        made = quantize_network(networks["target"], calibration_windows(train, own, seed), options(4, method, seed))
        return lengths(tokenizer, corpus.held_out, predictor(made.network), CONTEXT)

    for method in METHODS:
        parts[f"target, int4 {method}, held_out, {CONTEXT}"] = lambda method=method: int4(method)  # type: ignore[misc]
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


def measure_draft(pair: Path, out: Path, checkpoint: Path, prompts: Path) -> None:
    """Measure the texts again for another draft; what ``out`` tells of the target stays, of the draft before goes."""
    record = json.loads(out.read_text(encoding="utf-8"))
    kept = {name: part for name, part in record.items() if not name.startswith("draft,")}
    files = {name: bundled_file(pair, name) for name in ("target", "draft", "tokenizer")}
    kept["files"] |= {"draft": hashlib.sha256(files["draft"].read_bytes()).hexdigest(),
                      "draft in float": hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()}
    began, (target, draft) = time.monotonic(), (load_model(files[name]).network for name in ("target", "draft"))
    kept["texts"] = texts_of(load_tokenizer(files["tokenizer"]), target, draft, prompts)
    kept["seconds"]["texts"] = round(time.monotonic() - began)
    write_json(out, kept)


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
