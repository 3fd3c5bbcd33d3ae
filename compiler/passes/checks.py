"""What holds after each pass, as code: each check names the first place where it does not, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gemmule.compiler.kernels.virtual import At, Item, Loop, VirtualCommand, leaves
from gemmule.compiler.passes.allocate import Lifetime, lifetimes
from gemmule.compiler.passes.emit import command_count
from gemmule.compiler.passes.entry import Entry
from gemmule.compiler.passes.fuse import nodes_of
from gemmule.isa import CONTROL, MAX_WAIT, NUM_BASES, COp, Length, Unit
from gemmule.operands import Memory

__all__ = ["allocated", "emitted", "fused", "linked", "lowered", "mapped", "scheduled", "tightened", "waiting"]

Work = Counter[tuple[Unit, int, str]]
"""How often each operation runs; of loads and stores the bytes of each region."""


def fused(entry: Entry[Any]) -> str | None:
    """Every node belongs to one operator at most."""
    seen: set[str] = set()
    for operator in entry.operators:
        for node in nodes_of(operator):
            if node.name in seen:
                return f"{node.name} belongs to two operators"
            seen.add(node.name)
    return None


def mapped(entry: Entry[Any]) -> str | None:
    """There is a mapping, and every weight ring by itself fits the scratchpad."""
    for choice in entry.candidates:
        for mapping in choice.mappings:
            if mapping.ring_slots * mapping.ring_rows > entry.config.spm_rows:
                return f"a ring of {mapping.ring_slots} slots of {mapping.ring_rows} rows is larger than the scratchpad"
    return None if entry.candidates else "there is no mapping"


def lowered(entry: Entry[Any]) -> str | None:
    """Commands name rows inside buffers, and exactly loads and stores name a DRAM region."""
    found = entry.lowered
    parts = [found.once, *found.before, *(part for layer in found.layers for part in layer), *found.behind]
    for item in (item for part in parts for item in leaves(part)):
        if not isinstance(item, VirtualCommand):
            continue
        if (item.region is not None) != (item.unit in (Unit.LOAD, Unit.STORE)):
            return f"{item.note!r} of the {item.unit.label} unit must name a DRAM region exactly if it moves data"
        for field, value in item.fields.items():
            if isinstance(value, At) and not 0 <= value.row < value.buffer.rows:
                return f"{item.note!r}: {field} is row {value.row} of the {value.buffer.rows} of {value.buffer.name}"
    return None


def scheduled(entry: Entry[Any]) -> str | None:
    """Order and loops have changed and nothing else: the same operations, and the same bytes of each region."""
    found = entry.lowered
    once, turn = Work(), Work()
    _count(found.once, 1, once)
    layers = [(part, 1) for layer in found.layers for part in layer]
    layers += [(part, found.copies) for part in (found.layers[-1] if found.copies else [])]
    for part, times in [*((part, 1) for part in (*found.before, *found.behind, *found.lent)),
                         *layers]:
        _count(part, times * found.turns, turn)
    after = Work()
    _count(entry.scheduled.items, 1, after)
    expected = once + turn
    for key in expected.keys() | after.keys():
        if expected[key] != after[key]:
            unit, op, region = key
            what = f"bytes of {region}" if region else f"commands of operation {op}"
            return f"the {unit.label} unit has {after[key]} {what}, not {expected[key]} as they were lowered"
    return None


def _count(items: Iterable[Item], times: int, into: Work) -> None:
    """Add what these items do at most, all of them ``times`` times."""
    for item in items:
        if isinstance(item, Loop):
            _count(item.body, times * item.times.cap, into)
        elif isinstance(item, VirtualCommand):
            moved = times
            if item.region is not None:
                size, rows = item.fields["bytes"], item.fields.get("rows", 1)
                assert isinstance(size, int)
                assert not isinstance(rows, At)
                moved *= size * (rows.cap if isinstance(rows, Length) else rows)
            into[item.unit, item.op, item.region or ""] += moved


def allocated(entry: Entry[Any]) -> str | None:
    """Buffers lie in their memory, aligned, and those that live at the same time share no row."""
    config = entry.config
    for phase in entry.scheduled.phases:
        for memory, rows in ((Memory.SPM, config.spm_rows), (Memory.ACC, config.acc_rows)):
            found = _overlap([life for life in lifetimes(phase) if life.buffer.memory is memory], entry, rows)
            if found:
                return found
    return None


def _overlap(lives: Sequence[Lifetime], entry: Entry[Any], rows: int) -> str | None:
    """Of buffers in the order in which they begin: the first that is outside, not aligned or on another one's rows."""
    living: list[tuple[int, int, int, str]] = []
    """(first row, row behind the last one, end, name)"""
    for life in lives:
        first = entry.placed[life.buffer]
        behind, name = first + life.buffer.rows, life.buffer.name
        if first < 0 or behind > rows or first % life.buffer.align:
            return f"{name} is at rows {first} to {behind - 1} of {rows}, aligned to {life.buffer.align}"
        living = [other for other in living if other[2] >= life.begin]
        for low, high, _, other in living:
            if low < behind and first < high:
                return f"{name} shares row {max(low, first)} with {other}, which is in use"
        living.append((first, behind, life.end, name))
    return None


def emitted(entry: Entry[Any]) -> str | None:
    """Every item is one command, loops are bodies behind their REPEAT, and every region has a base register."""
    commands = entry.emitted
    expected = command_count(entry.scheduled.items)
    if len(commands) != expected:
        return f"there are {len(commands)} commands of {expected} items"
    if max(entry.bases.values(), default=0) >= NUM_BASES:
        return f"regions use more than {NUM_BASES} base registers"
    ends = [len(commands)]
    for place, command in enumerate(commands):
        while place >= ends[-1]:
            ends.pop()
        if command.unit == CONTROL and command.op == COp.REPEAT:
            end = place + 1 + command.fields["body"]
            if end > ends[-1]:
                return f"the body of command {place} ({command.note!r}) ends behind the body around it"
            ends.append(end)
    return None


def waiting(entry: Entry[Any]) -> str | None:
    """Commands are those that were emitted, with waits within what the device counts; control commands have none."""
    for place, (before, after) in enumerate(zip(entry.emitted, entry.commands, strict=True)):
        if (before.unit, before.op, before.fields) != (after.unit, after.op, after.fields):
            return f"command {place} ({after.note!r}) is another one than was emitted"
        if after.waits and (after.unit == CONTROL or not all(1 <= far <= MAX_WAIT for far in after.waits.values())):
            return f"command {place} ({after.note!r}) waits as no command can: {dict(after.waits)}"
    return None


def linked(entry: Entry[Any]) -> str | None:
    """No two regions share a byte, and base registers stand at regions that there are."""
    program, end, before = entry.program, 0, ""
    for name, (address, size) in sorted(program.symbols.items(), key=lambda item: item[1]):
        if size and address < end:
            return f"{name} begins at {address}, before {before} ends at {end}"
        end, before = (address + size, name) if size else (end, before)
    if len(program.image) != program.symbols["program"][1]:
        return f"the image has {len(program.image)} bytes and its region {program.symbols['program'][1]}"
    missing = set(program.bases.values()) - program.symbols.keys()
    return f"there is no region {min(missing)}" if missing else None


def tightened(entry: Entry[Any]) -> str | None:
    """Waits have been added or made to reach less far back; nothing else has changed."""
    for place, (before, after) in enumerate(zip(entry.commands, entry.program.commands, strict=True)):
        looser = [unit for unit, far in before.waits.items() if after.waits.get(unit, MAX_WAIT + 1) > far]
        if looser or before.fields != after.fields:
            return f"command {place} ({after.note!r}) no longer waits as it did within a straight line"
    return None


