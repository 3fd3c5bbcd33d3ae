"""HTML pages, each a single file made from a template in ``templates``, which escapes every value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["Bar", "Table", "environment", "page"]

Bar = tuple[str, Sequence[float], str]
"""One row of bars: label, lengths of its parts, text after the bar."""


class Table(NamedTuple):
    """A table; the first column holds words, the others numbers."""

    heads: Sequence[str]
    rows: Iterable[Sequence[str]]


@cache
def environment() -> Environment:
    """The templates of this folder."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(loader=PackageLoader("gemmule.sw.reports"), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)


def page(template: str, values: Mapping[str, Any]) -> str:
    """The page that a template makes from ``values``."""
    return environment().get_template(template).render(values)
