"""Published tables and figures, made again on this device: a file a study, which its name finds."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmule.sw.workloads.study import Study

__all__ = ["STUDIES", "study_of"]

STUDIES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__"))
"""Names; a file that is added is one more."""


def study_of(name: str) -> Study:
    """The one of :data:`STUDIES` of that name."""
    from gemmule.sw.workloads.study import Study

    found = import_module(f"gemmule.sw.studies.{name}").STUDY
    assert isinstance(found, Study)
    return found
