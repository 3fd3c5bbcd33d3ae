"""Train the encoder: a small BERT that tells which package of the standard library a window of 128 tokens is from.

    python -m gemmule.sw.training.stages.encoder --out build/train

The classes' files are few, and a network that sees them in training soon knows them by heart. Therefore a bigram model
of each class teaches (:mod:`~gemmule.sw.training.networks.teacher`): vectors of tokens and a small MLP are fitted to
what it says of pairs of tokens (:mod:`~gemmule.sw.training.networks.student`), and become the weights of a BERT
(:mod:`~gemmule.sw.training.networks.building`). Each fold has its own teacher and network, of the other folds' files
alone, and is judged beside naive Bayes. The network that is kept is the first fold's, so that the first fold's files
are text that it has not seen.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from gemmule.io.files import write_atomically
from gemmule.sw.limits import DEFAULT
from gemmule.sw.text.byte_level import PAD_ID, load_tokenizer
from gemmule.sw.training import report
from gemmule.sw.training.data.folds import CLASSES, class_of, label, naive_bayes, windows_of
from gemmule.sw.training.data.prepare import prepare, read_texts
from gemmule.sw.training.data.tokenizer import VOCAB_SIZE, token_stream
from gemmule.sw.training.networks.bert import EPSILON, Bert
from gemmule.sw.training.networks.building import build
from gemmule.sw.training.networks.export import write_json
from gemmule.sw.training.networks.student import fit
from gemmule.sw.training.networks.teacher import evidence, pairs, score
from gemmule.sw.training.networks.trained import UNSEEN, write_encoder
from gemmule.sw.training.recipe import EncoderRecipe, Recipe
from gemmule.sw.training.running import Log, Place, open_place
from gemmule.sw.training.yardstick import Tokens

__all__ = ["classify", "ship", "train_encoder"]

NAME = "encoder"


@torch.no_grad()
def classify(model: Bert, rows: Tokens) -> NDArray[np.int64]:
    """Classes of windows  # [windows]."""
    model.eval()
    parts = [model(torch.from_numpy(rows[start:start + 64])).argmax(-1).numpy()
             for start in range(0, len(rows), 64)]
    return np.concatenate(parts)


def config_of(plan: EncoderRecipe) -> dict[str, Any]:
    """The keys of config.json."""
    return {
        "architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_size": plan.hidden,
        "num_hidden_layers": plan.layers, "num_attention_heads": plan.heads, "intermediate_size": plan.inner,
        "hidden_act": "gelu", "max_position_embeddings": plan.window, "type_vocab_size": 1, "vocab_size": VOCAB_SIZE,
        "layer_norm_eps": EPSILON, "pad_token_id": PAD_ID, "torch_dtype": "float16",
        "id2label": {str(index): name for index, name in enumerate(CLASSES)},
        "label2id": {name: index for index, name in enumerate(CLASSES)},
    }


def train_encoder(recipe: Recipe, out: Path, place: Place) -> dict[str, Any]:
    """Train, judge every fold, write ``out/encoder`` (config.json, model.safetensors in float16), return the record.

    Raises:
        ValueError: a package is missing.
    """
    plan = recipe.encoder
    texts, _ = read_texts()
    tokenizer = load_tokenizer(out / "tokenizer.json")
    files = label(tokenizer, texts.library, plan.folds, plan.window)
    library = [document for document in texts.library if class_of(document[0]) is None]
    others = plan.others * pairs(token_stream(tokenizer, library), VOCAB_SIZE)
    log, rows = Log(out / "log.jsonl", NAME), list[dict[str, Any]]()
    kept: Bert | None = None
    for fold in range(plan.folds):
        seen, mine = [file for file in files if file.fold != fold], [file for file in files if file.fold == fold]
        table = evidence(seen, VOCAB_SIZE)
        counts = others + sum(pairs(file.tokens, VOCAB_SIZE) for file in seen)
        student = fit(plan, (recipe.seed, fold), table, counts, Log(out / "log.jsonl", f"{NAME}, fold {fold + 1}"))
        model = build(plan, student).half().float()  # judged as it is written
        windows, labels = windows_of(mine, plan.window)
        if kept is None:
            kept = model
            (out / NAME).mkdir(exist_ok=True)
            np.savez(out / NAME / UNSEEN, windows=windows, labels=labels)
        found = classify(model, windows)
        right = {"right": found, "teacher_right": score(table, windows).argmax(1),
                 "naive_bayes_right": naive_bayes(windows_of(seen, plan.window), windows, VOCAB_SIZE)}
        rows.append({
            "fold": fold, "files": len(mine), "windows": len(labels),
            **{name: int((classes == labels).sum()) for name, classes in right.items()},
            "confusion": [np.bincount(found[labels == i], minlength=len(CLASSES)).tolist()
                          for i in range(len(CLASSES))]})
        log.write(fold + 1, plan.folds, accuracy=float((found == labels).mean()),
                  naive_bayes=rows[-1]["naive_bayes_right"] / len(labels),
                  teacher=rows[-1]["teacher_right"] / len(labels))
    assert kept is not None
    total = sum(row["windows"] for row in rows)
    record = {
        "classes": list(CLASSES), "window": plan.window, "parameters": sum(p.numel() for p in kept.parameters()),
        "accuracy": sum(row["right"] for row in rows) / total,
        "naive_bayes": sum(row["naive_bayes_right"] for row in rows) / total,
        "teacher": sum(row["teacher_right"] for row in rows) / total, "folds": rows,
        "unseen_files": [file.path for file in files if file.fold == 0]}
    write_json(out / NAME / "config.json", config_of(plan))
    write_atomically(out / NAME / "model.safetensors", save(
        {name: value.half().contiguous() for name, value in kept.state_dict().items()}, metadata={"format": "pt"}))
    return record


def ship(record: dict[str, Any], recipe: Recipe, out: Path, models: Path, docs: Path, place: Place) -> None:
    """Write the network in integers beside the default pair of ``models``, and ``docs/results/encoder.json``."""
    right = write_encoder(out, models / DEFAULT, recipe.seed)
    write_json(docs / "results" / "encoder.json", {
        "recipe": asdict(recipe.encoder), "seed": recipe.seed, "place": place.describe(), **record,
        "int8_right": right})


def main() -> None:
    """Train the encoder, ship it, and write its part of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the default pair is")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where numbers and page go")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    recipe = Recipe().scaled(args.share)
    try:
        prepare(args.out, recipe.seed)
        place = open_place(args.threads)
        record = train_encoder(recipe, args.out, place)
        ship(record, recipe, args.out, args.models, args.docs, place)
        report.write(args.docs)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{NAME}: {record['accuracy']:.1%} of windows, naive Bayes {record['naive_bayes']:.1%}")


if __name__ == "__main__":
    main()
