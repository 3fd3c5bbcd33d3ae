"""The longest context for which rows that choose pages fit a device: a row's pages are in the scratchpad at once."""

from __future__ import annotations

from collections.abc import Callable

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Pages
from gemmule.compiler.passes.map import choices
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.config import Config

__all__ = ["longest_pages"]

LEAST = 256
"""Positions below which no context is tried."""


def longest_pages(graph: Graph, config: Config, rows: int, pages: Pages,
                  make: Callable[[int], ModelProgram]) -> ModelProgram:
    """What ``make`` makes of the network's positions, or of a half, a quarter ... of them.

    Raises:
        CompileError: no context fits; the message is that of the shortest one.
    """
    context = graph.whole_positions
    while True:
        try:
            choices(graph, config, rows=rows, batch=1, context=context, tokens=True, pages=pages)
            return make(context)
        except CompileError:
            if context // 2 < LEAST:
                raise
        context //= 2
