"""Anchors: rows of the target behind which heads speak, what comes there, and what the target says to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gemmule.sw.training.drafters.ranks import TOP
from gemmule.sw.training.drafters.training import HeadLoss
from gemmule.sw.training.heads.recipe import LearningRecipe
from gemmule.sw.training.networks.drafting import DraftingHeads
from gemmule.sw.training.running import Place, autocast

__all__ = ["Anchors", "Frozen", "Source", "losses_of", "ranks_of"]


class Frozen:
    """What heads take from the target: its embedding, and its head over the tokens that they can say."""

    def __init__(self, embedding: Tensor, listed: Tensor | None = None) -> None:
        """``embedding``: [vocab, hidden], the head too; ``listed``: tokens that heads can say; None: all."""
        self.embedding = embedding
        self.head = embedding if listed is None else embedding[listed]
        self.listed = torch.arange(len(embedding)) if listed is None else listed
        places = torch.full((len(embedding),), -1, dtype=torch.long)
        places[self.listed] = torch.arange(len(self.listed))
        self.places = places.to(embedding.device)
        """Of each token in the list; -1: not in it."""


@dataclass(frozen=True)
class Anchors:
    """Some, one behind another.

    Attributes:
        rows: behind the target's last norm, float32 [anchors, hidden].
        plain: the same without the norm's factors.
        tokens: the token behind each anchor, then what each head is to say, int64 [anchors, 1 + heads].
        behind: for each head, rows whose distribution it is to have; empty where none learns.
        taught: of each anchor how many heads have something to say there, the first ones, int64 [anchors]; ``None``:
            all. A text may end behind it.
    """

    rows: Tensor
    plain: Tensor
    tokens: Tensor
    behind: list[Tensor]
    taught: Tensor | None = None


class Source(Protocol):
    """Of anchors."""

    @property
    def frozen(self) -> Frozen:
        """Of the target."""

    def step(self, number: int) -> Anchors:
        """Those of a step; they follow from its number."""


def losses_of(drafting: DraftingHeads, frozen: Frozen, anchors: Anchors, wanted: list[Tensor], plan: LearningRecipe,
              place: Place) -> Tensor:
    """Over heads, each by its weight, nats a token."""
    with autocast(place):
        rows = drafting.draft(anchors.rows, anchors.plain, anchors.tokens, frozen.embedding)
    every = torch.arange(len(anchors.rows), device=frozen.head.device)
    taught = torch.full_like(every, len(rows)) if anchors.taught is None else anchors.taught
    total, weights = frozen.head.new_zeros(()), 0.0
    for number, (row, soft) in enumerate(zip(rows, wanted)):
        weight, at = plan.fading ** number, every[taught > number]
        if len(at):
            total = total + weight * HeadLoss.apply(row.float()[at], frozen.head, soft, at, plan.hard)
            weights += weight
    return total / weights


@torch.no_grad()
def ranks_of(drafting: DraftingHeads, frozen: Frozen, anchors: Anchors, place: Place) -> NDArray[np.int8]:
    """Of each anchor and head the rank of the token that comes, :data:`TOP` if it is none of these, or not listed."""
    found = []
    with autocast(place):
        rows = drafting.draft(anchors.rows, anchors.plain, anchors.tokens, frozen.embedding)
    for number, row in enumerate(rows):
        at = frozen.places[anchors.tokens[:, number + 1]]
        logits = row.float() @ frozen.head.T
        above = (logits > logits.gather(1, at.clamp(min=0)[:, None])).sum(1).clamp(max=TOP)
        found.append(torch.where(at < 0, TOP, above))
    return torch.stack(found, 1).to(torch.int8).cpu().numpy()
