"""A drafter that proposes several tokens in one pass, from hidden rows of the target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmule.sw.device.runtime import LoadedModel

__all__ = ["OnePass"]


@dataclass(frozen=True, eq=False)
class OnePass:
    """Such a drafter on a device.

    Attributes:
        model: reads the rows that the target's passes leave.
        tokens: the target's token of each number that it answers with, int64.
        masks: its ids for positions behind the first.
        digest: of its numbers.
    """

    model: LoadedModel
    tokens: np.ndarray
    masks: tuple[int, ...]
    digest: str
