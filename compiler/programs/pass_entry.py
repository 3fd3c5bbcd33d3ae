"""A decoder's pass as an entry program: of a program of its own, and of one beside another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gemmule.compiler.ir import Network, Pages
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.attention.kv_layout import KvLayout, attention_of
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.kernels.head.lent import Lent
from gemmule.compiler.kernels.virtual import Buffer
from gemmule.compiler.passes.allocate import allocate
from gemmule.compiler.passes.emit import command_count, fixed_bases
from gemmule.compiler.passes.entry import Constants, Entry, Lowered, Scheduled
from gemmule.compiler.passes.fit import pass_bounds
from gemmule.compiler.passes.footprints import Bounds
from gemmule.compiler.passes.fuse import Operator, fuse, headless, unanswered
from gemmule.compiler.passes.lower import lower
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.passes.schedule import schedule
from gemmule.compiler.programs.commit import CommitProgram
from gemmule.compiler.programs.general_program import GeneralProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.moves import Moves
from gemmule.config import Config

__all__ = ["PassEntry"]

Kind = TypeVar("Kind", bound=ModelProgram)


class PassEntry(Entry[Kind]):
    """Up to ``rows`` new rows of each of ``batch`` sequences, with the cached ones up to ``context``."""

    name = "a pass"
    turns = (3,)

    def __init__(self, kind: type[Kind], network: Network, config: Config, *, rows: int, batch: int, context: int,
                 tokens: bool, pool: int = 0, fused: bool = True, standard: bool = False,
                 among: Sequence[Choice] | None = None, answered: bool = True, cache: KvLayout | None = None,
                 contents: Contents | None = None, pages: Pages | None = None, values: int = 0,
                 lends: Lent | None = None, borrows: Lent | None = None, packed: Packing | None = None,
                 branches: bool = False) -> None:
        """``among``: mappings; by default all. ``answered``: with the head. ``cache``, ``contents``: where a program
        beside this one has its cache and its constants. ``pages``: rows choose what they attend to. ``values``: least
        probability for which a value is loaded, by list. ``lends``, ``borrows``: as of
        :func:`gemmule.compiler.passes.lower.lower`. ``packed``: the cache may begin with rows of 4 bits, and
        which of their numbers those are. ``branches``: each row sees rows of the cache of its own.
        """
        super().__init__(config)
        self.kind, self.network, self.among, self.answered = kind, network, among, answered
        self.rows, self.batch, self.context, self.tokens, self.pool = rows, batch, context, tokens, pool
        self.fused, self.standard, self.cache, self.contents = fused, standard, cache, contents
        self.pages, self.values, self.lends, self.borrows, self.packed = pages, values, lends, borrows, packed
        self.branches = branches
        self.constants: Constants = {}
        self.commit: CommitProgram | None = None
        self.general: GeneralProgram | None = None
        self.moves: Moves | None = None

    def fuse(self) -> Sequence[Operator]:
        operators = fuse(self.network.graph)
        if self.answered:
            return operators
        return headless(operators) if self.lends else unanswered(operators)

    def choose(self) -> Sequence[Choice]:
        return self.among or choices(
            self.network.graph, self.config, rows=self.rows, batch=self.batch, context=self.context,
            tokens=self.tokens, pool=self.pool, fused=self.fused, standard=self.standard, cache=self.cache,
            pages=self.pages, values=self.values, packed=self.packed, branches=self.branches)

    def lower(self) -> Lowered:
        return lower(self.network, self.config, self.operators, self.mapping, contents=self.contents,
                     lends=self.lends, borrows=self.borrows)

    def schedule(self) -> Scheduled:
        return schedule(self.lowered, self.config)

    def allocate(self) -> Mapping[Buffer, int]:
        return allocate(self.scheduled.items, self.config, apart=self.apart, closely=True)

    def limit(self) -> Bounds:
        return pass_bounds(self.mapping, attention_of(self.network.graph), self.config)

    @property
    def layout(self) -> KvLayout:
        """Of a sequence's cache."""
        return self.cache or self.mapping.attention.layout(self.network.graph, self.config, self.batch, self.rows)

    @property
    def silent(self) -> int:
        """Commands of a launch without answers."""
        return command_count(self.scheduled.items[:self.scheduled.silent if self.answered else None])

    def build(self) -> Kind:
        node = attention_of(self.network.graph)
        return self.kind(
            **self.standing(fixed_bases(self.bases)), commit=self.commit, graph=self.network.graph,
            max_rows=self.rows, batch=self.batch, max_positions=self.context, share=node.heads // node.kv_heads,
            layout=self.layout, tokens=self.tokens, pool=self.pool, silent=self.silent,
            scores=self.mapping.attention.scores, choice=Choice((self.mapping,), self.apart), registers_of=self.bases,
            constants={region: tuple(parts) for region, parts in self.constants.items()}, general=self.general,
            moves=self.moves, lends=self.lends, borrows=self.borrows)
