"""What makes a random program fault: one wrong command, alone, within bodies, or one that turns wrong in a later turn.

All that goes before it is legal. Control commands often stand right behind it: resolve takes them while it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gemmule.control import MAX_DEPTH, params, repeat, set_displacement, set_length
from gemmule.isa import (
    CONTROL,
    LENGTHS,
    MAX_LENGTH,
    NUM_LENGTHS,
    NUM_PREDICATES,
    PARAMS_WORDS,
    Command,
    Dyn,
    Source,
    Unit,
    table_row,
)
from gemmule.sim.fuzz.brink import beyond
from gemmule.sim.fuzz.builder import Builder
from gemmule.sim.fuzz.commands import draw_command
from gemmule.sim.fuzz.control import draw_params, draw_repeat, draw_set
from gemmule.sim.fuzz.draw import Draw
from gemmule.sim.fuzz.faults import faulty_commands, faulty_controls
from gemmule.sim.fuzz.write import to_the_limit
from gemmule.sim.verify.state import FAULT

__all__ = ["draw_broken"]

RUN = 400
"""Commands that run at most until one faults."""
_REPEATS = ("beyond", "same end", "beyond the end", "last", "fifth")
"""Bodies that cannot be, by what is around them."""


def draw_broken(builder: Builder, draw: Draw, program: Sequence[Command], behind: int, *,
                skipped: bool = False) -> list[Command]:
    """Commands of which one faults, behind what the builder's order knows and before ``behind`` others.

    ``program``: commands of which one may be taken with something wrong. ``skipped``: those that are legal have a
    predicate. The builder is used up.
    """
    draw.follow(builder.order.local)
    draw.long_cycles, draw.wish, draw.storm, draw.hollow = 0, None, [], 0
    if draw.control and draw.chance(0.3):
        for _ in range(20):
            if _later(builder, draw, skipped):
                return [*builder.commands, *_behind(builder, draw, behind)]
    while True:
        found = _at_once(builder, draw, program, behind)
        rows = np.stack([table_row(command) for command in found + [Command.make(Unit.LOAD)] * behind])
        if builder.order.copy().run(rows)[1] == FAULT:
            return [*builder.commands, *found]


def _at_once(builder: Builder, draw: Draw, program: Sequence[Command], behind: int) -> list[Command]:
    """A command that faults when it comes first, in up to four bodies; what stands there beside it does nothing."""
    levels = draw.choice([0, 0, 0, 1, 2, 3, 4]) if draw.control else 0
    tail = _behind(builder, draw, 1 << 16)
    kind = draw.choice(_REPEATS) if draw.control and draw.chance(0.2) else ""
    bad = _wrong(builder, draw, program)
    if kind == "beyond":
        levels, bad = 0, _repeat(draw, draw.choice([len(tail) + behind + 1, (1 << 24) - 1]))
    elif kind:
        levels = MAX_DEPTH if kind == "fifth" else max(1, levels)
        tail = {"last": [], "fifth": [_nothing(draw), _nothing(draw)]}.get(kind, tail)
        more = {"same end": len(tail), "beyond the end": len(tail) + draw.integer(1, 40)}.get(kind, 1)
        bad = _repeat(draw, more)
    found = [bad, *tail]
    for level in range(levels):
        found = [*(_nothing(draw) for _ in range(draw.integer(0, 2))), *found]
        if level:  # it ends behind the one within it
            found.append(_nothing(draw))
        found.insert(0, repeat(len(found), draw.integer(1, 3)))
    return found


def _repeat(draw: Draw, body: int) -> Command:
    """A REPEAT of so many commands, or of none."""
    made = draw_repeat(draw, draw.lengths, draw.choice([0, 1, 3]))
    return replace(made, fields={**made.fields, "body": body})


def _wrong(builder: Builder, draw: Draw, program: Sequence[Command]) -> Command:
    """A command that faults by itself: one of a list, or one of the program's with something wrong."""
    if draw.control and draw.chance(0.35):
        found = faulty_controls(builder.config, builder.order.local, draw.random)
        op = draw.choice(sorted({command.op for command in found}))
        return draw.choice([command for command in found if command.op == op])  # type: ignore[no-any-return]
    if draw.chance(0.5):
        return draw.choice(faulty_commands(builder.config, draw.bases, draw.random))  # type: ignore[no-any-return]
    return beyond(builder.order, program, draw.random)


def _nothing(draw: Draw) -> Command:
    """A command that changes nothing."""
    register = draw.integer(1, NUM_LENGTHS - 1)
    return draw.choice([  # type: ignore[no-any-return]
        Command.make(draw.choice(list(Unit))), set_length(register, Source.LENGTH, register),
        set_displacement(register, Source.DISPLACEMENT, register)])


def _behind(builder: Builder, draw: Draw, behind: int) -> list[Command]:
    """What may stand right behind a command that faults: mostly control commands, legal or not."""
    count, window = draw.choice([0, 1, 2, 3, 4]) if draw.control else 0, builder.config.fetch_queue
    found = []
    for kind in (draw.integer(0, 5) for _ in range(count)):
        if kind == 0:
            found.append(draw_set(draw, builder.order.local))
        elif kind == 1:
            found.append(draw_params(draw, builder.order.local))
        elif kind == 2:
            found.append(draw.choice(faulty_controls(builder.config, builder.order.local, draw.random)))
        elif kind == 3:
            found.append(_nothing(draw))
        else:
            body = draw.choice([1, 2, draw.integer(1, window), window + 1, draw.integer(1, max(1, behind)), 1 << 20])
            found.append(_repeat(draw, body))
    return found


def _later(builder: Builder, draw: Draw, skipped: bool) -> bool:
    """Append a body that is legal for a turn and more, and faults then; False where that did not come about."""
    prepare, body = draw.choice([_by_limit, _by_row, _by_length, _by_word])(builder, draw)
    trial = builder.branch(builder.order)
    if not body or not all(trial.control(command) for command in prepare):
        return False
    if skipped:
        body[0] = replace(body[0], predicate=draw.integer(1, NUM_PREDICATES - 1) if body[0].unit is not CONTROL else 0)
    for _ in range(draw.integer(0, 2)):
        body.insert(draw.integer(0, len(body)), _nothing(draw))
    piece = [repeat(len(body), draw.integer(12, 60)), *body]
    if draw.chance(0.4):
        piece = [repeat(len(piece) + 2, draw.integer(1, 9)), _nothing(draw), *piece, _nothing(draw)]
    if not trial.repeat(piece, RUN, until_fault=True):
        return False
    builder.commands, builder.order = [*builder.commands, *trial.commands], trial.order
    return True


Made = tuple[list[Command], list[Command]]
"""Control commands before a body, and the body; none where there is none to be had."""


def _drawn(builder: Builder, draw: Draw, wanted: Callable[[Command], bool]) -> Command | None:
    """A legal command that touches something."""
    for _ in range(60):
        command, _ = draw_command(draw)
        draw.storm = []
        if wanted(command) and (found := builder.plan(command)) and not found.empty:
            return replace(command, waits={})
    return None


def _by_limit(builder: Builder, draw: Draw) -> Made:
    """A move that comes closer to its limit, reaches it, and is a step beyond it."""
    move = _drawn(builder, draw, lambda command: "base" in command.fields)
    found = move and to_the_limit(builder, move)
    if not move or not found:
        return [], []
    base, step = move.fields["base"], draw.choice([1, builder.config.bus_bytes, draw.integer(1, 300)])
    first = set_displacement(base, Source.DISPLACEMENT, base,
                             amount=found.fields["amount"] - step * draw.integer(1, 6))
    return [first], [move, set_displacement(base, Source.DISPLACEMENT, base, amount=step)]


def _grows(draw: Draw, register: int, most: int) -> Command:
    """SET that makes a length larger by some part of ``most``."""
    return set_length(register, Source.LENGTH, register, amount=most // draw.integer(2, 6) + draw.integer(0, 9))


def _by_row(builder: Builder, draw: Draw) -> Made:
    """A command whose row goes on until it leaves the memory."""
    command, register = _drawn(builder, draw, lambda command: True), draw.integer(1, NUM_LENGTHS - 1)
    if command is None:
        return [], []
    moved = replace(command, dyn=(Dyn(draw.integer(1, 3)), register, draw.integer(1, 9)))
    return [set_length(register)], [moved, _grows(draw, register, builder.config.spm_rows)]


def _by_length(builder: Builder, draw: Draw) -> Made:
    """A command that becomes longer until it leaves the memory, or what the mesh takes."""
    command, register = _drawn(builder, draw, lambda command: True), draw.integer(1, NUM_LENGTHS - 1)
    if command is None:
        return [], []
    name = draw.choice(LENGTHS[command.unit])
    longer = {f"{name}_reg": register, f"{name}_offset": 0, f"{name}_cap": MAX_LENGTH}
    return ([set_length(register, amount=draw.integer(0, 2))],
            [replace(command, fields={**command.fields, **longer}), _grows(draw, register, builder.config.spm_rows)])


def _by_word(builder: Builder, draw: Draw) -> Made:
    """A SET that reads the last parameters, one after another, and then what is not there."""
    first, register = builder.config.parameter_words - PARAMS_WORDS, draw.integer(1, NUM_LENGTHS - 1)
    half, target = draw.chance(0.5), draw.integer(1, NUM_LENGTHS - 1)
    have = draw.integer(0, first << half)
    read = set_length(target, Source.HALF if half else Source.WORD, register, index=(first << half) - have)
    if target == register:
        return [], []
    return ([params(first, *(draw.integer(0, 99) for _ in range(PARAMS_WORDS))), set_length(register, amount=have)],
            [read, set_length(register, Source.LENGTH, register, amount=draw.integer(1, 3))])
