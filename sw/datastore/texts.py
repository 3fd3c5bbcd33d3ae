"""What a datastore is made of: texts that Python brings, without the files that prompts are cut from.

``code``: modules of the standard library. ``prose``: the documentation in them, and the language reference
(``pydoc_data.topics``). ``all``: both.
"""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from functools import cache

from gemmule.sw.errors import InputError
from gemmule.sw.text.corpus import Document, load_corpus

__all__ = ["TEXTS", "texts_of"]

LEAST_PROSE = 120
"""Characters of documentation that is worth keeping."""


@cache
def _documents() -> list[Document]:
    """Modules, without those that held-out files are copies of."""
    corpus = load_corpus()
    held = {text for _, text in (*corpus.held_out, *corpus.calibration)}
    return [document for document in corpus.train if document[1] not in held]


def _code() -> list[str]:
    return [text for _, text in _documents()]


@cache
def _prose() -> tuple[str, ...]:
    found = [text for document in _documents() for text in _documentation(document)]
    if importlib.util.find_spec("pydoc_data.topics") is not None:
        from pydoc_data.topics import topics

        found += [text for _, text in sorted(topics.items())]
    return tuple(dict.fromkeys(found))


def _documentation(document: Document) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(document[1])
        except SyntaxError:
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if len(text) >= LEAST_PROSE:
                yield text


TEXTS: dict[str, Callable[[], list[str]]] = {
    "all": lambda: [*_code(), *_prose()], "code": _code, "prose": lambda: [*_prose()]}
"""By the name of the corpus."""


def texts_of(corpus: str) -> list[str]:
    """The texts of a corpus.

    Raises:
        InputError: this Python lacks its own sources.
    """
    found = TEXTS[corpus]()
    if not found:
        raise InputError(f"a datastore of {corpus} is made of the sources of Python's standard library, which this "
                         "Python lacks: give a file with `gemmule datastore --text`")
    return found
