"""Hoist: loads of what no launch changes move up to where their buffer is free, but not out of dispatch's reach.

Dispatch is in order and a unit's queue short: a product that stands behind more loads than the queue takes begins late,
however early its own weights arrive. So a load moves up only as far as what needs the loads before it stays near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from gemmule.compiler.kernels.attention.shared import CACHE, OLD
from gemmule.compiler.kernels.nonzero import LISTED
from gemmule.compiler.kernels.virtual import (
    HEAD_WEIGHTS,
    STATIC,
    WEIGHTS,
    Buffer,
    Item,
    Loop,
    SetDisplacement,
    VirtualCommand,
    leaves,
)
from gemmule.config import Config
from gemmule.isa import MoveFlag, Unit

__all__ = ["HoistRule", "hoist"]

LATE = 1.5
"""Exponent by which loads between those of cached rows gather at the end: behind the last one most has to be hidden."""
STREAMS = (WEIGHTS, HEAD_WEIGHTS)


@dataclass(frozen=True)
class HoistRule:
    """Which loads move, and how far; what it is by default is for decoders."""

    regions: tuple[str, ...] = (*STREAMS, STATIC, OLD)
    """Those of which no launch changes anything."""
    ahead: int = 0
    """Loads by which what needs one may stand further behind it than the unit's queue reaches."""
    behind_stores: bool = False
    """Stores that follow the last use of a buffer go before the load that fills it again."""


DECODER = HoistRule()


@dataclass
class _Load:
    """A load that moves."""

    index: int
    """Its place among the items."""
    place: int
    """The item behind which it goes."""


def hoist(items: Sequence[Item], config: Config, rule: HoistRule = DECODER) -> list[Item]:
    """The items with every load that may move behind the last item that touches its buffer.

    Such loads keep their order among themselves, so none waits for one behind it; loops move as one item, and nothing
    moves into them.
    """
    moving = _earliest(items, rule)
    _spread(items, moving)
    return _within_reach(items, moving, config.unit_queue + 1 + rule.ahead)


def _buffers(item: Item) -> tuple[Buffer, ...]:
    return item.buffers if isinstance(item, VirtualCommand | Loop) else ()


def _earliest(items: Sequence[Item], rule: HoistRule) -> list[_Load]:
    """Every moving load, behind what last touches its buffer, displaces its region, or loads what a launch changes.

    One that a predicate may skip stays behind what makes its predicate.
    """
    touched: dict[Buffer, int] = {}
    compared: dict[int | None, int] = {}
    """By predicate, the last item that makes it."""
    displaced: dict[str, int] = {}
    found: list[_Load] = []
    latest = gathered = -1
    for i, item in enumerate(items):
        if isinstance(item, VirtualCommand) and item.unit is Unit.LOAD and item.region in rule.regions:
            latest = max(latest, displaced.get(item.region or "", -1), gathered if item.region in STREAMS else -1,
                         compared.get(item.predicate, -1),
                         *(touched.get(buffer, -1) for buffer in item.buffers))
            found.append(_Load(i, _behind_stores(items, latest) if rule.behind_stores else latest))
        elif isinstance(item, VirtualCommand) and item.unit is Unit.LOAD and item.region != CACHE:
            if item.region == LISTED:  # it waits for a list, and nothing that moves waits for it
                pass
            elif MoveFlag.INDEXED in item.flags:  # it waits for a list: small loads may use the time
                gathered = i
            else:
                latest = i
        touched.update(dict.fromkeys(_buffers(item), i))
        for part in leaves([item]):
            if isinstance(part, SetDisplacement):
                displaced[part.region] = i
            elif isinstance(part, VirtualCommand):
                compared[part.predicate_made] = i
    return found


def _behind_stores(items: Sequence[Item], place: int) -> int:
    """The last of the stores that directly follow an item, or itself."""
    while place + 1 < len(items) and isinstance(store := items[place + 1], VirtualCommand) and store.unit is Unit.STORE:
        place += 1
    return place


def _spread(items: Sequence[Item], moving: Sequence[_Load]) -> None:
    """Loads that could go before all that brings cached rows and are needed behind it: some behind each such item.

    Before them they would only stand in the way of cached rows, and the bus would idle later.
    """
    cached = [i for i, item in enumerate(items) if isinstance(item, Loop)
              or isinstance(item, VirtualCommand) and item.unit is Unit.LOAD and item.region == CACHE]
    if not cached:
        return
    early = [load for load in moving if load.place < cached[0] and load.index > cached[-1]]
    sizes = [int(items[load.index].fields["bytes"]) for load in early]  # type: ignore[union-attr, arg-type]
    places, total = [cached[0] - 1, *cached], max(1, sum(sizes))
    for load, before in zip(early, accumulate(sizes)):
        share = ((total - before) / total) ** LATE
        load.place = max(load.place, places[max(0, len(places) - 1 - int(share * len(places)))])


def _within_reach(items: Sequence[Item], moving: Sequence[_Load], reach: int) -> list[Item]:
    """Each load at its place, or as much later as keeps whatever needs a load at most ``reach`` loads behind it."""
    found: list[Item] = []
    left, moved = iter(moving), {load.index for load in moving}
    waiting = next(left, None)
    filled: dict[Buffer, int] = {}
    """By buffer how many loads there were with the one that filled it."""
    loads = needed = 0

    def emit(item: Item) -> None:
        nonlocal loads
        found.append(item)
        if isinstance(item, VirtualCommand) and item.unit is Unit.LOAD:
            loads += 1
            filled.update(dict.fromkeys(item.buffers, loads))

    for i, item in enumerate(items):
        if i in moved:
            while waiting and waiting.index <= i:  # it is needed now
                emit(items[waiting.index])
                waiting = next(left, None)
            continue
        needed = max(needed, *(filled.get(buffer, 0) for buffer in _buffers(item)), 0)
        while waiting and waiting.place < i and loads - needed < reach:
            emit(items[waiting.index])
            waiting = next(left, None)
        emit(item)
    while waiting:
        emit(items[waiting.index])
        waiting = next(left, None)
    return found
