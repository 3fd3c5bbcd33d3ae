"""A model without its device's arithmetic: values by the integer interpreter, cycles by the timing of its launches.

Where a launch's time depends on no data but the rows that it gathers, values and cycles can be had apart: the same
numbers as of the simulated device (tests compare them), several times as fast, and without a program values alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Pages, Rows, layer_part, residuals
from gemmule.compiler.ir.float_interpreter import Observer
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.compiler.programs.selecting import Selection
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.answers import exponents_of, largest
from gemmule.sw.device.costs.planned import Planned, Ranges, planned_launches
from gemmule.sw.device.forward import Caches, answered_rows, append_rows, prompt_launches
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.listed import places_of
from gemmule.sw.device.runtime import PAGE, LoadedModel
from gemmule.sw.device.slots import HiddenSlots
from gemmule.sw.device.some_layers.depths import Depths
from gemmule.sw.errors import InputError
from gemmule.sw.kv.depths import DepthKV
from gemmule.sw.kv.paged import NobodyKV, PagePool
from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import KV, Forward, Hidden, LayerRange, Want

__all__ = ["InterpretedModel", "interprets"]

LARGE = 20_000_000
"""Parameters from which the device's own arithmetic is a matter of minutes."""


def interprets(compute: str, parameters: int, *, backend: str = "model", launch: str = "pass",
               chosen: bool = False) -> bool:
    """Whether values come from the interpreter, for one of :data:`gemmule.sw.limits.COMPUTES` and a target's size.

    ``launch``: what one holds; ``chosen``: the device chooses what it loads.

    Raises:
        InputError: the interpreter is asked for where it cannot answer.
    """
    able = backend == "model" and launch == "pass" and not chosen
    if compute == "interpreter" and not able:
        raise InputError("--compute interpreter needs --backend model, --launch pass, no --prune and no --skip-zeros: "
                         "it runs no device, whose launches go on from one token to the next and which chooses what "
                         "to load; take --compute auto")
    return compute == "interpreter" or (compute == "auto" and able and parameters >= LARGE)


@dataclass(eq=False)
class _Early:
    """Some layers of a network, or a copy of it, and caches that are ahead of those of the whole network."""

    interpreter: IntegerInterpreter
    cache: Cache
    passed: dict[int, tuple[Cache, int, list[int]]] = field(default_factory=dict)
    """By sequence: the cache that these rows go on from, its length, and the tokens whose rows are cached."""

    def begin(self, whole: Cache, kv: KV, first: int, rows: Rows) -> int:
        """Cached rows of a sequence before a pass: those of all layers, which are taken over, or ones that are ahead.

        ``first``: constant rows; ``rows``: by the sequences of caches.
        """
        if not isinstance(kv, TextKV):
            raise ValueError("the interpreter drafts in caches of texts: run the device for others")
        sequence = kv.sequence
        before, length, ids = self.passed.get(sequence, (None, 0, []))
        now = whole.length(sequence)
        if not kv.ids or before is not whole or now != length or ids != kv.ids:
            self.cache.begin_with(whole, sequence)
        self.cache.truncate(min(first + kv.length, self.cache.length(sequence)), sequence)
        self.passed[sequence] = whole, now, [*kv.ids, *rows.tokens[rows.sequences == sequence].tolist()]
        return self.cache.length(sequence)


@dataclass(frozen=True, eq=False)
class LentRows:
    """Rows of the residual stream, as passes leave them for another model."""

    rows: dict[int, np.ndarray]
    """By depth, int16 [positions, columns]."""
    depths: dict[str, int]
    """By the name of a value."""
    own: np.ndarray
    """Those that the other model leaves for itself, in slots behind the positions  # int16 [positions + slots,
    columns]"""
    positions: int

    @staticmethod
    def of(network: Network, program: ModelProgram) -> LentRows:
        """None yet."""
        lends, columns = program.lends, network.graph.nodes[0].columns
        assert lends is not None
        names = residuals(network.graph)
        depths = {names[depth]: depth for depth in range(lends.every, network.graph.layers + 1, lends.every)}
        return LentRows({depth: np.zeros((lends.rows, columns), dtype=np.int16) for depth in depths.values()},
                        depths, np.zeros((lends.rows, columns), dtype=np.int16), lends.positions)

    def taking(self, cached: int) -> Observer:
        """Keeps those of a pass behind so many cached rows."""
        def take(name: str, value: np.ndarray) -> None:
            if (depth := self.depths.get(name)) is not None:
                self.rows[depth][cached:cached + len(value)] = value

        return take


class InterpretedModel(LoadedModel):
    """A model for decoding loops: passes by tokens through all layers or some; tokens, logits, the largest, sums
    of exponents.

    Its cache is the interpreter's. The rows of a pass follow what their sequence has cached; what lies behind is
    forgotten, as on the device.
    """

    def __init__(self, name: str, network: Network, program: ModelProgram, timer: Simulator | None,
                 prefill: PrefillProgram | None = None, narrow: Sequence[ModelProgram] = (),
                 pages: Pages | None = None, values: int = 1, lender: InterpretedModel | None = None,
                 sampled: ModelProgram | None = None, page: int = PAGE, whole: InterpretedModel | None = None,
                 below: float = 0.0, selection: Selection | None = None) -> None:
        """``timer`` tells the cycles of the programs' launches; None: passes cost nothing and are not charged.

        ``pages``: rows choose pages of the cache. ``values``: least probability that meets a value. ``lender``: the
        model whose hidden rows this one reads. ``sampled``: as of :class:`LoadedModel`. ``page``: rows of a page,
        where the cache of a batch is a pool. ``whole``: the model in whose cache this one goes on. ``below``: as of
        the interpreter. ``selection``: tells what it takes to choose rows of the cache.
        """
        self.name, self.network, self.program, self.timer = name, network, program, timer
        self.interpreter, self.cache = IntegerInterpreter(network, pages, values, below), Cache(network.graph)
        self.whole, self.ahead_of = whole, _Early(self.interpreter, self.cache)
        self.early: dict[Ranges, _Early] = {}
        """By the layers that they have."""
        self.depths = Depths(network, self.cache)
        self.ledger: Ledger | None = None
        self.owners, self.tokens = {}, None
        self.further = [0]
        self.loop = self.step = self.pages = self.ahead = None
        general = getattr(program, "general", None)
        self.slots = HiddenSlots(general.slots, general.batch * general.max_rows) if general else None
        if program.pool and program.batch > 1:
            self.pages = PagePool(program.pool, min(page, program.pool), self.first + 1)
        self.prefill, self.narrow, self.sampled, self.selection = prefill, narrow, sampled, selection
        self.displacement = self.pairs = self.beside = 0
        """By how many its cached positions are more than the rows that the device has of them."""
        self.lender, self.lent = lender, LentRows.of(network, program) if program.lends else None

    def forward(self, rows: Rows, want: Want | int | None = None, kv: Caches | None = None, *,
                layers: Sequence[LayerRange] | None = None) -> Forward:
        """Run new rows of each sequence behind its cached ones.

        Raises:
            ValueError: hidden rows are wanted or given where layers do not have rows of their own
                (:class:`gemmule.sw.kv.depths.DepthKV`), layers with other caches of their own, or caches whose rows are
                not those of a text in order.
        """
        want = want if isinstance(want, Want) else Want(last=want)
        ranges = self._layers(layers)
        if isinstance(kv, DepthKV):
            return self._through(rows, want, kv, ranges)
        self.depths.newest = False
        if rows.hidden is not None or (want.hidden and not self._leaves(want.hidden)):
            raise ValueError(f"{self.name}: the interpreter gives tokens and logits of rows by token, not hidden rows; "
                             "run the device for those")
        caches: Sequence[KV] = [] if kv is None else kv if isinstance(kv, Sequence) else [kv]
        values: dict[str, np.ndarray] = {}
        rows = rows.behind(self.first)
        first = caches[0].sequence if len(self.further) > 1 and caches else 0
        every = replace(rows, sequences=rows.sequences + first) if first else rows
        if caches and (ranges != self._every or self.whole):
            early, whole = (self.ahead_of, self.whole.cache) if self.whole else (self._early(ranges), self.cache)
            cached = [early.begin(whole, one, self.first, every) for one in caches]
            logits = early.interpreter.forward(every, early.cache)
        else:
            cached = [0 if caches and isinstance(caches[number], NobodyKV) else
                      self._truncated(every, first + number, caches[number] if caches else None)
                      for number in range(self.program.batch)]
            logits = self.interpreter.forward(
                self._apart(every, caches), self.cache, self.lent.taking(cached[0]) if self.lent else
                values.__setitem__ if want.hidden else None, self._borrowed(rows))
        answered = answered_rows(rows, want)
        found = logits[answered]
        if caches:  # of a sequence without rows of its own the device's cache may be ahead of the interpreter's
            cached = [self.first + one.length for one in caches]
        places = places_of(self, caches, rows) if caches else None
        model = self.of(first)
        planned = [] if self.timer is None and not want.hidden else [
            *planned_launches(model, rows, want, answered, cached, ranges, places)]
        results = () if self.timer is None else tuple(map(model._timed, planned))
        hidden = self._left(want.hidden[0], values, planned) if want.hidden else {}
        append_rows(kv, rows, self.local)
        return self._answers(found, want, results, hidden)

    def _answers(self, logits: np.ndarray, want: Want, results: tuple[Result, ...],
                 hidden: Mapping[int, Hidden] | None = None) -> Forward:
        """What is wanted of the logits of answered rows  # int64 [rows, logits]"""
        made = Forward(logits.argmax(axis=1).tolist(), results, logits.astype(np.int16) if want.logits else None,
                       largest(logits, want.top) if want.top else None,
                       exponents_of(logits, self.logit_scale, want.temperature) if want.temperature else None,
                       dict(hidden or {}))
        return made if self.tokens is None else made.named(self.tokens)

    def _through(self, rows: Rows, want: Want, kv: DepthKV, ranges: Ranges) -> Forward:
        """A pass of a text's rows through some layers, which have only so many of its rows."""
        rows = rows.behind(self.first)
        answered, cached = answered_rows(rows, want), [self.first + kv.length]
        found = self.depths.through(rows, answered, kv, cached[0], ranges, want.place if want.hidden else None)
        results = () if self.timer is None else tuple(self.launched(rows, want, answered, cached, ranges))
        append_rows(kv, rows)
        return self._answers(found, want, results)

    def stream(self, slots: Sequence[int]) -> np.ndarray:
        """Hidden rows that passes have left in these slots  # int16 [rows, columns]"""
        return np.stack([self.depths.slots[slot] for slot in slots]).astype(np.int16)

    def _apart(self, rows: Rows, caches: Sequence[KV]) -> Rows:
        """The rows, those that nobody sees in sequences of their own: texts of theirs have no part in the pass."""
        apart = [kv.sequence for kv in caches if isinstance(kv, NobodyKV)]
        if not apart:
            return rows
        batch, sequences = self.program.batch, rows.sequences
        for sequence in apart:
            self.cache.truncate(0, batch + sequence)
        return replace(rows, sequences=np.where(np.isin(sequences, apart), sequences + batch, sequences))

    def prompt(self, rows: Rows, kv: KV) -> Forward:
        """Keys and values of a prompt's rows of one sequence of a batch; the others take no part.

        Raises:
            ValueError: there is no program for prompts, or the rows do not fit the context.
        """
        model = self.of(kv.sequence)
        results = [] if self.timer is None else [model.time(prefill, step, prefill.gathered_by(part, step))
                                                 for prefill, part, step in prompt_launches(self, rows, kv)]
        own = replace(rows, sequences=np.full(len(rows), kv.sequence)).behind(self.first)
        self._truncated(own, kv.sequence, kv)
        self.depths.newest = False
        self.interpreter.forward(own, self.cache)
        kv.append(len(rows))
        return Forward([], tuple(results))

    def _borrowed(self, rows: Rows) -> dict[str, np.ndarray]:
        """By node, what rows read of another network."""
        nodes = [node for node in self.network.graph.nodes if isinstance(node, Borrowed)]
        if not nodes:
            return {}
        if self.lender is None or self.lender.lent is None:
            raise ValueError(f"{self.name}: it reads hidden rows of a model that lends them: give its lender")
        lent = self.lender.lent
        return {node.name: (lent.own if node.own else lent.rows[node.depth])[rows.lent] for node in nodes}

    def _leaves(self, depths: tuple[int, ...]) -> bool:
        """Whether passes leave these hidden rows where later ones borrow them."""
        borrows = self.program.borrows
        return borrows is not None and borrows.own > 0 and depths == (self.network.graph.layers,)

    def _left(self, depth: int, values: Mapping[str, np.ndarray], planned: Sequence[Planned]) -> dict[int, Hidden]:
        """Hidden rows of a pass, in the slots of its launches; ``values``: of the pass, by node."""
        lent = self.lender.lent if self.lender else None
        assert lent is not None
        left = Hidden.joined([one.hidden for one in planned if one.hidden])
        lent.own[lent.positions + left.slots] = values[residuals(self.network.graph)[depth]]
        return {depth: left}

    @property
    def _every(self) -> Ranges:
        return ((0, self.network.graph.layers),)

    def _layers(self, layers: Sequence[LayerRange] | None) -> Ranges:
        """Those that a pass runs."""
        if layers is None:
            return self._every
        if any(part.kv is not None for part in layers) or (self.whole and len(layers) > 1):
            raise ValueError(f"{self.name}: the interpreter runs layers in one cache; run the device for others")
        return tuple((part.first, part.count) for part in layers)

    def _early(self, ranges: Ranges) -> _Early:
        if ranges not in self.early:
            part = layer_part(self.network, *ranges)
            self.early[ranges] = _Early(IntegerInterpreter(part, self.interpreter.pages, self.interpreter.values),
                                        Cache(part.graph))
        return self.early[ranges]

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        """Keep of the rows that the last pass added at ``position`` those of the accepted path; returns cycles."""
        first = self.first + self.beside + position
        self.cache.keep([*range(first), *(first + node for node in path)], sequence)
        self.depths.settle(first, path)
        if self.timer is None or path == list(range(len(path))):
            return 0
        moves = self.program.commit
        if moves is None:
            raise ValueError(f"{self.name}: this program moves no cache rows: propose one path a step")
        step = moves.step(first, path, self.local(sequence))
        assert step is not None, "the path is not in place"
        result = self.of(sequence).time(moves, step, moves.gathered(first, path), passes=0)
        return int(result.cycles) + moves.config.host.launch_cycles

    def copy_rows(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> int:
        """Rows of a sequence that move up over others, which are dropped; returns cycles.

        Raises:
            ValueError: the rows are of several sequences.
        """
        (sequence, first), (other, to) = source, target
        if other != sequence:
            raise ValueError(f"{self.name}: the interpreter moves rows within a sequence; run the device for forks")
        self.cache.keep([*range(self.first + to), *range(self.first + first, self.first + first + rows)], sequence)
        if self.timer is None:
            return 0
        copies = self._moves().copy
        own = self.local(sequence)
        step = copies.step((own, self.first + first), (own, self.first + to), rows)
        return self.cost(self.of(sequence).time(copies, step, {}, passes=0))

    def gather_rows(self, sequence: int, slots: np.ndarray) -> int:
        """Raises ValueError: cycles of a gather depend on the device's memory."""
        raise ValueError(f"{self.name}: the interpreter gathers no cached rows; run the device")

    def fill_cache(self, by: int) -> None:
        """The interpreter has its own constant rows."""

    def cost(self, result: Result) -> int:
        """Cycles of a launch, the host's work included."""
        return int(result.cycles) + self.program.config.host.launch_cycles

    def relisted(self, sequence: int, kept: Sequence[int]) -> None:
        """Rows of a list stay, in this order: so do the interpreter's."""
        self.cache.keep([*range(self.first), *(self.first + row for row in kept)], sequence)

    def forked(self, sequence: int, new: int) -> None:
        """Another sequence's list has the same rows: so has its cache."""
        self.cache.fork(sequence, new)

    def _truncated(self, rows: Rows, sequence: int, kv: KV | None) -> int:
        """Cached rows of a sequence, those behind them forgotten; without a cache by its first new position."""
        own = rows.positions[rows.sequences == sequence]
        if kv is not None:
            self.cache.truncate(min(self.first + self.beside + kv.length, self.cache.length(sequence)), sequence)
        elif len(own):
            self.cache.truncate(int(own[0]), sequence)
        return self.cache.length(sequence)

    def launched(self, rows: Rows, want: Want, answered: np.ndarray, cached: Sequence[int], ranges: Ranges,
                 places: list[np.ndarray] | None = None) -> list[Result]:
        """The launches that the device would run of a pass behind so many cached rows of each sequence, timed."""
        return [self._timed(one) for one in planned_launches(self, rows, want, answered, cached, ranges, places)]

    def _timed(self, planned: Planned) -> Result:
        return self.time(planned.program, planned.step, planned.gathered, scattered=planned.scattered)

    def time(self, program: Program, step: Step, gathered: dict[int, np.ndarray], passes: int = 1,
             scattered: np.ndarray | None = None) -> Result:
        """A launch, charged; ``gathered``: rows by the commands that gather them; ``scattered``: rows that new ones are
        stored to.
        """
        assert self.timer is not None
        self.timer.load(program.launch(self.name, NO_DRAM, self._registers(program, step)))
        result = self.timer.run(timing_only=True, indices=gathered, scattered=scattered)
        self._charge(self.name, program, result, passes=passes)
        return result
