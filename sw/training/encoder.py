"""Train the encoder: a small BERT that tells which package of the standard library a window of 128 tokens is from.

    python -m gemmule.sw.training.encoder --out build/train

First it learns from text of none of the classes: tokens behind a mask, and which folder a window is from. Then, for
each fold, it learns the classes from the other folds' files, and is judged on the fold's beside naive Bayes. The
network that is kept is the first fold's, so that the first fold's files are text that it has not seen. Post-norm,
LayerNorm, GELU, learned positions, the first token pooled, under the names of Hugging Face's
``BertForSequenceClassification``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from gemmule.io.files import write_atomically
from gemmule.sw.training.corpus import Document
from gemmule.sw.training.export import write_json
from gemmule.sw.training.folds import CLASSES, Labelled, class_of, label, naive_bayes, windows_of
from gemmule.sw.training.optimizers import Optimizers
from gemmule.sw.training.prepare import prepare, read_texts
from gemmule.sw.training.recipe import EncoderRecipe, Recipe, factor, fingerprint
from gemmule.sw.training.running import Log, Place, autocast, load_state, open_place, save_state
from gemmule.sw.training.tokenizer import EOS_ID, PAD_ID, VOCAB_SIZE, load_tokenizer
from gemmule.sw.training.yardstick import Tokens

__all__ = ["Bert", "train_encoder"]

NAME = "encoder"
PRINT_STEPS, SAVE_STEPS = 100, 500
MASKED = 0.15
"""Share of tokens behind a mask, which is the padding token."""
LEAST_FOLDER = 40_000
"""Tokens of a folder that is told apart from others."""
WARM_UP, DECAY = 50, 0.7
EPSILON = 1e-5


class SelfAttention(nn.Module):
    """Every token sees every token."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(plan.hidden, plan.hidden) for _ in range(3))
        self.heads = plan.heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in (self.query, self.key, self.value))  # [batch, heads, tokens, head_dim]
        # written out: on a CPU the backward pass of torch's own kernel takes longer than all else together
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        return (torch.softmax(scores, -1).to(v.dtype) @ v).transpose(1, 2).flatten(-2)


class Output(nn.Module):
    """A projection, added to what came before, and LayerNorm."""

    def __init__(self, inner: int, plan: EncoderRecipe) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, plan.hidden)
        self.LayerNorm = nn.LayerNorm(plan.hidden, eps=EPSILON)
        self.dropout = plan.dropout

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(before + functional.dropout(self.dense(x), self.dropout, self.training))
        return normed


class BertLayer(nn.Module):
    """LayerNorm(x + attention(x)), then LayerNorm(x + mlp(x))."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(plan), "output": Output(plan.hidden, plan)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(plan.hidden, plan.inner)})
        self.output = Output(plan.inner, plan)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention["output"](self.attention["self"](x), x)
        after: Tensor = self.output(functional.gelu(self.intermediate["dense"](x)), x)
        return after


class Embeddings(nn.Module):
    """Words, positions and the only type, normed."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB_SIZE, plan.hidden)
        self.position_embeddings = nn.Embedding(plan.window, plan.hidden)
        self.token_type_embeddings = nn.Embedding(1, plan.hidden)
        self.LayerNorm = nn.LayerNorm(plan.hidden, eps=EPSILON)
        self.dropout = plan.dropout

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.word_embeddings(tokens) + self.position_embeddings.weight[: tokens.shape[1]]
        return functional.dropout(self.LayerNorm(x + self.token_type_embeddings.weight[0]), self.dropout, self.training)


class Bert(nn.Module):
    """Token windows to class scores; :attr:`names` are the parameters of the checkpoint."""

    def __init__(self, plan: EncoderRecipe) -> None:
        super().__init__()
        self.bert = nn.ModuleDict({
            "embeddings": Embeddings(plan),
            "encoder": nn.ModuleDict({"layer": nn.ModuleList(BertLayer(plan) for _ in range(plan.layers))}),
            "pooler": nn.ModuleDict({"dense": nn.Linear(plan.hidden, plan.hidden)})})
        self.classifier = nn.Linear(plan.hidden, len(CLASSES))
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def hidden(self, tokens: Tensor) -> Tensor:
        """The last layer  # [batch, tokens, hidden]."""
        x: Tensor = self.bert["embeddings"](tokens)
        for layer in self.bert["encoder"]["layer"]:  # type: ignore[union-attr]
            x = layer(x)
        return x

    def pooled(self, x: Tensor) -> Tensor:
        """tanh of a projection of the first token  # [batch, hidden]."""
        return torch.tanh(self.bert["pooler"]["dense"](x[:, 0]))  # type: ignore[operator, index]

    def forward(self, tokens: Tensor) -> Tensor:
        """Class scores  # [batch, classes]."""
        scores: Tensor = self.classifier(functional.dropout(self.pooled(self.hidden(tokens)), 0.1, self.training))
        return scores


def folders_of(documents: list[Document], tokenizer: Any, least: int) -> tuple[Tokens, Tokens, int]:
    """Text of no class: (its tokens in one stream, the folder of each token, how many folders).

    A folder is the first two parts of a path, or the first where the two hold fewer than ``least`` tokens.
    """
    kept = [(path, text) for path, text in documents if class_of(path) is None]
    ids = [np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64) for _, text in kept]
    sizes: dict[str, int] = {}
    for (path, _), tokens in zip(kept, ids, strict=True):
        name = "/".join(path.split("/")[:-1][:2])
        sizes[name] = sizes.get(name, 0) + len(tokens)
    named = []
    for path, _ in kept:
        name = "/".join(path.split("/")[:-1][:2])
        named.append(name if sizes[name] >= least else name.partition("/")[0])
    numbers = {name: number for number, name in enumerate(sorted(set(named)))}
    labels = [np.full(len(tokens), numbers[name]) for tokens, name in zip(ids, named, strict=True)]
    return np.concatenate(ids), np.concatenate(labels), len(numbers)


def rows_at(stream: Tokens, starts: NDArray[np.int64], window: int) -> Tokens:
    """Windows of a stream, ``<eos>`` before each  # [rows, window]."""
    return np.stack([np.concatenate(([EOS_ID], stream[start:start + window - 1])) for start in starts])


def pretrain(plan: EncoderRecipe, seed: int, documents: list[Document], out: Path, place: Place, model: Bert) -> None:
    """Masked tokens and folders, on text of none of the classes; resumes from ``out/encoder.pt``."""
    stream, folders, count = folders_of(documents, load_tokenizer(out / "tokenizer.json"), LEAST_FOLDER)
    head = nn.Linear(plan.hidden, count).to(place.device)
    # the head's own name makes AdamW train it: classes are rows of an embedding
    optimizer = Optimizers(nn.ModuleDict({"model": model, "embeddings": head}), plan.matrix_rate, plan.vector_rate)
    mark, log, step = fingerprint(plan, seed), Log(out / "log.jsonl", "encoder, masked"), 0
    if state := load_state(out / "encoder.pt", mark):
        model.load_state_dict(state["model"])
        head.load_state_dict(state["head"])
        optimizer.load(state["optimizer"])
        step = state["step"]
        log.resume(step, state["seconds"], state["resumed"])
    model.train()
    while step < plan.masked_steps:
        random = np.random.default_rng((seed, 8, step))
        torch.manual_seed(seed * 1_000_003 + step)  # dropout, the same after a resumption
        starts = random.integers(0, len(stream) - plan.window, plan.rows)
        tokens = torch.from_numpy(rows_at(stream, starts, plan.window)).to(place.device)
        hidden = torch.from_numpy(random.random(tokens.shape) < MASKED).to(place.device)
        hidden[:, 0] = False
        with autocast(place):
            x = model.hidden(tokens.masked_fill(hidden, PAD_ID))
            words = functional.linear(x[hidden], model.bert["embeddings"].word_embeddings.weight)  # type: ignore[union-attr, arg-type]
            found = head(model.pooled(x))
        masked = functional.cross_entropy(words.float(), tokens[hidden])
        place_loss = functional.cross_entropy(found.float(), torch.from_numpy(folders[starts]).to(place.device))
        (masked + place_loss).backward()
        optimizer.step(factor(step, plan.masked_steps, WARM_UP, DECAY))
        step += 1
        if step % PRINT_STEPS == 0 or step == plan.masked_steps:
            log.write(step, plan.masked_steps, masked=masked.item(), folders=place_loss.item())
        if step % SAVE_STEPS == 0 or step == plan.masked_steps:
            save_state({"recipe": mark, "model": model.state_dict(), "head": head.state_dict(),
                        "optimizer": optimizer.state(), "step": step, "seconds": log.elapsed(),
                        "resumed": log.resumed}, out / "encoder.pt")


def tune(plan: EncoderRecipe, seed: int, files: list[Labelled], place: Place, model: Bert) -> None:
    """Learn the classes: windows at random places, every class as often, some tokens behind the mask."""
    optimizer = Optimizers(model, plan.matrix_rate, plan.vector_rate)
    by_class = [[file for file in files if file.label == index] for index in range(len(CLASSES))]
    streams = [np.concatenate([file.tokens for file in mine]) for mine in by_class]
    shares = np.sqrt([len(stream) for stream in streams])
    model.train()
    for step in range(plan.steps):
        random = np.random.default_rng((seed, 9, step))
        torch.manual_seed(seed * 1_000_003 + step)
        labels = random.choice(len(CLASSES), plan.rows, p=shares / shares.sum())
        rows = np.concatenate([rows_at(streams[i], random.integers(0, len(streams[i]) - plan.window, 1), plan.window)
                               for i in labels])
        hidden = random.random(rows.shape) < MASKED * random.random((plan.rows, 1)) * 2
        hidden[:, 0] = False
        tokens = torch.from_numpy(np.where(hidden, PAD_ID, rows)).to(place.device)
        with autocast(place):
            scores = model(tokens)
        functional.cross_entropy(scores.float(), torch.from_numpy(labels).to(place.device),
                                 label_smoothing=0.1).backward()
        optimizer.step(plan.tuning * factor(step, plan.steps, WARM_UP, DECAY))


@torch.no_grad()
def classify(model: Bert, rows: Tokens, place: Place) -> NDArray[np.int64]:
    """Classes of windows  # [windows]."""
    model.eval()
    parts = [model(torch.from_numpy(rows[start:start + 256]).to(place.device)).argmax(-1).cpu().numpy()
             for start in range(0, len(rows), 256)]
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
        ValueError: a package is missing, or there is a checkpoint of another recipe.
    """
    plan = recipe.encoder
    texts, _ = read_texts()
    torch.manual_seed(recipe.seed)
    base = Bert(plan).to(place.device)
    pretrain(plan, recipe.seed, texts.library + texts.packages, out, place, base)
    files = label(load_tokenizer(out / "tokenizer.json"), texts.library, plan.folds, plan.window)
    log = Log(out / "log.jsonl", NAME)
    rows: list[dict[str, Any]] = []
    kept: Bert | None = None
    for fold in range(plan.folds):
        model = Bert(plan).to(place.device)
        model.load_state_dict(base.state_dict())
        others, mine = [file for file in files if file.fold != fold], [file for file in files if file.fold == fold]
        tune(plan, recipe.seed + fold, others, place, model)
        if fold == 0:
            model.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
            kept = model  # judged as it is written
        windows, labels = windows_of(mine, plan.window)
        found = classify(model, windows, place)
        simple = naive_bayes(windows_of(others, plan.window), windows, VOCAB_SIZE)
        rows.append({
            "fold": fold, "files": len(mine), "windows": len(labels), "right": int((found == labels).sum()),
            "naive_bayes_right": int((simple == labels).sum()),
            "confusion": [np.bincount(found[labels == i], minlength=len(CLASSES)).tolist()
                          for i in range(len(CLASSES))]})
        log.write(fold + 1, plan.folds, accuracy=float((found == labels).mean()),
                  naive_bayes=float((simple == labels).mean()))
    assert kept is not None
    total = sum(row["windows"] for row in rows)
    record = {
        "classes": list(CLASSES), "window": plan.window, "parameters": sum(p.numel() for p in kept.parameters()),
        "accuracy": sum(row["right"] for row in rows) / total,
        "naive_bayes": sum(row["naive_bayes_right"] for row in rows) / total, "folds": rows,
        "unseen_files": [file.path for file in files if file.fold == 0]}
    (out / NAME).mkdir(exist_ok=True)
    write_json(out / NAME / "config.json", config_of(plan))
    write_atomically(out / NAME / "model.safetensors", save(
        {name: value.half().contiguous() for name, value in kept.state_dict().items()}, metadata={"format": "pt"}))
    write_json(out / NAME / "quality.json", record)
    return record


def main() -> None:
    """Train or resume the encoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    recipe = Recipe().scaled(args.share)
    try:
        prepare(args.out, recipe.seed)
        record = train_encoder(recipe, args.out, open_place(args.threads))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{NAME}: {record['accuracy']:.1%} of windows, naive Bayes {record['naive_bayes']:.1%}")


if __name__ == "__main__":
    main()
