"""Search: of the first mappings that fit, the one whose passes take the fewest cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Graph, Linear, Network
from gemmule.compiler.mapping import exhaustive
from gemmule.compiler.mapping.mapper import Assignment, Mapper
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.passes.notes import Notes, Tried
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.cost import cost
from gemmule.config import Config

__all__ = ["DecoderSpace", "best_choice", "compile_best", "default_effort"]

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
    branches = options.get("branches", 0)
    most = branches or min(graph.whole_positions, context or graph.positions)
    every = _turns(choices(graph, config, rows=rows, batch=batch, context=most, tokens=tokens,
                           pool=options.get("pool", 0), fused=options.get("fused", True),
                           standard=options.get("standard", False), pages=options.get("pages"),
                           values=options.get("values", 0), packed=options.get("packed"), branches=branches > 0))

    def make(choice: Choice) -> ModelProgram:
        return compile_network(network, config, among=[choice], checked=False,
                               **{**shared, "general": branches > 0 and bool(options.get("general"))})

    return compile_network(network, config, among=best_choice(every, make, cost, effort, notes), notes=notes, **shared)


def best_choice(every: Sequence[Choice], make: Callable[[Choice], ModelProgram], cost_of: Callable[[ModelProgram], int],
                effort: int, notes: Notes | None = None) -> list[Choice] | None:
    """The mapping of the cheapest program of up to ``effort`` choices that fit, as the only choice; None: none does.

    ``make``: an unchecked program of a choice.
    """
    costs = _DecoderCost(make, cost_of)
    found = Mapper(DecoderSpace(tuple(every)), costs).find(exhaustive.search, effort)
    for trial in found.trials if found and notes else ():
        if trial.cycles is not None and notes:
            taken = costs.taken[trial.point]
            notes.tried.append(Tried(taken.mappings[0], taken.apart, f"{trial.cycles:,} cycles", trial.cycles))
    return [costs.taken[found.best]] if found else None


@dataclass(frozen=True)
class DecoderSpace:
    """Choices of a decoder's mapping as they stand, by preference: one axis."""

    choices: tuple[Choice, ...]

    @property
    def axes(self) -> dict[str, tuple[int, ...]]:
        return {"choice": tuple(range(len(self.choices)))}

    def point(self, choice: Assignment) -> Choice | None:
        return self.choices[int(choice["choice"])]

    near = point

    def points(self) -> Iterator[Choice]:
        yield from self.choices

    def first(self) -> None:
        """The first point may not fit."""

    def bound(self, point: Choice) -> int:
        """Nothing is known before a choice is lowered: the order of preference stands."""
        return 0


@dataclass
class _DecoderCost:
    """Cycles of the first mapping of a choice that fits; a program that another choice gave already does not count."""

    make: Callable[[Choice], ModelProgram]
    cost_of: Callable[[ModelProgram], int]
    taken: dict[Choice, Choice] = field(default_factory=dict)
    """Of each choice the mapping that fits, alone."""
    images: set[bytes] = field(default_factory=set)

    def __call__(self, choice: Choice) -> int:
        program = self.make(choice)
        if program.image in self.images:
            raise CompileError("the mapping gives the program of another one")
        self.images.add(program.image)
        self.taken[choice] = program.choice
        return self.cost_of(program)


def _turns(every: list[Choice]) -> tuple[Choice, ...]:
    """Banks by class and shared in turn."""
    half = len(every) // 2
    return tuple(choice for pair in zip(every[:half], every[half:], strict=True) for choice in pair)
