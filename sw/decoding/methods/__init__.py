"""Methods of decoding by name: each file here that declares a METHOD is one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request

__all__ = ["DRAFT", "METHODS", "Method", "Option", "Request", "of_option"]


def _found() -> dict[str, Method]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "method"))
    methods = [import_module(f"{__name__}.{name}").METHOD for name in names]
    return {method.name: method for method in methods}


METHODS: dict[str, Method] = _found()


def of_option(name: str) -> tuple[str, ...]:
    """Methods that have an option of that name."""
    return tuple(method.name for method in METHODS.values() if any(one.name == name for one in method.every_option()))
