"""Commands at the very end of what is legal, and just beyond it: where comparators turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmule.config import Config
from gemmule.isa import NUM_BASES, Command, IsaError, body_of, decode, encode, table_row
from gemmule.operands import Memory
from gemmule.sim.verify.access import accesses
from gemmule.sim.verify.order import Order
from gemmule.terms import OUT

__all__ = ["PLACES", "beyond", "ends_of", "furthest"]

PLACES = frozenset((
    "offset", "stride", "row", "row_stride", "block_stride", "list", "last_index", "a_row", "a_stride", "b_row",
    "b_stride", "c_row", "c_stride", "src0", "src0_stride", "src1", "aux", "dst", "dst_stride", "first"))
"""Fields that say where a command works, not how long it takes."""


def _faults(order: Order, command: Command) -> bool:
    return bool(order.plan(table_row(command)).out[OUT["fault"]])


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
        if random.random() < 0.5:
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


def ends_of(order: Order, commands: Sequence[Command], bases: np.ndarray, config: Config) -> np.ndarray:
    """By base register: bytes from it to the end of what these commands touch, 0 where they do not use it."""
    ends = np.zeros(NUM_BASES, dtype=np.int64)
    for command in commands:
        base = command.fields.get("base", -1)
        if base < 0:
            continue
        plan = order.plan(table_row(command))
        for access in accesses(plan.row, plan.out, config):
            if access.memory is Memory.DRAM:
                ends[base] = max(ends[base], access.spans[-1, 1] - bases[base])
    return ends
