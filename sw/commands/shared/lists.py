"""Options whose value is a list."""

from __future__ import annotations

from typing import Any

from gemmule.sw.errors import InputError

__all__ = ["values_of"]


def values_of(option: str, text: str, one: Any) -> list[Any]:
    """Values between commas.

    Raises:
        InputError: none, or one that is no value of the option.
    """
    found = []
    for word in text.split(","):
        try:
            found.append(one(word.strip()))
        except InputError:
            raise
        except ValueError:
            raise InputError(f"{option} must be numbers between commas, not {text!r}") from None
    return list(dict.fromkeys(found))
