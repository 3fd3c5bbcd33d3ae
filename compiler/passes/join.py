"""Join: parameters that are used one after another come with one load.

Few loads are in flight at a time, however small they are, so small ones cost more than their bytes. A layer's
parameters are at least two groups: the first rows are free again for the next layer while the last ones are in use.
Loads that a predicate may skip stay by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Item, Loop, VirtualCommand
from gemmule.config import Config
from gemmule.isa import Unit

__all__ = ["join"]

MOST_ROWS = 200
"""Longer loads gain nothing, and their rows are free again later."""
SHARE = 32
"""Of the scratchpad a joined load takes this part at most."""


def join(items: Sequence[Item], config: Config) -> list[Item]:
    """The items with loads of neighbouring parameters as one, into a buffer of so many rows at most."""
    most = min(MOST_ROWS, config.spm_rows // SHARE)
    loads = [item for item in items
             if isinstance(item, VirtualCommand) and item.unit is Unit.LOAD and item.region == STATIC
             and not item.predicate]
    half = -(-sum(_buffer(load).rows for load in loads) // 2)
    first: dict[int, VirtualCommand] = {}
    """By identity of a group's first load: the load of all."""
    dropped: set[int] = set()
    moved: dict[Buffer, At] = {}
    for group in _groups(loads, min(most, half)):
        if len(group) == 1:
            continue
        names = [load.note for load in group]
        buffer = Buffer(f"{names[0]} to {names[-1]}", sum(_buffer(load).rows for load in group), Bank.STATE,
                        max(_buffer(load).align for load in group))
        at = 0
        for load in group:
            moved[_buffer(load)] = At(buffer, at)
            at += _buffer(load).rows
        first[id(group[0])] = replace(group[0], note=f"{names[0]} and {len(names) - 1} more", fields={
            **group[0].fields, "bytes": sum(_bytes(load) for load in group)})
        dropped.update(map(id, group[1:]))
    kept = [first.get(id(item), item) for item in items if id(item) not in dropped]
    return [_renamed(item, moved) for item in kept]


def _buffer(load: VirtualCommand) -> Buffer:
    at = load.fields["row"]
    assert isinstance(at, At)
    return at.buffer


def _bytes(load: VirtualCommand) -> int:
    size = load.fields["bytes"]
    assert isinstance(size, int)
    return size


def _groups(loads: Sequence[VirtualCommand], most: int) -> Iterator[list[VirtualCommand]]:
    """Loads whose bytes follow each other in DRAM, of up to ``most`` rows together, each where it may begin."""
    group: list[VirtualCommand] = []
    for load in loads:
        if group:
            ends = int(group[-1].fields["offset"]) + _bytes(group[-1])  # type: ignore[arg-type]
            rows = sum(_buffer(part).rows for part in group)
            if (ends != load.fields["offset"] or rows + _buffer(load).rows > most or rows % _buffer(load).align):
                yield group
                group = []
        group.append(load)
    if group:
        yield group


def _renamed(item: Item, moved: Mapping[Buffer, At]) -> Item:
    """The item with the rows of joined buffers."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(_renamed(part, moved) for part in item.body))
    if not isinstance(item, VirtualCommand) or not any(buffer in moved for buffer in item.buffers):
        return item
    return replace(item, fields={
        name: moved[value.buffer] + value.row if isinstance(value, At) and value.buffer in moved else value
        for name, value in item.fields.items()})
