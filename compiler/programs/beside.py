"""A second program that shares another one's weights, parameters and cache, for passes that it suits better.

It stands anywhere in the same DRAM and has what both need at the other program's places; its own are commands, tokens,
positions, bitmaps and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.halves.packing import Halves
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.kernels.head.lent import LENT
from gemmule.compiler.passes.fit import run_fitting
from gemmule.compiler.passes.map import Choice
from gemmule.compiler.passes.pipeline import finish
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.pass_entry import PassEntry

__all__ = ["compile_beside", "with_turns"]

Kind = TypeVar("Kind", bound=ModelProgram)


def compile_beside(kind: type[Kind], network: Network, program: ModelProgram, *, rows: int, context: int,
                   answered: bool, base_address: int, among: Sequence[Choice] | None = None,
                   checked: bool = True, values: int = 0, packed: Halves | float | None = None) -> Kind:
    """Compile a pass of up to ``rows`` new rows, with the cached ones up to ``context``, beside ``program``.

    ``answered``: with the head, which runs where answers are wanted. ``among``, ``checked``, ``values``, ``packed``: as
    of :func:`gemmule.compiler.compile.compile_network`.

    Raises:
        CompileError: it does not fit, or cannot share weights and cache; the message says what to change.
    """
    config = program.config
    if network.alike or program.batch > 1 or program.pool:
        raise CompileError("a second program goes beside one of one sequence, whose cache stands in order, of a "
                           "network with numbers: compile without it")
    entry = PassEntry(kind, network, config, rows=rows, batch=1, context=context, tokens=True, among=among,
                      answered=answered, cache=program.layout, contents=Contents(program.constants, config.dim),
                      values=values, lends=program.lends, borrows=program.borrows, packed=packed)
    run_fitting(entry)
    shared = (*program.constants, CACHE, *([LENT] if program.lends or program.borrows else []))
    linker = Linker(config, {name: program.symbols[name] for name in shared})
    linker.add(entry)
    linker.share(entry.lowered)
    return linker.link(entry, linker.table(base_address), last="verify" if checked else "link")


def with_turns(program: Kind) -> Kind:
    """A program that was made without ``checked``, with waits between turns of its loops, and verified.

    Raises:
        CompileError: the verifier refuses it.
    """
    return finish(program, PassEntry.turns)
