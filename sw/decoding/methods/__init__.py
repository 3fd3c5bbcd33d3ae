"""Methods of decoding by name: each file here that declares a METHOD is one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmule.sw.decoding.methods.method import DRAFT, TREE, VOCABULARY, Method, Option, Request
from gemmule.sw.errors import InputError

if TYPE_CHECKING:
    from gemmule.sw.kv.pruning import Pruning

__all__ = [
    "DRAFT", "METHODS", "TREE", "VOCABULARY", "Method", "Option", "Request", "drafting_of", "needing_int4", "of_option"]


def _found() -> dict[str, Method]:
    """By file.

    Raises:
        InputError: a file's method has another name, or declares an option otherwise than another file.
    """
    found: dict[str, Method] = {}
    options: dict[str, Option] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        method = getattr(import_module(f"{__name__}.{path.stem}"), "METHOD", None) if path.stem != "__init__" else None
        if not isinstance(method, Method):
            continue
        if method.file != path.stem:
            raise InputError(f"the method of {path.name} must be named as its file is, not {method.name}: call the "
                             f"file {method.file}.py")
        for option in method.every_option():
            if options.setdefault(option.name, option).limits != option.limits:
                raise InputError(f"{path.name} declares {option.name} with other limits than another method: take the "
                                 "same, or another name")
        found[method.name] = method
    return found


METHODS: dict[str, Method] = _found()


def of_option(name: str) -> tuple[str, ...]:
    """Methods that have an option of that name."""
    return tuple(method.name for method in METHODS.values() if any(one.name == name for one in method.every_option()))


def drafting_of(options: Mapping[str, Mapping[str, Any]], positions: int) -> Pruning | None:
    """What the second cache of a target of so many positions holds, for the first of the methods that drafts in one.

    ``options``: values of each method's own options, by key.
    """
    for name, given in options.items():
        if (schedule := METHODS[name].schedule) is not None:
            return schedule(METHODS[name].values(given), positions)
    return None


def needing_int4(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the target's int4 copy drafts for a method, with these values of its own options, by key."""
    parts = METHODS[name].parts
    others = parts(METHODS[name].values(options)) if parts else ()
    return any(METHODS[one].needs_int4 for one in (name, *others))
