"""Writing a program's random part: commands one after another, control commands among them, and bodies that repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gemmule.control import MAX_DEPTH, set_displacement
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    NUM_LENGTHS,
    NUM_PREDICATES,
    Command,
    Source,
    body_of,
    decode,
)
from gemmule.operands import Memory
from gemmule.sim.fuzz.brink import PLACES
from gemmule.sim.fuzz.builder import Builder, Candidate, far
from gemmule.sim.fuzz.commands import draw_command
from gemmule.sim.fuzz.control import draw_control, draw_repeat, draw_step
from gemmule.sim.fuzz.draw import FAR, NEAR, TARGETS, Draw, Note
from gemmule.sim.verify.access import accesses

__all__ = ["SkippedWriter", "Writer", "to_the_limit"]

LOOP, SET = 0.12, 0.1
"""Chance of a body, of SET or PARAMS, where a command could be."""
RUNS = 2
"""Commands that run by repetition, for each one written."""
MOST = 400
"""Of those, in the bodies of one loop that are not longer."""


@dataclass(frozen=True)
class Form:
    """A kind of loop: what draws the sizes of its bodies, outermost first, for a window of fetch, and its turns."""

    sizes: Callable[[Draw, int], list[int]]
    turns: tuple[int, int] = (2, 5)


def _around(draw: Draw, sizes: list[int], bodies: int) -> list[int]:
    """So many bodies more, each around those before."""
    for _ in range(bodies):
        sizes = [sizes[0] + 2 + draw.integer(0, 5), *sizes]
    return sizes


def _long(draw: Draw, window: int) -> list[int]:
    """Bodies of more commands than fetch keeps, with short ones or such in them, or none."""
    size = window + draw.integer(1, 20)
    inner = draw.choice([[], [draw.integer(1, 9)], [draw.integer(1, size - 2)]])
    return _around(draw, [size], draw.integer(1, 2)) if draw.chance(0.4) else [size, *inner]


def _brim(draw: Draw, window: int) -> list[int]:
    """As many commands as fetch keeps, one less, one more."""
    return _around(draw, [window + draw.integer(-1, 1)], draw.choice([0, 1, 1]))


def _nested(bodies: int) -> Callable[[Draw, int], list[int]]:
    return lambda draw, window: _around(draw, [draw.integer(1, 6)], bodies - 1)


FORMS = (
    Form(_long, (2, 3)), Form(_brim, (2, 4)), Form(_brim, (2, 4)),
    Form(_nested(MAX_DEPTH), (1, 3)), Form(_nested(3), (2, 3)), Form(_nested(2)),
    Form(lambda draw, window: [draw.integer(2, 12)], (2, 9)), Form(lambda draw, window: [1], (2, 40)),
    Form(_nested(1), (1, 1)), Form(lambda draw, window: [draw.integer(1, window + 3)], (0, 0)),
)
"""Each comes once in a while."""


class Writer:
    """Writes with a builder.

    ``commands``: about as many, for whose repetition there is time.
    """

    def __init__(self, builder: Builder, draw: Draw, commands: int) -> None:
        self.builder, self.draw = builder, draw
        self._strengthen = draw.choice([0.0, 0.0, 0.0, 0.1, 0.3])
        self._tries = draw.choice([2, 4, 5])
        self._runs = RUNS * commands
        self._lengths: tuple[int, ...] = ()
        self._bases: tuple[int, ...] = ()
        self._forms: list[Form] = []
        self._level = 0

    def write(self, commands: int, between: Sequence[Command] = ()) -> None:
        """As many commands, the given ones spread between them."""
        begin, sent = len(self.builder.commands), 0
        while (done := len(self.builder.commands) - begin - sent) < commands:
            if sent < (done + 1) * len(between) // commands:
                self.builder.must(between[sent])
                sent += 1
            else:
                self._next(commands - done)
        for command in between[sent:]:
            self.builder.must(command)

    def _next(self, room: int) -> None:
        """One command, or some that belong together: at most ``room``."""
        draw = self.draw
        if not draw.control or draw.storm or draw.wished is not None:
            self.step()
        elif room > 1 and draw.chance(LOOP):
            self.loop(room)
        elif room > 3 and draw.chance(SET):
            for command in draw_control(draw, self.builder.order.local):
                self.builder.control(command)
        elif room > 2 and draw.chance(0.02):
            self._to_the_limit()
        else:
            self.step()

    def predicate(self) -> int:
        """Of the next command."""
        return self.draw.predicate()

    def step(self) -> None:
        """A command of a unit. Of a few candidates the one that its waits hold up least: units then work side by side.
        """
        draw, builder = self.draw, self.builder
        best: Candidate | None = None
        notes: Sequence[Note] = ()
        left = 1 if draw.hollow else self._tries
        while left or best is None:
            command, about = draw_command(draw)
            if not draw.asked and draw.chance(0.03):
                places = [name for name, _ in body_of(command.unit) if name in PLACES]
                command = far(builder, draw, command, places)
            found = builder.plan(replace(command, predicate=self.predicate()), self._strengthen)
            if found is None:
                continue
            left -= 1
            if draw.asked:
                best, notes = found, () if found.command.predicate else about
                break
            # Empty commands need no waits; they must not win by that.
            if best is None or found.cost < best.cost and not found.empty:
                best, notes = found, () if found.command.predicate else about
            if not best.command.waits:
                break
        builder.accept(best)
        draw.accept(notes)

    def _to_the_limit(self) -> None:
        """A move, displaced such that it ends exactly at its limit."""
        builder, draw = self.builder, self.draw
        for _ in range(40):
            command = replace(draw_command(draw)[0], predicate=self.predicate())
            draw.storm = []
            if found := to_the_limit(builder, command):
                if builder.control(found) and (candidate := builder.plan(command)):
                    builder.accept(candidate)
                    draw.moved = (command.fields["base"], *draw.moved[:3])
                return

    def loop(self, room: int) -> None:
        """A REPEAT with its body, of one of the forms that have not come for long."""
        draw = self.draw
        form, sizes = self._form(room)
        runs = sizes[0] + 1 + min(self._runs, max(2 * sizes[0], min(MOST, self._runs // 3)))
        kept = draw.long_cycles, draw.wish, draw.fresh, draw.moved
        draw.long_cycles, draw.wish = 0, None
        done = self._loop(sizes, draw.integer(*form.turns), runs)
        draw.long_cycles, draw.wish = kept[:2]
        if not done:
            _, _, draw.fresh, draw.moved = kept
        self._runs -= max(0, done - sizes[0])

    def _form(self, room: int) -> tuple[Form, list[int]]:
        """A form that has not come for long and fits, with the sizes of its bodies."""
        while True:
            for form in self._forms:
                sizes = form.sizes(self.draw, self.builder.config.fetch_queue)
                if sizes[0] < room:
                    self._forms.remove(form)
                    return form, sizes
            self._forms += [FORMS[at] for at in self.draw.random.permutation(len(FORMS))]

    def _loop(self, sizes: Sequence[int], turns: int, runs: int) -> int:
        """Bodies of these sizes, each in the one before; commands that ran, 0 where it did not come about."""
        draw, builder, saved = self.draw, self.builder, self.draw.save()
        lengths, bases = self._lengths, self._bases
        self._choose_steps(len(sizes))
        repeat = draw_repeat(draw, builder.order.local.lengths, turns, lengths)
        constant = not repeat.fields["times_reg"] or not repeat.fields["times_cap"]
        if turns == 0 and constant and draw.chance(0.7):
            body = [_anything(draw) for _ in range(sizes[0])]
        else:
            self.builder = builder.trial()
            draw.follow(self.builder.order.local)
            self._level += 1
            self._fill(sizes, runs)
            self._level -= 1
            body, self.builder = self.builder.commands, builder
        self._lengths, self._bases = lengths, bases
        piece = [replace(repeat, fields={**repeat.fields, "body": sizes[0]}), *body]
        taken = builder.repeat(piece, runs)
        if not taken or not turns:
            draw.restore(saved)
        draw.follow(builder.order.local)
        return taken

    def _choose_steps(self, bodies: int) -> None:
        """Registers that differ turn by turn, beside those of the bodies around."""
        draw = self.draw
        self._lengths += tuple(draw.integer(1, NUM_LENGTHS - 1) for _ in range(draw.integer(bodies > 1, 2)))
        self._bases += tuple(draw.choice(draw.choice([NEAR, TARGETS])) for _ in range(draw.integer(0, 2)))
        draw.fresh, draw.moved = (*self._lengths, *draw.fresh[:2]), (*self._bases, *draw.moved[:2])

    def _fill(self, sizes: Sequence[int], runs: int) -> None:
        """The commands of a body, in the order of its first turn."""
        draw, builder, size, inner = self.draw, self.builder, sizes[0], sizes[1:]
        at = draw.integer(0, max(0, size - inner[0] - 3)) if inner else 0
        if at and draw.chance(0.7):  # often the body within comes another number of times in each turn
            builder.control(draw_step(draw, builder.order.local, self._lengths, ()))
        while (left := size - len(builder.commands)) > 0:
            if inner and len(builder.commands) >= at:
                if left >= inner[0] + 2:
                    self._loop(inner, draw.choice([0, 1, 2, 2, 2, 3, 3]), max(runs // 2, left))
                inner = []
            elif left > 3 and self._level + len(inner) < MAX_DEPTH and draw.chance(0.02):
                self._loop([1], draw.integer(0, 3), runs // 2)
            elif (self._lengths or self._bases) and draw.chance(0.2):
                builder.control(draw_step(draw, builder.order.local, self._lengths, self._bases))
            elif left > 3 + len(inner) and draw.chance(0.08):
                for command in draw_control(draw, builder.order.local):
                    builder.control(command)
            else:
                self.step()


def _anything(draw: Draw) -> Command:
    """Any bits: a command that is never looked at."""
    word = int.from_bytes(draw.random.bytes(COMMAND_BYTES), "little")
    return decode(word - word % 8 + draw.integer(0, CONTROL))


def to_the_limit(builder: Builder, command: Command, more: int = 0) -> Command | None:
    """SET that displaces a move so far that it ends at its limit, or ``more`` bytes beyond; None where it cannot be."""
    base = command.fields.get("base", 0)
    found = builder.plan(command) if base and base not in FAR else None
    if found is None:
        return None
    local = builder.order.local
    for access in accesses(found.plan.row, found.plan.out, builder.config):
        if access.memory is Memory.DRAM:
            left = int(local.bases[base] + local.limits[base]) - int(access.spans[-1, 1])
            return set_displacement(base, Source.DISPLACEMENT, base, amount=left + more)
    return None


class SkippedWriter(Writer):
    """Writes commands on predicates that nothing has set: they are resolved, at the brink of a fault, and do nothing.

    So they may be as long as can be, and anywhere in the address space.
    """

    def predicate(self) -> int:
        return self.draw.integer(1, NUM_PREDICATES - 1)

    def step(self) -> None:
        draw, builder = self.draw, self.builder
        while True:
            command, _ = draw_command(draw)
            draw.storm = []
            if "base" in command.fields and draw.chance(0.5):
                at = draw.integer(0, (1 << draw.integer(4, 32)) - 1)
                command = replace(command, fields={**command.fields, "base": draw.choice(FAR), "offset": at})
            command = far(builder, draw, command, [name for name, _ in body_of(command.unit)])
            found = builder.plan(replace(command, predicate=self.predicate()))
            if found:
                builder.accept(found)
                return
