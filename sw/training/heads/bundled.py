"""Train heads that draft on the frozen target of a bundled pair, on what it writes itself.

    python -m gemmule.sw.training.heads.bundled --out build/train --models sw/models

The target writes texts behind train prompts, most of them greedily, and reads them once; what it says to each token is
what the heads learn to say some tokens earlier. All kinds learn side by side from the same anchors. They are judged on
greedy texts behind calibration prompts, which none has seen. A killed run goes on from its checkpoint to the same
bytes. The shipped target, restored to float, is the one that is read.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save
from torch import Tensor

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.ir import Rope
from gemmule.io.files import write_atomically
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DEFAULT, MODELS, SEED, THREADS, Range
from gemmule.sw.models.bundled import bundled_file
from gemmule.sw.training.data.batches import Batches, shuffled
from gemmule.sw.training.data.prepare import Arrays, load_arrays, prepare
from gemmule.sw.training.heads.anchors import Anchors, Frozen, ranks_of
from gemmule.sw.training.heads.judging import judged_numbers, looping
from gemmule.sw.training.heads.learning import export, learn
from gemmule.sw.training.heads.recipe import HeadsRecipe
from gemmule.sw.training.networks.drafting import DraftingHeads
from gemmule.sw.training.networks.export import SMALL_TARGET, digest, write_json
from gemmule.sw.training.networks.model import LanguageModel, generate
from gemmule.sw.training.networks.trained import Weights, restored_weights, take_tokenizer
from gemmule.sw.training.recipe import Recipe, fingerprint
from gemmule.sw.training.running import Place, autocast, load_state, make_folders, open_place, save_state

__all__ = ["train_heads"]

NAME = "heads"
LIMITS = {"seed": SEED, "threads": THREADS, "most_steps": Range(1, 10**6)}
"""Of options."""


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


def _anchors(target: LanguageModel, given: Read, first: int, stride: int, heads: int) -> Anchors:
    """Anchors of some texts; ``first``: position of the first; ``heads``: tokens behind the one that follows it."""
    tokens, plain = given.tokens, given.plain.float()
    final = plain * target.model.norm.weight  # [texts, length, hidden]
    at = torch.arange(first, tokens.shape[1] - 1 - heads, stride, device=tokens.device)
    return Anchors(final[:, at].flatten(0, 1), plain[:, at].flatten(0, 1),
                   torch.stack([tokens[:, at + 1 + i].flatten() for i in range(heads + 1)], 1),
                   [final[:, at + 1 + i].flatten(0, 1) for i in range(heads)])


@dataclass(frozen=True)
class Texts:
    """Anchors of texts that the target wrote and of windows, some of each a step."""

    plan: HeadsRecipe
    seed: int
    target: LanguageModel
    frozen: Frozen
    given: Read
    plain: Read

    def step(self, number: int) -> Anchors:
        """Of every ``stride``-th position, in turn."""
        plan = self.plan
        read = Read.joined([part.some(shuffled(len(part.tokens), rows, number, (self.seed, key)))
                            for key, (part, rows) in enumerate(((self.given, plan.rows),
                                                                (self.plain, plan.window_rows)), 14)])
        return _anchors(self.target, read, plan.prompt // 2 + number % plan.stride, plan.stride, plan.deepest)


def train_heads(plan: HeadsRecipe, seed: int, out: Path, target: LanguageModel, mark: str, place: Place,
                folder: Path, most_steps: int | None = None) -> dict[str, Any] | None:
    """Train or go on; the record, with the weights in ``folder``. ``most_steps`` ends this run early: then None.

    Raises:
        ValueError: there is a checkpoint of another recipe or target.
    """
    arrays, kept = load_arrays(out), out / f"heads-{plan.texts_mark(seed, mark)}"
    texts = written_texts(target, plan, arrays, kept, seed, place)
    if not (kept / "judged.safetensors").exists():
        found = judged_texts(target, plan, arrays, place)
        write_atomically(kept / "judged.safetensors", save({"tokens": found.astype(np.uint16)}))
    judged = load_file(kept / "judged.safetensors")["tokens"].astype(np.int64)
    began = time.monotonic()
    windows = Batches(arrays, plan.length, plan.windows, 0.0, (seed, 13)).step(0)[:, :-1]
    given, plain, held = (read(target, one, place, kept) for one in (texts, windows, judged))
    print(f"{NAME}: rows of {len(texts)} texts, {time.monotonic() - began:.0f} s", flush=True)
    seen = _anchors(target, held, plan.prompt - 1, 1, plan.deepest)
    loops = np.array([looping(text[plan.prompt:]) for text in judged]).repeat(len(seen.rows) // len(judged))
    frozen = Frozen(target.model.embed_tokens.weight)

    def judge(kind: str, heads: DraftingHeads) -> dict[str, float]:
        found = judged_numbers(ranks_of(heads, frozen, seen, place)[~loops])
        return found and {f"{kind}, chain": found["chain_tokens"],
                          f"{kind}, tree of 15": found["tree_tokens"]["15"]}

    learned = learn(plan, Texts(plan, seed, target, frozen, given, plain), seed, out, mark, place, judge, most_steps)
    if learned is None:
        return None
    numbers, sizes = dict[str, Any](), dict[str, int]()
    for kind, one in learned.made.items():
        ranks = ranks_of(one, frozen, seen, place)
        numbers[kind] = {"parameters": sum(weight.numel() for weight in one.parameters()),
                         "not looping": judged_numbers(ranks[~loops]), "all": judged_numbers(ranks)}
        told = numbers[kind]["not looping"] or numbers[kind]["all"]
        sizes[kind] = export(folder / f"{kind}.safetensors", kind, one, target.shape.num_layers, frozen, told["paths"])
    anchors = range(plan.prompt // 2, plan.length - 1 - plan.deepest, plan.stride)
    return {"kinds": numbers, "judged_texts": len(judged), "looping": int(loops.sum()) * len(judged) // len(loops),
            "texts": len(texts), "windows": plan.windows,
            "anchors": plan.steps * (plan.rows + plan.window_rows) * len(anchors), "bytes": sizes} | learned.told


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
    parser.add_argument("--threads", type=int, default=1, help="of torch, on a CPU")
    parser.add_argument("--most-steps", type=int, help="that this run takes; then it can be resumed")
    args = parser.parse_args()
    plan, pair = HeadsRecipe(), args.models / args.pair
    try:
        for name, limits in LIMITS.items():
            if (value := getattr(args, name)) is not None:
                limits.check(f"--{name.replace('_', '-')}", value)
        make_folders(args.out, args.docs / "results")
        place = open_place(args.threads)
        take_tokenizer(pair, args.out)
        prepare(args.out, args.seed)
        target, weights = shipped_target(pair, place)
        mark = fingerprint(plan, args.seed) + digest(weights)
        record = train_heads(plan, args.seed, args.out, target, mark, place, pair, args.most_steps)
        if record:
            write_json(args.docs / "results" / f"heads_{args.pair}.json", record | {"place": place.describe()})
    except (InputError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
