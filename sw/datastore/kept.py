"""Datastores in the cache: made once for a tokenizer and a corpus, then read through the page cache."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save
from tokenizers import Tokenizer

from gemmule.compiler.sources import sources
from gemmule.io.cache import cache_folder, cache_root, writing
from gemmule.io.files import write_atomically
from gemmule.io.locks import exclusive
from gemmule.io.progress import working
from gemmule.sw.datastore.datastore import DEPTH, Datastore
from gemmule.sw.datastore.suffix_array import suffix_array
from gemmule.sw.datastore.texts import texts_of
from gemmule.sw.errors import InputError
from gemmule.sw.limits import CORPORA, MODELS_FOLDER, WRITINGS

__all__ = ["FOLDER", "OWN", "Kept", "make_own", "open_datastore", "writings_of"]

FOLDER = "datastores"
"""Of the cache."""
OWN = CORPORA[-1]
LOCK = ".lock"
KINDS: dict[str, np.dtype[Any]] = {"U16": np.dtype("<u2"), "U32": np.dtype("<u4")}
SOURCES = ("sw/datastore/*.py", "sw/text/corpus.py")
"""What decides the numbers in a file, below the package."""
BATCH = 64
"""Texts that are tokenised at a time."""


class Kept(NamedTuple):
    """A datastore and its file."""

    datastore: Datastore
    path: Path


def _path(name: str, corpus: str, tokenizer: Tokenizer) -> Path:
    """Of a user's text the tokenizer decides alone: the newest one is kept."""
    made = b"" if corpus == OWN else sources(SOURCES) + (
        writings_of(name).read_bytes() if corpus == WRITINGS and writings_of(name).is_file() else
        platform.python_version().encode())  # its library is the text
    key = sha256(made + tokenizer.to_str().encode()).hexdigest()[:16]
    return cache_root() / FOLDER / f"{name}-{corpus}-{key}.safetensors"


def open_datastore(name: str, tokenizer: Tokenizer, corpus: str) -> Kept:
    """The datastore of a corpus for the model of that name. The first call makes it, which takes seconds.

    Raises:
        CacheError: it cannot be kept.
        InputError: it is of a user's text, and none was given; or this Python lacks its sources.
    """
    path = _path(name, corpus, tokenizer)
    if (found := _read(path)) is None:
        if corpus == WRITINGS:
            found = _make(path, partial(_written, name), f"making a datastore of {corpus} for {name}")
            return Kept(found, path)
        if corpus == OWN:
            raise InputError(f"--retrieval-corpus {OWN} needs a text of yours: run `gemmule datastore --model {name} "
                             "--text FILE` first")
        found = _make(path, lambda: _tokens(tokenizer, texts_of(corpus)), f"making a datastore of {corpus} for {name}")
    return Kept(found, path)


def make_own(name: str, tokenizer: Tokenizer, text: str) -> Kept:
    """A datastore of a user's text, in the place of the one before.

    Raises:
        CacheError: it cannot be kept.
    """
    path = _path(name, OWN, tokenizer)
    with writing():
        path.unlink(missing_ok=True)
    return Kept(_make(path, lambda: _tokens(tokenizer, [text]), f"making a datastore for {name}"), path)


def _make(path: Path, texts: Callable[[], tuple[np.ndarray, int]], what: str) -> Datastore:
    """``texts``: tokens, and the id that stands behind each text."""
    cache_folder(FOLDER)
    with ExitStack() as alone:
        with writing():
            alone.enter_context(exclusive(path.with_name(path.name + LOCK), path.name))
        if (found := _read(path)) is not None:  # another process has just made it
            return found
        with working(what, least=1.0):
            tokens, separator = texts()
            content = save({"tokens": tokens, "order": suffix_array(tokens, DEPTH)}, {
                "separator": str(separator), "digest": sha256(tokens.tobytes()).hexdigest()})
        with writing():
            write_atomically(path, content)
        found = _read(path)
        assert found is not None, "it has just been written"
        return found


def _tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, int]:
    """Texts one behind the other, and the id that stands behind each: one more than the largest token."""
    separator = max(tokenizer.get_vocab().values()) + 1
    kind = np.uint16 if separator < 1 << 16 else np.uint32
    parts: list[np.ndarray] = []
    for first in range(0, len(texts), BATCH):
        for found in tokenizer.encode_batch(list(texts[first:first + BATCH]), add_special_tokens=False):
            parts += [np.array(found.ids, dtype=kind), np.array([separator], dtype=kind)]
    return np.concatenate(parts), separator


def writings_of(name: str) -> Path:
    """Where what a model wrote lies, if it brings any."""
    return MODELS_FOLDER / name / f"{WRITINGS}.safetensors"


def _written(name: str) -> tuple[np.ndarray, int]:
    """Tokens of the texts that a model brings, and the id behind each.

    Raises:
        InputError: it brings none.
    """
    path = writings_of(name)
    if not path.is_file():
        raise InputError(f"{name} brings no {WRITINGS} of its own: take --model smollm2, or another corpus")
    tokens = load(path.read_bytes())["tokens"]
    return tokens, int(tokens.max())


def _read(path: Path) -> Datastore | None:
    """A file of the cache, its arrays left on the disk; None: there is none that can be used."""
    try:
        with path.open("rb") as file:
            begin = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(begin - 8))
        tokens, order = (np.memmap(path, KINDS[header[name]["dtype"]], mode="r", shape=tuple(header[name]["shape"]),
                                   offset=begin + header[name]["data_offsets"][0]) for name in ("tokens", "order"))
        told = header["__metadata__"]
        return Datastore(tokens, order, int(told["separator"]), told["digest"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError):
        return None
