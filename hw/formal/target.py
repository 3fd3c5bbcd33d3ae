"""A target: a component with its properties, how far they are looked at, and the faults that must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmule.config import Config, load_config
from gemmule.hw.formal.bench import Bench, Property
from gemmule.hw.formal.planted import Fault

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A component under proof, alone or with what other targets prove of its parts in their place."""

    name: str
    unit: str
    """Source of the component, below ``hw``."""
    says: str
    build: Callable[[Bench, Config], None]
    """States assumptions, properties and covers on a bench."""
    depth: int
    """Cycles of the bounded check. Where induction proves a property, they are only its base."""
    reach: int
    """Cycles in which every cover must be reached, and every planted fault found."""
    faults: tuple[Fault, ...]
    preset: str = "tiny"
    sizes: str = ""
    """Sizes other than those of the preset."""
    quick: bool = False
    """Part of ``make test``."""

    def bench(self, keep: Callable[[Property], bool] = lambda property: True) -> Bench:
        """A new bench; of its assertions only those that ``keep`` wants count."""
        bench = Bench(keep)
        self.build(bench, load_config(self.preset))
        return bench
