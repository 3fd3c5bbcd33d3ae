"""Tokens that leave behind an early layer where it is sure of the next one, and what later layers get of them: CALM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmule.compiler.ir import Rows
from gemmule.sw.decoding.exits.confidence import Confidence
from gemmule.sw.decoding.exits.early_exit import EarlyExit
from gemmule.sw.kv.depths import DepthKV
from gemmule.sw.kv.text import TextKV
from gemmule.sw.step import Ask, Asking, Forward, LayerRange, Want

__all__ = ["Leaving"]


@dataclass
class _Row:
    """A token of which some layers have no keys and values yet, and how many have them."""

    token: int
    depth: int = 0


class Leaving(EarlyExit):
    """Passes through some layers at a time, until a measure is sure of the next token.

    A later token that goes deeper takes the rows of earlier ones along, which the layers there lack: up to a launch's
    rows cost little more than one. So those that wait are the newest, and of two the newer one has no more layers. Once
    they fill a launch, all go to the end. Their rows of the residual stream wait in the device's memory.

    ``exact``: they go on from where they left, so that later layers get the keys and values of a pass through all.
    Else each layer makes keys and values of the row with which the token left (the paper's state propagation), one
    layer a launch.
    """

    def __init__(self, exits: Sequence[int], confidence: Confidence, threshold: Callable[[int], float], *,
                 exact: bool) -> None:
        """``exits``: depths at which a token may leave, rising, then the number of layers; ``threshold``: by the number
        of the new token.
        """
        super().__init__()
        self.exits, self.confidence, self.threshold, self.exact = exits, confidence, threshold, exact
        self._waiting: list[_Row] = []

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        super().begin(ids, dropped)
        self._waiting = []

    def answers(self, cached: TextKV, rows: Rows, want: Want) -> Asking[Forward]:
        position, room = int(rows.positions[0]), cached.model.program.max_rows
        self._waiting.append(_Row(int(rows.tokens[0])))
        way = _Way(cached, position + 1 - len(self._waiting), self.turn, room, self.exact)
        needed, before, depth = self.threshold(position + 1 - self.first), None, 0
        for end in self.exits[:-1]:
            out = yield from self._go(way, depth, end, self.confidence.want)
            depth = end
            row = cached.model.stream([way.newest(self._waiting)])[0] if self.confidence.reads else np.zeros(0)
            if self.confidence.of(out, end, row, before) >= needed:
                out = yield from self._leave(way, depth, out, want)
                break
            before = row if self.confidence.reads else None
        else:
            out = yield from self._go(way, depth, self.exits[-1], replace(want, last=1))
            depth = self.exits[-1]
        self._run.append(depth)
        if len(self._waiting) == room:
            yield from self._finish(way, depth)
        if self._waiting[-1].depth == self.exits[-1]:
            self._waiting = []
        cached.append(1)
        return out

    def _go(self, way: _Way, first: int, end: int, want: Want, *, left: bool = False) -> Asking[Forward]:
        """The newest token's row, and those that lack these layers, through the layers from ``first`` to ``end``.

        ``left``: the newest one waits like the others.
        """
        begin = next(i for i, row in enumerate(self._waiting) if row.depth <= first)
        going, layers = self._waiting[begin:], self.exits[-1]
        apart = not self.exact and len(going) > 1
        for at, to in [(layer, layer + 1) for layer in range(first, end)] if apart else [(first, end)]:
            wanted = want if to == end else Want(last=0)
            if to < layers and not (left and not self.exact):
                wanted = replace(wanted, hidden=(to,), place=way.place(begin, len(going)))
            out: Forward = yield Ask(way.cached.model, way.rows(going, begin, entering=at > 0, left=left), wanted,
                                     way.kv(begin), (LayerRange(first=at, count=to - at),))
        for row in going:
            row.depth = end
        return out

    def _leave(self, way: _Way, depth: int, out: Forward, want: Want) -> Asking[Forward]:
        """What the exit says, and the row put where it waits."""
        count, told = len(self._waiting), self.confidence.want.last == 1
        if told and self.exact:
            return out
        wanted = Want(last=0) if told else replace(want, last=1)
        if not self.exact:
            wanted = replace(wanted, hidden=(depth,), place=count - 1)
        found: Forward = yield Ask(way.cached.model, way.rows(self._waiting[-1:], count - 1, entering=True), wanted,
                                   way.kv(count - 1), (LayerRange(first=depth, count=0),))
        return out if told else found

    def _finish(self, way: _Way, depth: int) -> Asking[None]:
        """All that wait go to the end, each from where it is."""
        while depth < self.exits[-1]:
            end = min(row.depth for row in [*self._waiting, _Row(0, self.exits[-1])] if row.depth > depth)
            yield from self._go(way, depth, end, Want(last=0), left=True)
            depth = end


@dataclass(frozen=True)
class _Way:
    """Where rows stand during a token's passes.

    Rows that wait have the first slots, in their order. Where keys and values are exact, a pass leaves its rows in
    their own slots. Else it leaves them in the next slots, as many, of which only the newest token's is read.
    """

    cached: TextKV
    base: int
    """Position of the first row that waits."""
    turn: object
    room: int
    exact: bool

    def kv(self, begin: int) -> DepthKV:
        """Of layers that lack the rows from number ``begin`` of those that wait on."""
        return DepthKV(self.cached, self.base + begin, self.turn)

    def place(self, begin: int, count: int) -> int:
        """The first slot of so many rows that a pass leaves."""
        return begin if self.exact else 2 * self.room - count

    def newest(self, waiting: Sequence[_Row]) -> int:
        """The slot of the newest token's row."""
        return len(waiting) - 1 if self.exact else 2 * self.room - 1

    def rows(self, going: Sequence[_Row], begin: int, *, entering: bool, left: bool = False) -> Rows:
        """Rows of a pass, the newest token's last: by token, or from their slots (``entering``)."""
        rows = Rows.chain([row.token for row in going], self.base + begin)
        if not entering:
            return rows
        slots = np.arange(begin, begin + len(going))
        if not (self.exact or left):
            slots[-1] = 2 * self.room - 1
        return rows.entering(slots)
