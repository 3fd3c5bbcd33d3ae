"""The mappings of an encoder's phases as spaces: rows of a block, blocks of a turn, the weight ring; queries, heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from gemmule.compiler.ir import Linear
from gemmule.compiler.kernels.attention.sequence import SequenceMapping
from gemmule.compiler.mapping.mapper import Assignment
from gemmule.compiler.mapping.phase_bound import AttentionBound, BlockBound, Streamed
from gemmule.compiler.passes.encoder.fuse import LayerOperators
from gemmule.compiler.passes.encoder.map import (
    PhaseMapping,
    attention_axes,
    attention_mapping,
    block_axes,
    block_mapping,
)
from gemmule.compiler.passes.fuse import Attend
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["AttentionSpace", "BlockSpace", "phase_spaces"]


@dataclass(frozen=True)
class BlockSpace:
    """Of a phase of products with what follows them, row block by row block."""

    config: Config
    sequence: int
    linears: tuple[Linear, ...]
    least_of: BlockBound
    begin: PhaseMapping | None
    """The first that fits, from which a search begins."""

    @cached_property
    def _rings(self) -> dict[str, tuple[int, int]]:
        return {f"{slots}x{rows}": (slots, rows)
                for slots, rows in block_axes(list(self.linears), self.config, self.sequence)["ring"]}

    @cached_property
    def axes(self) -> dict[str, tuple[int | str, ...]]:
        """What may be chosen, by name; a ring is slots x rows of one."""
        return {**block_axes(list(self.linears), self.config, self.sequence), "ring": tuple(self._rings)}

    branches = ("rows", "ring", "together")

    def point(self, choice: Assignment) -> PhaseMapping | None:
        return block_mapping(self.config, self.sequence, int(choice["rows"]), int(choice["together"]),
                             self._rings[str(choice["ring"])])

    def near(self, choice: Assignment) -> PhaseMapping | None:
        """The same, or the one block there is."""
        return self.point(choice) or self.point({**choice, "together": 1})

    def points(self) -> Iterator[PhaseMapping]:
        return _points(self)

    def first(self) -> PhaseMapping | None:
        return self.begin

    def bound(self, point: PhaseMapping) -> int:
        return self.least_of.largest(point.rows, (point.ring_slots, point.ring_rows))[1]

    @property
    def least_bound(self) -> int:
        """What every mapping takes at least."""
        return min(map(self.bound, self.points()))

    @property
    def least_work(self) -> tuple[int, int]:
        """Cycles in which the mesh streams, and bytes that the bus moves, of every mapping at least."""
        rows = [int(value) for value in self.axes["rows"]]
        return min(map(self.least_of.mesh, rows)), min(map(self.least_of.moved, rows))

    def least(self, choice: Assignment) -> tuple[str, int]:
        """See :mod:`gemmule.compiler.mapping.phase_bound`."""
        return self.least_of.largest(int(choice["rows"]), self._rings.get(str(choice.get("ring"))))


@dataclass(frozen=True)
class AttentionSpace:
    """Of attention."""

    config: Config
    sequence: int
    least_of: AttentionBound
    begin: SequenceMapping | None

    @cached_property
    def axes(self) -> dict[str, tuple[int, ...]]:
        """What may be chosen, by name."""
        found = attention_axes(self.least_of.node, self.config, self.sequence)
        return {**found, "flight": tuple(dict.fromkeys((*found["flight"], 1)))}

    branches = ("queries", "flight", "ahead")

    def point(self, choice: Assignment) -> SequenceMapping | None:
        return attention_mapping(self.sequence, *(int(choice[name]) for name in self.branches))

    near = point

    def points(self) -> Iterator[SequenceMapping]:
        return _points(self)

    def first(self) -> SequenceMapping | None:
        return self.begin

    def bound(self, point: SequenceMapping) -> int:
        return self.least_of.largest(point.queries, point.flight)[1]

    @property
    def least_bound(self) -> int:
        """What every mapping takes at least."""
        return min(map(self.bound, self.points()))

    @property
    def least_work(self) -> tuple[int, int]:
        """As of :attr:`BlockSpace.least_work`."""
        queries = self.axes["queries"]
        return min(map(self.least_of.mesh, queries)), min(map(self.least_of.moved, queries))

    def least(self, choice: Assignment) -> tuple[str, int]:
        """See :mod:`gemmule.compiler.mapping.phase_bound`."""
        most = max(self.axes["flight"])
        flights = [int(choice["flight"])] if "flight" in choice else range(1, most + 1)
        cut = [attention_mapping(self.sequence, int(choice["queries"]), flight, 0) for flight in flights]
        cycles, reason = min(self.least_of.largest(one.queries, one.flight)[::-1] for one in cut)
        return reason, cycles


def _points(space: Any) -> Iterator[Any]:
    """All points, each once."""
    values = product(*space.axes.values())
    found = dict.fromkeys(space.point(dict(zip(space.axes, each))) for each in values)
    yield from (point for point in found if point is not None)


def phase_spaces(layer: LayerOperators, config: Config, sequence: int,
                 begin: dict[str, Any]) -> dict[str, BlockSpace | AttentionSpace]:
    """By phase, in order; ``begin``: its mapping that fits first."""
    dim, attend = config.dim, layer.attend

    def groups(columns: int) -> int:
        return ceil_div(columns, dim)

    def blocks(name: str, products: list[tuple[Linear, int, int]], loaded: int, stored: int, norm_groups: int = 0,
               wide: bool = False) -> BlockSpace:
        streamed = tuple(Streamed.of(*part) for part in products)
        return BlockSpace(config, sequence, tuple(node for node, _, _ in products),
                          BlockBound(config, sequence, streamed, dim * loaded, dim * stored, norm_groups, wide),
                          begin.get(name))

    heads, up, down, output = _head_groups(attend, dim), layer.inner.up, layer.down.linear, layer.output.linear
    narrow, inner = groups(output.columns), groups(up.columns)
    wide = [norm.wide is not None for norm in (layer.attention_norm, layer.output_norm)]
    return {
        "heads": blocks("heads", [(node, groups(node.depth), heads) for node in (
            attend.key, attend.value, attend.query)], groups(attend.query.depth), 3 * heads),
        "attention": AttentionSpace(config, sequence, AttentionBound(config, sequence, attend.attention),
                                    begin.get("attention")),
        "output": blocks("output", [(output, heads, narrow)], heads + 2 * narrow,
                         (1 + 2 * wide[0]) * narrow, narrow, wide[0]),
        "mlp": blocks("mlp", [(up, groups(up.depth), inner), (down, inner, narrow)], 3 * narrow,
                      (1 + 2 * wide[1]) * narrow, narrow, wide[1])}


def _head_groups(attend: Attend, dim: int) -> int:
    """Column groups of all heads, each from a group of its own on."""
    node = attend.attention
    return node.heads * ceil_div(node.head_dim, dim)
