"""Room for rows of the residual stream in a device's memory: blocks in turn, and which rows are still there."""

from __future__ import annotations

import numpy as np

from gemmule.sw.step import Hidden

__all__ = ["HiddenSlots"]


class HiddenSlots:
    """Blocks of as many rows as a pass has, the oldest given away first."""

    def __init__(self, slots: int, block: int) -> None:
        self.block, self.blocks = block, slots // block
        self._stamps = [0] * self.blocks
        """Number of the pass that has each block."""
        self._given = 0

    def take(self) -> tuple[int, int]:
        """(first slot, number of the pass) of the block whose rows are oldest."""
        block = self._given % self.blocks
        self._given += 1
        self._stamps[block] = self._given
        return block * self.block, self._given

    def drop(self, blocks: int) -> None:
        """The newest blocks were for a pass alone, and nobody has handles of them: the next ones take their places, so
        that cycles do not depend on the passes before.
        """
        self._given -= blocks

    def check_room(self, blocks: int) -> None:
        """Whether so many blocks can be there at a time.

        Raises:
            ValueError: they cannot.
        """
        if blocks > self.blocks:
            raise ValueError(f"hidden rows of a pass must fit {self.blocks} blocks of {self.block}, not need {blocks}: "
                             "pass fewer rows, or want fewer depths")

    def check(self, hidden: Hidden) -> np.ndarray:
        """The slots of rows that are still there.

        Raises:
            ValueError: others have taken their place.
        """
        found = {self._stamps[slot // self.block] for slot in hidden.slots.tolist()}
        if not found <= set(hidden.stamps):
            raise ValueError(f"hidden rows must be taken up before {self.blocks} more blocks of them are written, not "
                             "after: launch in another order")
        return hidden.slots
