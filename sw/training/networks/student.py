"""The encoder's own form of the teacher's table: vectors of tokens and a small MLP over a pair of them.

The table has a million entries a class, most of which no text holds; what remains of them here is what the pairs of
the classes' files and of other text have in common. The form is that of a BERT layer whose attention brings the vector
of the token before: :mod:`gemmule.sw.training.networks.building` makes one of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from numpy.typing import NDArray
from torch import Tensor, nn

from gemmule.sw.training.data.folds import CLASSES
from gemmule.sw.training.recipe import EncoderRecipe, factor
from gemmule.sw.training.running import Log

__all__ = ["UNIT", "Student", "fit"]

UNIT = 20.0
"""Nats of evidence that one unit of a vector stands for: evidence is short beside a row, which LayerNorm divides by."""
FREQUENT = 0.75
"""A pair is drawn in proportion to this power of its count."""
PRINT_STEPS, WARM_UP, DECAY = 250, 50, 0.6


class Student(nn.Module):
    """Pairs of tokens to evidence for each class; the first columns of a vector are its token's own evidence."""

    def __init__(self, plan: EncoderRecipe, vocab: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(vocab, plan.vector) * 0.3)
        self.vectors.data[:, :len(CLASSES)] = 0
        self.second = nn.Linear(plan.vector, plan.inner)
        self.first = nn.Linear(plan.vector, plan.inner, bias=False)
        self.down = nn.Linear(plan.inner, len(CLASSES), bias=False)
        self.before = nn.Linear(plan.vector, len(CLASSES), bias=False)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.before.weight)
        for part in (self.first, self.second):
            nn.init.normal_(part.weight, std=plan.vector ** -0.5)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """In nats  # [pairs, classes]."""
        # whole tables first: there are fewer tokens than pairs
        inner = functional.gelu(self.second(self.vectors)[second] + self.first(self.vectors)[first])
        found: Tensor = self.vectors[second, :len(CLASSES)] + self.before(self.vectors)[first] + self.down(inner)
        return UNIT * found


def fit(plan: EncoderRecipe, seed: tuple[int, int], table: NDArray[np.float32], counts: NDArray[np.floating[Any]],
        log: Log) -> Student:
    """Least squares on pairs drawn by ``counts`` [vocab, vocab]."""
    vocab = len(table)
    torch.manual_seed(seed[0] * 1_000_003 + seed[1])
    random, student = np.random.default_rng((*seed, 8)), Student(plan, vocab)
    optimizer = torch.optim.Adam(student.parameters(), betas=(0.9, 0.98))
    seen = np.flatnonzero(counts)
    upto = np.cumsum(counts.ravel()[seen] ** FREQUENT)
    wanted = torch.from_numpy(table.reshape(vocab * vocab, -1))
    for step in range(plan.steps):
        drawn = torch.from_numpy(seen[np.searchsorted(upto, random.random(plan.pairs) * upto[-1])])
        loss = functional.mse_loss(student(drawn // vocab, drawn % vocab), wanted[drawn])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * factor(step, plan.steps, WARM_UP, DECAY)
        optimizer.step()
        if (step + 1) % PRINT_STEPS == 0 or step + 1 == plan.steps:
            log.write(step + 1, plan.steps, loss=loss.item())
    return student
