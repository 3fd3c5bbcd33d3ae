"""Where a cache keeps keys and values: [layer][run][position]; a run has keys or values of a head, or several heads.

The sequences of a batch have one each, one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemmule.compiler.ir import Attention, Graph
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["KvLayout", "attention_of"]


def attention_of(graph: Graph) -> Attention:
    """The first attention, whose sizes are those of all; of a network without any a narrow one that stands for it: a
    pass is cut as if it had that, with a cache of one layer that no command reads.
    """
    narrow = Attention(name="none", columns=1, query="none", key="none", value="none", heads=1, kv_heads=1, head_dim=1,
                       scale=1.0)
    return next(iter(graph.attentions), narrow)


@dataclass(frozen=True, kw_only=True)
class KvLayout:
    """Bytes of a decoder's cache."""

    heads: int
    """KV heads of a layer."""
    joined: int
    """Heads whose keys, then values, are a row of a run; 0: a run has keys or values of one head."""
    head: int
    """Bytes from a head to the next in such a row; else of a row."""
    runs: int
    """Of all layers."""
    row: int
    """Bytes from a position to the next in a run."""
    pitch: int
    """Bytes from a run to the next."""

    @staticmethod
    def of(graph: Graph, config: Config, positions: int, batch: int = 1, rows: int = 1, joined: int = 0) -> KvLayout:
        """With room for so many positions; in a batch also for what a pass adds of ``rows`` rows beyond them.

        Long runs begin an odd number of DRAM rows apart, so in different banks: neighbours open rows side by side.
        """
        node, layers = attention_of(graph), max(1, len(graph.attentions))
        head = ceil_div(node.head_dim, config.dim) * config.dim if joined else node.head_dim
        row = 2 * joined * head if joined else head
        size, dram_row = (positions + (rows - 1 if batch > 1 else 0)) * row, config.dram.row_bytes
        return KvLayout(
            heads=node.kv_heads, joined=joined, head=head, row=row,
            runs=layers * (node.kv_heads // joined if joined else 2 * node.kv_heads),
            pitch=size if size < 2 * dram_row else (ceil_div(size, dram_row) | 1) * dram_row)

    @property
    def size(self) -> int:
        """Of one sequence's cache."""
        return self.runs * self.pitch

    def offset(self, layer: int, head: int, part: int) -> int:
        """Bytes before the keys (``part`` 0) or values (1) of a KV head; ``layer`` counts those with attention."""
        if not self.joined:
            return ((layer * self.heads + head) * 2 + part) * self.pitch
        run, inside = divmod(layer * self.heads + head, self.joined)
        return run * self.pitch + (part * self.joined + inside) * self.head

    def contents(self, layer: int, keys: np.ndarray, values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(offset, uint8) of a layer's keys and values from position 0 on, each int8 [positions, heads, head_dim]."""
        parts = np.stack([keys, values], axis=1).view(np.uint8)  # [positions, 2, heads, head_dim]
        if not self.joined:
            for head in range(self.heads):
                for part in range(2):
                    yield self.offset(layer, head, part), parts[:, part, head].reshape(-1)
            return
        padded = np.zeros((*parts.shape[:3], self.head), dtype=np.uint8)
        padded[..., :parts.shape[3]] = parts
        for head in range(0, self.heads, self.joined):
            yield self.offset(layer, head, 0), padded[:, :, head:head + self.joined].reshape(-1)
