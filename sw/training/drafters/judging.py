"""How much of what a drafter proposes the target accepts, on texts that it wrote greedily."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gemmule.sw.training.drafters.networks import Drafter
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.writing import Pool

__all__ = ["accepted_lengths", "judge", "tokens_a_step"]


def accepted_lengths(proposed: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many proposals of each anchor are the text's  # [texts, length]; ``proposed`` [texts, length, positions]."""
    length = tokens.shape[1]
    right = np.zeros(proposed.shape, bool)
    for at in range(proposed.shape[2]):
        reach = max(0, length - at - 2)
        right[:, :reach, at] = proposed[:, :reach, at] == tokens[:, at + 2:]
    return np.cumprod(right, 2).sum(2)


def tokens_a_step(accepted: Sequence[int], start: int, end: int, most: int) -> tuple[int, int]:
    """(tokens, steps) of decoding a text's answer with at most ``most`` drafted tokens a step.

    The token at ``start`` comes from the prompt's own pass. A step that stands at anchor ``i`` commits what is accepted
    and one token more.
    """
    at, tokens, steps = start - 1, 0, 0
    while at + 2 < end:
        gain = min(min(accepted[at], most) + 1, end - at - 2)
        at, tokens, steps = at + gain, tokens + gain, steps + 1
    return tokens, steps


def judge(drafter: Drafter, target: Target, pool: Pool, positions: int, chunk: int = 32) -> dict[str, Any]:
    """Acceptance of a drafter, over all texts and by category.

    ``reached``: the share of anchors whose first 1, 2, … proposals are right. ``tokens_a_step``: of a chain of at most
    1, 2, … proposals.
    """
    found: dict[str, list[tuple[NDArray[np.int64], list[tuple[int, int]]]]] = {}
    for name, accepted, start, end in _texts(drafter, target, pool, positions, chunk):
        inside = accepted[start - 1:max(start - 1, end - 2)]
        runs = [tokens_a_step(accepted.tolist(), start, end, most) for most in range(1, positions + 1)]
        found.setdefault(name, []).append((inside, runs))
    groups = {name: [name] for name in sorted(found)}
    groups["requests"] = [name for name in found if not name.startswith("held out")]
    groups["held out"] = [name for name in found if name.startswith("held out")]
    return {group: _summary([one for name in names for one in found[name]], positions)
            for group, names in groups.items() if names}


def _summary(texts: list[tuple[NDArray[np.int64], list[tuple[int, int]]]], positions: int) -> dict[str, Any]:
    inside = np.concatenate([one for one, _ in texts])
    runs = np.array([run for _, run in texts])  # [texts, most, (tokens, steps)]
    tokens, steps = runs.sum(0).T
    return {"texts": len(texts), "anchors": len(inside),
            "reached": [round(float((inside > at).mean()), 4) for at in range(positions)],
            "tokens_a_step": [round(float(one), 4) for one in tokens / np.maximum(steps, 1)]}


@torch.no_grad()
def _texts(drafter: Drafter, target: Target, pool: Pool, positions: int,
           chunk: int) -> Iterator[tuple[str, NDArray[np.int64], int, int]]:
    """(category, accepted proposals of each anchor, start, end) of each text."""
    (tokens,), (starts,), (ends,) = pool.tokens, pool.starts, pool.ends
    for at in range(0, len(tokens), chunk):
        batch = tokens[at:at + chunk].long().to(target.device)
        rows, final = target.read(batch)
        proposed = proposals(drafter, batch, rows, final, positions)
        accepted = accepted_lengths(proposed.cpu().numpy(), batch.cpu().numpy())
        for row, one in enumerate(accepted):
            yield pool.names[at + row], one, int(starts[at + row]), int(ends[at + row])


def proposals(drafter: Drafter, tokens: Tensor, rows: Tensor, final: Tensor, positions: int) -> Tensor:
    """The tokens that a drafter proposes at every anchor  # [texts, length, positions]; -1 where it has no head."""
    anchors = torch.arange(tokens.shape[1], device=tokens.device)
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        drafted = drafter.draft(tokens, rows, final, anchors, positions, given=False)
        best = [drafter.vocabulary[drafter.logits(one).argmax(-1)] for one in drafted]
    best += [torch.full_like(tokens, -1)] * (positions - len(best))
    return torch.stack(best, -1)
