"""From a quantised network to the programs for one device: a pass, and what stands beside it in the same DRAM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from gemmule.compiler.errors import CheckError, CompileError
from gemmule.compiler.features import check_features
from gemmule.compiler.ir import Borrowed, Linear, Network, Pages
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.head.lent import LENT, Lender, Lent
from gemmule.compiler.passes.entry import Entry
from gemmule.compiler.passes.fit import run_fitting
from gemmule.compiler.passes.map import Choice, DecoderMapping
from gemmule.compiler.passes.notes import Notes
from gemmule.compiler.passes.pipeline import run
from gemmule.compiler.programs.chosen.pages_program import PagesProgram
from gemmule.compiler.programs.commit import CommitEntry
from gemmule.compiler.programs.general import GeneralEntry
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.linker import Linker
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.moves import CopyEntry, GatherEntry, Moves
from gemmule.compiler.programs.pass_entry import PassEntry
from gemmule.compiler.programs.texts.branches_program import BranchesProgram
from gemmule.compiler.programs.texts.listed import ListedProgram
from gemmule.config import Config

__all__ = ["compile_network"]

E = TypeVar("E", bound=Entry[Any])


def compile_network(network: Network, config: Config, *, rows: int, batch: int = 1, context: int | None = None,
                    tokens: bool = False, general: bool = False, base_address: int = 0,
                    pool: int = 0, fused: bool = True, standard: bool = False, pages: Pages | None = None,
                    values: int = 0, packed: Packing | None = None,
                    among: Sequence[Choice] | None = None, checked: bool = True,
                    notes: Notes | None = None, lend: int = 0, own: int = 0, borrow: Lender | None = None,
                    branches: int = 0) -> ModelProgram:
    """Compile a quantised decoder for passes of up to ``rows`` new rows, with the cached ones up to ``context``.

    ``batch``: sequences of a pass, each with so many rows and a cache of its own. ``general``: beside it the
    program that takes hidden rows, runs some of the layers and gives other answers. A network with a window is
    compiled for contexts up to the window. ``pool``: rows of a cache in which a list names each position's (pages),
    instead of one for each position in order. Not ``fused``: every operator's result goes to DRAM and comes back.
    ``standard``: so do attention's scores and probabilities. ``pages``: rows attend to pages of the cache that they
    choose. ``values``: least 8-bit probability for which a cached value is loaded, by list; 0: all values are.
    ``packed``: the cache may begin with rows of 4 bits, which of their numbers those are, and where lower halves of
    keys stand behind the upper ones, from which largest probability on a row needs none.
    ``among``: mappings, of which the first that fits is taken; by default all. Without ``checked`` the program is only
    good for timing. ``notes`` get what each pass made. ``lend``: each pass leaves the residual stream behind every so
    many layers in DRAM, for a network that reads it, with ``own`` slots for rows that this one leaves for itself.
    ``borrow``: where a network finds those rows. ``branches``: rows of a cache of which each new row sees some of its
    own, for texts that begin alike
    (:mod:`gemmule.compiler.kernels.attention.texts.branches`); it may have more rows than a text has positions.

    Raises:
        CompileError: it does not fit the configuration; the message says what to change.
    """
    if pool and general:
        raise CompileError("cache rows by list (pool) are for the plain program: compile without general=True")
    if pages and (batch > 1 or general or pool or standard or not fused):
        raise CompileError("rows that choose pages are for a sequence alone, the plain program and fused operators: "
                           "compile with batch=1 and without general=True, pool or standard")
    borrows = any(isinstance(node, Borrowed) for node in network.graph.nodes)
    if (lend or borrows) and (batch > 1 or pool or pages or not fused or network.alike):
        raise CompileError("rows that one network leaves for another are those of a sequence alone whose cache stands "
                           "in order, of fused operators and a network with numbers: compile with batch=1 and without "
                           "pool, pages or fused=False")
    if borrows != (borrow is not None):
        raise CompileError("a network that reads rows of another one needs borrow=, which no other takes: give where "
                           "they stand")
    if values and (batch > 1 or pool or pages or standard or not fused):
        raise CompileError("values by list are for a sequence alone, a cache in order and fused operators: compile "
                           "with batch=1 and without pool, pages or standard")
    if packed and (batch > 1 or general or pool or pages or values or standard or not fused):
        raise CompileError("rows of 4 bits are for a sequence alone, the plain program, a cache in order and fused "
                           "operators: compile with batch=1 and without general=True, pool, pages, values or standard")
    if branches and (batch > 1 or pool or pages or values or packed or standard or lend or borrows or not fused):
        raise CompileError("rows that see some of the cached ones are those of a single cache, without lists of other "
                           "kinds: compile with batch=1 and without pool, pages, values, packed, standard, lend or "
                           "fused=False")
    if branches and any(isinstance(node, Linear) and node.listed for node in network.graph.nodes):
        raise CompileError("rows that see some of the cached ones have a list of places, which takes that of weights "
                           "that meet zeros: use the network without skipping zeros")
    if network.graph.encoder:
        raise CompileError("an encoder takes whole sequences and has no cache: compile it with `gemmule run model`")
    check_features(network.graph, config, packed=bool(packed))
    context = min(network.graph.whole_positions, context or network.graph.positions)
    context = branches or context
    kind = (PagesProgram if pages else PackedProgram if packed else BranchesProgram if branches
            else ListedProgram if pool and batch > 1 else ModelProgram)
    lends = Lent.of(network.graph, config.dim, lend, context, own) if lend else None
    if borrow:
        borrow.lent.check(network.graph, config.dim)
    plain = PassEntry(kind, network, config, rows=rows, batch=batch, context=context, tokens=tokens, pool=pool,
                      fused=fused, standard=standard, among=among, pages=pages, values=values, lends=lends,
                      packed=packed, borrows=borrow.lent if borrow else None, branches=branches > 0)
    if branches and general:
        _fit_both(plain, notes)
    else:
        run_fitting(plain, notes)
    layout = plain.layout

    linker = Linker(config, {LENT: borrow.region} if borrow else None)

    def added(entry: E) -> E:
        run(entry, "lower", "waits")
        linker.add(entry)
        return entry

    linker.add(plain)
    commit = None if pool or branches else added(CommitEntry(config, layout, rows, context))  # else the list is edited
    linker.share(plain.lowered)
    linker.reserve(CACHE, (1 if pool else batch) * layout.size)
    wide, moves = added(GeneralEntry(plain)) if general else None, None
    if wide:
        linker.share(wide.lowered)
    if wide and not branches:
        moves = (added(CopyEntry(config, layout, batch, context)), added(GatherEntry(config, layout, batch, context)))

    table, last = linker.table(base_address), "verify" if checked else "link"
    plain.constants = linker.constants
    plain.commit = linker.link(commit, table, last=last) if commit else None
    plain.general = linker.link(wide, table, last=last) if wide else None
    if moves:
        copy, gather = moves
        plain.moves = Moves(linker.link(copy, table, last=last), linker.link(gather, table, last=last))
    program = linker.link(plain, table, last=last)
    if notes and checked:
        notes.emitted("emit", plain.emitted)
        notes.emitted("waits", program.commands)
    return program


def _fit_both(plain: PassEntry[Any], notes: Notes | None) -> None:
    """The passes up to waits with the first mapping whose general program fits too.

    Raises:
        CompileError: none does.
    """
    while True:
        run_fitting(plain, notes)
        try:
            run(GeneralEntry(plain), "lower", "waits")
            return
        except CheckError:
            raise
        except CompileError:
            plain.among = _behind(plain.candidates, plain.mapping, apart=plain.apart)
            if not plain.among:
                raise


def _behind(every: Sequence[Choice], mapping: DecoderMapping, *, apart: bool) -> list[Choice]:
    """The mappings that come after one."""
    at = next(i for i, choice in enumerate(every) if choice.apart is apart and mapping in choice.mappings)
    rest = every[at].mappings[every[at].mappings.index(mapping) + 1:]
    return [*([Choice(rest, apart)] if rest else []), *every[at + 1:]]
