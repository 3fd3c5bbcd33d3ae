"""Our own sources as a number: what they made before counts only while they are the same."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import gemmule

__all__ = ["sources"]

SOURCES = ("*.py", "numerics/*.py", "compiler/**/*.py", "sim/verify/*.py", "sim/timing/*.py", "sim/*.py")
"""What a program and its cycles depend on, below the package."""


@cache
def sources(patterns: tuple[str, ...] = SOURCES) -> bytes:
    """SHA-256 of all sources below the package that match one of the patterns."""
    package = Path(gemmule.__file__).resolve().parent
    files = sorted({path for pattern in patterns for path in package.glob(pattern)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()
