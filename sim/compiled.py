"""The contracts' plain functions compiled: one definition, as fast as the model needs it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba.core import caching, event

import gemmule
from gemmule.io.cache import cache_root
from gemmule.io.locks import Lock, acquire
from gemmule.io.progress import say, working

__all__ = ["borrowing", "compiled", "inlined", "kept", "stamp"]


def borrowing(function: Callable[..., Any]) -> Any:
    """``function`` under numba, using arrays that its caller keeps: it makes none, and copies none into another.

    Otherwise numba counts the references to every array that is passed on or indexed, each time with an instruction
    that locks the bus: more than half of the time of a launch.
    """
    options: Any = {"_nrt": False}
    return numba.njit(**options)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """:func:`borrowing`, compiled into each function that calls it: a step that has a name and costs no call."""
    options: Any = {"_nrt": False, "forceinline": True}
    return numba.njit(**options)(function)


@cache
def compiled(function: FunctionType) -> Any:
    """``function`` under numba, with every function of ours that it calls compiled the same way."""
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(scope.get(name), FunctionType):
            scope[name] = compiled(scope[name])
    return borrowing(FunctionType(function.__code__, scope, function.__name__))


def stamp(folder: Path) -> int:
    """A number that changes with every source that compiled code in ``folder`` may hold.

    numba's cache looks only at the cached function's own file. As a closure cell the stamp is part of the cache's key.
    """
    contracts = Path(gemmule.__file__).resolve().parent
    files = [Path(__file__), *sorted(folder.glob("*.py")), *sorted(contracts.glob("*.py")),
             *sorted((contracts / "numerics").glob("*.py"))]
    return int(hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12], 16)


class _Files(caching.CompileResultCacheImpl):
    """Files in the named folder; numba's others would put them beside the sources where that cannot be written."""

    _locator_classes = [kind for kind in caching.CompileResultCacheImpl._locator_classes
                        if "UserProvided" in kind.__name__]


class _Cache(caching.FunctionCache):
    """numba's cache of one function, of which a damaged or unwritable file costs time and no more.

    Of processes that miss the same code one compiles it; the others wait for it.
    """

    _impl_class = _Files
    _lock: Lock | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._load(sig, target_context)
        if found is None:
            with contextlib.suppress(OSError):
                self._impl.locator.ensure_cache_path()
                self._lock = acquire(Path(self.cache_path) / f"{self._impl.filename_base}.lock")
                found = self._load(sig, target_context)
        if found is not None:
            self.release()
        return found

    def release(self) -> None:
        """Let the others look."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # whatever reading a pickle may raise
            say(f"compiled code in {self.cache_path} is damaged ({type(error).__name__}): compiling it again")
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            say(f"compiled code cannot be kept in {self.cache_path} ({error.strerror or error})")
        finally:
            self.release()


class _Speaker(event.Listener):
    """Says what is being compiled, as numba reports it: only functions that are kept, and were not yet."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._open: list[contextlib.AbstractContextManager[None]] = []

    def on_start(self, event: event.Event) -> None:
        if name := self.names.get(id(event.data["dispatcher"])):
            folder = Path(event.data["dispatcher"].stats.cache_path or "no folder")
            folder = folder.parent if folder.parent == cache_root() / "compiled" else folder
            self._open.append(working(f"compiling {name} (10 to 30 s, once; kept in {folder})"))
            self._open[-1].__enter__()

    def on_end(self, event: event.Event) -> None:
        if self.names.get(id(event.data["dispatcher"])):
            self._open.pop().__exit__(None, None, None)


_speaker = _Speaker()
event.register("numba:compile", _speaker)


def kept(name: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba and keep the machine code in the cache folder, or where ``NUMBA_CACHE_DIR`` says.

    ``name`` is for the line that says what is being compiled, if that takes long. Where nothing can be written
    it is compiled each time.
    """
    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(function)
        if not hasattr(dispatcher, "enable_caching"):  # numba is switched off
            return dispatcher
        settings: Any = numba.config
        named = settings.CACHE_DIR
        settings.CACHE_DIR = named or os.fspath(cache_root() / "compiled")
        try:
            with contextlib.suppress(RuntimeError):  # there is no place for it
                dispatcher._cache = _Cache(function)
        finally:
            settings.CACHE_DIR = named
        _speaker.names[id(dispatcher)] = name
        return dispatcher

    return decorate
