"""Attention of one row through all layers with cascade pruning, as in SpAtten (Wang et al., HPCA 2021, section III).

Tokens: importance is the sum of normalised 16-bit probabilities over heads and layers. Behind a layer the most
important rows go on, in their order; the next layers gather the keys of these alone. Values: each head takes those of
its largest 8-bit probabilities, which are what values are multiplied by. Heads: a layer has the first of them, as many
as its schedule says. The select unit makes every list. Its ids are row numbers of the cache: they move with the keys
when rows leave (TOP_K), stay when keys are made anew (KEEP_IDS), and a head's choice only lists them (KEEP).

The keys of the next head are loaded before the values of earlier ones, so that softmax and choice take the time of
loads; where rows leave and the next keys wait for a choice, values of several heads are left to load. What stands
between attentions (projections, feed-forward) is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Item, VirtualCommand
from gemmule.compiler.place import round_up
from gemmule.config import Config
from gemmule.isa import (
    CommitFlag,
    ImportanceFlag,
    KeysFlag,
    MatrixFlag,
    MoveFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
)
from gemmule.timing import ceil_div

__all__ = ["CONTEXTS", "KEYS", "QUERIES", "VALUES", "CascadeSchedule", "cascade_items"]

KEYS, VALUES = "keys", "values"
"""Regions of the cache: int8 [layer][head][row][head_dim]."""
QUERIES, CONTEXTS = "queries", "contexts"
"""Of the row: int8 [layer][head][head_dim]."""
RING = 2
AHEAD = 2
"""Heads whose values are still to be loaded when the next one's keys are, at most; with all rows, 1."""


@dataclass(frozen=True, kw_only=True)
class CascadeSchedule:
    """Rows and heads by layer.

    Raises:
        CompileError: numbers grow, are 0, or are more than exist.
    """

    length: int
    """Cached rows."""
    heads: int
    head_dim: int
    kept_keys: tuple[int, ...]
    """By layer, of every head."""
    kept_values: tuple[int, ...]
    kept_heads: tuple[int, ...]
    first: int = 0
    """Rows that always go on: the first ones."""
    last: int = 0
    """The newest ones."""

    def __post_init__(self) -> None:
        layers = len(self.kept_keys)
        if not layers or {len(self.kept_values), len(self.kept_heads)} != {layers}:
            raise CompileError(f"keys, values and heads must be given for as many layers, at least 1, not {layers}, "
                               f"{len(self.kept_values)} and {len(self.kept_heads)}")
        for what, numbers, most in (("keys", self.kept_keys, self.length), ("heads", self.kept_heads, self.heads)):
            for layer, (before, number) in enumerate(pairwise((most, *numbers))):
                if not 1 <= number <= before:
                    raise CompileError(f"layer {layer} must have from 1 to {before} {what}, as many as are left, not "
                                       f"{number}")
        for layer, (keys, values) in enumerate(zip(self.kept_keys, self.kept_values, strict=True)):
            if not 1 <= values <= keys:
                raise CompileError(f"layer {layer} must take from 1 to {keys} values, as many as keys, not {values}")
        if self.first + self.last > self.kept_keys[-1]:
            raise CompileError(f"first + last must be at most the {self.kept_keys[-1]} rows of the last layer, not "
                               f"{self.first + self.last}")

    @property
    def layers(self) -> int:
        return len(self.kept_keys)

    @property
    def rows(self) -> int:
        """Rows of keys and of values that are fetched."""
        return sum((keys + values) * heads for keys, values, heads in zip(
            self.kept_keys, self.kept_values, self.kept_heads, strict=True))

    @property
    def dense(self) -> CascadeSchedule:
        """All rows, all heads."""
        every = (self.length,) * self.layers
        return CascadeSchedule(length=self.length, heads=self.heads, head_dim=self.head_dim, kept_keys=every,
                               kept_values=every, kept_heads=(self.heads,) * self.layers)


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Of scores and contexts: multiplier and shift."""

    score: tuple[int, int] = (1 << 15, 22)
    context: tuple[int, int] = (1 << 15, 15)


def cascade_items(config: Config, schedule: CascadeSchedule, scales: Scales, *, lists: bool) -> list[Item]:
    """Every layer. Not ``lists``: all rows as they stand, without the select unit.

    Raises:
        CompileError: the device's lists are too short, or a head is no whole number of the device's rows.
    """
    return _Cascade(config, schedule, scales, lists).write()


class _Cascade:
    def __init__(self, config: Config, schedule: CascadeSchedule, scales: Scales, lists: bool) -> None:
        self.config, self.schedule, self.scales, self.lists = config, schedule, scales, lists
        dim, keys = config.dim, max(schedule.kept_keys)
        if schedule.head_dim % dim:
            raise CompileError(f"head_dim must be a multiple of the device's {dim} lanes, not {schedule.head_dim}")
        values = max(schedule.kept_values)
        self.ahead = max(1, min(AHEAD, config.stat_contexts - 1)) if lists else 1
        places = self.ahead + 1
        need = schedule.length + places * values
        if lists and (need > config.list_entries or schedule.length > config.select_keys):
            raise CompileError(f"{schedule.length} rows need {need} list_entries and {schedule.length} select_keys, "
                               f"not {config.list_entries} and {config.select_keys}: use fewer rows, or raise both")
        self.items: list[Item] = []
        self.groups = schedule.head_dim // dim
        self.value_list = [schedule.length + i * values for i in range(places)]
        pitch, columns = round_up(keys, config.preload), ceil_div(keys, dim)

        def ring(name: str, rows: int, bank: Bank, align: int = 1, count: int = RING) -> list[At]:
            return [At(Buffer(f"{name} {i}", rows, bank, align)) for i in range(count)]

        self.keys = ring("keys", self.groups * pitch, Bank.STREAM, config.preload)
        rows = self.groups * round_up(values, config.preload)
        self.values = ring("values", rows, Bank.STREAM, config.preload, self.ahead)
        self.queries = ring("query", schedule.heads * self.groups, Bank.OPERAND)
        self.outputs = ring("contexts", schedule.heads * self.groups, Bank.RESULT)
        # The high plane of a probability as a 16-bit number is a row of zeros behind it.
        self.probabilities = ring("probabilities", 2 * columns, Bank.OPERAND)
        self.normalised = ring("normalised", 2 * columns, Bank.OPERAND)
        self.packed = ring("packed", 2 * columns, Bank.OPERAND, count=places)
        self.scores = ring("scores", columns, Bank.ACCUMULATOR)
        self.sums = ring("sums", self.groups, Bank.ACCUMULATOR)

    def write(self) -> list[Item]:
        """Head by head, the keys of the next one first."""
        schedule = self.schedule
        waiting: list[tuple[int, int, int]] = []
        """Heads whose values are not loaded."""
        heads = [(layer, head) for layer, count in enumerate(schedule.kept_heads) for head in range(count)]
        if self.lists:
            for at in self.probabilities:
                self._load("zeros", region=QUERIES, row=at, bytes=at.buffer.rows * self.config.dim, block_stride=1,
                           rows=1, flags={MoveFlag.ZERO})
            self._select(SOp.COMMIT, "no importance yet", CommitFlag.CLEAR, n=schedule.length)
            self._choose(schedule.length, schedule.kept_keys[0])
        self._begin(0, *heads[0])
        for number, ((layer, head), following) in enumerate(zip(heads, [*heads[1:], None], strict=True)):
            last = following is None or following[0] > layer
            leaves = following is not None and self.lists and (
                schedule.kept_keys[following[0]] < schedule.kept_keys[layer])
            if following and not leaves:
                self._begin(number + 1, *following)
            self._probabilities(number, layer, head)
            waiting.append((number, layer, head))
            if following and leaves:
                for one in waiting:
                    self._load_values(*one)
                self._leave(schedule.kept_keys[layer], schedule.kept_keys[following[0]])
                self._begin(number + 1, *following)
                for one in waiting:
                    self._context(*one)
                waiting.clear()
            while waiting and (last or len(waiting) >= self.ahead):
                one = waiting.pop(0)
                self._load_values(*one)
                self._context(*one)
            if last:
                self._add(Unit.STORE, f"{layer}: contexts", region=CONTEXTS, offset=self._place(layer, 0, 1),
                          bytes=schedule.kept_heads[layer] * schedule.head_dim, row=self.outputs[layer % RING],
                          block_stride=1, rows=1)
        return self.items

    def _leave(self, keys: int, left: int) -> None:
        """Rows leave, with their keys; importance of the others goes on."""
        self._select(SOp.COMMIT, "importance is complete", n=keys)
        self._choose(keys, left, KeysFlag.KEEP_IDS)
        self._select(SOp.COMMIT, "importance goes on", CommitFlag.FROM_KEYS, n=left)

    def _choose(self, keys: int, left: int, *flags: int) -> None:
        """The most important rows to the list of the next layers."""
        self._select(SOp.KEYS, "keys of importance", KeysFlag.FROM_IMPORTANCE, *flags, n=keys,
                     aux=self.schedule.first | self.schedule.last << 8)
        self._select(SOp.TOP_K, "rows that go on", n=keys, k=left, dst=0)

    def _begin(self, number: int, layer: int, head: int) -> None:
        """Loads of the keys, with the first head those of the layer's queries."""
        schedule, keys = self.schedule, self.schedule.kept_keys[layer]
        if head == 0:
            self._load(f"{layer}: queries", region=QUERIES, offset=self._place(layer, 0, 1),
                       bytes=schedule.kept_heads[layer] * schedule.head_dim, row=self.queries[layer % RING],
                       block_stride=1, rows=1)
        self._load_rows(f"{layer}.{head}: keys", KEYS, layer, head, keys, 0, self.keys[number % RING])

    def _load_rows(self, note: str, region: str, layer: int, head: int, rows: int, first: int, to: At) -> None:
        schedule, size = self.schedule, self.schedule.head_dim
        listed: dict[str, Any] = {"flags": {MoveFlag.INDEXED}, "list": first, "last_index": schedule.length - 1}
        self._load(note, region=region, offset=self._place(layer, head, schedule.length), stride=size, bytes=size,
                   row=to, row_stride=1, block_stride=round_up(rows, self.config.preload), rows=rows,
                   **(listed if self.lists else {}))

    def _probabilities(self, number: int, layer: int, head: int) -> None:
        """Scores and softmax; importance, and the head's choice of values."""
        schedule, at, n = self.schedule, number % RING, self.schedule.kept_keys[layer]
        name, mult, shift = f"{layer}.{head}", *self.scales.score
        self._add(Unit.MATRIX, f"{name}: scores", flags={MatrixFlag.B_TRANSPOSED},
                  a_row=self.queries[layer % RING] + head * self.groups, a_stride=1, b_row=self.keys[at],
                  b_stride=round_up(n, self.config.preload), c_row=self.scores[at], c_stride=1, m=1, n=n,
                  k=schedule.head_dim)
        place = number % (self.ahead + 1)
        shared = {"src0": self.scores[at], "src0_stride": 1, "m": 1, "n": n, "context": place, "mult": mult,
                  "shift": shift}
        self._vector(VOp.SOFTMAX_MAX, name, **shared)
        self._vector(VOp.SOFTMAX_EXP, name, dst=self.probabilities[at], dst_stride=2, **shared)
        if not self.lists:
            return
        self._vector(VOp.SOFTMAX_NORM, name, SoftmaxFlag.WIDE, dst=self.normalised[at], dst_stride=2, **shared)
        source = {"src0": self.probabilities[at], "src0_stride": 2, "n": n}
        self._select(SOp.KEYS, f"{name}: keys of probabilities", KeysFlag.KEEP_IDS, **source)
        self._select(SOp.TOP_K, f"{name}: chosen values", TopKFlag.KEEP, n=n, k=schedule.kept_values[layer],
                     dst=self.value_list[place])
        self._select(SOp.PACK, f"{name}: their probabilities", m=1, dst=self.packed[place], **source)
        self._select(SOp.IMPORTANCE, f"{name}: importance", ImportanceFlag.WIDE, m=1,
                     **(source | {"src0": self.normalised[at]}))

    def _load_values(self, number: int, layer: int, head: int) -> None:
        self._load_rows(f"{layer}.{head}: values", VALUES, layer, head, self.schedule.kept_values[layer],
                        self.value_list[number % (self.ahead + 1)], self.values[number % self.ahead])

    def _context(self, number: int, layer: int, head: int) -> None:
        """What the chosen values make, scaled by the reciprocal of all probabilities' sum."""
        at, values, (mult, shift) = number % RING, self.schedule.kept_values[layer], self.scales.context
        place = number % (self.ahead + 1)
        self._add(Unit.MATRIX, f"{layer}.{head}: context", flags={MatrixFlag.A_UNSIGNED},
                  a_row=self.packed[place] if self.lists else self.probabilities[at], a_stride=2,
                  b_row=self.values[number % self.ahead],
                  b_stride=round_up(values, self.config.preload), c_row=self.sums[at], c_stride=1, m=1,
                  n=self.schedule.head_dim, k=values)
        self._vector(VOp.REQUANT, f"{layer}.{head}", RequantFlag.ROW, src0=self.sums[at], src0_stride=1,
                     dst=self.outputs[layer % RING] + head * self.groups, dst_stride=1, m=1, n=self.schedule.head_dim,
                     mult=mult, shift=shift, context=place)

    def _place(self, layer: int, head: int, rows: int) -> int:
        """Bytes before a head's rows."""
        return (layer * self.schedule.heads + head) * rows * self.schedule.head_dim

    def _load(self, note: str, **fields: Any) -> None:
        self._add(Unit.LOAD, note, **fields)

    def _vector(self, op: VOp, name: str, *flags: int, **fields: Any) -> None:
        self._add(Unit.VECTOR, f"{name}: {op.name.lower()}", op=op, flags=set(flags), **fields)

    def _select(self, op: SOp, note: str, *flags: int, **fields: Any) -> None:
        self._add(Unit.SELECT, note, op=op, flags=set(flags), **fields)

    def _add(self, unit: Unit, note: str, *, op: int = 0, flags: set[Any] | None = None, region: str | None = None,
             **fields: Any) -> None:
        self.items.append(VirtualCommand(unit=unit, op=int(op), note=note, region=region, fields=fields,
                                         flags=frozenset(map(int, flags or ()))))
