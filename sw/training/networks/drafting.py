"""Heads that draft on a frozen target: Medusa's, those of blockwise decoding, and sequential ones (Hydra-like).

An *anchor* is a position whose row of the residual stream the target has computed, with the token that it chose behind
it; head i says what comes i tokens behind that one. All read the row behind the target's last norm, all end in the
target's own head, which is frozen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from gemmule.sw.training.networks.model import RmsNorm

__all__ = ["Blockwise", "DraftingHeads", "Hydra", "Medusa", "build_heads"]


class DraftingHeads(nn.Module, ABC):
    """What all kinds have in common: a gain before the target's head."""

    def __init__(self, hidden: int, count: int, inner: int) -> None:
        """``count``: heads; ``inner``: columns between a head's matrices, where it has two."""
        super().__init__()
        self.count, self.inner = count, inner
        self.norm = RmsNorm(hidden, 1e-5)

    @abstractmethod
    def draft(self, final: Tensor, plain: Tensor, tokens: Tensor, table: Tensor) -> list[Tensor]:
        """Rows before the target's head, of each head  # each [anchors, hidden].

        Args:
            final: rows behind the target's last norm  # [anchors, hidden].
            plain: the same without the norm's factors.
            tokens: the token behind each anchor and those that follow it; the last one is what the last head is to
                say, which none reads  # [anchors, 1 + heads].
            table: the target's embedding  # [vocab, hidden].
        """


class Medusa(DraftingHeads):
    """Cai et al. 2024: ``x + silu(W x + b)``, one matrix a head, which begins as zeros."""

    def __init__(self, hidden: int, count: int, inner: int) -> None:
        super().__init__(hidden, count, inner)
        heads = [nn.Linear(hidden, hidden) for _ in range(count)]
        for head in heads:
            nn.init.zeros_(head.weight)
        self.heads = nn.ModuleList(heads)

    def draft(self, final: Tensor, plain: Tensor, tokens: Tensor, table: Tensor) -> list[Tensor]:
        return [(final + functional.silu(head(final))).float() * self.norm.weight for head in self.heads]


class FeedForward(nn.Module):
    """``down relu(up x + b)``."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden, bias=False)
        nn.init.zeros_(self.down.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down(functional.relu(self.up(x)))
        return found


class Blockwise(DraftingHeads):
    """Stern et al. 2018: a feed-forward layer with a residual connection for each head."""

    def __init__(self, hidden: int, count: int, inner: int) -> None:
        super().__init__(hidden, count, inner)
        self.heads = nn.ModuleList(FeedForward(hidden, inner) for _ in range(count))

    def draft(self, final: Tensor, plain: Tensor, tokens: Tensor, table: Tensor) -> list[Tensor]:
        return [(final + head(final)).float() * self.norm.weight for head in self.heads]


class Hydra(DraftingHeads):
    """Ankner et al. 2024, with weights that the heads share: each reads the token before its own and the row that the
    head before left, the first one the target's row.
    """

    def __init__(self, hidden: int, count: int, inner: int) -> None:
        super().__init__(hidden, count, inner)
        self.depth_norm, self.token_norm, self.row_norm, self.ffn_norm = (RmsNorm(hidden, 1e-5) for _ in range(4))
        self.fuse = nn.Linear(hidden, hidden, bias=False)
        self.join = nn.Linear(2 * hidden, hidden, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*sizes, bias=False) for sizes in (
            (hidden, inner), (hidden, inner), (inner, hidden)))
        for matrix in (self.fuse, self.join, self.gate, self.up):
            nn.init.normal_(matrix.weight, std=matrix.weight.shape[1] ** -0.5)
        nn.init.zeros_(self.down.weight)

    def draft(self, final: Tensor, plain: Tensor, tokens: Tensor, table: Tensor) -> list[Tensor]:
        row, found = self.fuse(self.depth_norm(plain)).float(), []
        for at in range(self.count):
            token = functional.embedding(tokens[:, at], table)
            x = self.join(torch.cat([self.token_norm(token), self.row_norm(row)], -1)).float()
            y = self.ffn_norm(x)
            row = x + self.down(functional.silu(self.gate(y)) * self.up(y))
            found.append(self.norm(row))
        return found


KINDS: dict[str, Callable[[int, int, int], DraftingHeads]] = {
    "medusa": Medusa, "blockwise": Blockwise, "hydra": Hydra}


def build_heads(kind: str, hidden: int, count: int, inner: int) -> DraftingHeads:
    """Heads of a kind, their matrices drawn from torch's generator."""
    return KINDS[kind](hidden, count, inner)
