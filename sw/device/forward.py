"""A pass, launch by launch: by the plain program and those beside it where greedy tokens are wanted, by one that leaves
rows for another network and gives back logits where there is one, else by the general one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from gemmule.compiler.ir import Graph, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.place import cut_evenly
from gemmule.compiler.program import Program, Step
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.sim.result import Result
from gemmule.sw.device.answers import Collected
from gemmule.sw.device.backends import Device
from gemmule.sw.device.listed import listed_piece, places_of
from gemmule.sw.device.pieces import Piece, launches, pieces
from gemmule.sw.device.slots import HiddenSlots
from gemmule.sw.step import KV, Forward, Hidden, LayerRange, Want, exponent_scaling
from gemmule.timing import ceil_div

__all__ = ["Caches", "Runner", "answered_rows", "append_rows", "forward_rows", "logit_scale",
           "prompt_launches"]

Caches = KV | Sequence[KV]
"""Of a single sequence, or of each of a batch."""


class Runner(Protocol):
    """A model on a device that runs launches."""

    name: str
    program: ModelProgram
    device: Device
    slots: HiddenSlots | None
    prefill: PrefillProgram | None
    narrow: Sequence[ModelProgram]
    pairs: int
    sampled: ModelProgram | None

    @property
    def first(self) -> int: ...

    def local(self, sequence: int) -> int: ...
    def run(self, program: ModelProgram | Program, step: Step) -> Result: ...


def forward_rows(model: Runner, rows: Rows, want: Want, kv: Caches | None,
                 layers: Sequence[LayerRange] | None) -> Forward:
    """:meth:`gemmule.sw.device.runtime.LoadedModel.forward`, but that caches do not know of the new rows yet."""
    rows = rows.behind(model.first)
    cached, answered = _cached(model, rows, kv), answered_rows(rows, want)
    places = places_of(model, _several(kv), rows) if kv is not None else None
    if want.plain and layers is None and rows.hidden is None:
        return _plain(model, rows, answered, cached, kv is not None, places)
    if model.sampled and want.only_logits and layers is None and rows.hidden is None:
        return _sampled(model, model.sampled, rows, answered, cached)
    return _general(model, rows, want, answered, cached, layers)


def prompt_launches(model: Runner, rows: Rows, kv: KV) -> Iterator[tuple[PrefillProgram, Rows, Step]]:
    """Launches of a prompt's rows of one sequence of a batch behind its cached ones, by the program for prompts.

    Raises:
        ValueError: there is no such program, or the rows do not fit the context.
    """
    prefill, cached, count = model.prefill, model.first + kv.length, len(rows)
    if prefill is None:
        raise ValueError(f"{model.name}: prompts that go ahead in a batch need their program: make the session with "
                         "ahead=True")
    if cached + count > prefill.max_positions:
        raise ValueError(f"{model.name}: rows {cached}..{cached + count - 1} exceed the context of "
                         f"{prefill.max_positions} positions; shorten the prompt")
    places = places_of(model, [kv], replace(rows, sequences=np.full(count, kv.sequence)))
    rows = rows.behind(model.first)
    for first, size in cut_evenly(count, ceil_div(count, prefill.max_rows)):
        part, before = rows.take(np.arange(first, first + size)), cached + first
        if places is not None:
            yield prefill, part, prefill.step(part, 0, [before], places[0][:before + size])
            continue
        step = prefill.step(part, 0, [before])
        yield prefill, part, step._replace(registers=step.registers.displaced(
            prefill.symbols[CACHE], model.local(kv.sequence) * model.program.layout.size))


def append_rows(kv: Caches | None, rows: Rows, local: Callable[[int], int] = int) -> None:
    """Tell caches of the new rows of their sequences; ``local``: a sequence's number in the launch, if another."""
    for cache in _several(kv) if kv is not None else ():
        cache.append(int((rows.sequences == local(cache.sequence)).sum()))


def _several(kv: Caches) -> Sequence[KV]:
    return kv if isinstance(kv, Sequence) else [kv]


def _cached(model: Runner, rows: Rows, kv: Caches | None) -> list[int]:
    """Cached rows of each sequence."""
    batch, most = model.program.batch, model.program.max_positions
    if kv is None:
        starts = [rows.positions[rows.sequences == i] for i in range(batch)]
        cached = [int(at[0]) if len(at) else most for at in starts]
    else:
        caches = _several(kv)
        if [model.local(cache.sequence) for cache in caches] != list(range(batch)):
            raise ValueError(f"a pass takes a cache for each of {batch} sequences in their order, not of "
                             f"{[cache.sequence for cache in caches]}")
        cached = [model.first + cache.length for cache in caches]
    for sequence, (first, count) in enumerate(zip(cached, np.bincount(rows.sequences, minlength=batch))):
        if count and first + count > most:
            raise ValueError(
                f"{model.name}: rows {first}..{first + count - 1} exceed the context of {most} positions; shorten the "
                "prompt or --max-new-tokens")
        if not count and first >= most:
            raise ValueError(
                f"{model.name}: sequence {sequence} must have rows in each pass, or a cache with room for one, not "
                f"{first} of {most} rows: truncate it where it is done with")
    return cached


def answered_rows(rows: Rows, want: Want) -> np.ndarray:
    """The last rows of each sequence  # bool [rows]."""
    found = np.ones(len(rows), dtype=bool)
    if want.last is not None:
        for sequence in np.unique(rows.sequences):
            own = np.flatnonzero(rows.sequences == sequence)
            found[own[:max(0, len(own) - want.last)]] = False
    return found


def _places(program: ModelProgram, piece: Piece, answered: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Of a launch: its answered rows in the pass, where their answers stand, and how many answers there are."""
    inside = (piece.index >= 0) & answered[piece.index]
    index = piece.index[inside]
    if program.batch == 1 or not len(index):
        return index, np.arange(len(index)), len(index)
    return index, program.slots(piece.rows)[inside], program.batch * program.max_rows


def _plain(model: Runner, rows: Rows, answered: np.ndarray, cached: list[int], kept: bool,
           places: list[np.ndarray] | None) -> Forward:
    """Greedy tokens by the plain program, rows of a prompt and few rows by those beside it."""
    results = []
    beside = model.program.beside(model.pairs) if isinstance(model.program, PackedProgram) else 0
    found, place = np.zeros(int(answered.sum()), dtype=np.int64), np.cumsum(answered) - 1
    for program, piece in launches(rows, answered, model.program, None if model.pairs else model.prefill,
                                   model.narrow, [length + beside for length in cached]):
        index, to, count = _places(program, piece, answered)
        lengths = [length + done for length, done in zip(cached, piece.before)]
        listed = places if places is None else listed_piece(program, places, lengths, piece)
        results.append(model.run(program, program.step(piece.rows, count, lengths if kept else None, listed)))
        if count:
            found[place[index]] = np.array(program.read_tokens(model.device.read_dram, count))[to]
    return Forward(found.tolist(), tuple(results))


def _sampled(model: Runner, program: ModelProgram, rows: Rows, answered: np.ndarray, cached: list[int]) -> Forward:
    """Logits, and rows left for another network."""
    results, place = [], np.cumsum(answered) - 1
    logits = np.zeros((int(answered.sum()), program.graph.vocab), dtype=np.int16)
    for piece in pieces(rows, program.max_rows, program.batch, cached):
        index, to, count = _places(program, piece, answered)
        results.append(model.run(program, program.step(
            piece.rows, count, [length + done for length, done in zip(cached, piece.before)])))
        if count:
            logits[place[index]] = program.read_logits(model.device.read_dram, count)[to]
    return Forward(logits.argmax(axis=1).tolist(), tuple(results), logits)


def _general(model: Runner, rows: Rows, want: Want, answered: np.ndarray, cached: list[int],
             layers: Sequence[LayerRange] | None) -> Forward:
    """Whatever is wanted, by the general program: a launch for each range of layers."""
    program, slots = model.program, model.slots
    if program.general is None or slots is None:
        raise ValueError(f"{model.name}: hidden rows, ranges of layers and other answers than tokens need the general "
                         "program: compile with general=True")
    general, graph, temperature = program.general, program.graph, want.temperature
    general.check_top(want.top)
    ranges = _cut(layers or [LayerRange(first=0, count=graph.layers)], want.hidden)
    exponents = exponent_scaling(logit_scale(graph), temperature) if temperature else None
    collected = Collected(want, answered, graph.by_name[graph.output].columns, exponents)
    hidden: dict[int, list[Hidden]] = {depth: [] for depth in want.hidden}
    stores = [part.end in hidden or number < len(ranges) - 1 for number, part in enumerate(ranges)]
    parts = list(pieces(rows, program.max_rows, program.batch, cached))
    placed = want.place is not None
    if placed and (len(parts) > 1 or len(want.hidden) != 1):
        raise ValueError(f"rows that are given a place are those of one depth and one launch, not of {want.hidden} and "
                         f"{len(parts)}")
    if hidden and not placed:
        slots.check_room(len(parts) * sum(stores))
    results = []
    for piece in parts:
        index, to, count = _places(program, piece, answered)
        taken = piece.rows
        for part, stored in zip(ranges, stores):
            before = cached if part.kv is None else _cached(model, rows, part.kv)
            slot, stamp = (want.place, 0) if placed and part.end in hidden else slots.take() if stored else (None, 0)
            wanted = Answers(rows=count if part is ranges[-1] else 0, logits=want.logits, top=want.top > 0,
                             scale=exponents, hidden=slot)
            results.append(model.run(general, program.general_step(
                taken, [length + done for length, done in zip(before, piece.before)], (part.first, part.count),
                wanted)))
            if slot is not None:
                places = slot + program.slots(piece.rows)
                taken = taken.entering(places)
                if part.end in hidden:
                    hidden[part.end].append(Hidden(places[piece.index >= 0], part.end, (stamp,)))
        if not hidden or placed:
            slots.drop(sum(stores) - placed)
        if count:
            collected.take(general, model.device.read_dram, index, to, count)
    return collected.forward(tuple(results), {depth: Hidden.joined(found) for depth, found in hidden.items()})


def logit_scale(graph: Graph) -> float:
    """``real = number * scale`` of a network's logits."""
    scale = graph.by_name[graph.output].type.scale
    assert isinstance(scale, float)
    return scale


def _cut(layers: Sequence[LayerRange], depths: Sequence[int]) -> list[LayerRange]:
    """The ranges, each ended where hidden rows are wanted."""
    found = []
    for part in layers:
        edges = [part.first, *sorted(depth for depth in set(depths) if part.first < depth < part.end), part.end]
        found += [replace(part, first=first, count=end - first) for first, end in zip(edges, edges[1:])]
    missing = set(depths) - {part.end for part in found}
    if missing:
        raise ValueError(f"hidden rows can be had behind the layers of the pass, not behind {sorted(missing)}: run "
                         "those layers")
    return found
