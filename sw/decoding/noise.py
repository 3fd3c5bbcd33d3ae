"""Random numbers by place: every draw is fixed by seed, sequence, position and purpose, not by what was drawn before.

So a position's token does not depend on how many passes or drafts it took to reach it, nor on other sequences. All
draws are of integers and exact: no floating-point number is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b

import numpy as np

__all__ = ["Noise", "Purpose"]

BLOCK_BITS, MOST_BITS = 512, 400
"""Of a hash; of a draw: the rest makes drawing again rare."""
DARTS = 2048
"""Darts thrown at a time: whole arrays are cheap."""


class Purpose(StrEnum):
    """What a draw is for; draws for different purposes are independent."""

    TOKEN = "token"
    """The target's own choice."""
    DRAFT = "draft"
    """A draft's choice."""
    ACCEPT = "accept"
    """Whether a draft is accepted."""
    DART = "dart"
    """Choices that target and draft share."""


@dataclass(frozen=True)
class Noise:
    """The draws of one sequence.

    Attributes:
        seed: of the run.
        sequence: its number in a batch.
        level: 0 of what decides the text, 1 of drafts that are verified among themselves first: other draws, since a
            draft that chose by the draws by which it is then accepted would not have the law that it tells.
    """

    seed: int
    sequence: int = 0
    level: int = 0

    def drafting(self) -> Noise:
        """The draws of drafts that are verified by these."""
        return replace(self, level=self.level + 1)

    def _block(self, position: int, purpose: Purpose, number: int, counter: int) -> bytes:
        words = f"{self.seed} {self.sequence} {position} {purpose} {number} {counter}"
        if self.level:
            words += f" {self.level}"
        return blake2b(words.encode(), digest_size=BLOCK_BITS // 8).digest()

    def below(self, most: int, position: int, purpose: Purpose, number: int = 0) -> int:
        """A uniform integer from 0 to ``most`` - 1; ``number`` tells draws of a position and purpose apart.

        Exact: bits beyond the last whole multiple are drawn again.

        Raises:
            ValueError: ``most`` is not positive, or has over 400 bits.
        """
        bits = (most - 1).bit_length() if most > 0 else BLOCK_BITS
        if bits > MOST_BITS:
            raise ValueError(f"a draw must be below 1 to 2**{MOST_BITS}, not {most}")
        counter = 0
        while True:
            value = int.from_bytes(self._block(position, purpose, number, counter), "big") >> BLOCK_BITS - bits
            if value < most:
                return value
            counter += 1

    def darts(self, tokens: int, position: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """Endless blocks of darts: (tokens, uniform in 0 .. ``tokens`` - 1; heights, uint64; number of the first).

        The same for whoever throws at this position.
        """
        key = int.from_bytes(self._block(position, Purpose.DART, 0, 0)[:16], "big")
        stream = np.random.Philox(key=key)  # its raw bits are fixed by numpy's compatibility rules
        whole = (1 << 64) // tokens * tokens
        first = 0
        while True:
            raw = stream.random_raw(2 * DARTS).reshape(DARTS, 2)
            found = raw if whole == 1 << 64 else raw[raw[:, 0] < np.uint64(whole)]
            yield (found[:, 0] % np.uint64(tokens)).astype(np.int64), found[:, 1], first
            first += len(found)
