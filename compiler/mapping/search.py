"""Search: of the first mappings that fit, the one whose passes take the fewest cycles."""

from __future__ import annotations

from typing import Any

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Linear, Network
from gemmule.compiler.mapping.cost import cost
from gemmule.compiler.model_program import ModelProgram
from gemmule.compiler.notes import Notes, Tried
from gemmule.compiler.passes.map import Choice, choices
from gemmule.config import Config

__all__ = ["compile_best", "default_effort"]

QUICK = 1 << 24
"""Multiply-accumulates a token up to which a compilation takes a second or so."""


def default_effort(graph: Graph) -> int:
    """Mappings to try where a program is compiled once and run often: a few where that takes seconds, else one."""
    macs = sum(node.depth * node.columns for node in graph.nodes if isinstance(node, Linear))
    return 4 if macs <= QUICK else 1


def compile_best(network: Network, config: Config, *, effort: int, rows: int, batch: int = 1,
                 context: int | None = None, tokens: bool = False, notes: Notes | None = None,
                 **options: Any) -> ModelProgram:
    """:func:`gemmule.compiler.compile.compile_network` with the best of up to ``effort`` mappings; 1: the first.

    Every choice gives the same answers. ``notes`` get what was tried, with its cycles.

    Raises:
        CompileError: as of that.
    """
    shared: dict[str, Any] = {"rows": rows, "batch": batch, "context": context, "tokens": tokens, **options}
    if effort < 1:
        raise CompileError(f"effort must be at least 1 mapping, not {effort}: use 1 for the first that fits")
    if effort == 1:
        return compile_network(network, config, notes=notes, **shared)
    graph = network.graph
    most = min(graph.whole_positions, context or graph.positions)
    every = choices(graph, config, rows=rows, batch=batch, context=most, tokens=tokens, pool=options.get("pool", 0))
    best: Choice | None = None
    fewest, seen = 0, set[bytes]()
    for choice in _turns(every):
        if len(seen) == effort:
            break
        tried = Notes()
        try:
            program = compile_network(network, config, among=[choice], checked=False, notes=tried,
                                      **{**shared, "general": False})
        except CompileError:
            continue
        if program.image in seen or tried.mapping is None:
            continue
        seen.add(program.image)
        cycles = cost(program)
        if notes:
            notes.tried.append(Tried(tried.mapping, choice.apart, f"{cycles:,} cycles"))
        if best is None or cycles < fewest:
            best, fewest = Choice((tried.mapping,), choice.apart), cycles
    return compile_network(network, config, among=[best] if best else None, notes=notes, **shared)


def _turns(every: list[Choice]) -> list[Choice]:
    """Banks by class and shared in turn."""
    half = len(every) // 2
    return [choice for pair in zip(every[:half], every[half:], strict=True) for choice in pair]
