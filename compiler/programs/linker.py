"""Linker: programs that share DRAM get one layout, each its own image in it, and each the regions that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.contents import Constant
from gemmule.compiler.layout import Region, Regions, RegionTable
from gemmule.compiler.passes.entry import Entry, Lowered
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.program import Program
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES

__all__ = ["Linker"]

P = TypeVar("P", bound=Program)


class Linker:
    """Regions in the order in which they are first named, each as large as the largest that anyone asks for."""

    def __init__(self, config: Config, shared: Mapping[str, Region] | None = None) -> None:
        """``shared``: regions of programs that stand in the same DRAM already, which get no room here."""
        self.config, self.shared = config, dict(shared or {})
        self.sizes: dict[str, int] = {}
        self.constants: dict[str, Sequence[tuple[int, Constant]]] = {}
        """What the network fixes of each region: (offset, content)."""

    def add(self, entry: Entry[Any]) -> None:
        """Room for the image and the regions of an entry program that has come through its passes up to waits."""
        self.reserve(entry.image, COMMAND_BYTES * len(entry.commands))
        for region, size in entry.regions().items():
            self.reserve(region, size)

    def reserve(self, region: str, size: int) -> None:
        """Room for a region."""
        if region not in self.shared:
            self.sizes[region] = max(size, self.sizes.get(region, 0))

    def share(self, lowered: Lowered) -> None:
        """The regions that kernels have named, with what the network fixes of them.

        Raises:
            CompileError: contents that are there already stand elsewhere.
        """
        for region, size in lowered.sizes.items():
            self.reserve(region, size)
        for region, parts in lowered.constants.items():
            there = self.constants.setdefault(region, parts)
            if [(at, part.size) for at, part in parts] != [(at, part.size) for at, part in there]:
                raise CompileError(f"both programs must have the same {region}: the compiler is wrong")

    def table(self, base_address: int, skipped: int = 0) -> RegionTable:
        """The layout from ``base_address`` on, whose first ``skipped`` bytes stay free or are others'.

        Raises:
            CompileError: the address is not aligned, or the end lies beyond the device's addresses.
        """
        regions = Regions(self.config)
        for name, size in self.sizes.items():
            regions.reserve(name, size)
        return RegionTable(base_address, skipped + regions.size,
                           self.shared | regions.symbols(base_address + skipped))

    @staticmethod
    def link(entry: Entry[P], table: RegionTable, *, last: str = "verify") -> P:
        """The entry's program among these regions, and its passes from link to ``last``.

        Raises:
            CompileError: as of :func:`gemmule.compiler.passes.pipeline.run`.
        """
        entry.table = table
        run(entry, "link", last)
        return entry.program
