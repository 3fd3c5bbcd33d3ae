"""Allocate: rows to buffers by their lifetimes, each bank class in banks of its own where there are enough."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from gemmule.compiler.errors import AccumulatorError, CompileError
from gemmule.compiler.kernels.virtual import Bank, Buffer, Item, Loop, VirtualCommand
from gemmule.config import Config
from gemmule.timing import ceil_div

__all__ = ["PHASE_EARLY", "Lifetime", "Past", "allocate", "allocate_apart", "allocate_phases",
           "lifetimes", "peak", "scratchpad_peak"]


ORDER = (Bank.STREAM, Bank.OPERAND, Bank.RESULT, Bank.STATE)
"""Bank classes of the scratchpad, from its first row on; the last takes what is left."""
Past = Iterable[tuple[int, int, int]]
"""(first row, last row, item until which they were in use) of earlier items, whose numbers are negative."""
FAR = 1 << 30
"""Items: beyond any."""
EARLY = 16
"""Items at a beginning, which should not wait for what was before; later ones wait for nothing of it."""
PHASE_EARLY = 12
"""Items of a turn whose buffers are its own: they need not wait for the turn before."""
OLD = 32
"""Items after which it no longer matters how long rows have been free."""
SLACK = (4, 3, 2, 1, 0)
"""Eighths of a class's peak that it gets beyond it, for what fragments: the most that fits."""


@dataclass(frozen=True)
class Lifetime:
    """From the first item that touches a buffer to the last; a loop is one item."""

    buffer: Buffer
    begin: int
    end: int


def lifetimes(items: Sequence[Item], *, early: int = 0) -> list[Lifetime]:
    """Of every buffer, in the order in which they begin.

    ``early``: what a turn touches among its first items lives through the loop, so that a turn need not wait for the
    end of the one before.

    A loop is one place, but one whose turns are ``local`` is as long as its body; what is touched within it and outside
    lives through all of it.
    """
    begin: dict[Buffer, int] = {}
    end: dict[Buffer, int] = {}

    def touch(buffers: Sequence[Buffer], first: int, last: int) -> None:
        for buffer in buffers:
            begin[buffer] = min(begin.get(buffer, first), first)
            end[buffer] = max(end.get(buffer, last), last)

    turns: list[tuple[Loop, int, int]] = []

    def walk(items: Sequence[Item], at: int) -> int:
        """The number behind the last item, the first one's being ``at``."""
        for item in items:
            if isinstance(item, Loop) and item.local:
                first, at = at, walk(item.body, at)
                turns.append((item, first, at - 1))  # inner ones before those around them
            else:
                touch(item.buffers if isinstance(item, VirtualCommand | Loop) else (), at, at)
                at += 1
        return at

    walk(items, 0)
    for loop, first, last in turns:
        touch([buffer for buffer in set(loop.buffers)
               if begin[buffer] < first + early or end[buffer] > last], first, last)
    return [Lifetime(buffer, begin[buffer], end[buffer]) for buffer in sorted(begin, key=lambda b: begin[b])]


class _Range:
    """Rows ``first .. last - 1``; of the free places the one that has been free for longest.

    ``spread``: rather one in the bank from which nothing has been taken for longest, so that neighbours in time stand
    in different banks: whoever fills the next buffer does not keep the reader of this one out.
    """

    def __init__(self, first: int, last: int, bank: int, *, spread: bool = False, before: Past = ()) -> None:
        self.spread, self.bank_rows = spread, bank
        self.banks = range(ceil_div(first, bank) * bank, last, bank)
        self.taken: dict[int, int] = {}
        """By bank how many buffers had been placed when the last one went there."""
        self.count = 0
        self.segments = [(first, last, -FAR if before else -1)]
        """(first row, last row, item until which they are in use), one behind the other."""
        for low, high, end in before:
            if max(low, first) < min(high, last):
                self._take(max(low, first), min(high, last), end, -FAR)

    def place(self, life: Lifetime) -> int | None:
        """First row for a buffer, None when it does not fit."""
        rows, align, last = life.buffer.rows, life.buffer.align, self.segments[-1][1]
        best: tuple[int, int, int] | None = None
        for start in sorted({ceil_div(low, align) * align for low, _, _ in self.segments}.union(self.banks)):
            if start + rows > last:
                break
            at = bisect_right(self.segments, start, key=itemgetter(0)) - 1
            used = -FAR if life.begin < EARLY else -1
            while at < len(self.segments) and self.segments[at][0] < start + rows and used < life.begin:
                used = max(used, self.segments[at][2])
                at += 1
            key = (self._recent(start, rows), used, start)
            if used < life.begin and (best is None or key < best):
                best = key
        if best is None:
            return None
        start = best[-1]
        self.count += 1
        for bank in range(start // self.bank_rows, (start + rows - 1) // self.bank_rows + 1):
            self.taken[bank] = self.count
        self._take(start, start + rows, life.end, life.begin - OLD)
        return start

    def _recent(self, start: int, rows: int) -> int:
        """How many buffers had been placed when one went to a bank of these rows last."""
        if not self.spread:
            return 0
        banks = range(start // self.bank_rows, (start + rows - 1) // self.bank_rows + 1)
        return max(self.taken.get(bank, 0) for bank in banks)

    def _take(self, begin: int, end: int, until: int, old: int) -> None:
        """Rows ``begin .. end - 1`` are in use until item ``until``; ends before ``old`` no longer differ."""
        parts: list[tuple[int, int, int]] = []
        for low, high, used in self.segments:
            parts += [(low, min(high, begin), used)] if low < begin else []
            parts += [(begin, end, until)] if low <= begin < high else []
            parts += [(max(low, end), high, used)] if high > end else []
        # What has been free for long is one piece: fewer places to look at.
        found = parts[:1]
        for low, high, used in parts[1:]:
            if used < old and found[-1][2] < old:
                found[-1] = (found[-1][0], high, max(used, found[-1][2]))
            else:
                found.append((low, high, used))
        self.segments = found


def _past(items: Sequence[Item], placed: Mapping[Buffer, int]) -> list[tuple[int, int, int]]:
    """Scratchpad rows that these items use, and until when, for :func:`allocate` of what comes behind them."""
    lives = [life for life in lifetimes(items) if life.buffer.bank is not Bank.ACCUMULATOR]
    last = 1 + max((life.end for life in lives), default=0)
    return [(placed[life.buffer], placed[life.buffer] + life.buffer.rows, life.end - last)
            for life in sorted(lives, key=lambda life: life.end)]


def peak(lives: Iterable[Lifetime]) -> int:
    """Rows that buffers need at once, at least."""
    events: dict[int, int] = {}
    for life in lives:
        events[life.begin] = events.get(life.begin, 0) + life.buffer.rows
        events[life.end + 1] = events.get(life.end + 1, 0) - life.buffer.rows
    most = now = 0
    for at in sorted(events):
        now += events[at]
        most = max(most, now)
    return most


def scratchpad_peak(items: Sequence[Item], config: Config, *, apart: bool) -> int:
    """Scratchpad rows that are needed at least, each bank class by itself; ``apart``: in banks of its own."""
    lives, unit = lifetimes(items), config.spm_bank_rows if apart else config.preload
    return sum(ceil_div(peak(life for life in lives if life.buffer.bank is bank), unit) * unit for bank in ORDER)


def allocate(items: Sequence[Item], config: Config, *, apart: bool, early: int = 0, before: Past = (),
             closely: bool = False) -> Mapping[Buffer, int]:
    """First row of every buffer; ``apart``: bank classes of the scratchpad share no bank.

    ``early``: as of :func:`lifetimes`; then what does not fit one after another is packed. ``before``: scratchpad rows
    that items before these used, which are rather taken late. ``closely``: a class that finds no room in the order of
    use is placed the largest buffers first, rather than refused.

    Raises:
        CompileError: they do not fit; the message names the first that does not.
    """
    lives = lifetimes(items, early=early)
    classes = {bank: [life for life in lives if life.buffer.bank is bank] for bank in Bank}
    found = _accumulator(classes[Bank.ACCUMULATOR], config, closely)
    unit = config.spm_bank_rows if apart else config.preload
    for slack in SLACK:
        parts = _in_turn(classes, config, unit, slack, before, closely and not slack)
        if not isinstance(parts, Lifetime):
            return found | parts
    if early and (packed := _packed(classes, config, unit, list(before))):
        return found | packed
    whole = _fill([life for life in lives if life.buffer.bank is not Bank.ACCUMULATOR],
                  _Range(0, config.spm_rows, config.spm_bank_rows, before=before))
    if isinstance(whole, Lifetime) or apart:
        life = whole if isinstance(whole, Lifetime) else parts
        assert isinstance(life, Lifetime)
        raise CompileError(_does_not_fit(life, config.spm_rows, "scratchpad (spm_kib)"))
    return found | whole


def allocate_apart(items: Sequence[Item], config: Config, *, early: int = 0, before: Past = (),
                   closely: bool = False) -> dict[Buffer, int]:
    """Rows of every buffer, with each class in banks of its own if they fit so, else without regard to classes.
    ``closely``: as of :func:`allocate`.

    Raises:
        CompileError: they fit in neither way.
    """
    try:
        return dict(allocate(items, config, apart=True, early=early, before=before, closely=closely))
    except CompileError:
        return dict(allocate(items, config, apart=False, before=before, closely=closely))


def allocate_phases(phases: Sequence[Sequence[Item]], config: Config, again: int) -> dict[Buffer, int]:
    """Rows of the buffers of phases, of which those behind the first, ``again`` of them, come again and again.

    Raises:
        CompileError: those of one do not fit.
    """
    found: dict[Buffer, int] = {}
    order = [*phases[:1 + again], *phases[1:]]  # so that the second time the first of a turn knows the last
    for number, phase in enumerate(order):
        earlier = order[number - 1] if number else ()
        found |= allocate_apart(phase, config, early=PHASE_EARLY, before=_past(earlier, found))
    return found


def _accumulator(lives: Sequence[Lifetime], config: Config, closely: bool) -> dict[Buffer, int]:
    """Rows of the accumulator.

    Raises:
        AccumulatorError: they do not fit.
    """
    rows = _fill(lives, _Range(0, config.acc_rows, config.acc_bank_rows, spread=True))
    if not isinstance(rows, Lifetime):
        return rows
    close = _closely(lives, [], 0, config.acc_rows) if closely else None
    if close is None:
        raise AccumulatorError(_does_not_fit(rows, config.acc_rows, "accumulator (acc_kib)"))
    return close


def _in_turn(classes: Mapping[Bank, Sequence[Lifetime]], config: Config, unit: int, slack: int, before: Past,
             closely: bool) -> dict[Buffer, int] | Lifetime:
    """Scratchpad rows for one class behind the other, each in units of its own and placed in the order of use.

    Or the first buffer that finds none. ``slack``: room beyond a class's peak, of which placing in order needs some.
    """
    at, found = 0, dict[Buffer, int]()
    for bank in ORDER:
        need = peak(classes[bank])
        more = 0 if bank is Bank.STREAM else need * slack // 8  # what streams has places of its own for good
        size = ceil_div(need + more, unit) * unit
        last = config.spm_rows if bank is ORDER[-1] else min(at + size, config.spm_rows)
        made = _fill(classes[bank], _Range(at, last, config.spm_bank_rows,
                                           before=before if bank is Bank.STATE else ()))
        if isinstance(made, Lifetime):
            close = _closely(classes[bank], [], at, last) if closely else None
            if close is None:
                return made
            made = close
        found |= made
        at += size
    return found


def _fill(lives: Sequence[Lifetime], room: _Range) -> dict[Buffer, int] | Lifetime:
    """Rows of all, or the first that finds none."""
    found: dict[Buffer, int] = {}
    for life in lives:
        at = room.place(life)
        if at is None:
            return life
        found[life.buffer] = at
    return found


def _packed(classes: Mapping[Bank, Sequence[Lifetime]], config: Config, unit: int,
            before: Sequence[tuple[int, int, int]]) -> dict[Buffer, int] | None:
    """Rows for all classes, each in units of its own, the largest buffers first; None when they do not fit.

    Closer than one after another, but neighbours in time share rows: what is touched early would wait for what was
    before, so it has its rows first.
    """
    at, found = 0, dict[Buffer, int]()
    recent = [(low, high) for low, high, until in before if until >= -OLD]
    for bank in ORDER:
        lives = classes[bank]
        last = min(config.spm_rows, at + ceil_div(peak(lives), unit) * unit)
        given = _early(lives, recent, at, last) if bank is Bank.STATE else []
        close = _closely(lives, given, at, config.spm_rows)
        if close is None:
            return None
        at = ceil_div(max((start + buffer.rows for buffer, start in close.items()), default=at), unit) * unit
        found |= close
    return found if at <= config.spm_rows else None


def _early(lives: Sequence[Lifetime], recent: Sequence[tuple[int, int]], first: int,
           last: int) -> list[tuple[int, Lifetime]]:
    """Rows of what is touched early, as far up as none has been in use just before; the rest of it finds none here."""
    placed: list[tuple[int, Lifetime]] = []
    taken = list(recent)
    for life in lives:
        if life.begin < EARLY:
            rows, align = life.buffer.rows, life.buffer.align
            start = next((start for start in range(last - rows, first - 1, -1) if not start % align and not any(
                low < start + rows and start < high for low, high in taken)), None)
            if start is not None:
                placed.append((start, life))
                taken.append((start, start + rows))
    return placed


def _closely(lives: Sequence[Lifetime], given: Sequence[tuple[int, Lifetime]], first: int,
             last: int) -> dict[Buffer, int] | None:
    """Rows ``first .. last - 1`` for all, the largest buffers first, beside ``given`` ones; None if they do not fit."""
    placed = list(given)
    fixed = {life.buffer for _, life in placed}
    for life in sorted((life for life in lives if life.buffer not in fixed), key=lambda life: -life.buffer.rows):
        beside = sorted((start, other.buffer.rows) for start, other in placed
                        if other.begin <= life.end and life.begin <= other.end)
        align = life.buffer.align
        start = ceil_div(first, align) * align
        for other_start, rows in beside:
            if start + life.buffer.rows <= other_start:
                break
            start = max(start, ceil_div(other_start + rows, align) * align)
        if start + life.buffer.rows > last:
            return None
        placed.append((start, life))
    return {life.buffer: start for start, life in placed}


def _does_not_fit(life: Lifetime, rows: int, memory: str) -> str:
    return (f"{life.buffer.name} must fit beside what is in use, {life.buffer.rows} of {rows} rows: use fewer rows a "
            f"launch or a larger {memory}")
