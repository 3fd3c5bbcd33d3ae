"""What compiles a model for a device and places it in the device's DRAM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import ModelFile
from gemmule.compiler.ir import Pages
from gemmule.compiler.kept import compile_kept, loop_kept, narrow_kept, prefill_kept, sampled_kept, selection_kept
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.head.lent import Lender
from gemmule.compiler.passes.map import choices, default_rows, most_rows
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.selecting import selecting_rows
from gemmule.compiler.search.decoder import default_effort
from gemmule.compiler.search.pages import longest_pages
from gemmule.config import Config
from gemmule.io.progress import working
from gemmule.io.reading import named
from gemmule.sw.errors import InputError
from gemmule.sw.kv.pruning import Pruning
from gemmule.sw.models.branching import Branching
from gemmule.sw.models.drafting.draft_vocabulary import choosing
from gemmule.sw.models.placed import Placed

__all__ = ["FilePlace", "Place"]


class Place(Protocol):
    """Compiles a model for a device, from an address of its DRAM on.

    ``general``: with the general program; ``looped``: with the program of several greedy steps. Not both. ``batch``:
    sequences of a pass, with ``rows`` rows each; by default one, and as many as go well. ``prefill``: rows of the
    program for prompts; 0: without one; None: as many as pay. ``pruning``: with the programs that choose rows.
    ``lend``, ``own``, ``borrow``: as of :func:`gemmule.compiler.compile.compile_network`, of one sequence. ``context``:
    positions of a text, by default the network's; ``pool``: rows of a cache that the texts of a batch share in pages.
    ``narrow``: with the programs for fewer rows or positions, where they pay. ``branches``: a cache for several texts
    that begin alike. ``wide``: as many rows as a pass can take, where ``rows`` says nothing.
    """

    def __call__(self, config: Config, base: int, general: bool = False, looped: bool = False, batch: int = 1,
                 rows: int | None = None, prefill: int | None = 0, pruning: Pruning | None = None, lend: int = 0,
                 own: int = 0, borrow: Lender | None = None, context: int | None = None, pool: int = 0,
                 narrow: bool = True, branches: Branching | None = None, wide: bool = False) -> Placed: ...


class FilePlace:
    """Compiles a file's network, once for each device and address."""

    def __init__(self, path: Path, file: ModelFile, *, shown: str, bundled: bool = False) -> None:
        self.path, self.file, self.shown, self.bundled = path, file, shown, bundled
        self.kept: dict[tuple[Any, ...], Placed] = {}
        self.others: dict[bytes, FilePlace] = {}
        """By the tokens that they choose among."""

    def choosing(self, tokens: np.ndarray) -> FilePlace:
        """The model whose logits are those of some tokens."""
        key = tokens.tobytes()
        if key not in self.others:
            self.others[key] = FilePlace(self.path, choosing(self.file, tokens), shown=self.shown, bundled=self.bundled)
        return self.others[key]

    def __call__(self, config: Config, base: int, general: bool = False, looped: bool = False, batch: int = 1,
                 rows: int | None = None, prefill: int | None = 0, pruning: Pruning | None = None, lend: int = 0,
                 own: int = 0, borrow: Lender | None = None, context: int | None = None, pool: int = 0,
                 narrow: bool = True, branches: Branching | None = None, wide: bool = False) -> Placed:
        graph = self.file.network.graph
        rows = rows or (branches.rows(graph, config, self.shown) if branches else  # trees of drafters are large
                        (most_rows if lend or borrow or wide else default_rows)(graph, config))
        pages = pruning.pages if pruning else None
        always = pruning.always if pruning and pruning.selects else None
        values = (pruning.values if pruning else None) or 0
        packed = pruning.packing if pruning else None
        if pages and prefill:
            raise InputError(f"--prefill-rows {prefill} does not go with rows that choose pages (score: pages), which "
                             "pass prompts as all rows: use --prefill-rows 0")
        key = (config, base, general, looped, batch, rows, prefill, always, pages, values, packed, lend, own,
               borrow, context, pool, narrow, branches)
        if key not in self.kept:
            try:
                if not choices(graph, config, rows=rows, batch=batch, context=context or graph.whole_positions,
                               tokens=True, pool=pool):
                    raise CompileError(f"no mapping of {batch * rows} rows a launch fits")  # before it is announced
            except CompileError as error:
                raise self._refused(config, error) from None
            with working(f"compiling {self.shown} for {config.name}", least=1.0):
                try:
                    placed = self._with_pages(config, base, rows, pages) if pages else self._place(
                        config, base, rows, general, looped, batch, values, packed, lend, own, borrow,
                        context, pool, branches)
                except CompileError as error:
                    raise (InputError(f"--prune: {error}") if pages or values or packed else
                           self._refused(config, error)) from None
                if not pages:
                    placed = self._with_prefill(placed, prefill)
                    placed = self._with_narrow(placed) if narrow and not branches else placed
                if general and lend:
                    placed = self._with_sampled(placed)
                self.kept[key] = self._with_selection(placed, *always) if always else placed
        return self.kept[key]

    def _with_pages(self, config: Config, base: int, rows: int, pages: Pages) -> Placed:
        """A program whose rows choose pages, for the longest context that fits."""
        network = self.file.network

        def made(context: int) -> ModelProgram:
            return compile_kept(network, self.file.sha256, config, rows=rows, context=context, tokens=True,
                                base_address=base, pages=pages)

        program = longest_pages(network.graph, config, rows, pages, made)
        return Placed(network, program, program.fill(network))

    def _place(self, config: Config, base: int, rows: int, general: bool, looped: bool, batch: int, values: int,
               packed: Packing | None, lend: int, own: int, borrow: Lender | None, context: int | None, pool: int,
               branches: Branching | None) -> Placed:
        network, effort = self.file.network, default_effort(self.file.network.graph)
        beside: dict[str, Any] = {name: value for name, value in (
            ("lend", lend), ("own", own), ("borrow", borrow), ("packed", packed), ("context", context), ("pool", pool))
            if value}
        if branches:
            beside["branches"] = branches.cache_rows(network.graph)
        if looped:
            loop = loop_kept(network, self.file.sha256, config, effort=effort, rows=rows, base_address=base)
            return Placed(network, loop.single, loop.fill(network), loop)
        program = compile_kept(network, self.file.sha256, config, rows=rows, effort=effort, tokens=True,
                               base_address=base, general=general, batch=batch, values=values, **beside)
        return Placed(network, program, program.fill(network), values=values)

    def _with_prefill(self, placed: Placed, rows: int | None) -> Placed:
        """With the program for prompts behind all else. Its rows meet the same values; that zeros meet none, changes
        nothing there.

        Raises:
            InputError: rows are given, and do not fit.
        """
        program, effort = placed.program, default_effort(placed.program.graph)
        if rows == 0:
            return placed
        if rows is not None and rows <= program.max_rows:
            raise InputError(f"--prefill-rows must be 0, or more than the {program.max_rows} rows of a pass that "
                             f"decodes, not {rows}")
        try:
            prefill = prefill_kept(placed.network, self.file.sha256, program, effort=effort, rows=rows,
                                   base_address=program.base_address + _behind_all(placed),
                                   values=placed.values if placed.values > 1 else 0)
        except CompileError as error:
            raise InputError(f"--prefill-rows {rows}: {error}" if rows else f"a program for prompts: {error}: use "
                             "--prefill-rows 0") from None
        return replace(placed, dram=_with(placed, prefill), prefill=prefill) if prefill else placed

    def _with_narrow(self, placed: Placed) -> Placed:
        """With the programs for fewer rows or positions behind all else."""
        program = placed.program
        for made in narrow_kept(placed.network, self.file.sha256, program, values=placed.values,
                                base_address=program.base_address + _behind_all(placed)):
            placed = replace(placed, dram=_with(placed, made), narrow=(*placed.narrow, made))
        return placed

    def _with_sampled(self, placed: Placed) -> Placed:
        """With the program whose passes leave rows for another network and give back logits, behind all else."""
        program = placed.program
        try:
            made = sampled_kept(placed.network, self.file.sha256, program,
                                base_address=program.base_address + _behind_all(placed))
        except CompileError as error:
            raise self._refused(program.config, error) from None
        return replace(placed, dram=_with(placed, made), sampled=made)

    def _with_selection(self, placed: Placed, first: int, last: int, page: int, counts: int) -> Placed:
        """With what chooses rows of the cache, and the cache of those rows, behind all else. ``counts``: so many rows
        are counted together, by as many at once as fit.

        Raises:
            InputError: the network or the device takes none.
        """
        program, behind = placed.program, _behind_all(placed)
        rows = selecting_rows(program.graph, program.config, counts) if counts else program.max_rows
        while True:
            try:
                selection = selection_kept(placed.network, self.file.sha256, program, first=first, last=last, rows=rows,
                                           heavy=counts > 0, page=page, base_address=program.base_address + behind)
                break
            except CompileError as error:
                if rows == 1 or not counts:
                    raise InputError(f"--prune: {error}") from None
                rows //= 2
        dram = np.zeros(behind + selection.select.size, dtype=np.uint8)
        dram[:len(placed.dram)] = placed.dram
        selection.fill(dram[behind:], placed.network)
        return replace(placed, dram=dram, selection=selection)

    def _refused(self, config: Config, why: object) -> InputError:
        what = f"the bundled model {self.shown}" if self.bundled else named(self.path)
        mend = ": use --config base or edge" if self.bundled else ""
        return InputError(f"{what} does not run on config {config.name!r}{mend} ({why})")


def _behind_all(placed: Placed) -> int:
    """Bytes from the program's address to where another one may stand."""
    dram = placed.program.config.dram
    return round_up(len(placed.dram), dram.banks * dram.row_bytes)


def _with(placed: Placed, program: ModelProgram) -> np.ndarray:
    """The DRAM with a program more behind."""
    behind = _behind_all(placed)
    dram = np.zeros(behind + program.size, dtype=np.uint8)
    dram[:len(placed.dram)] = placed.dram
    program.put(dram[behind:], "program", np.frombuffer(program.image, dtype=np.uint8))
    return dram
