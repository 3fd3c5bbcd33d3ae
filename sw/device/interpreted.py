"""A model without its device's arithmetic: values by the integer interpreter, cycles by the timing of its launches.

Where a launch's time depends on no data but the rows that it gathers, values and cycles can be had apart: the same
numbers as of the simulated device (tests compare them), several times as fast, and without a program values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gemmule.compiler.ir import Borrowed, Cache, IntegerInterpreter, Network, Pages, Rows, layer_part, residuals
from gemmule.compiler.ir.float_interpreter import Observer
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.compiler.programs.selecting import Selection
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.answers import largest
from gemmule.sw.device.forward import Caches, answered_rows, append_rows
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.pieces import launches, pieces
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.errors import InputError
from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import KV, Forward, LayerRange, Want

__all__ = ["InterpretedModel", "interprets"]

LARGE = 20_000_000
"""Parameters from which the device's own arithmetic is a matter of minutes."""


def interprets(compute: str, parameters: int, *, backend: str = "model", launch: str = "pass",
               lengths: str = "constant", chosen: bool = False) -> bool:
    """Whether values come from the interpreter, for one of :data:`gemmule.sw.limits.COMPUTES` and a target's size.

    ``launch`` and ``lengths``: what a launch holds, and by what drafts end; ``chosen``: the device chooses what it
    loads.

    Raises:
        InputError: the interpreter is asked for where it cannot answer.
    """
    able = backend == "model" and launch == "pass" and lengths != "confidence" and not chosen
    if compute == "interpreter" and not able:
        raise InputError("--compute interpreter needs --backend model, --launch pass, no --draft-lengths confidence, "
                         "no --prune and no --skip-zeros: it runs no device, whose launches go on from one token to "
                         "the next, which tells how sure the draft is and chooses what to load; take --compute auto")
    return compute == "interpreter" or (compute == "auto" and able and parameters >= LARGE)


@dataclass(eq=False)
class _Early:
    """The first layers of a network, and caches that are ahead of those of all layers."""

    interpreter: IntegerInterpreter
    cache: Cache
    passed: dict[int, tuple[Cache, list[int]]] = field(default_factory=dict)
    """By sequence: the cache that these rows go on from, and the tokens whose rows are cached."""

    def begin(self, whole: Cache, kv: KV, first: int, rows: Rows) -> int:
        """Cached rows of a sequence before a pass: those of all layers, which are taken over, or ones that are ahead.

        ``first``: constant rows.
        """
        if not isinstance(kv, TextKV):
            raise ValueError("the interpreter drafts in caches of texts: run the device for others")
        sequence = kv.sequence
        before, ids = self.passed.get(sequence, (None, []))
        if not kv.ids or before is not whole or ids != kv.ids:
            self.cache.begin_with(whole, sequence)
        self.cache.truncate(min(first + kv.length, self.cache.length(sequence)), sequence)
        self.passed[sequence] = whole, [*kv.ids, *rows.tokens[rows.sequences == sequence].tolist()]
        return self.cache.length(sequence)


@dataclass(frozen=True, eq=False)
class LentRows:
    """Rows of the residual stream, as passes leave them for another model."""

    rows: dict[int, np.ndarray]
    """By depth, int16 [positions, columns]."""
    depths: dict[str, int]
    """By the name of a value."""

    @staticmethod
    def of(network: Network, program: ModelProgram) -> LentRows:
        """None yet."""
        lends, columns = program.lends, network.graph.nodes[0].columns
        assert lends is not None
        names = residuals(network.graph)
        depths = {names[depth]: depth for depth in range(lends.every, network.graph.layers + 1, lends.every)}
        return LentRows({depth: np.zeros((lends.positions, columns), dtype=np.int16) for depth in depths.values()},
                        depths)

    def taking(self, cached: int) -> Observer:
        """Keeps those of a pass behind so many cached rows."""
        def take(name: str, value: np.ndarray) -> None:
            if (depth := self.depths.get(name)) is not None:
                self.rows[depth][cached:cached + len(value)] = value

        return take


class InterpretedModel(LoadedModel):
    """A model for decoding loops: passes by tokens through all layers or the first ones; tokens, logits, the largest.

    Its cache is the interpreter's. The rows of a pass follow what their sequence has cached; what lies behind is
    forgotten, as on the device.
    """

    def __init__(self, name: str, network: Network, program: ModelProgram, timer: Simulator | None,
                 prefill: PrefillProgram | None = None, narrow: Sequence[ModelProgram] = (),
                 pages: Pages | None = None, values: int = 1, lender: InterpretedModel | None = None,
                 selection: Selection | None = None) -> None:
        """``timer`` tells the cycles of the programs' launches; None: passes cost nothing and are not charged.

        ``pages``: rows choose pages of the cache. ``values``: least probability that meets a value. ``lender``: the
        model whose hidden rows this one reads. ``selection``: tells what it takes to choose rows of the cache.
        """
        self.name, self.network, self.program, self.timer = name, network, program, timer
        self.interpreter, self.cache = IntegerInterpreter(network, pages, values), Cache(network.graph)
        self.early: dict[int, _Early] = {}
        """By how many of the first layers they have."""
        self.ledger: Ledger | None = None
        self.owners = {}
        self.loop = self.step = self.slots = self.pages = self.ahead = None
        self.prefill, self.narrow, self.selection, self.displacement = prefill, narrow, selection, 0
        self.lender, self.lent = lender, LentRows.of(network, program) if program.lends else None

    def forward(self, rows: Rows, want: Want | int | None = None, kv: Caches | None = None, *,
                layers: Sequence[LayerRange] | None = None) -> Forward:
        """Run new rows of each sequence behind its cached ones.

        Raises:
            ValueError: hidden rows or exponents are wanted, other layers than the first ones, caches whose
                rows are not those of a text in order, or hidden rows.
        """
        want = want if isinstance(want, Want) else Want(last=want)
        count = self._layers(layers)
        if want.hidden or want.temperature is not None or rows.hidden is not None:
            raise ValueError(f"{self.name}: the interpreter gives tokens and logits of rows by token; run the device "
                             "for other answers")
        caches: Sequence[KV] = [] if kv is None else kv if isinstance(kv, Sequence) else [kv]
        rows = rows.behind(self.first)
        every = self.network.graph.layers
        if caches and count < every:
            early = self._early(count)
            cached = [early.begin(self.cache, one, self.first, rows) for one in caches]
            logits = early.interpreter.forward(rows, early.cache)
        else:
            cached = [self._truncated(rows, sequence, caches[sequence] if caches else None)
                      for sequence in range(self.program.batch)]
            logits = self.interpreter.forward(
                rows, self.cache, self.lent.taking(cached[0]) if self.lent else None, self._borrowed(rows))
        answered = answered_rows(rows, want)
        found = logits[answered]
        if caches:  # of a sequence without rows of its own the device's cache may be ahead of the interpreter's
            cached = [self.first + one.length for one in caches]
        results = () if self.timer is None else tuple(self._launches(rows, want, answered, cached, count))
        append_rows(kv, rows)
        return Forward(found.argmax(axis=1).tolist(), results, found.astype(np.int16) if want.logits else None,
                       largest(found, want.top) if want.top else None)

    def _borrowed(self, rows: Rows) -> dict[str, np.ndarray]:
        """By node, what rows read of another network."""
        nodes = [node for node in self.network.graph.nodes if isinstance(node, Borrowed)]
        if not nodes:
            return {}
        if self.lender is None or self.lender.lent is None:
            raise ValueError(f"{self.name}: it reads hidden rows of a model that lends them: give its lender")
        return {node.name: self.lender.lent.rows[node.depth][rows.lent] for node in nodes}

    def _layers(self, layers: Sequence[LayerRange] | None) -> int:
        """How many of the first layers a pass runs."""
        if layers is None:
            return self.network.graph.layers
        (part, *more) = layers
        if more or part.first or part.kv is not None:
            raise ValueError(f"{self.name}: the interpreter runs the first layers of a network, in one cache; run the "
                             "device for others")
        return part.count

    def _early(self, count: int) -> _Early:
        if count not in self.early:
            part = layer_part(self.network, 0, count)
            self.early[count] = _Early(IntegerInterpreter(part, self.interpreter.pages, self.interpreter.values),
                                       Cache(part.graph))
        return self.early[count]

    def commit(self, position: int, path: list[int], sequence: int = 0) -> int:
        """Keep of the rows that the last pass added at ``position`` those of the accepted path; returns cycles."""
        first = self.first + position
        self.cache.keep([*range(first), *(first + node for node in path)], sequence)
        if self.timer is None or path == list(range(len(path))):
            return 0
        moves = self.program.commit
        if moves is None:
            raise ValueError(f"{self.name}: this program moves no cache rows: propose one path a step")
        step = moves.step(first, path, sequence)
        assert step is not None, "the path is not in place"
        result = self.time(moves, step, moves.gathered(first, path), passes=0)
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
        step = copies.step((sequence, self.first + first), (sequence, self.first + to), rows)
        return self.cost(self.time(copies, step, {}, passes=0))

    def gather_rows(self, sequence: int, slots: np.ndarray) -> int:
        """Raises ValueError: cycles of a gather depend on the device's memory."""
        raise ValueError(f"{self.name}: the interpreter gathers no cached rows; run the device")

    def cost(self, result: Result) -> int:
        """Cycles of a launch, the host's work included."""
        return int(result.cycles) + self.program.config.host.launch_cycles

    def _truncated(self, rows: Rows, sequence: int, kv: KV | None) -> int:
        """Cached rows of a sequence, those behind them forgotten; without a cache by its first new position."""
        own = rows.positions[rows.sequences == sequence]
        if kv is not None:
            self.cache.truncate(min(self.first + kv.length, self.cache.length(sequence)), sequence)
        elif len(own):
            self.cache.truncate(int(own[0]), sequence)
        return self.cache.length(sequence)

    def _launches(self, rows: Rows, want: Want, answered: np.ndarray, cached: Sequence[int],
                  layers: int) -> list[Result]:
        """The launches that the device would run."""
        program, found = self.program, []
        if want.plain and layers == self.network.graph.layers:
            for by, piece in launches(rows, answered, program, self.prefill, self.narrow, cached):
                count = int(answered[piece.index[piece.index >= 0]].sum())
                lengths = [length + done for length, done in zip(cached, piece.before)]
                found.append(self.time(by, by.step(piece.rows, count, lengths), by.gathered(piece.rows)))
            return found
        general = program.general
        if general is None:
            raise ValueError(f"{self.name}: logits need the general program: compile with general=True")
        general.check_top(want.top)
        for piece in pieces(rows, program.max_rows, program.batch, cached):
            count = int(answered[piece.index[piece.index >= 0]].sum())
            step = program.general_step(piece.rows, [n + done for n, done in zip(cached, piece.before)],
                                        (0, layers), Answers(rows=count, logits=want.logits, top=want.top > 0))
            found.append(self.time(general, step, program.gathered(piece.rows, general.commands)))
        return found

    def time(self, program: Program, step: Step, gathered: dict[int, np.ndarray], passes: int = 1) -> Result:
        """A launch, charged; ``gathered``: rows by the commands that gather them."""
        assert self.timer is not None
        self.timer.load(program.launch(self.name, NO_DRAM, self._registers(program, step)))
        result = self.timer.run(timing_only=True, indices=gathered)
        self._charge(self.name, program, result, passes=passes)
        return result
