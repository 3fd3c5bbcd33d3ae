"""Rows of a cache as rows of 4 bits: of two rows, which two lists name, each the upper half, in one row of bytes.

Where values alone have 4 bits, keys are copied as they are, in the order of the nibbles. Rows come to the accumulator,
where they are rounded to 16ths; those of the low nibbles then go through a table, and the sum of both is a byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.moves import FROM, PART, TO, list_count, list_pitch, rows_loop
from gemmule.compiler.kernels.virtual import (
    At,
    Bank,
    Buffer,
    Item,
    LengthReg,
    Loop,
    SetDisplacement,
    Value,
    VirtualCommand,
)
from gemmule.config import Config
from gemmule.isa import Length, MoveFlag, RequantFlag, SOp, Unit, VOp
from gemmule.numerics import BYTE_TABLE_ENTRIES, HALF_BITS, LEAST_HALF, MOST_HALF, whole_planes
from gemmule.timing import ceil_div

__all__ = ["NIBBLES", "PAIRS", "PAIR_LISTS", "TO_LOWER", "TO_WHOLE", "Halves", "Packing", "nibble_tables",
           "packed_rows", "pair_half"]

PAIR_LISTS = "lists of pairs"
"""Region: for each layer and KV head the rows of the low nibbles, then those of the high ones, uint16."""
NIBBLES = "nibbles"
"""Region of the table that makes a number's lower four bits of it."""
TO_WHOLE, TO_LOWER = TO + " whole", TO + " lower"
"""The target, where keys or values of 8 bits are stored; and where lower halves are."""
PAIRS = 16
"""Rows of 4 bits come in so many pairs."""
LOWER = (1 << HALF_BITS) - 1


class Halves(Enum):
    """What has 4 bits in rows that have."""

    VALUES = "values"
    BOTH = "both"
    """Keys too."""
    PLANES = "planes"
    """Keys alone, whose lower halves stand behind them, as packed rows of their own."""
    SPLIT = "split"
    """Values, and keys whose lower halves stand behind them."""

    def stand(self, pairs: int) -> int:
        """Rows of a cache that so many pairs take."""
        return pairs if self is Halves.BOTH else 2 * pairs

    @property
    def packed(self) -> tuple[bool, bool]:
        """Of keys, and of values."""
        return self is not Halves.VALUES, self is not Halves.PLANES

    @property
    def lower(self) -> bool:
        """Whether lower halves of keys are there, so that nothing is lost of them."""
        return self in (Halves.PLANES, Halves.SPLIT)


@dataclass(frozen=True)
class Packing:
    """What programs over such rows are compiled for."""

    halves: Halves
    below: float = 0.0
    """Where lower halves of keys are there: largest probability of a row below which it reads them."""


def nibble_tables() -> np.ndarray:
    """The lower half of a number, at most 119, as a nibble; and as a signed number  # uint8 [2 * 256]"""
    every = np.arange(BYTE_TABLE_ENTRIES).astype(np.uint8).view(np.int8)
    nibbles = whole_planes(every) & LOWER
    return np.concatenate([nibbles, nibbles - (nibbles >> HALF_BITS - 1 << HALF_BITS)]).astype(np.uint8)


def pair_half(config: Config, context: int) -> int:
    """Bytes from the rows of the low nibbles to those of the high ones; twice so many to the next head's."""
    return list_pitch(config, ceil_div(context, 2))


def packed_rows(config: Config, layout: KvLayout, context: int, halves: Halves) -> Iterator[Item]:
    """Pairs of rows to the first places, KV head by KV head."""
    heads, table = max(1, layout.joined), At(Buffer("nibbles", 2 * BYTE_TABLE_ENTRIES // config.dim, Bank.STATE))
    yield VirtualCommand(unit=Unit.LOAD, note="nibbles", region=NIBBLES, fields={
        "row": table, "block_stride": 1, "rows": 1, "bytes": 2 * BYTE_TABLE_ENTRIES})
    yield _table(table)
    body: list[Item] = []
    for head in range(heads):
        body += _head(config, layout, context, head, halves, table)
    further = {PAIR_LISTS + PART: 2 * heads * pair_half(config, context)}
    run = layout.pitch if layout.joined else 2 * layout.pitch
    further |= dict.fromkeys((FROM, *(target + PART for target in _targets(halves))), run)
    yield Loop(body=(*body, *(SetDisplacement(region, amount, further=True) for region, amount in further.items())),
               times=Length(list_count(layout) // heads), note="keys and values of every head")


def _block(config: Config, groups: int) -> int:
    """Pairs of a turn, a power of two: keys and values of both rows take half of the accumulator at most."""
    return 1 << min(32, max(1, config.acc_rows // (8 * groups))).bit_length() - 1


def _targets(halves: Halves) -> tuple[str, ...]:
    return (TO, *(() if all(halves.packed) else (TO_WHOLE,)), *((TO_LOWER,) if halves.lower else ()))


def _table(at: At) -> VirtualCommand:
    return VirtualCommand(unit=Unit.VECTOR, op=VOp.TABLE, note="nibbles", fields={"src0": at})


def _head(config: Config, layout: KvLayout, context: int, head: int, halves: Halves, table: At) -> Iterator[Item]:
    """Of one head of a run, or of the two runs of a head."""
    groups = ceil_div(layout.head, config.dim)
    block, half = _block(config, groups), pair_half(config, context)
    pairs, size = Length(block, LengthReg.LEFT), ceil_div(2 * block, config.dim) * config.dim
    body: list[Item] = []
    for side in range(2):
        listed = At(Buffer(f"list {side}", size // config.dim, Bank.STATE))
        body.append(VirtualCommand(unit=Unit.LOAD, note="rows of pairs", region=PAIR_LISTS, fields={
            "offset": (2 * head + side) * half, "row": listed, "block_stride": 1, "rows": 1, "bytes": size}))
        body.append(VirtualCommand(unit=Unit.SELECT, op=SOp.LIST_LOAD, note="to the list", fields={
            "src0": listed, "dst": side * block, "n": pairs}))
    for part, name in enumerate(("keys", "values")):
        write = _part if halves.packed[part] else _copies
        body += write(layout, name, layout.offset(0, head, part), groups, block, context - 1)
        if part == 0 and halves.lower:
            signed = table + BYTE_TABLE_ENTRIES // config.dim
            body += _lower(layout, layout.offset(0, head, part), groups, block, body, table, signed)
    steps = {target: (2 if target == TO_WHOLE else 1) * layout.row for target in _targets(halves)}
    yield from rows_loop({PAIR_LISTS: 2} | steps, block, body, "pairs")


def _copies(layout: KvLayout, name: str, place: int, groups: int, block: int, last: int) -> Iterator[Item]:
    """Both rows of a turn's pairs as they are, one behind the other."""
    both = [At(Buffer(f"{name} {side}", groups * block, Bank.OPERAND)) for side in ("low", "high")]
    move: dict[str, Value] = {"bytes": layout.head, "row_stride": 1, "block_stride": block,
                              "rows": Length(block, LengthReg.LEFT)}
    for side, at in enumerate(both):
        yield VirtualCommand(unit=Unit.LOAD, note=name, region=FROM, flags=frozenset({int(MoveFlag.INDEXED)}), fields={
            **move, "row": at, "offset": place, "stride": layout.row, "list": side * block, "last_index": last})
    for side, at in enumerate(both):
        yield VirtualCommand(unit=Unit.STORE, note=name, region=TO_WHOLE, fields={
            **move, "row": at, "offset": place + side * layout.row, "stride": 2 * layout.row})


def _part(layout: KvLayout, name: str, place: int, groups: int, block: int, last: int) -> Iterator[Item]:
    """Keys or values of a turn's pairs."""
    pairs, rows = Length(block, LengthReg.LEFT), groups * block
    wide = [At(Buffer(f"{name} {side}", rows, Bank.ACCUMULATOR)) for side in ("low", "high")]
    halves = [At(Buffer(f"{name} {side} halves", rows, Bank.OPERAND)) for side in ("low", "high")]
    packed = At(Buffer(f"{name} packed", rows, Bank.RESULT))
    move: dict[str, Value] = {"offset": place, "stride": layout.row, "bytes": layout.head, "row_stride": 1,
                              "block_stride": block, "rows": pairs}
    for side, at in enumerate(wide):
        yield VirtualCommand(unit=Unit.LOAD, note=name, region=FROM, flags=frozenset(map(int, (
            MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.INDEXED))), fields={
                **move, "row": at, "list": side * block, "last_index": last})
    shared: dict[str, Value] = {"m": pairs, "n": layout.head, "src0_stride": block, "dst_stride": block}
    limits = (LEAST_HALF & 255) | MOST_HALF << 8
    for side, (at, to) in enumerate(zip(wide, halves, strict=True)):
        flags = {RequantFlag.CLAMP} | (set() if side else {RequantFlag.LOOKUP})
        yield VirtualCommand(unit=Unit.VECTOR, op=VOp.REQUANT, note=f"upper halves of {name}",
                             flags=frozenset(map(int, flags)),
                             fields={**shared, "src0": at, "dst": to, "mult": 1, "shift": HALF_BITS, "aux": limits})
    low, high = halves
    yield VirtualCommand(unit=Unit.VECTOR, op=VOp.ADD, note=f"pairs of {name}", fields={
        **shared, "src0": high, "src1": low, "dst": packed, "mult": 1 << HALF_BITS, "aux": 1, "shift": 0})
    yield VirtualCommand(unit=Unit.STORE, note=f"pairs of {name}", region=TO, fields={**move, "row": packed})


def _lower(layout: KvLayout, place: int, groups: int, block: int, before: Sequence[Item], table: At,
           signed: At) -> Iterator[Item]:
    """Lower halves of the keys of a turn's pairs, which stand in the accumulator: the ``before`` loads brought them."""
    pairs, rows = Length(block, LengthReg.LEFT), groups * block
    wide = [item.fields["row"] for item in before
            if isinstance(item, VirtualCommand) and item.unit is Unit.LOAD and MoveFlag.ACCUMULATOR in item.flags]
    shared: dict[str, Value] = {"m": pairs, "n": layout.head, "src0_stride": block, "dst_stride": block}
    halves = [At(Buffer(f"{side} lower halves", rows, Bank.OPERAND)) for side in ("low", "high")]
    for at, to, which in zip(wide, halves, (table, signed), strict=True):
        yield _table(which)
        yield VirtualCommand(unit=Unit.VECTOR, op=VOp.REQUANT, note="lower halves of keys",
                             flags=frozenset({int(RequantFlag.LOOKUP)}),
                             fields={**shared, "src0": at, "dst": to, "mult": 1, "shift": 0})
    yield _table(table)
    low, high = halves
    packed = At(Buffer("lower halves packed", rows, Bank.RESULT))
    yield VirtualCommand(unit=Unit.VECTOR, op=VOp.ADD, note="pairs of lower halves", fields={
        **shared, "src0": high, "src1": low, "dst": packed, "mult": 1 << HALF_BITS, "aux": 1, "shift": 0})
    yield VirtualCommand(unit=Unit.STORE, note="pairs of lower halves", region=TO_LOWER, fields={
        "offset": place, "stride": layout.row, "bytes": layout.head, "row": packed, "row_stride": 1,
        "block_stride": block, "rows": pairs})
