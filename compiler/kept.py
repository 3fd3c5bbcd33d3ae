"""Programs of imported models that were compiled before, from the cache folder."""

from __future__ import annotations

import hashlib
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import gemmule
from gemmule.compiler.ir import Network
from gemmule.compiler.mapping.search import compile_best
from gemmule.compiler.model_program import ModelProgram
from gemmule.config import Config
from gemmule.io.cache import cache_root
from gemmule.io.files import write_atomically
from gemmule.io.progress import say

__all__ = ["FOLDER", "compile_kept", "sources_sha256"]

FOLDER = "programs"
"""Of the cache."""
SOURCES = ("*.py", "numerics/*.py", "compiler/**/*.py", "sim/verify/*.py", "sim/timing/*.py", "sim/*.py")
"""What a program depends on, below the package."""


@cache
def sources_sha256() -> bytes:
    """SHA-256 of all sources that a program depends on."""
    package = Path(gemmule.__file__).resolve().parent
    files = sorted({path for pattern in SOURCES for path in package.glob(pattern)})
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()


def _path(sha256: str, config: Config, options: dict[str, Any]) -> Path:
    key = repr((sha256, config.sha256, sorted(options.items()))).encode()
    return cache_root() / FOLDER / f"{config.name}-{hashlib.sha256(sources_sha256() + key).hexdigest()[:16]}.pickle"


def compile_kept(network: Network, sha256: str, config: Config, *, effort: int = 1, **options: Any) -> ModelProgram:
    """:func:`gemmule.compiler.mapping.search.compile_best`, or what it gave for the same network, device and options.

    ``sha256`` names the network: its numbers are in the program too. A damaged entry, or a folder that cannot be
    written, costs time and no more.

    Raises:
        CompileError: it does not fit the configuration.
    """
    path = _path(sha256, config, {**options, "effort": effort})
    if path.is_file():
        try:
            found = pickle.loads(path.read_bytes())
        except Exception as error:  # whatever reading a pickle may raise
            say(f"the program in {path} is damaged ({type(error).__name__}): compiling it again")
        else:
            if isinstance(found, ModelProgram):
                return found
    made = compile_best(network, config, effort=effort, **options)
    try:
        write_atomically(path, pickle.dumps(made, protocol=pickle.HIGHEST_PROTOCOL))
    except OSError as error:
        say(f"the program cannot be kept in {path.parent} ({error.strerror or error})")
    return made
