"""The compiler's own sources as a number: what it made before counts only while they are the same."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import gemmule

__all__ = ["sources"]

SOURCES = ("*.py", "numerics/*.py", "compiler/**/*.py", "sim/verify/*.py", "sim/timing/*.py", "sim/*.py")
"""What a program and its cycles depend on, below the package."""


@cache
def sources() -> bytes:
    """SHA-256 of all sources that a program depends on."""
    package = Path(gemmule.__file__).resolve().parent
    files = sorted({path for pattern in SOURCES for path in package.glob(pattern)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()
