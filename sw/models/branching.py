"""What a search asks of a model: texts of a pass that begin alike, and rows of the cache that they share."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Graph
from gemmule.compiler.passes.map import most_rows
from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.sw.errors import InputError

__all__ = ["Branching"]

MOST = 1 << 16
STEP = 1024
"""Rows of a larger cache than a text's: a multiple of it, so that nearby sizes share a program."""


@dataclass(frozen=True, kw_only=True)
class Branching:
    """Sizes of a program for several texts that begin alike."""

    width: int
    """Texts of a pass, a row each."""
    room: int
    """Rows of the cache that they may need."""

    def rows(self, graph: Graph, config: Config, shown: str) -> int:
        """Rows of a pass: a power of two, and at least as many as the mesh takes at the cost of one.

        Raises:
            InputError: the device takes fewer; ``shown`` names the model.
        """
        most, node = most_rows(graph, config), graph.attentions[0]
        if self.width > most:
            raise InputError(f"a search must have at most {most} texts with {shown} on {config.name}, a row of a pass "
                             f"each, not {self.width}: take fewer")
        least = max(1, config.dim * node.kv_heads // node.heads)
        return min(most, 1 << (max(self.width, least) - 1).bit_length())

    def cache_rows(self, graph: Graph) -> int:
        """Rows of the cache: those of a text, or more.

        Raises:
            InputError: more than a list of 16-bit numbers names.
        """
        found = max(graph.whole_positions, round_up(graph.prefix + self.room, STEP))
        if found > MOST:
            raise InputError(f"a search of {self.width} texts must need at most {MOST:,} rows of the cache, not "
                             f"{self.room:,}: ask for fewer texts, or fewer new tokens")
        return found
