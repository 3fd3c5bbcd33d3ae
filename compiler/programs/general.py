"""The general program beside the plain one: the same mapping, weights and regions, another image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemmule.compiler.errors import AccumulatorError, CompileError
from gemmule.compiler.ir import Borrowed, Embedding, Position, Rope
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.head.answers import BACK, FOUND, HIDDEN, AnswerLayout, General
from gemmule.compiler.kernels.head.ids import check_ids
from gemmule.compiler.kernels.head.lent import LENT
from gemmule.compiler.kernels.virtual import Buffer, LengthReg
from gemmule.compiler.passes.allocate import allocate_apart
from gemmule.compiler.passes.emit import fixed_bases
from gemmule.compiler.passes.entry import Entry, Lowered, Scheduled
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.lower import lower
from gemmule.compiler.passes.schedule import schedule_general
from gemmule.compiler.programs.general_program import GENERAL, GeneralProgram
from gemmule.compiler.programs.pass_entry import PassEntry
from gemmule.isa import MAX_LENGTH

__all__ = ["GeneralEntry"]

SLOTS = 4
"""Passes whose hidden rows there is room for, at most as many rows each."""
TOP = 16
"""Largest logits of a row."""
STANDING = {BACK: FOUND, HIDDEN: "embedding"}
"""Regions that are part of another one: hidden rows stand behind the embeddings, or where own rows are borrowed."""


class GeneralEntry(Entry[GeneralProgram]):
    """For the mapping of a plain program that has come through its passes up to waits."""

    name = image = GENERAL
    turns = (3, None)
    """Logits that a late chunk reads were stored by late tiles, which the first turns do not show."""

    def __init__(self, plain: PassEntry[Any]) -> None:
        """For passes as those of ``plain``.

        Raises:
            CompileError: rows have learned and rotary positions, or there are too many ids.
        """
        super().__init__(plain.config)
        self.plain, self.network, self.mapping = plain, plain.network, plain.mapping
        self.general, self.graph = General(slots=SLOTS * plain.mapping.rows, top=TOP), plain.network.graph
        if all(any(isinstance(node, kind) for node in self.graph.nodes) for kind in (Position, Rope)):
            raise CompileError("hidden rows must have learned positions or rotary ones, not both: compile without "
                               "general=True")
        check_ids(self.graph.vocab + self.general.slots, self.config, "tokens and hidden rows",
                  "compile without general=True")

    def lower(self) -> Lowered:
        return lower(self.network, self.config, self.plain.operators, self.mapping, self.general,
                     borrows=self.plain.borrows)

    def schedule(self) -> Scheduled:
        found, self.ranges = schedule_general(self.lowered, self.config)
        return found

    def allocate(self) -> Mapping[Buffer, int]:
        try:
            return allocate_apart(self.scheduled.items, self.config)
        except AccumulatorError:  # scores that are kept may leave no room in the order of use
            return allocate_apart(self.scheduled.items, self.config, closely=True)

    def limit(self) -> Bounds:
        bounds, most = self.plain.bounds, min(self.graph.by_name[self.graph.output].columns, MAX_LENGTH)
        answered = (LengthReg.LOGIT_ROWS, LengthReg.TOP_ROWS, LengthReg.EXPONENT_ROWS, LengthReg.HIDDEN_ROWS)
        return {**bounds, **dict.fromkeys(answered, (0, self.mapping.rows)), LengthReg.COLUMN: (0, most),
                LengthReg.KEYS: (0, most), LengthReg.LEFT: (0, max(most, bounds[LengthReg.LEFT][1]))}

    def build(self) -> GeneralProgram:
        graph, plain, dim = self.graph, self.plain, self.config.dim
        embedding = next(node for node in graph.nodes if isinstance(node, Embedding))
        own = plain.borrows if any(isinstance(node, Borrowed) and node.own for node in graph.nodes) else None
        standing = STANDING | ({HIDDEN: LENT} if own else {})
        names = {register: standing.get(region, region) for register, region in fixed_bases(self.bases).items()}
        answers = AnswerLayout.of(self.config, self.mapping.rows, graph.by_name[graph.output].columns, TOP)
        return GeneralProgram(
            **self.standing(names, {*names.values(), CACHE}), max_rows=plain.rows, batch=plain.batch,
            max_positions=plain.context, layout=plain.layout, answers=answers,
            slots=own.own if own else self.general.slots, own=own,
            hidden_row=2 * -(-embedding.columns // dim) * dim, vocab=embedding.vocab, ranges=self.ranges,
            registers_of=self.bases, scattered=plain.branches)
