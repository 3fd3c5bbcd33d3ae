"""Prompts by category: what `gemmule bench` decodes.

    python -m gemmule.sw.prompts.categories --write    # choose again from the running Python's library

=========== ===================================================================================================
completion  2 to 8 lines of code (:mod:`gemmule.sw.prompts.choose`)
copy        a function, then the signature of its copy with 0 to 3 other names (:mod:`gemmule.sw.prompts.copies`)
docstring   a function's head up to the first line of its docstring, which has three lines or more
table       the first half of a literal of 4 elements or more on 4 lines or more
repetition  three lines three times, then the first of them again
calibration completions of files that calibrate: draft lengths are chosen on them, nothing is reported
=========== ===================================================================================================

Files are of the held-out split (calibration: of that split). Of each category up to 20 (completion 50, copy 40), by
the hash of their place, at most 6 a file; text that a file of the other splits holds is left out. The rules know no
results.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import platform
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically
from gemmule.sw.limits import CATEGORIES
from gemmule.sw.prompts import choose
from gemmule.sw.prompts.choose import LICENCE, Prompt, digest
from gemmule.sw.prompts.copies import FILE as COPIES
from gemmule.sw.prompts.copies import load_copies
from gemmule.sw.text.corpus import Corpus, Document, load_corpus

__all__ = ["CALIBRATION", "choose_categories", "load_categories"]

FILE = Path(__file__).with_name("categories.json")
CALIBRATION = "calibration"
LEAST, COUNT, MOST_A_FILE, MOST_CHARS = 10, 20, 6, 1000
LEAST_LINES, MOST_LINES = 4, 24
TIMES, BLOCK = 3, 3


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def _nodes(document: Document) -> Iterator[ast.AST]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of old sources
        yield from ast.walk(ast.parse(document[1]))


def _prompt(document: Document, first: int, end: int, kind: str) -> Prompt:
    """Lines ``first`` .. ``end`` - 1 of a file, from 0."""
    lines = document[1].split("\n")  # as ast counts them
    return Prompt(f"{document[0]}:{first + 1}", kind, "\n".join(lines[first:end]) + "\n")


def docstrings(document: Document) -> Iterator[Prompt]:
    """Heads of functions and classes whose docstring goes on for two lines or more."""
    for node in _nodes(document):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            text = node.body[0]
            if (text.end_lineno or 0) - text.lineno >= 2:
                yield _prompt(document, node.lineno - 1, text.lineno, "docstring")


def tables(document: Document) -> Iterator[Prompt]:
    """First halves of long literals."""
    for node in _nodes(document):
        if not isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set):
            continue
        elements = node.keys if isinstance(node, ast.Dict) else node.elts
        lines = (node.end_lineno or 0) - node.lineno + 1
        if len(elements) >= LEAST_LINES and lines >= LEAST_LINES:
            yield _prompt(document, node.lineno - 1, node.lineno - 1 + min(MOST_LINES, lines) // 2, "table")


def repetitions(document: Document) -> Iterator[Prompt]:
    """Three lines of code, three times, and the first of them again."""
    lines = document[1].split("\n")
    for first in range(len(lines) - BLOCK):
        block = lines[first:first + BLOCK]
        if all(line.strip() and line.isprintable() for line in block):
            text = "\n".join(block * TIMES + block[:1]) + "\n"
            yield Prompt(f"{document[0]}:{first + 1}", "repetition", text)


RULES: dict[str, Callable[[Document], Iterator[Prompt]]] = {
    "docstring": docstrings, "table": tables, "repetition": repetitions}


def _chosen(rule: Callable[[Document], Iterator[Prompt]], corpus: Corpus) -> list[Prompt]:
    """The first by the hash of their places.

    Raises:
        ValueError: the held-out files hold too few.
    """
    seen = [text for split in (corpus.train, corpus.calibration) for _, text in split]
    found, taken = [], Counter[str]()
    every = [prompt for document in corpus.held_out for prompt in rule(document) if len(prompt.text) <= MOST_CHARS]
    for prompt in sorted(every, key=lambda prompt: _hash(prompt.name)):
        path, text = prompt.name.rsplit(":", 1)[0], prompt.text
        own = "".join(text.splitlines(keepends=True)[:BLOCK]) if prompt.kind == "repetition" else text
        if taken[path] < MOST_A_FILE and not any(own in other for other in seen):
            taken[path] += 1
            found.append(prompt)
    if len(found) < LEAST:
        raise ValueError(f"the held-out files must hold {LEAST} prompts of a category, not {len(found)}")
    return found[:COUNT]


def choose_categories(corpus: Corpus) -> dict[str, list[Prompt]]:
    """What is kept in ``categories.json``: all but completions and copies, which have files of their own."""
    found = {name: _chosen(rule, corpus) for name, rule in RULES.items()}
    calibrating = Corpus(corpus.train, corpus.held_out, corpus.calibration)
    found[CALIBRATION] = choose.choose(calibrating, COUNT)
    return found


def load_categories() -> dict[str, list[Prompt]]:
    """Prompts by category, calibration among them.

    Raises:
        ValueError: the texts are not those that their sha256 is of.
    """
    record: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    kept = {name: [Prompt(**fields) for fields in prompts] for name, prompts in record["prompts"].items()}
    every = [prompt for prompts in kept.values() for prompt in prompts]
    if digest(every) != record["sha256"]:
        raise ValueError(f"{FILE.name}: the texts' sha256 must be {record['sha256']}, not {digest(every)}")
    copies = [Prompt(copy.where, "copy", copy.prompt) for copy in load_copies(COPIES)]
    found = {"completion": choose.load()[1], "copy": copies, **kept}
    return {name: found[name] for name in (*CATEGORIES, CALIBRATION)}


def main() -> None:
    """Print the lists, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="choose again and write the file")
    if parser.parse_args().write:
        corpus = load_corpus()
        found = choose_categories(corpus)
        every = [prompt for prompts in found.values() for prompt in prompts]
        record = {"python": platform.python_version(), "licence": LICENCE, "splits": corpus.digests(),
                  "sha256": digest(every),
                  "prompts": {name: [asdict(prompt) for prompt in prompts] for name, prompts in found.items()}}
        write_atomically(FILE, json.dumps(record, indent=1) + "\n")
    for name, prompts in load_categories().items():
        for prompt in prompts:
            print(f"{name:12} {prompt.name:40} {prompt.text.count(chr(10)):3} lines")


if __name__ == "__main__":
    main()
