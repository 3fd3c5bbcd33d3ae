"""Programs of imported models that were compiled before, from the cache folder."""

from __future__ import annotations

import gc
import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gemmule.compiler.ir import Network, TokenPruning
from gemmule.compiler.passes.encoder.map import EncoderMapping
from gemmule.compiler.program import Program
from gemmule.compiler.programs.beside import compile_beside, compile_in_cache
from gemmule.compiler.programs.chosen.chunks import compile_chunks
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.programs.encoder_program import EncoderProgram
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.compiler.programs.selecting import Selection, compile_selection
from gemmule.compiler.search.decoder import compile_best
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.compiler.search.narrow import narrow_programs
from gemmule.compiler.search.prefill import best_prefill
from gemmule.compiler.sources import sources
from gemmule.config import Config
from gemmule.io.cache import cache_root
from gemmule.io.files import write_atomically
from gemmule.io.progress import say

__all__ = ["FOLDER", "compile_encoder_kept", "compile_kept", "loop_kept", "narrow_kept", "prefill_kept", "sampled_kept",
           "selection_kept", "sharing_kept"]

Kind = TypeVar("Kind", bound=Program | Selection | tuple[ModelProgram, ...] | None)
_PREFILL: tuple[type[PrefillProgram | None], ...] = (PrefillProgram, type(None))
"""That none pays is kept too."""
FOLDER = "programs"
"""Of the cache."""


def _path(sha256: str, config: Config, options: dict[str, Any]) -> Path:
    key = repr((sha256, config.sha256, sorted(options.items()))).encode()
    return cache_root() / FOLDER / f"{config.name}-{hashlib.sha256(sources() + key).hexdigest()[:16]}.pickle"


def compile_kept(network: Network, sha256: str, config: Config, *, effort: int = 1, **options: Any) -> ModelProgram:
    """:func:`gemmule.compiler.search.decoder.compile_best`, or what it gave for the same network, device and options.

    ``sha256`` names the network: its numbers are in the program too. A damaged entry, or a folder that cannot be
    written, costs time and no more.

    Raises:
        CompileError: it does not fit the configuration.
    """
    return _kept((ModelProgram,), _path(sha256, config, {**options, "effort": effort}),
                 lambda: compile_best(network, config, effort=effort, **options))


def loop_kept(network: Network, sha256: str, config: Config, *, effort: int, rows: int,
              base_address: int) -> GreedyLoop:
    """:func:`gemmule.compiler.search.greedy.compile_greedy`, likewise.

    Raises:
        CompileError: it does not fit the configuration.
    """
    options = {"effort": effort, "rows": rows, "base_address": base_address}
    return _kept((GreedyLoop,), _path(sha256, config, {**options, "loop": True}),
                 lambda: compile_greedy(network, config, **options))


def prefill_kept(network: Network, sha256: str, program: ModelProgram, *, effort: int, rows: int | None,
                 base_address: int, values: int = 0) -> PrefillProgram | None:
    """:func:`gemmule.compiler.search.prefill.best_prefill`, likewise.

    Raises:
        CompileError: ``rows`` are given, and do not fit.
    """
    options = {"effort": effort, "rows": rows, "base_address": base_address, "beside": _digest(program),
               "values": values}
    return _kept(_PREFILL, _path(sha256, program.config, options), lambda: best_prefill(
        network, program, effort=effort, rows=rows, base_address=base_address, values=values))


def narrow_kept(network: Network, sha256: str, program: ModelProgram, *, base_address: int,
                values: int = 0) -> tuple[ModelProgram, ...]:
    """:func:`gemmule.compiler.search.narrow.narrow_programs`, likewise."""
    options = {"base_address": base_address, "beside": _digest(program), "narrow": True, "values": values}
    return _kept((tuple,), _path(sha256, program.config, options),
                 lambda: narrow_programs(network, program, base_address=base_address, values=values))


def sampled_kept(network: Network, sha256: str, program: ModelProgram, *, base_address: int) -> ModelProgram:
    """:func:`gemmule.compiler.programs.beside.compile_beside` of the same passes with logits for answers, likewise.

    Raises:
        CompileError: it does not fit, or cannot share weights and cache.
    """
    options = {"base_address": base_address, "beside": _digest(program), "tokens": False}
    return _kept((ModelProgram,), _path(sha256, program.config, options), lambda: compile_beside(
        ModelProgram, network, program, rows=program.max_rows, context=program.max_positions, answered=True,
        base_address=base_address, tokens=False))


def selection_kept(network: Network, sha256: str, program: ModelProgram, *, first: int, last: int, base_address: int,
                   rows: int | None = None, heavy: bool = False, page: int = 0) -> Selection:
    """:func:`gemmule.compiler.programs.selecting.compile_selection`, likewise; ``rows``: as many as ``program`` takes;
    ``page``: by chunks of so many rows (:func:`gemmule.compiler.programs.chosen.chunks.compile_chunks`).

    Raises:
        CompileError: it does not fit, or cannot share weights and cache.
    """
    options: dict[str, Any] = {
        "rows": rows or program.max_rows, "first": first, "last": last, "base_address": base_address}
    path = _path(sha256, program.config, {
        **options, "heavy": heavy, "page": page, "beside": _digest(program), "chooses": True})
    return _kept((Selection,), path, lambda: compile_chunks(network, program, page=page, **options) if page
                 else compile_selection(network, program, heavy=heavy, **options))


def sharing_kept(network: Network, sha256: str, program: ModelProgram, *, rows: int, base_address: int,
                 general: bool) -> ModelProgram:
    """:func:`gemmule.compiler.programs.beside.compile_in_cache`, likewise; ``sha256`` of the network with this cache.

    Raises:
        CompileError: it does not fit, or cannot share the cache.
    """
    options = {"rows": rows, "base_address": base_address, "general": general, "cache": _digest(program)}
    return _kept((ModelProgram,), _path(sha256, program.config, options), lambda: compile_in_cache(
        network, program, rows=rows, base_address=base_address, general=general))


def _digest(program: ModelProgram) -> str:
    """Of a program and where its regions stand, for one beside it."""
    return hashlib.sha256(program.image + repr(sorted(program.symbols.items())).encode()).hexdigest()


def compile_encoder_kept(network: Network, sha256: str, config: Config, *, sequence: int,
                         standard: bool = False, fused: bool = True,
                         mapping: EncoderMapping | None = None,
                         pruning: TokenPruning | None = None) -> EncoderProgram:
    """The same of :func:`gemmule.compiler.programs.encoder.compile_encoder`."""
    options: dict[str, Any] = {"sequence": sequence, "standard": standard, "fused": fused}
    options |= {name: value for name, value in (("mapping", mapping), ("pruning", pruning)) if value}
    return _kept((EncoderProgram,), _path(sha256, config, options),
                 lambda: compile_encoder(network, config, sequence=sequence, standard=standard, fused=fused,
                                         mapping=mapping, pruning=pruning))


def _kept(kinds: tuple[type[Kind], ...], path: Path, make: Callable[[], Kind]) -> Kind:
    if path.is_file():
        try:
            found = pickle.loads(path.read_bytes())
        except Exception as error:  # whatever reading a pickle may raise
            say(f"the program in {path} is damaged ({type(error).__name__}): compiling it again")
        else:
            if isinstance(found, kinds):
                return found
    with _uncollected():
        made = make()
    try:
        write_atomically(path, pickle.dumps(made, protocol=pickle.HIGHEST_PROTOCOL))
    except OSError as error:
        say(f"the program cannot be kept in {path.parent} ({error.strerror or error})")
    return made


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a compilation makes millions of small objects that live as long as it does, and
    looking through them takes a quarter of its time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
