"""What an importer of one family is: how its config is read, and how its network is put together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmule.compiler.importers.weights import Source
from gemmule.compiler.ir import Graph

__all__ = ["Blueprint", "Family", "prefix_of"]


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """A network as its config describes it: the graph and where each of its tensors comes from."""

    graph: Graph
    sources: dict[str, Source]
    copies: dict[str, str]
    """Stored tensors that may stand beside and must then equal another one: a tied head."""
    notes: tuple[str, ...]
    """What of the config is left out, a line each."""
    architecture: str | None = None
    """The class that the stored tensors are those of, where they tell: config.json must not name another one."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One importer; a file a family makes one and :mod:`gemmule.compiler.importers.load` names it."""

    model_types: tuple[str, ...]
    """``model_type`` in config.json."""
    architectures: tuple[str, ...]
    """Classes that config.json may name: the network with its head, or without."""
    describe: Callable[[str, dict[str, Any], frozenset[str]], Blueprint]
    """From model_type, the other keys and the names of the stored tensors.

    Raises CompileError, which names a key.
    """
    harmless: tuple[re.Pattern[str], ...] = ()
    """Stored tensors that may stand beside: what old versions wrote and nothing reads."""


def prefix_of(names: frozenset[str], prefix: str, some: str) -> str:
    """``prefix``, or "" where tensor ``some`` stands without it (a network saved without its head)."""
    return "" if some in names and prefix + some not in names else prefix
