"""Published tables and figures, made again on this device: a file a study, which its name finds.

A study's rows compare a published figure with this device's, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmule.config import Config

__all__ = ["STUDIES", "Row", "Study", "study_of"]

STUDIES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__"))
"""Names; a file that is added is one more."""


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


def study_of(name: str) -> Study:
    """The one of :data:`STUDIES` of that name."""
    found = import_module(f"gemmule.sw.studies.{name}").STUDY
    assert isinstance(found, Study)
    return found
