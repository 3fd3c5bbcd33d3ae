"""The other training text: Python sources of pinned packages of the extra ``train``; one package is only measured on.

Nothing is downloaded: the files are those of the installed packages. A package that is installed in another version
than the pinned one is refused, since its text would be another corpus.
"""

from __future__ import annotations

import hashlib
import importlib.metadata as metadata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gemmule.sw.text.corpus import Corpus, Document, read_documents, split_of

__all__ = ["EXCLUDED_FOLDERS", "SECOND", "TRAINED", "Package", "Source", "choose", "foreign", "overlap", "read_package"]

EXCLUDED_FOLDERS = frozenset({
    "__pycache__", "_antlr", "benchmarks", "serialized_patterns", "test", "testing", "tests"})
"""Tests, benchmarks, and what generators wrote."""
EXCLUDED_STEMS = ("test_", "conftest")
MOST_DIGITS = 0.2
"""Share of digits among the characters that are no space, above which a file is a table rather than code."""
LONG_LINE = 30
MOST_SHARED = 0.05
"""Share of a file's long lines that held-out files have too, above which it is not trained on."""


@dataclass(frozen=True)
class Package:
    """A package by its name, which is that of its folder too, and the version that the extra pins."""

    name: str
    version: str


TRAINED = (Package("networkx", "3.6.1"), Package("numpy", "2.4.6"), Package("scipy", "1.17.1"),
           Package("sympy", "1.14.0"), Package("torch", "2.13.0"))
SECOND = Package("pydantic", "2.14.3")
"""Never trained on: the second held-out set is drawn from it."""
SECOND_FILES = 50


@dataclass(frozen=True, kw_only=True)
class Source:
    """An installed package: what it is, under which licence, and its documents, paths beginning with its name."""

    name: str
    version: str
    licence: str
    documents: list[Document]


def _licence(data: metadata.PackageMetadata) -> str:
    """What a package says of its licence: the SPDX expression, else its classifiers, else the first line."""
    def all_of(key: str) -> list[str]:
        return data.get_all(key) or []

    named = [line.split(" :: ")[-1] for line in all_of("Classifier") if line.startswith("License ::")]
    first = [text.splitlines()[0] for text in all_of("License")]
    return "; ".join(all_of("License-Expression") or named or first or ["not stated"])


def is_included(relative: PurePosixPath) -> bool:
    """Whether a package's file belongs to the corpus, judged by its path below the package alone."""
    return EXCLUDED_FOLDERS.isdisjoint(relative.parts[:-1]) and not relative.name.startswith(EXCLUDED_STEMS)


def is_table(text: str) -> bool:
    """Whether a file holds numbers rather than code: see `MOST_DIGITS`."""
    solid = "".join(text.split())
    return sum(map(solid.count, "0123456789")) > MOST_DIGITS * len(solid)


def read_folder(root: Path, name: str) -> list[Document]:
    """The included documents of a package below ``root``, by path."""
    return [(f"{name}/{path}", text) for path, text in read_documents(root, is_included) if not is_table(text)]


def read_package(package: Package) -> Source:
    """An installed package.

    Raises:
        ValueError: it is not installed, or in another version; the message is one line.
    """
    remedy = "pip install -e '.[train]'"
    try:
        found = metadata.distribution(package.name)
    except metadata.PackageNotFoundError:
        raise ValueError(f"{package.name} {package.version} must be installed to train on it: {remedy}") from None
    version = found.version.partition("+")[0]  # a local build names its device there
    if version != package.version:
        raise ValueError(f"{package.name} must have version {package.version}, not {version}: {remedy}")
    root = Path(str(found.locate_file(package.name)))
    return Source(name=package.name, version=version, licence=_licence(found.metadata),
                  documents=read_folder(root, package.name))


def choose(documents: list[Document], count: int = SECOND_FILES) -> list[Document]:
    """``count`` documents, the first by the SHA-256 of their paths, in path order."""
    first = sorted(documents, key=lambda document: hashlib.sha256(document[0].encode()).hexdigest())[:count]
    return sorted(first)


def _long_lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if len(line) >= LONG_LINE]


def foreign(documents: list[Document]) -> frozenset[str]:
    """The long lines of held-out documents, without their indentation."""
    return frozenset(line for _, text in documents for line in _long_lines(text))


def overlap(text: str, held: frozenset[str]) -> float:
    """The share of a text's long lines that are in ``held``; 0 where it has none."""
    lines = _long_lines(text)
    return sum(line in held for line in lines) / len(lines) if lines else 0.0


@dataclass(frozen=True, kw_only=True)
class Texts:
    """All that training and measuring read: train documents by origin, the library's other splits, the second set.

    ``dropped`` are train documents that share more than `MOST_SHARED` of their long lines with the library's held-out
    split or with the second set, with that share.
    """

    library: list[Document]
    packages: list[Document]
    calibration: list[Document]
    held_out: list[Document]
    second: list[Document]
    dropped: list[tuple[str, float]]


def assemble(corpus: Corpus, trained: list[Document], second: list[Document]) -> Texts:
    """Split the packages' documents by their paths as the library's are, and drop what overlaps with held-out text."""
    held = foreign(corpus.held_out) | foreign(second)
    dropped: list[tuple[str, float]] = []

    def kept(documents: list[Document]) -> list[Document]:
        shares = [overlap(text, held) for _, text in documents]
        dropped.extend((path, share) for (path, _), share in zip(documents, shares) if share > MOST_SHARED)
        return [document for document, share in zip(documents, shares) if share <= MOST_SHARED]

    library = kept(corpus.train)
    packages = kept([document for document in trained if split_of(document[0]) == "train"])
    return Texts(library=library, packages=packages, calibration=corpus.calibration, held_out=corpus.held_out,
                 second=second, dropped=dropped)
