"""Commands at the very end of what is legal, and just beyond it: where comparators turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    CONTROL,
    HEADER,
    NUM_BASES,
    TABLE_FIELDS,
    Command,
    COp,
    IsaError,
    Unit,
    body_of,
    decode,
    encode,
    table_row,
)
from gemmule.operands import Memory
from gemmule.sim.stream import Stream
from gemmule.sim.verify.access import accesses
from gemmule.sim.verify.order import Order
from gemmule.sim.verify.state import FAULT
from gemmule.terms import OUT

__all__ = ["PLACES", "beyond", "ends_of", "furthest"]

PLACES = frozenset((
    "offset", "stride", "row", "row_stride", "block_stride", "list", "last_index", "a_row", "a_stride", "b_row",
    "b_stride", "c_row", "c_stride", "src0", "src0_stride", "src1", "aux", "dst", "dst_stride", "first",
    "first_high"))
"""Fields that say where a command works, not how long it takes."""


_BASE = TABLE_FIELDS.index("base")


def _faults(order: Order, command: Command) -> bool:
    if command.unit is not CONTROL:
        return bool(order.plan(table_row(command)).out[OUT["fault"]])
    row = table_row(command)
    if command.op == COp.REPEAT:  # what follows it is not known
        return bool(row[TABLE_FIELDS.index("op") + 1:len(HEADER)].any()) or not command.fields["body"]
    return order.copy().run(row[None])[1] == FAULT


def furthest(order: Order, command: Command, name: str) -> Command | None:
    """The command with a field as large as it can be without a fault; None where no larger value faults."""
    def at(value: int) -> Command:
        return replace(command, fields={**command.fields, name: value})

    legal, wrong = command.fields.get(name, 0), (1 << dict(body_of(command.unit))[name]) - 1
    if not _faults(order, at(wrong)) or _faults(order, command):
        return None
    while wrong - legal > 1:
        middle = (legal + wrong) // 2
        legal, wrong = (legal, middle) if _faults(order, at(middle)) else (middle, wrong)
    return at(legal)


def beyond(order: Order, commands: Sequence[Command], random: np.random.Generator) -> Command:
    """One of the commands that faults by a field one too large, or by one wrong bit."""
    while True:
        command = commands[int(random.integers(len(commands)))]
        if command.unit is not CONTROL and random.random() < 0.5:
            body = body_of(command.unit)
            name, _ = body[int(random.integers(len(body)))]
            last = furthest(order, command, name)
            wrong = last and replace(last, fields={**last.fields, name: last.fields[name] + 1})
        else:
            try:
                wrong = decode(encode(command) ^ 1 << int(random.integers(256)))
            except IsaError:
                continue
        if wrong and _faults(order, wrong):
            return wrong


def ends_of(stream: Stream, config: Config) -> np.ndarray:
    """By base register: the end of what the commands of a launch touch by it in DRAM; 0 where they do not use it."""
    ends = np.zeros(NUM_BASES, dtype=np.int64)
    for place, unit, out in zip(stream.places[:stream.good], stream.units, stream.resolved):
        if unit > Unit.STORE:
            continue
        row = stream.table[place]
        for access in accesses(row, out, config):
            if access.memory is Memory.DRAM:
                ends[row[_BASE]] = max(ends[row[_BASE]], access.spans[-1, 1])
    return ends
