"""Tensors of a network made from stored ones when they are asked for: transposed, split, permuted, to float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.shards import Shards

__all__ = ["Source", "Weights", "equal"]

_CHUNK = 1 << 22
"""Numbers that are compared at once."""


@dataclass(frozen=True)
class Source:
    """A stored tensor and what becomes of it; the methods give the next step."""

    name: str
    """Of the stored tensor."""
    stored: tuple[int, ...]
    """Shape of the stored tensor."""
    shape: tuple[int, ...]
    """Shape of the result."""
    steps: tuple[Callable[[np.ndarray], np.ndarray], ...] = ()
    added: Source | None = None
    """Another one, each row of which is added to all rows of this one."""

    @classmethod
    def of(cls, name: str, *shape: int) -> Source:
        """A stored tensor as it is."""
        return cls(name, shape, shape)

    def _then(self, shape: tuple[int, ...], step: Callable[[np.ndarray], np.ndarray]) -> Source:
        return replace(self, shape=shape, steps=(*self.steps, step))

    def transposed(self) -> Source:
        """A matrix as its transpose (GPT-2's Conv1D keeps [in, out])."""
        return self._then(self.shape[::-1], np.transpose)

    def rows(self, first: int, stop: int) -> Source:
        """Rows ``first`` to ``stop`` - 1 of the first axis."""
        return self._then((stop - first, *self.shape[1:]), lambda value: value[first:stop])

    def of_heads(self, heads: int, parts: int, which: int) -> Source:
        """Of rows [heads, parts, columns of a head] the part ``which`` of every head."""
        columns, rest = self.shape[0] // (heads * parts), self.shape[1:]
        return self._then((heads * columns, *rest), lambda value: value.reshape(
            heads, parts, columns, *rest)[:, which].reshape(heads * columns, *rest))

    def adjacent_pairs(self, heads: int, turned: int | None = None) -> Source:
        """Rows of each head from the half-split rotary layout (i, i + d/2) to adjacent pairs (2i, 2i + 1).

        ``turned``: d, where only the first rows of a head are rotated.
        """
        columns = self.shape[0] // heads
        d = turned or columns
        order = np.arange(self.shape[0]).reshape(heads, columns)
        order[:, :d] = order[:, :d].reshape(heads, 2, d // 2).swapaxes(1, 2).reshape(heads, d)
        return self._then(self.shape, lambda value: value[order.reshape(-1)])

    def for_each(self, other: Source) -> Source:
        """All rows of this matrix for each row of another one, to which that is added, one after the other."""
        return replace(self, shape=(other.shape[0] * self.shape[0], *self.shape[1:]), added=other)

    @property
    def parts(self) -> tuple[Source, ...]:
        """Itself, and the one that is added."""
        return (self,) if self.added is None else (self, *self.added.parts)

    def take(self, value: np.ndarray) -> np.ndarray:
        """The result of the steps, in the type of the stored numbers."""
        for step in self.steps:
            value = step(value)
        return value


def _float32(shards: Shards, name: str, value: np.ndarray) -> np.ndarray:
    """Stored numbers as float32; mapped ones stay mapped where nothing changes."""
    match shards.tensors[name].dtype:
        case "BF16":
            made = (value.astype(np.uint32) << 16).view(np.float32)
        case "F64":
            with np.errstate(over="ignore"):
                made = value.astype(np.float32)
            if (np.isinf(made) & np.isfinite(value)).any():
                raise CompileError(
                    f"{shards.where(name)} must hold numbers of float32, not {np.abs(value).max():.3g}")
        case _:
            made = np.require(value, np.float32, "A")
    return made


class Weights(Mapping[str, np.ndarray]):
    """A network's tensors by name, float32, each made from the files whenever it is asked for, and not kept.

    Raises:
        CompileError (on access): a number is not finite, or not one of float32.
    """

    def __init__(self, shards: Shards, sources: Mapping[str, Source]) -> None:
        self._shards, self._sources = shards, sources
        self._finite: set[Source] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._made(self._sources[name])
        value.flags.writeable = False
        return value

    def _made(self, source: Source) -> np.ndarray:
        value = _float32(self._shards, source.name, source.take(self._shards.array(source.name)))
        if source not in self._finite:
            if not np.isfinite(value).all():
                raise CompileError(f"{self._shards.where(source.name)} must hold finite numbers, not NaN or infinity")
            self._finite.add(source)
        if source.added is not None:
            value = (self._made(source.added)[:, None] + value).reshape(source.shape)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def equal(shards: Shards, first: str, second: str) -> bool:
    """Whether two stored tensors of one shape hold the same numbers, read in parts."""
    a, b = (shards.array(name).reshape(-1) for name in (first, second))
    alike = shards.tensors[first].dtype == shards.tensors[second].dtype
    for at in range(0, len(a), _CHUNK):
        left, right = a[at:at + _CHUNK], b[at:at + _CHUNK]
        if not alike:
            left, right = _float32(shards, first, left), _float32(shards, second, right)
        if not np.array_equal(left, right):
            return False
    return True
