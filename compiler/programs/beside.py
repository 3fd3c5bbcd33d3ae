"""A second program that shares another one's weights, parameters and cache, for passes that it suits better.

It stands anywhere in the same DRAM and has what both need at the other program's places; its own are commands, tokens,
positions, bitmaps and answers. :func:`compile_in_cache` shares the cache alone, for a network of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.kernels.head.lent import LENT
from gemmule.compiler.passes.fit import run_fitting
from gemmule.compiler.passes.map import Choice
from gemmule.compiler.passes.pipeline import finish, run
from gemmule.compiler.programs.general import GeneralEntry
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.pass_entry import PassEntry

__all__ = ["compile_beside", "compile_in_cache", "with_turns"]

Kind = TypeVar("Kind", bound=ModelProgram)


def compile_beside(kind: type[Kind], network: Network, program: ModelProgram, *, rows: int, context: int,
                   answered: bool, base_address: int, batch: int = 1, among: Sequence[Choice] | None = None,
                   checked: bool = True, values: int = 0, packed: Packing | None = None,
                   tokens: bool = True) -> Kind:
    """Compile a pass of up to ``rows`` new rows of each of ``batch`` sequences, with the cached ones up to ``context``,
    beside ``program``.

    ``answered``: with the head, which runs where answers are wanted: ``tokens``, or else logits. ``among``,
    ``checked``, ``values``, ``packed``: as of :func:`gemmule.compiler.compile.compile_network`.

    Raises:
        CompileError: it does not fit, or cannot share weights and cache; the message says what to change.
    """
    config = program.config
    if network.alike or (program.pool and program.batch == 1) or (answered and batch != program.batch):
        raise CompileError("a second program goes beside one of a network with numbers whose cache stands in order or "
                           "is a batch's, and one that answers takes as many sequences: compile without it")
    entry = PassEntry(kind, network, config, rows=rows, batch=batch, context=context, tokens=tokens, among=among,
                      pool=program.pool,
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


def compile_in_cache(network: Network, program: ModelProgram, *, rows: int, base_address: int,
                     general: bool = False) -> ModelProgram:
    """Compile passes of up to ``rows`` new rows of each sequence of ``program``, in its cache.

    ``general``: as of :func:`gemmule.compiler.compile.compile_network`. It moves no rows of the cache.

    Raises:
        CompileError: it does not fit, or the networks' keys and values are not alike.
    """
    config = program.config
    ours, theirs = ([(node.kv_heads, node.head_dim, node.prefix, graph.by_name[node.key].type,
                      graph.by_name[node.value].type) for node in graph.attentions]
                    for graph in (network.graph, program.graph))
    if ours != theirs or program.pool:
        raise CompileError("a cache is shared by networks with the same attentions and scales, whose rows stand in "
                           "order: give the program a cache of its own")
    plain = PassEntry(ModelProgram, network, config, rows=rows, batch=program.batch, context=program.max_positions,
                      tokens=True, cache=program.layout)
    run_fitting(plain)
    linker = Linker(config, {CACHE: program.symbols[CACHE]})
    linker.add(plain)
    linker.share(plain.lowered)
    wide = GeneralEntry(plain) if general else None
    if wide:
        run(wide, "lower", "waits")
        linker.add(wide)
        linker.share(wide.lowered)
    table = linker.table(base_address)
    plain.constants = linker.constants
    plain.general = linker.link(wide, table) if wide else None
    return linker.link(plain, table)
