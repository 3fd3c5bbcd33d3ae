"""Where a cache keeps keys and values: [layer][KV head][keys, values][position], each part a run of its own.

The sequences of a batch have one each, one behind the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Graph
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["KvLayout"]


@dataclass(frozen=True, kw_only=True)
class KvLayout:
    """Bytes of a decoder's cache."""

    heads: int
    """KV heads of a layer."""
    parts: int
    """Keys, and values, of all heads of all layers."""
    row: int
    """Bytes of a position in a part."""
    pitch: int
    """Bytes from a part to the next."""

    @staticmethod
    def of(graph: Graph, config: Config, positions: int, batch: int = 1, rows: int = 1) -> KvLayout:
        """With room for so many positions; in a batch also for what a pass adds of ``rows`` rows beyond them.

        Long parts begin an odd number of DRAM rows apart, so in different banks: neighbours open rows side by side.
        """
        node = graph.attentions[0]
        room = positions + (rows - 1 if batch > 1 else 0)
        size, row = room * node.head_dim, config.dram.row_bytes
        return KvLayout(heads=node.kv_heads, parts=2 * node.kv_heads * len(graph.attentions), row=node.head_dim,
                        pitch=size if size < 2 * row else (ceil_div(size, row) | 1) * row)

    @property
    def size(self) -> int:
        """Of one sequence's cache."""
        return self.parts * self.pitch

    def offset(self, layer: int, head: int, part: int) -> int:
        """Bytes before the keys (``part`` 0) or values (1) of a KV head; ``layer`` counts those with attention."""
        return ((layer * self.heads + head) * 2 + part) * self.pitch
