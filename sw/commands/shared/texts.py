"""Texts that a command is given: a prompt, or a file with one or several."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gemmule.sw.errors import InputError
from gemmule.sw.limits import PROMPT_BYTES, PROMPTS_BYTES

__all__ = ["PROMPT", "QUESTION", "read_parts", "read_prompt", "read_text"]

PROMPT = '''def read_lines(path):
    """Return the lines of a file."""
    with open(path) as file:
'''
QUESTION = "Why is the sky blue?"
BETWEEN = re.compile(r"(?:\A|(?<=\n)|\r?\n)---(?:\r?\n|\Z)")
"""A line that is ``---``, the first and last of a file too, with the line end before it; lines end in LF or CRLF."""


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
    """The texts of a file, ``-`` the standard input, between lines that are ``---``, those without a word left out.

    Of all commands that read several texts.

    Raises:
        InputError: there is none, or as of :func:`read_prompt`.
    """
    words = read_text(file, f"{option} {file}", PROMPTS_BYTES)
    found = [text for text in BETWEEN.split(words) if text.strip()]
    if not found:
        raise InputError(f"{option} {file} must hold at least one text between lines that are '---', not none")
    return found


def read_text(file: Path, source: str, most: int = PROMPT_BYTES) -> str:
    """The text of a file, ``-`` the standard input, of at most so many bytes; ``source`` names it in messages.

    Raises:
        InputError: as of :func:`read_prompt`.
    """
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(most + 1)
        words = data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{source} must name a file that can be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        if len(data) <= most:
            raise InputError(f"{source} must be UTF-8 text, not with byte {data[error.start]:#04x} at {error.start}: "
                             "convert it") from None
    if len(data) > most:
        raise InputError(f"{source} must hold at most {most} bytes, not more: shorten it")
    if not words:
        raise InputError(f"{source} must hold at least one character, not none; give some text")
    return words
