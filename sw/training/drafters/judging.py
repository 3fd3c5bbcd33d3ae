"""Where drafters rank the tokens that the target wrote: the target reads a batch of texts once for all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray

from gemmule.sw.training.drafters.networks import Drafter
from gemmule.sw.training.drafters.ranks import TOP, Ranks
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.writing import Pool

__all__ = ["ranks_of"]


@torch.no_grad()
def ranks_of(drafters: Mapping[str, Drafter], target: Target, pool: Pool, positions: int, chunk: int = 32,
             ) -> dict[str, Ranks]:
    """The ranks that drafters give to the texts of a pool; a position that a drafter has not is not found."""
    (tokens,), (starts,), (ends,) = pool.tokens, pool.starts, pool.ends
    found: dict[str, list[NDArray[np.int8]]] = {kind: [] for kind in drafters}
    for begin in range(0, len(tokens), chunk):
        part = slice(begin, begin + chunk)
        batch = tokens[part, :int(ends[part].max())].long().to(target.device)
        rows, _ = target.read(batch)
        anchors = torch.arange(batch.shape[1], device=target.device)
        for kind, drafter in drafters.items():
            with torch.autocast(target.device.type, torch.bfloat16, enabled=batch.is_cuda):
                drafted = drafter.draft(batch, rows, anchors, positions)
            ranks = torch.full((*batch.shape, positions), TOP, dtype=torch.int8, device=target.device)
            for at, one in enumerate(drafted):
                best = drafter.vocabulary[drafter.logits(one).topk(TOP).indices]
                same = best == F.pad(batch[:, at + 2:], (0, at + 2), value=-1)[..., None]
                ranks[..., at] = torch.where(same.any(-1), same.to(torch.int8).argmax(-1), TOP)
            for row, start, end in zip(ranks.cpu().numpy(), starts[part].tolist(), ends[part].tolist(), strict=True):
                inside = row[start - 1:end - 2].copy()
                for at in range(1, positions):  # tokens behind the end are none
                    inside[max(0, len(inside) - at):, at] = TOP
                found[kind].append(inside)
    return {kind: Ranks(np.concatenate(parts), np.array([len(part) for part in parts]), tuple(pool.names))
            for kind, parts in found.items()}
