"""Parameters of which ``make test`` takes a part, and ``make test-all`` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

__all__ = ["of_methods", "some", "thinned"]


def thinned(first: Iterable[Any], second: Iterable[Any]) -> list[ParameterSet]:
    """All pairs. Not long are as many that every value comes at least once, each next one with the next of the others.

    A value's name in the test's is its ``name``, if it has one; that of a tuple has those of its members.
    """
    rows, columns = list(first), list(second)

    def short(i: int, j: int) -> bool:
        return i % len(columns) == j % len(columns) if len(rows) >= len(columns) else i == j % len(rows)

    def name(value: Any) -> str:
        return "-".join(map(name, value)) if isinstance(value, tuple) else str(getattr(value, "name", value))

    return [pytest.param(a, b, id=f"{name(a)}-{name(b)}", marks=() if short(i, j) else pytest.mark.long)
            for i, a in enumerate(rows) for j, b in enumerate(columns)]


def some(values: Iterable[Any], short: int = 1) -> list[ParameterSet]:
    """The values, or tuples of several parameters, of which all but the first ``short`` are long."""
    return [pytest.param(*(value if isinstance(value, tuple) else (value,)),
                         marks=() if i < short else pytest.mark.long) for i, value in enumerate(values)]


def of_methods(names: Iterable[str],
               short: tuple[str, ...] = ("draft", "pld", "suffix", "layerskip")) -> list[ParameterSet]:
    """Names, such as those of decoding methods, of which all but ``short`` are long."""
    return [pytest.param(name, marks=() if name in short else pytest.mark.long) for name in names]
