"""Files from strangers: read within a limit, strict JSON, values short enough for a message."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["ReadError", "brief", "named", "parse_json", "read_json", "read_regular", "shown"]

CHUNK = 1 << 20
MOST_SHOWN = 60
"""Characters of a value in a message."""
MOST_NAMED = 120
"""Characters of a path in a message."""


class ReadError(ValueError):
    """A file that cannot be read as what it should be; the message says why, without file and line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def brief(text: str, most: int = MOST_SHOWN) -> str:
    """``text`` on one line without control characters, its middle left out beyond ``most`` characters."""
    if len(text) > most:
        text = f"{text[:most // 2]}..{text[-most // 4:]}"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def shown(value: object) -> str:
    """A value as a message names it: its Python form, abbreviated; ``true`` and ``false`` as files have them."""
    if isinstance(value, int) and abs(value) >= 10**30:  # Python refuses to print thousands of digits
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return brief(repr(value if len(value) <= 4 * MOST_SHOWN else f"{value[:MOST_SHOWN]}..{value[-MOST_SHOWN:]}"))
    if isinstance(value, list | tuple | dict | set) and len(value) > 8:
        return f"a {type(value).__name__} of {len(value)}"
    try:
        return brief(repr(value))
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"


def named(path: str | Path, line: int | None = None) -> str:
    """A path as a message names it, ``path`` or ``path:line``: the end of a long one, control characters escaped."""
    text = str(path)
    text = brief(text if len(text) <= MOST_NAMED else f"..{text[2 - MOST_NAMED:]}", 4 * MOST_NAMED)
    return text if line is None else f"{text}:{line}"


def read_regular(path: str | Path, most: int, *, whole: bool = True) -> bytes:
    """All bytes of a regular file of at most ``most``; never waits for a pipe, never reads a device.

    Not ``whole``: its first ``most`` bytes.

    Raises:
        ReadError: it is missing, unreadable, no regular file, or larger.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
                raise ReadError(f"must be a regular file, not {kind}")
            with os.fdopen(handle, "rb", closefd=False) as file:
                # Not by its size: /proc says 0, and a file may grow. In parts: read() takes all it may need at once.
                content = bytearray()
                while len(content) <= most and (part := file.read(min(most + 1 - len(content), CHUNK))):
                    content += part
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        if isinstance(error, ReadError):
            raise
        raise ReadError(f"cannot be read: {getattr(error, 'strerror', None) or brief(str(error))}") from None
    if whole and len(content) > most:
        raise ReadError(f"must hold at most {most:,} bytes, not {max(status.st_size, len(content)):,}")
    return bytes(content[:most])


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ReadError(f"names {shown(next(key for key in keys if keys.count(key) > 1))} twice: keep one")
    return found


def _constant(text: str) -> NoReturn:
    raise ReadError(f"numbers must be finite, not {text}")


def parse_json(content: bytes | str) -> Any:
    """Strict JSON: UTF-8, no key twice, no NaN or infinity.

    Raises:
        ReadError: it is something else, or too deep.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except ReadError:
        raise
    except UnicodeDecodeError as error:
        raise ReadError(f"is not UTF-8 text at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ReadError(f"is not JSON: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError):  # an integer of thousands of digits, brackets without end
        raise ReadError("is not JSON: a number is too long or its nesting too deep") from None


def read_json(path: str | Path, most: int) -> dict[str, Any]:
    """A JSON object from a regular file of at most ``most`` bytes.

    Raises:
        ReadError: as :func:`read_regular` and :func:`parse_json`, or it is no object.
    """
    data = parse_json(read_regular(path, most))
    if not isinstance(data, dict):
        raise ReadError(f"must hold a JSON object, not {shown(data)}")
    return data
