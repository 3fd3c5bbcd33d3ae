"""Training of all drafters side by side: the target reads a batch once, and each drafter takes its step on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from gemmule.sw.training.drafters.networks import Drafter, build
from gemmule.sw.training.drafters.recipe import DraftersRecipe
from gemmule.sw.training.drafters.start import Start
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.writing import Pool
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.running import products_of

__all__ = ["Trainer", "fingerprint"]

CHUNK = 16384
"""Rows whose logits exist at a time."""


def fingerprint(plan: Any) -> str:
    """SHA-256 of a recipe's fields: a run continues only what the same recipe began."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


class HeadLoss(torch.autograd.Function):
    """Cross-entropy of a frozen head with distributions and their best tokens; only the rows' gradient is kept."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, head: Tensor, wanted: Tensor, at: Tensor, hard: float) -> Tensor:
        """The mean over rows; row i is to say ``wanted[at[i]]``."""
        gradient, total = torch.empty_like(rows), rows.new_zeros(())
        for begin in range(0, len(rows), CHUNK):
            part = slice(begin, begin + CHUNK)
            logits, soft = rows[part] @ head.T, wanted[at[part]].float()
            best = soft.argmax(-1, keepdim=True)
            whole = logits.logsumexp(-1, keepdim=True)
            total += ((1 + hard) * whole - hard * logits.gather(1, best)).sum() - (soft * logits).sum()
            slope = logits.sub_(whole).exp_().mul_(1 + hard).sub_(soft)
            slope.scatter_add_(1, best, torch.full_like(whole, -hard))
            gradient[part] = slope @ head
        ctx.save_for_backward(gradient / len(rows))
        return total / len(rows)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        """Of the rows."""
        return above[0] * ctx.saved_tensors[0], None, None, None, None


class Batches:
    """Texts in an order that follows from the seed, an epoch after another."""

    def __init__(self, pools: Sequence[Pool], seed: int) -> None:
        self.pools = [pool for pool in pools if pool.tokens and len(pool.tokens[0])]
        if not self.pools:
            raise ValueError("no texts to train on: the target wrote none; give the writing more seconds")
        self.seed = seed
        self.draws = torch.Generator().manual_seed(seed)
        self.places = [[0, 0] for _ in self.pools]
        """(epoch, texts taken) of each pool."""
        self.shares = torch.tensor([float(pool.answered) for pool in self.pools])

    def next(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, starts and ends of at most ``rows`` tokens."""
        which = int(torch.multinomial(self.shares, 1, generator=self.draws))
        pool, place = self.pools[which], self.places[which]
        (tokens,), (starts,), (ends,) = pool.tokens, pool.starts, pool.ends
        count = min(len(tokens), max(1, rows // pool.length))
        if place[1] + count > len(tokens):
            place[:] = [place[0] + 1, 0]
        order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(self.seed + 7919 * place[0]))
        chosen = order[place[1]:place[1] + count]
        place[1] += count
        reach = -(-int(ends[chosen].max()) // 8) * 8
        return tokens[chosen, :reach].long(), starts[chosen], ends[chosen]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"draws": self.draws.get_state(), "places": [list(place) for place in self.places]}

    def load(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.draws.set_state(state["draws"])
        self.places = [list(place) for place in state["places"]]


class Trainer:
    """Drafters, their optimisers, and where they are.

    ``step`` counts those of this run, ``tokens`` those of an earlier one too.
    """

    def __init__(self, recipe: DraftersRecipe, target: Target, vocabulary: Tensor, pools: Sequence[Pool]) -> None:
        self.recipe, self.target = recipe, target
        self.batches = Batches(pools, recipe.seed)
        self.vocabulary = vocabulary.to(target.device)
        self.drafters: dict[str, Drafter] = {}
        self.optimizers: dict[str, Optimizers] = {}
        for number, kind in enumerate(recipe.kinds):
            torch.manual_seed(recipe.seed + number)
            drafter = build(kind, target.shape, recipe.network, target.embedding, self.vocabulary)
            self.drafters[kind] = drafter
            self.optimizers[kind] = Optimizers(drafter, recipe.matrix_rate, recipe.vector_rate,
                                               products_of(target.device))
        self.step = self.tokens = 0
        self.share = 0.0
        """Of the run that is done."""

    def train(self) -> dict[str, Tensor]:
        """One step of each drafter; their losses."""
        recipe, device = self.recipe, self.target.device
        tokens, starts, ends = self.batches.next(recipe.rows)
        offset = int(torch.randint(recipe.network.positions, (), generator=self.batches.draws)) % recipe.stride
        self.tokens += int((ends - starts).sum())
        tokens, starts, ends = (part.to(device, non_blocking=True) for part in (tokens, starts, ends))
        rows, final = self.target.read(tokens)
        with torch.no_grad():
            wanted = self.target.logits(final, self.vocabulary).softmax(-1).to(self.target.dtype).flatten(0, 1)
        anchors = torch.arange(offset, tokens.shape[1], recipe.stride, device=device)
        rate = min(1.0, (self.step + 1) / recipe.warm_up, (1 - self.share) / recipe.decay)
        losses = {}
        for kind, drafter in self.drafters.items():
            losses[kind] = self._loss(kind, drafter, tokens, rows, wanted, anchors, starts, ends)
            losses[kind].backward()  # type: ignore[no-untyped-call]
            self.optimizers[kind].step(rate)
        self.step += 1
        return {kind: loss.detach() for kind, loss in losses.items()}

    def _loss(self, kind: str, drafter: Drafter, tokens: Tensor, rows: Tensor, wanted: Tensor,
              anchors: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """The mean over positions, each by its weight."""
        recipe, (count, length) = self.recipe, tokens.shape
        positions = {"eagle": recipe.network.rollouts, "parallel": recipe.network.positions}[kind]
        with torch.autocast(self.target.device.type, torch.bfloat16, enabled=tokens.is_cuda):
            drafted = drafter.draft(tokens, rows, anchors, positions)
        every = torch.arange(length, device=tokens.device)
        total, weights = tokens.new_zeros((), dtype=torch.float32), 0.0
        for at, one in enumerate(drafted):
            here = every if at == 0 else anchors
            counts = (here >= starts[:, None] - 1) & (here + at + 2 < ends[:, None])
            answer = (torch.arange(count, device=tokens.device)[:, None] * length + here + at + 1)[counts]
            if len(answer):
                weight = recipe.fading ** at
                total = total + weight * HeadLoss.apply(drafter.norm(one[counts]), drafter.head, wanted, answer,
                                                        recipe.hard)
                weights += weight
        return total / max(weights, 1.0)

    def begin_with(self, start: Start) -> None:
        """Take an earlier run's weights; optimisers begin anew."""
        self.tokens = start.tokens
        for kind, drafter in self.drafters.items():
            drafter.load_state_dict(start.weights[kind])

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"recipe": fingerprint(asdict(self.recipe)), "step": self.step, "tokens": self.tokens,
                "share": self.share, "vocabulary": self.vocabulary.cpu(), "batches": self.batches.state(),
                "drafters": {kind: one.state_dict() for kind, one in self.drafters.items()},
                "optimizers": {kind: one.state() for kind, one in self.optimizers.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.step, self.tokens, self.share = state["step"], state["tokens"], state["share"]
        self.batches.load(state["batches"])
        for kind, drafter in self.drafters.items():
            drafter.load_state_dict(state["drafters"][kind])
            self.optimizers[kind].load(state["optimizers"][kind])

    def export(self, folder: Path) -> None:
        """Write each drafter's weights in float16, with its vocabulary."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, drafter in self.drafters.items():
            weights = {name: value.detach().to("cpu", torch.float16).contiguous()
                       for name, value in drafter.named_parameters()}
            weights["vocabulary"] = self.vocabulary.to("cpu", torch.int32)
            part = folder / f"{kind}.safetensors.part"
            said = {"kind": kind, "recipe": asdict(self.recipe), "step": self.step, "tokens": self.tokens}
            save_file(weights, part, {"drafter": json.dumps(said)})  # one key: their order in the file is not fixed
            part.replace(folder / f"{kind}.safetensors")
