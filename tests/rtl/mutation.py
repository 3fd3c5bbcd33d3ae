"""The model with one line of its source changed, run uncompiled; nothing outside this module sees the change."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np

ENGINE = (
    "gemmule.timing", "gemmule.resolve", "gemmule.sim.dram", "gemmule.sim.engine_units", "gemmule.sim.engine_program",
    "gemmule.sim.engine_move", "gemmule.sim.engine_issue", "gemmule.sim.engine",
)
DATA = (
    "gemmule.sim.functional_matrix", "gemmule.sim.functional_vector", "gemmule.sim.functional_select",
    "gemmule.sim.functional",
)
"""Modules that are loaded afresh, in the order of their imports; ``gemmule.sim.run`` comes after."""


def _plain(function: Any = None, **_: Any) -> Any:
    """Stands in for numba's ``njit``."""
    return function if function is not None else _plain


def _load(name: str, path: Path, text: str) -> None:
    module = ModuleType(name)
    module.__file__, module.__package__ = str(path), name.rpartition(".")[0]
    sys.modules[name] = module
    setattr(sys.modules[module.__package__], name.rpartition(".")[2], module)
    exec(compile(text, str(path), "exec"), module.__dict__)


def _records(launch: Any) -> Any:
    """Plain Python reads the fields of numpy records by attribute only when they are of type record."""
    def wrapped(*arguments: Any) -> Any:
        return launch(*(a.view(np.recarray) if isinstance(a, np.ndarray) and a.dtype.names else a for a in arguments))

    return wrapped


@contextmanager
def mutated(module: str, old: str, new: str) -> Iterator[type]:
    """Class ``Model`` of a copy of the model in which ``old``, once in ``module``, reads ``new``.

    The copy may be used only inside the block, which ends with the real modules in place.
    """
    group = ENGINE if module in ENGINE else DATA
    names = [*group, "gemmule.sim.run"]
    paths = {name: Path(str(importlib.import_module(name).__file__)) for name in names}
    texts = {name: path.read_text() for name, path in paths.items()}
    assert texts[module].count(old) == 1, f"{old!r} must stand once in {module}"
    texts[module] = texts[module].replace(old, new)
    saved, njit = {name: sys.modules[name] for name in names}, numba.njit
    try:
        numba.njit = _plain
        for name in names:
            _load(name, paths[name], texts[name])
            if name == "gemmule.sim.engine":
                sys.modules[name].launch = _records(sys.modules[name].launch)  # type: ignore[attr-defined]
        numba.njit = njit
        yield sys.modules["gemmule.sim.run"].Model
    finally:
        numba.njit = njit
        for name, original in saved.items():
            sys.modules[name] = original
            setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], original)
