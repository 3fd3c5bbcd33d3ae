"""What some layers have of a text whose rows do not all run the same layers."""

from __future__ import annotations

from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.kv.text import TextKV

__all__ = ["DepthKV"]


class DepthKV(ContiguousKV):
    """The first rows of a text's cache, in layers that have no more of them: passes through these go on behind.

    Attributes:
        turn: stands for the passes that go on from the same rows of all layers; others begin anew.
    """

    def __init__(self, cached: TextKV, length: int, turn: object) -> None:
        """``cached``: the cache of the text; ``length``: rows of it in these layers.

        Raises:
            ValueError: the cache has its rows elsewhere than in order.
        """
        if not isinstance(cached, ContiguousKV):
            raise ValueError(f"rows that run some layers stand in a cache in order, not in a {type(cached).__name__}")
        super().__init__(cached.model, cached.room, cached.sequence)
        self._length, self.text, self.turn = length, cached.text, turn
