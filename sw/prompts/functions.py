"""Functions of Python sources, and copies of them with a few edits: what teaches copying, and what tests it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemmule.sw.text.corpus import Document

__all__ = ["Function", "copy_of", "functions_of", "joined", "name_pool", "rename", "renamings"]

LEAST_LINES, MOST_LINES = 5, 40
MOST_CHARS = 1500
MOST_EDITS = 3
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_OPERATORS = {"==": "!=", "!=": "==", "<=": ">=", ">=": "<=", " < ": " > ", " > ": " < ", " and ": " or ",
              " or ": " and ", " + ": " - ", " - ": " + ", "True": "False", "False": "True"}


@dataclass(frozen=True)
class Function:
    """A function or method as it stands in its file, indentation and decorators included; ends in a newline.

    ``head`` counts the lines up to the end of its signature; ``names`` are its own and its parameters'.
    """

    where: str
    text: str
    head: int
    names: tuple[str, ...]

    @property
    def signature(self) -> str:
        """The first ``head`` lines."""
        return "".join(self.text.splitlines(keepends=True)[:self.head])

    @property
    def body(self) -> str:
        """The lines behind the signature."""
        return "".join(self.text.splitlines(keepends=True)[self.head:])


def _definitions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods, none that lies in another."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _definitions(node)


def functions_of(document: Document) -> list[Function]:
    """The functions of a file that are neither tiny nor long; none where the file is not Python of this version."""
    path, text = document
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of old sources
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return []
    lines = text.split("\n")  # as ast counts them: splitlines also ends lines at form feeds
    found = []
    for node in _definitions(tree):
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
        last, body = node.end_lineno or 0, node.body[0].lineno - 1
        source = "\n".join(lines[first:last]) + "\n"
        if not LEAST_LINES <= last - first <= MOST_LINES or len(source) > MOST_CHARS or source.count("\n") != len(
                source.splitlines()) or body <= node.lineno - 1:
            continue
        arguments = node.args
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                 if one.arg not in ("self", "cls")]
        found.append(Function(f"{path}:{first + 1}", source, body - first, (node.name, *names)))
    return found


def name_pool(functions: list[Function]) -> list[str]:
    """What names can become: every name of functions and parameters of 3 letters or more, none with two underscores."""
    return sorted({name for one in functions for name in one.names if len(name) > 2 and "__" not in name})


def rename(text: str, old: str, new: str) -> str:
    """Every whole word ``old`` as ``new``."""
    return re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, text)


def renamings(function: Function, count: int, pool: list[str], random: np.random.Generator) -> list[tuple[str, str]]:
    """Up to ``count`` of the function's names, each with a new one from ``pool`` that its text does not hold."""
    olds = [function.names[i] for i in random.permutation(len(function.names))[:count]]
    pairs: list[tuple[str, str]] = []
    for old in olds:
        news = [pool[i] for i in random.integers(0, len(pool), 8)]
        fresh = [new for new in news if new not in function.text and new not in [other for _, other in pairs]]
        if fresh and not (old.startswith("__") and old.endswith("__")):
            pairs.append((old, fresh[0]))
    return pairs


def _local_edit(text: str, head: int, random: np.random.Generator) -> str:
    """Change one place of the body: a number, an operator, or a line lost. A line is never doubled: that would teach
    loops."""
    lines = text.splitlines(keepends=True)
    at = int(random.integers(head, len(lines)))
    line = lines[at]
    kind = int(random.integers(3))
    if kind == 0 and (numbers := list(_NUMBER.finditer(line))):
        found = numbers[int(random.integers(len(numbers)))]
        lines[at] = line[:found.start()] + str(int(random.integers(100))) + line[found.end():]
    elif kind == 1 and (known := [old for old in _OPERATORS if old in line]):
        old = known[int(random.integers(len(known)))]
        lines[at] = line.replace(old, _OPERATORS[old], 1)
    elif len(lines) > head + 2:
        del lines[at]
    return "".join(lines)


def copy_of(function: Function, pool: list[str], random: np.random.Generator) -> str:
    """The function's text with 0 to `MOST_EDITS` edits: names changed everywhere, or single places of its body."""
    edits = int(random.integers(MOST_EDITS + 1))
    names = int(random.integers(edits + 1))
    text = function.text
    for old, new in renamings(function, names, pool, random):
        text = rename(text, old, new)
    for _ in range(edits - names):
        text = _local_edit(text, function.head, random)
    return text


def joined(first: str, second: str) -> str:
    """Two functions as they stand in a file: a blank line between methods, two between functions."""
    return ("\n" if first.startswith((" ", "\t")) else "\n\n").join((first, second))
