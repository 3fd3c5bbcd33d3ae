"""Texts that a command is given: a prompt, or a file with one or several."""

from __future__ import annotations

import sys
from pathlib import Path

from gemmule.sw.errors import InputError
from gemmule.sw.limits import PROMPT_BYTES

__all__ = ["PROMPT", "read_parts", "read_prompt", "read_text"]

PROMPT = '''def read_lines(path):
    """Return the lines of a file."""
    with open(path) as file:
'''
BETWEEN = "\n---\n"
"""Texts of a file."""


def read_prompt(prompt: str | None, file: Path | None) -> tuple[str, str]:
    """The prompt and what it came from.

    Raises:
        InputError: both are given, or the file cannot be read, is empty, too large or not UTF-8.
    """
    if file is None:
        return PROMPT if prompt is None else prompt, "--prompt"
    if prompt is not None:
        raise InputError("--prompt and --prompt-file exclude each other: drop one of the two")
    source = f"--prompt-file {file}"
    return read_text(file, source), source


def read_parts(file: Path, option: str) -> list[str]:
    """The texts of a file between lines that are ``---``, those without a word left out.

    Raises:
        InputError: there is none, or as of :func:`read_prompt`.
    """
    found = [text for text in read_text(file, f"{option} {file}").split(BETWEEN) if text.strip()]
    if not found:
        raise InputError(f"{option} {file} must hold at least one text between lines that are '---', not none")
    return found


def read_text(file: Path, source: str) -> str:
    """The text of a file, ``-`` the standard input; ``source`` names it in messages.

    Raises:
        InputError: as of :func:`read_prompt`.
    """
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(PROMPT_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(PROMPT_BYTES + 1)
        words = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{source} must name a file that can be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        if len(data) <= PROMPT_BYTES:
            raise InputError(f"{source} must be UTF-8 text, not with byte {data[error.start]:#04x} at {error.start}: "
                             "convert it") from None
    if len(data) > PROMPT_BYTES:
        raise InputError(f"{source} must hold at most {PROMPT_BYTES} bytes, not more: shorten it")
    if not words:
        raise InputError(f"{source} must hold at least one character, not none; give some text")
    return words
