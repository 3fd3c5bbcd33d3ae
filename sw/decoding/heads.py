"""Heads that were trained on the target's last hidden row: what methods that draft with them have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.trained import TrainedDrafter, TrainedModel

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.step import Asking, Forward

__all__ = ["HeadsDrafter"]


class HeadsDrafter(TrainedDrafter):
    """Heads read one row, that of the token before the pending one, whose answer the pending one is; nothing of a text
    is kept.
    """

    keeps = False
    foreseeing = True

    def __init__(self, drafter: TrainedModel, most: int, *, first: int = 0, kept: bool = True,
                 host: Host | None = None) -> None:
        """``most``: candidates of a step; ``first``: constant rows before the target's texts; ``kept``: its cache keeps
        rows.
        """
        super().__init__(drafter, most, kept=kept, host=host)
        self.first = first - drafter.model.first

    def read_row(self, ids: list[int]) -> int:
        """Where the target has left the row that heads read behind a text, as rows of the drafter borrow it."""
        position = len(ids) - 2
        return self.elsewhere.get(position, position) + self.first

    def said(self, ids: list[int], heads: int, top: int) -> Asking[Forward]:
        """What the first heads say behind a text, a row each, in one pass; ``top``: so many of the largest logits."""
        from gemmule.compiler.ir import Rows
        from gemmule.sw.step import Want

        rows = Rows.chain(list(self.drafter.masks[:heads]), 0).borrowing([self.read_row(ids)] * heads)
        out = yield from self.cache.branches(rows, Want(last=heads, top=top))
        self.elsewhere = {}
        self.spend(out)
        return out
