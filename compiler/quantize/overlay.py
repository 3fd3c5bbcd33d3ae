"""Tensors of a network of which some are computed from others when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

__all__ = ["Change", "Overlay"]

Change = Callable[[np.ndarray], np.ndarray]


class Overlay(Mapping[str, np.ndarray]):
    """``base`` with changed and added tensors; changed ones are not kept."""

    def __init__(self, base: Mapping[str, np.ndarray], changes: Mapping[str, tuple[str, Change]] = MappingProxyType({}),
                 added: Mapping[str, np.ndarray] = MappingProxyType({})) -> None:
        """``changes`` by name: the tensor of ``base`` that it is made of, and how."""
        self.base, self.changes, self.added = base, changes, added

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self.added:
            return self.added[name]
        if name not in self.changes:
            return self.base[name]
        source, change = self.changes[name]
        return change(self.base[source])

    def __iter__(self) -> Iterator[str]:
        yield from self.base
        yield from (name for name in (*self.changes, *self.added) if name not in self.base)

    def __len__(self) -> int:
        return sum(1 for _ in self)
