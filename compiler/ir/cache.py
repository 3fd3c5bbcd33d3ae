"""Keys and values of sequences on the host, as both interpreters keep them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule import numerics
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir.graph import Graph
from gemmule.compiler.ir.nodes import Attention, Borrowed
from gemmule.compiler.ir.rows import Rows

__all__ = ["Attended", "Cache", "check_borrowed", "check_rows"]


@dataclass
class _Sequence:
    """Positions of the cached rows, and per attention node their keys and values."""

    positions: np.ndarray
    keys: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    begun: set[str]
    """Attention nodes of which the prefix is there."""
    planes: int = 0
    """Rows behind the prefix whose keys are there in two halves."""


@dataclass(frozen=True)
class Attended:
    """Of one sequence in one attention."""

    own: np.ndarray
    """Indices of its rows in the pass, int64 [new]."""
    keys: np.ndarray
    """Cached, then new  # [all, KV heads * head_dim]."""
    values: np.ndarray
    """The same of the values."""
    seen: np.ndarray
    """Which of them each row sees, bool [new, all]; or by KV head, [KV heads, new, all]."""
    planes: int = 0
    """Rows behind the prefix whose keys are there in two halves."""


class Cache:
    """Cached rows of any number of sequences, in the order in which they came, behind the graph's constant prefix.

    During a pass attention nodes :meth:`attend` through it (those of an encoder keep nothing); :meth:`advance` ends the
    pass. Rejected candidates are then dropped with :meth:`keep` or :meth:`truncate`.
    """

    def __init__(self, graph: Graph) -> None:
        self.dtype = np.int8 if graph.integer else np.float32
        self.width = {node.name: node.kv_heads * node.head_dim for node in graph.attentions if node.causal}
        self.prefix = graph.prefix
        """Rows with which every sequence begins; :meth:`attend` fills them in."""
        self._sequences: dict[int, _Sequence] = {}

    def _at(self, sequence: int) -> _Sequence:
        if sequence not in self._sequences:
            empty = {name: np.zeros((self.prefix, width), dtype=self.dtype) for name, width in self.width.items()}
            self._sequences[sequence] = _Sequence(np.arange(self.prefix), dict(empty), dict(empty), set())
        return self._sequences[sequence]

    def length(self, sequence: int = 0) -> int:
        """Cached rows of a sequence."""
        return len(self._at(sequence).positions)

    def positions(self, sequence: int = 0) -> np.ndarray:
        """Position of each cached row, int64 [length]."""
        return self._at(sequence).positions

    def contents(self, node: str, sequence: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """(keys, values) of an attention node  # [length, width]; not to be written."""
        at = self._at(sequence)
        return at.keys[node], at.values[node]

    def extend(self, node: str, sequence: int, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Append a pass's new rows to an attention node; returns all its (keys, values)  # [length + new, width]."""
        at = self._at(sequence)
        at.keys[node] = np.concatenate([at.keys[node], keys.astype(self.dtype)])
        at.values[node] = np.concatenate([at.values[node], values.astype(self.dtype)])
        return at.keys[node], at.values[node]

    def attend(self, node: Attention, rows: Rows, keys: np.ndarray, values: np.ndarray,
               prefix: tuple[np.ndarray, np.ndarray] | None = None) -> Iterator[Attended]:
        """What an attention's new rows read, sequence by sequence; their keys and values are cached if it is causal.

        ``prefix``: keys and values of the node's constant rows, which stand before all others  # [prefix, width].
        """
        for sequence in map(int, np.unique(rows.sequences)):
            own = np.flatnonzero(rows.sequences == sequence)
            if not node.causal:
                yield Attended(own, keys[own], values[own], np.ones((len(own), len(own)), dtype=bool))
                continue
            at = self._at(sequence)
            if prefix and node.name not in at.begun:
                at.begun.add(node.name)
                for of, constant in ((at.keys, prefix[0]), (at.values, prefix[1])):
                    of[node.name] = np.concatenate([constant.astype(self.dtype), of[node.name][len(constant):]])
            found = self.extend(node.name, sequence, keys[own], values[own])
            yield Attended(own, *found, rows.visible(own, self.positions(sequence), node.window), at.planes)

    def advance(self, rows: Rows) -> None:
        """End a pass: its rows are cached in every attention node."""
        for sequence in np.unique(rows.sequences):
            at = self._at(int(sequence))
            at.positions = np.concatenate([at.positions, rows.positions[rows.sequences == sequence]])
        if rows.places is not None:
            self._settle(self.prefix + rows.places)

    def _settle(self, places: np.ndarray) -> None:
        """The last rows of the only sequence take these places, each its own or that of a row that nobody sees."""
        count = self.length() - len(places)
        order = np.arange(max(count, int(places.max()) + 1))
        order[places] = count + np.arange(len(places))
        self.keep(order)

    def keep(self, slots: Sequence[int] | np.ndarray, sequence: int = 0) -> None:
        """Keep the cached rows with these numbers, in this order (commit a path, evict, gather).

        Raises:
            CompileError: a number is not that of a cached row.
        """
        index, at = np.asarray(slots, dtype=np.int64), self._at(sequence)
        if index.size and not 0 <= index.min() <= index.max() < self.length(sequence):
            raise CompileError(f"cached rows are 0 to {self.length(sequence) - 1}, not {index.min()} to {index.max()}")
        at.positions = at.positions[index]
        for part in (at.keys, at.values):
            for name, found in part.items():
                part[name] = found[index]

    def keep_by_head(self, slots: Mapping[str, np.ndarray], sequence: int = 0) -> None:
        """Keep other rows of each KV head of each attention node, as many  # int64 [KV heads, kept]; positions of the
        cache become those of the first head of any.
        """
        at = self._at(sequence)
        for name, index in slots.items():
            for part in (at.keys, at.values):
                heads = part[name].reshape(len(part[name]), len(index), -1)
                part[name] = np.stack([heads[rows, i] for i, rows in enumerate(index)], axis=1).reshape(
                    index.shape[1], -1)
        at.positions = at.positions[next(iter(slots.values()))[0]]

    def pack(self, rows: int, packed: tuple[bool, bool], *, lower: bool = False, sequence: int = 0) -> None:
        """Of ``rows`` cached rows behind the prefix keys, or values, or both, keep their upper halves (``packed``), in
        all attention nodes; ``lower``: keys are there in two halves.
        """
        at, first = self._at(sequence), self.prefix
        at.planes = rows if lower else 0
        for part, halved in ((at.keys, packed[0]), (at.values, packed[1])):
            for name in self.width if halved else ():
                cut = numerics.whole_planes if lower and part is at.keys else numerics.halved
                part[name] = part[name].copy()
                part[name][first:first + rows] = cut(part[name][first:first + rows])

    def append(self, other: Cache, first: int, sequence: int = 0) -> None:
        """The rows of another cache from ``first`` on go behind those of this one."""
        at, more = self._at(sequence), other._at(sequence)
        for mine, others in ((at.keys, more.keys), (at.values, more.values)):
            for name in mine:
                mine[name] = np.concatenate([mine[name], others[name][first:]])
        at.positions = np.concatenate([at.positions, more.positions[first:]])

    def truncate(self, length: int, sequence: int = 0) -> None:
        """Keep the first ``length`` cached rows.

        Raises:
            CompileError: there are not so many.
        """
        if not 0 <= length <= self.length(sequence):
            raise CompileError(f"a cache of {self.length(sequence)} rows can be cut to 0 to as many, not {length}")
        self.keep(np.arange(length), sequence)

    def fork(self, sequence: int, new: int) -> None:
        """Sequence ``new`` begins with what ``sequence`` has."""
        at = self._at(sequence)
        self._sequences[new] = _Sequence(at.positions, dict(at.keys), dict(at.values), set(at.begun))

    def begin_with(self, other: Cache, sequence: int) -> None:
        """The sequence begins with what another cache has of it: one of a network of which this one's is a part."""
        at = other._at(sequence)
        keys, values = ({name: parts[name] for name in self.width} for parts in (at.keys, at.values))
        self._sequences[sequence] = _Sequence(at.positions, keys, values, at.begun & self.width.keys())


def check_rows(rows: Rows, graph: Graph) -> None:
    """Whether a network can compute rows.

    Raises:
        CompileError: a token, position or token type that it does not have.
    """
    for name, values, most in (("tokens", rows.tokens, graph.vocab), ("positions", rows.positions, graph.positions),
                               ("token types", rows.types, graph.types)):
        if values is not None and values.max() >= most:
            raise CompileError(f"{name} must be from 0 to {most - 1}, not {values.max()}")


def check_borrowed(graph: Graph, feed: Mapping[str, np.ndarray]) -> None:
    """Whether a pass is given what the network reads of another one.

    Raises:
        CompileError: it is not.
    """
    for node in graph.nodes:
        if isinstance(node, Borrowed) and node.name not in feed:
            raise CompileError(f"{node.name!r} holds rows of another network: feed them")
