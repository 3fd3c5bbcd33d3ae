"""Where everything that can be built again is kept, for all working folders."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

__all__ = ["cache_root"]


def cache_root() -> Path:
    """``$GEMMULE_CACHE``, else the user's cache folder (``~/.cache/gemmule`` on Linux); not made here."""
    named = os.environ.get("GEMMULE_CACHE")
    return Path(named).expanduser().absolute() if named else platformdirs.user_cache_path("gemmule")
