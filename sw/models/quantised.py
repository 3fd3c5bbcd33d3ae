"""Published models by name: quantised once, then read from the cache folder."""

from __future__ import annotations

import platform
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import ModelFile, load_model
from gemmule.compiler.sources import sources
from gemmule.io.cache import cache_folder, cache_root, writing
from gemmule.io.files import write_atomically
from gemmule.io.locks import exclusive
from gemmule.io.progress import say
from gemmule.io.steady import steadily
from gemmule.sw.limits import BITS
from gemmule.sw.models.published import PUBLISHED, published_digest, published_file

__all__ = ["FOLDER", "LOCK", "SOURCES", "is_published", "quantised", "read_cached", "read_model"]

FOLDER = "models"
"""Of the cache."""
LOCK = ".lock"
"""Ends the name of the lock of a file that is being made."""
SOURCES = ("numerics/*.py", "compiler/ir/*.py", "compiler/importers/**/*.py", "compiler/quantize/*.py",
           "compiler/files/model_file.py", "sw/models/importing.py", "sw/models/import_texts.py",
           "sw/models/sources.py", "sw/models/gguf_tokenizer.py", "io/steady.py")
"""What decides the numbers in a file, below the package."""


def quantised(name: str, weights: str | None = None) -> tuple[Path, ModelFile]:
    """A published model with ``int8`` weights (None: too) or ``int4`` ones, as ``gemmule import`` makes it by default.

    The first call makes the file, which takes minutes; later ones, of all processes, read it. A damaged one is made
    again.

    Raises:
        CacheError: it cannot be kept.
        CompileError: the package's file cannot be read, or its model in integers is not usable.
        InputError: the package is not installed.
    """
    bits = weights or BITS[0]
    source, digest = published_file(name), published_digest(name)
    key = repr((digest, bits, platform.python_version())).encode()  # the default text is Python's
    path = cache_root() / FOLDER / f"{name}-{bits}-{sha256(sources(SOURCES) + key).hexdigest()[:16]}.safetensors"
    if (found := read_cached(path)) is None:
        cache_folder(FOLDER)
        with ExitStack() as alone:
            with writing():
                alone.enter_context(exclusive(path.with_name(path.name + LOCK), path.name))
            if (found := read_cached(path)) is None:  # else another process has just made it
                steadily(_make, source, name, bits, path)
                found = load_model(path)
    return path, found


def is_published(name: str) -> bool:
    """Whether that is a published model's name, and no file's."""
    return name in PUBLISHED and not Path(name).is_file()


def read_model(file: Path) -> ModelFile:
    """A file that ``gemmule import`` wrote, or a published model by its name.

    Raises:
        CacheError, CompileError, InputError: as of :func:`quantised`; the file is missing or damaged.
    """
    return quantised(str(file))[1] if is_published(str(file)) else load_model(file)


def read_cached(path: Path) -> ModelFile | None:
    """A file of the cache; None: there is none that can be used."""
    if not path.exists():
        return None
    try:
        return load_model(path)
    except CompileError:
        return None


def _make(source: Path, name: str, bits: str, path: Path) -> None:
    from gemmule.sw.models.importing import Recipe, import_model

    say(f"{name} in {bits} is made once, which takes minutes, and kept: {path}")
    made = import_model(source, Recipe(bits=bits), name, briefly=True)
    if made.why_unusable:
        raise CompileError(f"{name} in {bits} is not usable: {made.why_unusable}: take other options of gemmule import "
                           f"{name}, and its file as --model")
    with writing():
        write_atomically(path, made.content, made.check)
