"""Faults planted in the sources of the hardware, to see that a property fails with them."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

__all__ = ["Fault", "FaultError", "planted"]


class FaultError(ValueError):
    """A planted fault does not fit the sources any more."""


@dataclass(frozen=True)
class Fault:
    """In a module, ``old`` becomes ``new``; with that ``property`` must fail."""

    property: str
    module: str
    """Below ``gemmule.hw``: ``command.claims``."""
    old: str
    new: str
    says: str


def _with(fault: Fault, module: ModuleType) -> ModuleType:
    """A module of the same name with the fault in its source."""
    path = Path(str(module.__file__))
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise FaultError(f"the planted fault {fault.says!r} needs {fault.old!r} once in {path.name}, "
                         f"not {text.count(fault.old)} times")
    wrong = ModuleType(module.__name__)
    wrong.__file__ = module.__file__
    wrong.__package__ = module.__package__
    sys.modules[module.__name__] = wrong  # dataclasses look their module up
    try:
        exec(compile(text.replace(fault.old, fault.new), str(path), "exec"), wrong.__dict__)
    finally:
        sys.modules[module.__name__] = module
    return wrong


@contextlib.contextmanager
def planted(fault: Fault | None) -> Iterator[None]:
    """While this lasts every module of the hardware sees the fault's classes and functions in place of the right ones.

    Raises:
        FaultError: the source has no such text.
    """
    if fault is None:
        yield
        return
    module = importlib.import_module(f"gemmule.hw.{fault.module}")
    wrong = _with(fault, module)
    changed: list[tuple[ModuleType, str, object]] = []
    theirs = {id(value): name for name, value in vars(module).items()
              if getattr(value, "__module__", None) == module.__name__}
    try:
        for name, user in list(sys.modules.items()):
            if name.startswith("gemmule.hw."):
                for attribute, value in list(vars(user).items()):
                    if id(value) in theirs:
                        changed.append((user, attribute, value))
                        setattr(user, attribute, getattr(wrong, theirs[id(value)]))
        yield
    finally:
        for user, attribute, value in changed:
            setattr(user, attribute, value)
