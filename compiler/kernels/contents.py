"""What the network fixes in DRAM, and where a program has it: for one beside it that cuts columns otherwise."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.config import Config

__all__ = ["Constant", "Contents"]


class Constant(Protocol):
    """Content of a part of a DRAM region that is fixed by the network."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def key(self) -> Hashable:
        """Equal for equal contents of one network."""
        ...

    def groups(self, dim: int) -> Sequence[Constant]:
        """What it consists of, one behind the other: column groups, where it is cut by columns."""
        ...

    def pack(self, network: Network, config: Config) -> np.ndarray:
        """The bytes, uint8 [size]."""
        ...


class Contents:
    """Places in DRAM regions, offsets in bytes."""

    def __init__(self, constants: Mapping[str, Sequence[tuple[int, Constant]]], dim: int) -> None:
        """``constants``: by region (offset, content)."""
        self.dim = dim
        self.places: dict[tuple[str, Hashable], int] = {}
        for region, parts in constants.items():
            for at, content in parts:
                for group in content.groups(dim):
                    self.places.setdefault((region, group.key), at)
                    at += group.size

    def runs(self, region: str, contents: Sequence[Constant]) -> list[tuple[int, int]]:
        """(offset, bytes) of contents that are wanted one behind the other, neighbours in DRAM as one.

        Raises:
            CompileError: the other program has not all of them, or cuts their depth otherwise.
        """
        found: list[tuple[int, int]] = []
        for group in (group for content in contents for group in content.groups(self.dim)):
            at = self.places.get((region, group.key))
            if at is None:
                raise CompileError(f"both programs must have the same {region}, cut at the same depths: compile the "
                                   "second with the weight ring of the first")
            if found and sum(found[-1]) == at:
                found[-1] = (found[-1][0], found[-1][1] + group.size)
            else:
                found.append((at, group.size))
        return found
