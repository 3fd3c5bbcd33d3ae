"""The model with one line of its source changed, run uncompiled; nothing outside this module sees the change."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np

ENGINE = (
    "gemmule.timing", "gemmule.terms", "gemmule.operands", "gemmule.resolve", "gemmule.control",
    "gemmule.sim.timing.dram", "gemmule.sim.timing.units", "gemmule.sim.timing.program", "gemmule.sim.timing.queues",
    "gemmule.sim.timing.move", "gemmule.sim.timing.front", "gemmule.sim.timing.issue", "gemmule.sim.timing.engine",
    "gemmule.sim.stream",
)
DATA = (
    "gemmule.sim.functional.matrix", "gemmule.sim.functional.vector", "gemmule.sim.functional.select",
    "gemmule.sim.functional.execute",
)
NUMERICS = (
    *(f"gemmule.numerics.{name}" for name in (
        "fixed", "exponential", "norm", "rope", "select", "softmax", "table", "vector", "ibert", "online")),
    "gemmule.numerics", "gemmule.sim.functional.memory",
)
"""Modules that are loaded afresh, in the order of their imports; data come after numerics, ``simulator`` last."""


def _plain(function: Any = None, **_: Any) -> Any:
    """Stands in for numba's ``njit``."""
    return function if function is not None else _plain


def _place(name: str) -> tuple[ModuleType, str]:
    """The package of a module, and the module's name there."""
    parent, _, child = name.rpartition(".")
    return sys.modules[parent], child


@lru_cache(64)
def _code(path: str, text: str) -> CodeType:
    """Of the modules that are loaded with each mutant all but one are the same again."""
    return compile(text, path, "exec")


def _load(name: str, path: Path, text: str) -> None:
    module, (package, child) = ModuleType(name), _place(name)
    module.__file__, module.__package__ = str(path), package.__name__
    if path.name == "__init__.py":
        module.__package__, module.__path__ = name, [str(path.parent)]
    sys.modules[name] = module
    setattr(package, child, module)
    exec(_code(str(path), text), module.__dict__)


def _plain_record(record: Any) -> SimpleNamespace:
    """The fields of a numpy record as attributes of plain Python, which is many times as fast as numpy's own."""
    values = {name: record[name] for name in record.dtype.names}
    return SimpleNamespace(**{
        name: _plain_record(value) if value.dtype.names else value if value.shape else value.item()
        for name, value in values.items()})


def _records(launch: Any) -> Any:
    """The engine's launch with its arrays of one record, whose content nobody reads afterwards, as plain Python."""
    def wrapped(*arguments: Any) -> Any:
        return launch(*(
            [_plain_record(a[0])] if isinstance(a, np.ndarray) and a.dtype.names else a for a in arguments))

    return wrapped


@contextmanager
def mutated(module: str, old: str, new: str) -> Iterator[type]:
    """Class ``Simulator`` of a copy of the model in which ``old``, once in ``module``, reads ``new``.

    The copy may be used only inside the block, which ends with the real modules in place.
    """
    group = ENGINE if module in ENGINE else DATA if module in DATA else (*NUMERICS, *DATA)
    names = [*group, "gemmule.sim.simulator"]
    paths = {name: Path(str(importlib.import_module(name).__file__)) for name in names}
    texts = {name: path.read_text() for name, path in paths.items()}
    assert texts[module].count(old) == 1, f"{old!r} must stand once in {module}"
    texts[module] = texts[module].replace(old, new)
    # A package may hold something else by the name of its module: gemmule.numerics.rope is a function.
    saved = [(name, sys.modules[name], *_place(name)) for name in names]
    held, njit = [getattr(package, child) for _, _, package, child in saved], numba.njit
    try:
        numba.njit = _plain
        for name in names:
            _load(name, paths[name], texts[name])
            if name == "gemmule.sim.timing.engine":
                sys.modules[name].launch = _records(sys.modules[name].launch)  # type: ignore[attr-defined]
        numba.njit = njit
        yield sys.modules["gemmule.sim.simulator"].Simulator
    finally:
        numba.njit = njit
        for (name, module_, package, child), attribute in zip(saved, held):
            sys.modules[name] = module_
            setattr(package, child, attribute)
