"""What a study is: rows that compare a published figure with this device's, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gemmule.config import Config

__all__ = ["Row", "Study"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure."""

    setting: str
    published: float | None
    """None: nobody told it."""
    here: float
    unit: str
    why: str
    """What is compared, and what makes the difference."""

    def record(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


@dataclass(frozen=True)
class Study:
    """A published table or figure, and what makes it again."""

    title: str
    source: str
    """Where it is published."""
    config: str
    """The configuration that compares."""
    run: Callable[[Config], list[Row]]
