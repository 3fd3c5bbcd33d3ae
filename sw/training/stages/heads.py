"""Train heads that draft on the frozen target of a bundled pair, on what it writes itself.

    python -m gemmule.sw.training.stages.heads --out build/train --models sw/models

The target writes texts behind train prompts, most of them greedily, and reads them once; what it says to each token is
what the heads learn to say some tokens earlier. All kinds learn side by side from the same anchors. They are judged on
greedy texts behind calibration prompts, which none has seen. A killed run goes on from its checkpoint to the same
bytes. The shipped target, restored to float, is the one that is read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save, save_file
from torch import Tensor

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Rope
from gemmule.io.files import write_atomically
from gemmule.sw.limits import DEFAULT, MODELS
from gemmule.sw.models.bundled import bundled_file
from gemmule.sw.training.data.batches import Batches, shuffled
from gemmule.sw.training.data.prepare import Arrays, load_arrays, prepare
from gemmule.sw.training.drafters.collect import rounded
from gemmule.sw.training.drafters.training import HeadLoss
from gemmule.sw.training.networks.drafting import DraftingHeads, build_heads
from gemmule.sw.training.networks.export import SMALL_TARGET, ModelShape, digest, write_json
from gemmule.sw.training.networks.model import LanguageModel, generate
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.networks.trained import Weights, restored_weights, take_tokenizer
from gemmule.sw.training.recipe import Recipe, factor, fingerprint
from gemmule.sw.training.records import stage_log
from gemmule.sw.training.running import Log, Place, autocast, load_state, open_place, save_state

__all__ = ["HeadsRecipe", "path_shares", "train_heads"]

NAME = "heads"
SAVE_SECONDS, PRINT_STEPS, JUDGE_STEPS = 60.0, 50, 500
TOP, PATHS = 8, 24
"""Ranks and paths that are told of."""


@dataclass(frozen=True, kw_only=True)
class HeadsRecipe:
    """Kinds, texts and rates.

    Attributes:
        kinds: by name, heads and the columns between a head's matrices.
        prompt, length: tokens of a prompt, and of a text with it.
        chunk, chunks: texts that are written at a time, and how often.
        drawn_every, temperature: every so many texts is drawn at this temperature, the others are greedy.
        judged: greedy texts that no head learns from.
        windows: of library and packages, as long as a text, which the target reads as well.
        rows, window_rows: texts and windows of a step, of which every ``stride``-th position is an anchor.
        steps, warm_up, decay: of training, as of :func:`gemmule.sw.training.recipe.factor`.
        fading: the weight of a head's loss over that of the head before.
        hard: weight of the cross-entropy with the target's best token beside that with its distribution.
        matrix_rate, vector_rate: peak learning rates of Muon and of AdamW.
    """

    kinds: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {
        "medusa": (4, 0), "blockwise": (4, 192), "hydra": (5, 256)})
    prompt: int = 48
    length: int = 128
    chunk: int = 512
    chunks: int = 12
    drawn_every: int = 4
    temperature: float = 0.7
    judged: int = 128
    windows: int = 128
    rows: int = 14
    window_rows: int = 2
    stride: int = 2
    steps: int = 5000
    warm_up: int = 5
    decay: float = 0.6
    fading: float = 0.8
    hard: float = 1.0
    matrix_rate: float = 0.03
    vector_rate: float = 0.006

    def texts_mark(self, seed: int, mark: str) -> str:
        """Of what texts depend on beside the target, whose weights' digest ends ``mark``; more chunks change none."""
        parts = [self.prompt, self.length, self.chunk, self.drawn_every, self.temperature, self.judged, seed,
                 mark[-64:]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Read:
    """Texts, and the target's rows of them.

    Attributes:
        tokens: int64 [texts, length].
        plain: rows behind its last norm without the factors, bfloat16 [texts, length, hidden].
    """

    tokens: Tensor
    plain: Tensor

    def some(self, picked: NDArray[np.int64]) -> Read:
        """Of some texts."""
        index = torch.from_numpy(picked)
        return Read(self.tokens[index], self.plain[index])

    @staticmethod
    def joined(parts: Sequence[Read]) -> Read:
        """Of all."""
        return Read(torch.cat([part.tokens for part in parts]), torch.cat([part.plain for part in parts]))


def written_texts(target: LanguageModel, plan: HeadsRecipe, arrays: Arrays, folder: Path, seed: int,
                  place: Place) -> NDArray[np.int64]:
    """What the target writes behind train prompts  # [texts, length]; chunks that are there are read."""
    folder.mkdir(parents=True, exist_ok=True)
    prompts = Batches(arrays, plan.prompt, plan.chunk, 0.0, (seed, 11))
    drawn = np.arange(plan.chunk) % plan.drawn_every == plan.drawn_every - 1
    parts = []
    for chunk in range(plan.chunks):
        path = folder / f"heads_{chunk:03}.safetensors"
        if not path.exists():
            began = time.monotonic()
            found = _write(target, prompts.step(chunk)[:, :-1], plan, np.where(drawn, plan.temperature, 0.0),
                           seed + chunk, place)
            write_atomically(path, save({"tokens": found.astype(np.uint16)}))
            print(f"{NAME}: texts {chunk + 1} of {plan.chunks}, {time.monotonic() - began:.0f} s", flush=True)
        parts.append(load_file(path)["tokens"].astype(np.int64))
    return np.concatenate(parts)


def judged_texts(target: LanguageModel, plan: HeadsRecipe, arrays: Arrays, place: Place) -> NDArray[np.int64]:
    """Greedy texts behind calibration prompts  # [texts, length]."""
    starts = np.linspace(0, len(arrays.calibration) - plan.prompt, plan.judged).astype(np.int64)
    prompts = np.stack([arrays.calibration[start:start + plan.prompt] for start in starts])
    return _write(target, prompts, plan, np.zeros(plan.judged), 0, place)


def _write(target: LanguageModel, prompts: NDArray[np.int64], plan: HeadsRecipe, warmth: NDArray[np.float64],
           seed: int, place: Place) -> NDArray[np.int64]:
    with autocast(place):
        found = generate(target, torch.from_numpy(prompts).to(place.device), plan.length,
                         torch.from_numpy(warmth.astype(np.float32)).to(place.device), seed)
    return found.cpu().numpy()


@torch.no_grad()
def read(target: LanguageModel, texts: NDArray[np.int64], place: Place, folder: Path) -> Read:
    """The target's rows of texts; what the folder has of these texts is taken."""
    mark = hashlib.sha256(texts.tobytes()).hexdigest()
    kept = folder / f"rows_{mark[:12]}.pt"
    if state := load_state(kept, mark):
        return Read(torch.from_numpy(texts).to(place.device), state["rows"].to(place.device))
    tokens, eps = torch.from_numpy(texts).to(place.device), target.model.norm.eps
    parts = []
    for part in tokens.split(32):
        with autocast(place):
            last = target.hidden(part)[-1].float()
        parts.append((last * torch.rsqrt(last.square().mean(-1, keepdim=True) + eps)).to(torch.bfloat16))
    found = Read(tokens, torch.cat(parts))
    save_state({"recipe": mark, "rows": found.plain}, kept)
    return found


class Anchors:
    """Anchors of some texts, and what comes behind them."""

    def __init__(self, target: LanguageModel, given: Read, first: int, stride: int, heads: int) -> None:
        """``first``: position of the first anchor; ``heads``: tokens behind the one that follows an anchor."""
        tokens, plain = given.tokens, given.plain.float()
        self.final = plain * target.model.norm.weight  # [texts, length, hidden]
        at = torch.arange(first, tokens.shape[1] - 1 - heads, stride, device=tokens.device)
        self.rows = self.final[:, at].flatten(0, 1)  # [anchors, hidden]
        self.plain = plain[:, at].flatten(0, 1)
        self.tokens = torch.stack([tokens[:, at + 1 + i].flatten() for i in range(heads + 1)], 1)
        """The token behind each anchor, then what each head is to say  # [anchors, 1 + heads]"""
        self.behind = [self.final[:, at + 1 + i].flatten(0, 1) for i in range(heads)]
        """Rows whose distribution each head is to have."""


def losses_of(drafting: DraftingHeads, target: LanguageModel, anchors: Anchors, wanted: list[Tensor],
              plan: HeadsRecipe, place: Place) -> Tensor:
    """Over heads, each by its weight, nats a token."""
    table = target.model.embed_tokens.weight
    with autocast(place):
        rows = drafting.draft(anchors.rows, anchors.plain, anchors.tokens, table)
    every = torch.arange(len(anchors.rows), device=table.device)
    total, weights = table.new_zeros(()), 0.0
    for number, (row, soft) in enumerate(zip(rows, wanted)):
        weight = plan.fading ** number
        total = total + weight * HeadLoss.apply(row.float(), table, soft, every, plan.hard)
        weights += weight
    return total / weights


@torch.no_grad()
def ranks_of(drafting: DraftingHeads, target: LanguageModel, anchors: Anchors, place: Place) -> NDArray[np.int64]:
    """Of each anchor and head the rank of the token that comes, :data:`TOP` if it is none of these."""
    table, found = target.model.embed_tokens.weight, []
    with autocast(place):
        rows = drafting.draft(anchors.rows, anchors.plain, anchors.tokens, table)
    for number, row in enumerate(rows):
        logits = row.float() @ table.T
        own = logits.gather(1, anchors.tokens[:, number + 1:number + 2])
        found.append((logits > own).sum(1).clamp(max=TOP))
    return torch.stack(found, 1).cpu().numpy()


def path_shares(ranks: NDArray[np.int64], most: int = 63) -> list[tuple[tuple[int, ...], float]]:
    """Paths of ranks with the share of anchors at which every token of the path is right, the largest first.

    The first n of them are the tree of n candidates with the most tokens a step (Cai et al. 2024, section 2.3.3, which
    takes products of the heads' accuracies for the shares); a path comes behind those that it goes on from.
    """
    counts: dict[tuple[int, ...], int] = {}
    for row in ranks.tolist():
        for depth in range(1, len(row) + 1):
            if row[depth - 1] >= TOP:
                break
            path = tuple(row[:depth])
            counts[path] = counts.get(path, 0) + 1
    best = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))[:most]
    return [(path, count / len(ranks)) for path, count in best]


def looping(text: NDArray[np.int64]) -> bool:
    """Whether at least half of its 4-grams stand in it before."""
    grams = [tuple(text[i:i + 4]) for i in range(len(text) - 3)]
    return len(set(grams)) * 2 <= len(grams)


def judged_numbers(ranks: NDArray[np.int64]) -> dict[str, Any]:
    """What is told of heads: shares at which each is right at rank 0 to 7, and of chains and trees; of no anchor
    nothing."""
    if not len(ranks):
        return {}
    right = np.cumprod(ranks == 0, axis=1).mean(0)
    shares = path_shares(ranks)
    return {"ranks": [[round(float((ranks[:, i] == r).mean()), 4) for r in range(TOP)] for i in range(ranks.shape[1])],
            "chain_tokens": round(1 + float(right.sum()), 4),
            "tree_tokens": {str(n): round(1 + sum(share for _, share in shares[:n]), 4) for n in (7, 15, 31, 63)},
            "paths": [[list(path), round(share, 4)] for path, share in shares[:PATHS]]}


def train_heads(plan: HeadsRecipe, seed: int, out: Path, target: LanguageModel, mark: str, place: Place,
                most_steps: int | None = None) -> dict[str, Any] | None:
    """Train or go on; the record, with the weights in ``out``. ``most_steps`` ends this run early: then None.

    Raises:
        ValueError: there is a checkpoint of another recipe or target.
    """
    arrays, folder = load_arrays(out), out / f"heads-{plan.texts_mark(seed, mark)}"
    texts = written_texts(target, plan, arrays, folder, seed, place)
    if not (folder / "judged.npy").exists():
        np.save(folder / "judged.npy", judged_texts(target, plan, arrays, place))
    judged = np.load(folder / "judged.npy")
    began = time.monotonic()
    windows = Batches(arrays, plan.length, plan.windows, 0.0, (seed, 13)).step(0)[:, :-1]
    given, plain, held = (read(target, one, place, folder) for one in (texts, windows, judged))
    deepest = max(count for count, _ in plan.kinds.values())
    seen = Anchors(target, held, plan.prompt - 1, 1, deepest)
    loops = np.array([looping(text[plan.prompt:]) for text in judged]).repeat(len(seen.rows) // len(judged))
    made, optimizers = dict[str, DraftingHeads](), dict[str, Optimizers]()
    for kind, (count, inner) in plan.kinds.items():
        torch.manual_seed(seed)
        made[kind] = build_heads(kind, target.shape.hidden_size, count, inner).to(place.device)
        optimizers[kind] = Optimizers(made[kind], plan.matrix_rate, plan.vector_rate, place.products)
    log, step = Log(out / "log.jsonl", NAME, seconds=0.0), 0
    if state := load_state(out / f"{NAME}.pt", mark):
        for kind in made:
            made[kind].load_state_dict(state["models"][kind])
            optimizers[kind].load(state["optimizers"][kind])
        step = state["step"]
        log.resume(step, state["seconds"], state["resumed"])
    table, saved = target.model.embed_tokens.weight, time.monotonic()
    print(f"{NAME}: rows of {len(texts)} texts, {time.monotonic() - began:.0f} s; step {step}", flush=True)

    def save_all() -> None:
        save_state({"recipe": mark, "models": {kind: one.state_dict() for kind, one in made.items()},
                    "optimizers": {kind: one.state() for kind, one in optimizers.items()}, "step": step,
                    "seconds": log.elapsed(), "resumed": log.resumed}, out / f"{NAME}.pt")

    last = min(plan.steps, step + (most_steps or plan.steps))
    while step < last:
        anchors = Anchors(target, Read.joined([
            part.some(shuffled(len(part.tokens), rows, step, (seed, number)))
            for number, (part, rows) in enumerate(((given, plan.rows), (plain, plan.window_rows)), 14)]),
            plan.prompt // 2 + step % plan.stride, plan.stride, deepest)
        with torch.no_grad(), autocast(place):
            wanted = [(rows @ table.T).float().softmax(-1) for rows in anchors.behind]
        values: dict[str, Any] = {}
        for kind, one in made.items():
            loss = losses_of(one, target, anchors, wanted, plan, place)
            loss.backward()
            optimizers[kind].step(factor(step, plan.steps, plan.warm_up, plan.decay))
            values[kind] = loss.item()
        step += 1
        if step % JUDGE_STEPS == 0 or step == plan.steps:
            for kind, one in made.items():
                if not (found := judged_numbers(ranks_of(one, target, seen, place)[~loops])):
                    continue
                values |= {f"{kind}, chain": found["chain_tokens"], f"{kind}, tree of 15": found["tree_tokens"]["15"]}
        if step % PRINT_STEPS == 0 or step == plan.steps:
            log.write(step, plan.steps, **values)
        if time.monotonic() - saved > SAVE_SECONDS:
            save_all()
            saved = time.monotonic()
    save_all()
    if step < plan.steps:
        return None
    numbers = {}
    for kind, one in made.items():
        ranks = ranks_of(one, target, seen, place)
        numbers[kind] = {"parameters": sum(weight.numel() for weight in one.parameters()),
                         "not looping": judged_numbers(ranks[~loops]), "all": judged_numbers(ranks)}
    anchors_seen = plan.steps * (plan.rows + plan.window_rows) * len(anchors_of(plan, deepest))
    return {"kinds": numbers, "judged_texts": len(judged), "looping": int(loops.sum()) * len(judged) // len(loops),
            "texts": len(texts), "windows": plan.windows, "anchors": anchors_seen, "steps": step,
            "seconds": round(log.elapsed()), "resumed": log.resumed, "threads": place.threads,
            "curve": [line for line in stage_log(out, NAME) if any(key.endswith(", chain") for key in line)]}


def anchors_of(plan: HeadsRecipe, heads: int) -> range:
    """Positions of a text that are anchors of a step."""
    return range(plan.prompt // 2, plan.length - 1 - heads, plan.stride)


def export(plan: HeadsRecipe, out: Path, folder: Path, target: ModelShape) -> dict[str, int]:
    """Write each kind's weights from the checkpoint in int8 by row; bytes of each file."""
    state = torch.load(out / f"{NAME}.pt", weights_only=True)
    sizes = {}
    for kind, (count, inner) in plan.kinds.items():
        kept: dict[str, NDArray[Any]] = {}
        for name, weight in state["models"][kind].items():
            kept[name] = weight.float().numpy()
            if weight.dim() == 2:
                kept[name], kept[f"{name}.scale"] = rounded(kept[name])
        kept["vocabulary"] = np.arange(target.vocab_size, dtype=np.int32)
        path = folder / f"{kind}.safetensors"
        save_file(kept, path, {"drafter": json.dumps({
            "kind": kind, "network": {"depths": [target.num_layers], "heads": count, "inner": inner}})})
        sizes[kind] = path.stat().st_size
    return sizes


def shipped_target(pair: Path, place: Place) -> tuple[LanguageModel, Weights]:
    """The target of a bundled pair, in float, frozen."""
    network = load_model(bundled_file(pair, "target")).network
    weights = restored_weights(network)
    theta = next(node.theta for node in network.graph.nodes if isinstance(node, Rope))
    shape = replace(Recipe().target.shape if pair.name == DEFAULT else SMALL_TARGET, rope_theta=theta)
    target = LanguageModel(shape)
    target.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    return target.to(place.device).eval().requires_grad_(False), weights


def main() -> None:
    """Train or resume the heads of a bundled target, and write them beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"), help="corpus, texts and checkpoint")
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the bundled pairs are")
    parser.add_argument("--pair", choices=MODELS, default=DEFAULT)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the numbers go")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, help="that this run takes at most; then it can be resumed")
    args = parser.parse_args()
    plan, place, pair = HeadsRecipe(), open_place(args.threads), args.models / args.pair
    try:
        take_tokenizer(pair, args.out)
        prepare(args.out, args.seed)
        target, weights = shipped_target(pair, place)
        mark = fingerprint(plan, args.seed) + digest(weights)
        record = train_heads(plan, args.seed, args.out, target, mark, place, args.steps)
        if record:
            record["bytes"] = export(plan, args.out, pair, target.shape)
            write_json(args.docs / "results" / f"heads_{args.pair}.json", record | {"place": place.describe()})
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
