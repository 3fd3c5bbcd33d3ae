"""Where the cache keeps keys and values: [layer][KV head][keys, values][position], each part a run of its own."""

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
    def of(graph: Graph, config: Config, positions: int) -> KvLayout:
        """With room for so many positions.

        Long parts begin an odd number of DRAM rows apart, so in different banks: neighbours open rows side by side.
        """
        node = graph.attentions[0]
        size, row = positions * node.head_dim, config.dram.row_bytes
        return KvLayout(heads=node.kv_heads, parts=2 * node.kv_heads * len(graph.attentions), row=node.head_dim,
                        pitch=size if size < 2 * row else (ceil_div(size, row) | 1) * row)

    @property
    def size(self) -> int:
        """Of the whole cache."""
        return self.parts * self.pitch

    def offset(self, layer: int, head: int, part: int) -> int:
        """Bytes before the keys (``part`` 0) or values (1) of a KV head; ``layer`` counts those with attention."""
        return ((layer * self.heads + head) * 2 + part) * self.pitch
