"""The contracts' plain functions compiled: one definition, as fast as the model needs it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba

import gemmule

__all__ = ["compiled", "stamp"]


@cache
def compiled(function: FunctionType) -> Any:
    """``function`` under numba, with every function of ours that it calls compiled the same way."""
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(scope.get(name), FunctionType):
            scope[name] = compiled(scope[name])
    return numba.njit(FunctionType(function.__code__, scope, function.__name__))


def stamp(folder: Path) -> int:
    """A number that changes with every source that compiled code in ``folder`` may hold.

    numba's cache looks only at the cached function's own file. As a closure cell the stamp is part of the cache's key.
    """
    contracts = Path(gemmule.__file__).resolve().parent
    files = [Path(__file__), *sorted(folder.glob("*.py")), *sorted(contracts.glob("*.py")),
             *sorted((contracts / "numerics").glob("*.py"))]
    return int(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12], 16)
