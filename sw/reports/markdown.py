"""Markdown that is readable in an editor: paragraphs and list items wrapped at 100 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gemmule.io.files import write_atomically

__all__ = ["COLUMNS", "fill", "fill_page", "table", "too_long", "wrapped"]

COLUMNS = 100
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
_FIXED = ("|", "#", "<!--", "!", "```")
"""Beginnings of lines that are not wrapped: tables, headings, comments, pictures, fences."""


def _fixed(line: str) -> bool:
    return not line.strip() or line.startswith(_FIXED)


def _wrap(lines: list[str]) -> list[str]:
    """One paragraph or list item, wrapped again."""
    text = " ".join(line.strip() for line in lines)
    found = _ITEM.match(lines[0])
    first = rest = lines[0][:len(lines[0]) - len(lines[0].lstrip())]
    if found:
        text = text[len(found[2]):].lstrip()
        first, rest = found[0], " " * len(found[0])
    text = re.sub(r" (?=([-+*#>=|]|\d+[.)]) )", "\0", text)  # else a line could begin like a list item or a heading
    filled = textwrap.wrap(text, COLUMNS, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                           break_on_hyphens=False)
    return [line.replace("\0", " ") for line in filled]


def wrapped(page: str) -> str:
    """The page with every paragraph and list item that is too wide wrapped again; code and tables are unchanged."""
    out: list[str] = []
    block: list[str] = []
    fence = False

    def flush() -> None:
        out.extend(_wrap(block) if any(len(line) > COLUMNS for line in block) else block)
        block.clear()

    for line in page.split("\n"):
        if line.startswith("```"):
            flush()
            fence = not fence
            out.append(line)
        elif fence or _fixed(line) or (line.startswith("    ") and not block):
            flush()
            out.append(line)
        else:
            if _ITEM.match(line):
                flush()
            block.append(line)
    flush()
    return "\n".join(out)


def too_long(page: str) -> list[int]:
    """Numbers of the lines over 100 columns, tables excepted."""
    return [i for i, line in enumerate(page.split("\n"), 1) if len(line) > COLUMNS and not line.startswith("|")]


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in [head, ("---",) * len(head), *rows]]
    return "\n".join(lines).replace("| --- ", "|---").replace("--- |", "---|")


def fill(text: str, marker: str, content: str) -> str:
    """A page with ``content`` between ``<!-- marker -->`` and ``<!-- end -->``.

    Raises:
        ValueError: the page has no such marker.
    """
    text, count = re.subn(rf"(<!-- {marker} -->\n).*?(<!-- end -->)", lambda m: m[1] + content + "\n" + m[2], text,
                          count=1, flags=re.DOTALL)
    if not count:
        raise ValueError(f"the page must have <!-- {marker} --> .. <!-- end -->, and has none")
    return text


def fill_page(page: Path, parts: Mapping[str, Callable[[], str]]) -> None:
    """Write a page with what ``parts`` make between their markers.

    Raises:
        ValueError: as of :func:`fill`.
    """
    text = page.read_text(encoding="utf-8")
    for marker, made in parts.items():
        text = fill(text, marker, made())
    write_atomically(page, text)
