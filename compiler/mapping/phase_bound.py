"""Cycles below which no program of an encoder's phase can be, of all its mapping or of a part of it.

Three reasons, each a sum over what must happen one after another, so each is a bound and so is the largest:

- **The mesh** streams one tile at a time. How many tiles there are follows from the shapes: cutting depth or columns at
  multiples of DIM adds none. A tile takes ``max(rows, DIM / preload, R)`` cycles, so only the rows of a block count,
  and the first product waits for a read of DRAM. Behind the last product the vector unit, which runs in order, still
  has to requantise and to normalise these rows, and only then are the last ones stored.
- **The bus** moves a beat at a time, and nothing during a refresh. All weights of a phase come once for each block of
  rows (a ring holds what is in flight and is never read twice); rows come and go once. The program is left out.
- **The ring**: a slot's next load waits until the product that reads it has finished (the verifier insists on that), a
  product until its load has. So loads and products of one slot follow one another: ``latency + bytes + matrix``
  cycles a turn of it. Some slot has at least the mean of the chunks, their bytes and their tiles.

Attention instead of a ring has **the chain**: in a turn, the scores of blocks ``0 .. i`` precede the softmax of block
i on the mesh, the vector unit takes the softmaxes of ``i .. k`` in order, and contexts of ``k ..`` follow theirs;
scores of the next turn stream behind these contexts. So turns add up, each the largest over i and k.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Attention, Linear
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.mapping.bus import byte_cycles, refreshed
from gemmule.config import Config
from gemmule.timing import Timing, ceil_div, matrix_shape

__all__ = ["BUS", "MESH", "AttentionBound", "BlockBound", "Streamed"]

MESH, BUS, RING, CHAIN = "the mesh", "the bus", "the ring", "the softmax between products"


@dataclass(frozen=True)
class Streamed:
    """A product whose weights stream: groups of DIM of its depth and of its columns."""

    deep: int
    wide: int
    form: WeightFormat

    @staticmethod
    def of(node: Linear, deep: int, wide: int) -> Streamed:
        """``deep`` and ``wide`` as the phase lays them out; of an int4 product whose scales are looked for anywhere."""
        return Streamed(deep, wide, WeightFormat(bits=node.bits, group=0))

    def rows(self, config: Config) -> int:
        """Scratchpad rows of all weights at least: scales are left out."""
        return self.form.rows(config, self.deep) * self.wide


def _slot(config: Config, rows: int, tiles: int) -> int:
    """Cycles in which so many tiles of ``rows`` rows stream, at least."""
    if not rows:
        return 0
    each, slot, _, _ = matrix_shape(config.dim, config.preload, Timing.of(config).matrix_rmw, rows, config.dim,
                                    config.dim, 0, 0, 0, 0, 0)
    return int(each) * int(slot) * tiles


@dataclass(frozen=True)
class BlockBound:
    """Of a phase whose rows come block by block."""

    config: Config
    sequence: int
    products: tuple[Streamed, ...]
    loaded: int
    """Bytes of a row that come from DRAM."""
    stored: int
    norm_groups: int
    """Column groups of the norm behind the last product; 0: there is none."""
    wide: bool
    """The norm is taken at both widths."""

    def largest(self, rows: int, ring: tuple[int, int] | None = None) -> tuple[str, int]:
        """(for what, cycles) of blocks of ``rows`` rows at least; ``ring``: slots and rows of one, where known."""
        config, dim, byte, latency = self.config, self.config.dim, byte_cycles(self.config), self.config.dram.latency
        last, blocks, mesh = self.sequence % rows, ceil_div(self.sequence, rows), self.mesh(rows)
        weights = blocks * dim * sum(part.rows(config) for part in self.products)
        found = [(latency + mesh + self._behind(last or rows), MESH),
                 (refreshed(config, latency + byte * self.moved(rows)), BUS)]
        if ring:
            slots, size = ring
            chunks = blocks * sum(ceil_div(part.rows(config), size) for part in self.products)
            timing = Timing.of(config)
            each = latency + timing.matrix_first + dim // config.preload + timing.matrix_drain
            found.append(((chunks * each + byte * weights + mesh) / slots, RING))
        cycles, reason = max(found)
        return reason, int(cycles)

    def mesh(self, rows: int) -> int:
        """Cycles in which the mesh streams, at least."""
        whole, last = divmod(self.sequence, rows)
        tiles = sum(part.deep * part.wide for part in self.products)
        return whole * _slot(self.config, rows, tiles) + _slot(self.config, last, tiles)

    def moved(self, rows: int) -> int:
        """Bytes that the bus moves, at least."""
        weights = self.config.dim * sum(part.rows(self.config) for part in self.products)
        return ceil_div(self.sequence, rows) * weights + self.sequence * (self.loaded + self.stored)

    def _behind(self, rows: int) -> float:
        """Cycles behind the last product, of a block of ``rows`` rows."""
        passes = 2 + self.wide if self.norm_groups else 0
        step = min(rows, 32)
        final = rows - (rows - 1) // step * step if self.norm_groups else rows
        least = self.config.dim * ((1 + self.wide) * self.norm_groups or 1)
        return rows * (1 + passes * self.norm_groups) + final * least * byte_cycles(self.config)


@dataclass(frozen=True)
class AttentionBound:
    """Of attention, whose heads come one after another."""

    config: Config
    sequence: int
    node: Attention

    def largest(self, queries: int, flight: int) -> tuple[str, int]:
        """(for what, cycles) of blocks of ``queries`` rows, ``flight`` of them in a turn, at least."""
        config, heads, deep = self.config, self.node.heads, self._deep
        wide, rows, products = ceil_div(self.sequence, config.dim), self._rows(queries), self._products(queries)
        latency, byte = config.dram.latency, byte_cycles(config)
        behind = rows[-1] * deep * (1 + config.dim * byte)
        chain = sum(self._turn(rows[at:at + flight], products[at:at + flight], 2 * wide)
                    for at in range(0, len(rows), flight))
        cycles, reason = max((latency + self.mesh(queries) + behind, MESH),
                             (latency + heads * chain + behind, CHAIN),
                             (refreshed(config, latency + byte * self.moved(queries)), BUS))
        return reason, int(cycles)

    @property
    def _deep(self) -> int:
        return ceil_div(self.node.head_dim, self.config.dim)

    def _rows(self, queries: int) -> list[int]:
        return [min(queries, self.sequence - first) for first in range(0, self.sequence, queries)]

    def _products(self, queries: int) -> list[int]:
        """Cycles of each block's scores of a head, and of its contexts."""
        return [_slot(self.config, count, self._deep * ceil_div(self.sequence, self.config.dim))
                for count in self._rows(queries)]

    def mesh(self, queries: int) -> int:
        """Cycles in which the mesh streams, at least."""
        return 2 * self.node.heads * sum(self._products(queries))

    def moved(self, queries: int) -> int:
        """Bytes that the bus moves, at least, however queries are cut."""
        return 4 * self.node.heads * self.sequence * self._deep * self.config.dim

    @staticmethod
    def _turn(rows: list[int], products: list[int], passes: int) -> int:
        """Cycles of a turn from the stream of its first scores to the end of its last contexts, at least."""
        count = range(len(rows))
        return max(sum(products[:i + 1]) + passes * sum(rows[i:k + 1]) + sum(products[k:])
                   for i in count for k in count[i:])
