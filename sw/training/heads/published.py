"""Train heads that draft on SmolLM2, frozen, on the answers that it writes itself.

    python -m gemmule.sw.training.heads.published --out build/heads

The target writes answers to prompts that it invents and to requests about texts and code, and its rows are kept as it
writes. All kinds learn side by side from the same rows. They are judged on other answers: to the requests of the
benchmarks, and to prompts that none has seen. Heads can say the tokens that the other drafters of this model can. A
killed run goes on where it was, to the same bytes. The weights lie beside the model then, which runs them with
``--method medusa``, ``blockwise`` and ``hydra``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gemmule.compiler.errors import CompileError
from gemmule.sw.errors import InputError
from gemmule.sw.limits import SEED, THREADS, Range
from gemmule.sw.models.trained.read import read_trained
from gemmule.sw.training.data.batches import shuffled
from gemmule.sw.training.drafters.pack import pack
from gemmule.sw.training.drafters.packed import Pack, read_pack
from gemmule.sw.training.drafters.ranks import TOP, Ranks, judged, path_shares, summary, trees
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.heads.anchors import Anchors, Frozen, ranks_of
from gemmule.sw.training.heads.answers import ROUNDS, Answers, written_answers
from gemmule.sw.training.heads.judging import PATHS
from gemmule.sw.training.heads.learning import export, learn
from gemmule.sw.training.heads.recipe import AnswersRecipe
from gemmule.sw.training.networks.drafting import DraftingHeads
from gemmule.sw.training.networks.export import write_json
from gemmule.sw.training.recipe import fingerprint
from gemmule.sw.training.running import Place, make_folders, open_place

__all__ = ["train_heads"]

MODEL = "smollm2"
PART = 2048
"""Anchors whose ranks are found at a time."""
LIMITS = {"seed": SEED, "threads": THREADS, "rounds": ROUNDS, "steps": Range(1, 10**6)}
"""Of options."""
TREE = "15"
"""Nodes of the learning curve's."""


@dataclass(frozen=True)
class Written:
    """Anchors of answers, drawn."""

    plan: AnswersRecipe
    seed: int
    frozen: Frozen
    gain: Tensor
    answers: Answers
    left: Tensor = field(init=False)
    """Tokens of its answer that stand behind the one that each place chose."""
    inside: Tensor = field(init=False)
    """Places behind which there is what the first head is to say."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "left", left_of(self.answers.counts))
        object.__setattr__(self, "inside", torch.nonzero(self.left)[:, 0])

    def step(self, number: int) -> Anchors:
        """All of them in turn, in another order every epoch."""
        at = self.inside[torch.from_numpy(shuffled(len(self.inside), self.plan.anchors, number, (self.seed, 21)))]
        made = _anchors(self.answers.rows, self.answers.tokens, self.gain, at, self.plan.deepest, learn=True)
        return replace(made, taught=self.left[at].to(self.gain.device))


def left_of(counts: Tensor) -> Tensor:
    """Of each token of texts of so many, those that stand behind it in its text, int64."""
    counts = counts.long()
    return counts.cumsum(0).repeat_interleave(counts) - 1 - torch.arange(int(counts.sum()))


def _anchors(rows: Tensor, tokens: Tensor, gain: Tensor, at: Tensor, heads: int, *, learn: bool) -> Anchors:
    final = rows[at].float().to(gain.device)
    places = [(at + i).clamp(max=len(tokens) - 1) for i in range(heads + 1)]
    said = torch.stack([tokens[place] for place in places], 1).long()
    behind = [rows[place].float().to(gain.device) for place in places[1:]] if learn else []
    return Anchors(final, final / gain, said.to(gain.device), behind)


def ranked(heads: DraftingHeads, frozen: Frozen, gain: Tensor, answers: Answers, place: Place) -> Ranks:
    """What heads say at every anchor of the answers; no token is right behind an end."""
    left = left_of(answers.counts).numpy()
    at = np.flatnonzero(left)
    found = np.concatenate([
        ranks_of(heads, frozen, _anchors(answers.rows, answers.tokens, gain, torch.from_numpy(part), heads.count,
                                         learn=False), place)
        for part in np.split(at, range(PART, len(at), PART))])
    found[np.arange(heads.count) >= left[at, None]] = TOP
    return Ranks(found, answers.counts.numpy().astype(np.int64) - 1, answers.names)


def train_heads(plan: AnswersRecipe, seed: int, out: Path, given: Pack, listed: Tensor,
                place: Place, folder: Path, most_steps: int | None = None) -> dict[str, Any] | None:
    """Train or go on; the record, with the weights in ``folder``. ``most_steps`` ends this run early: then None.

    Args:
        listed: tokens that heads can say, int64.

    Raises:
        ValueError: there is a checkpoint of another recipe, target or list.
    """
    target, mark = Target(given, place.device, (given.shape.layers,)), given.mark()
    held_out, answers = written_answers(target, given, plan.writing, plan.rounds,
                                        out / f"answers-{plan.answers_mark(seed, mark)}", seed)
    frozen, gain = Frozen(target.embedding, listed), target.gain

    def judge(kind: str, heads: DraftingHeads) -> dict[str, float]:
        ranks = ranked(heads, frozen, gain, held_out, place)
        requests = ranks.where(ranks.groups()["requests"])
        return {f"{kind}, first": summary(requests)["reached"][0],
                f"{kind}, chain": summary(requests)["tokens_a_step"][-1],
                f"{kind}, tree of {TREE}": trees(ranks)[TREE]["tokens_a_step"]["requests"]}

    source = Written(plan, seed, frozen, gain, answers)
    mark = fingerprint(plan, seed) + mark + hashlib.sha256(listed.numpy().tobytes()).hexdigest()
    learned = learn(plan, source, seed, out, mark, place, judge, most_steps)
    if learned is None:
        return None
    kinds = dict[str, Any]()
    for kind, one in learned.made.items():
        ranks = ranked(one, frozen, gain, held_out, place)
        shares = path_shares(ranks.where(ranks.groups()["held out"]).values, PATHS)
        paths = [[list(path), round(share, 4)] for path, share in shares]
        kinds[kind] = {
            "parameters": sum(weight.numel() for weight in one.parameters()), "head_parameters": frozen.head.numel(),
            "bytes": export(folder / f"{kind}.safetensors", kind, one, given.shape.layers, frozen, paths),
            "judged": judged(ranks), "trees": trees(ranks), "paths": paths}
    return {"kinds": kinds, "answers": len(answers.counts), "answer_tokens": len(answers.tokens),
            "judged_answers": len(held_out.counts), "vocabulary": len(listed),
            "held_out_tokens_in_the_vocabulary": round(
                float(torch.isin(held_out.tokens.long(), listed).float().mean()), 4),
            "target_parameters": sum(value.size for value in given.tensors.values()),
            "anchors": plan.steps * plan.anchors} | learned.told


def main() -> None:
    """Train or resume the heads of SmolLM2, and write them beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/heads"), help="the target, answers and checkpoint")
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the model's drafters are")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the numbers go")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of torch, on a CPU")
    parser.add_argument("--rounds", type=int, default=AnswersRecipe().rounds, help="of answers")
    parser.add_argument("--steps", type=int, default=AnswersRecipe().steps, help="of training")
    args = parser.parse_args()
    try:
        for name, limits in LIMITS.items():
            limits.check(f"--{name}", getattr(args, name))
        make_folders(args.out, args.models / MODEL, args.docs / "results")
        plan, place = replace(AnswersRecipe(), rounds=args.rounds, steps=args.steps), open_place(args.threads)
        packed = args.out / f"pack-{args.seed}"
        if not (packed / "pack.json").exists():
            pack(MODEL, packed, args.seed)
        listed = torch.from_numpy(read_trained(args.models / MODEL / "eagle.safetensors", "eagle").tokens)
        record = train_heads(plan, args.seed, args.out, read_pack(packed), listed, place,
                             args.models / MODEL)
        assert record is not None
        write_json(args.docs / "results" / f"heads_{MODEL}.json", record | {"place": place.describe()})
    except (CompileError, InputError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
