"""The front end of the plain simulator: fetch, window, bodies, and the line of registers of resolve.

Written from docs/timing.md, with the words of its section on bodies. What a control command does to registers, and how
often a body comes, is known beforehand (``tests/nests.py``); here is only when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, CONTROL, Command, COp
from gemmule.timing import Timing

from ...nests import Step


@dataclass
class Body:
    """A repeated body around a position."""

    begin: int
    commands: int
    turns: int
    """That are left, with this one."""
    rest: int
    """Commands behind it up to the end of what is around it."""
    number: int = 0
    """Of its first command in the window."""


@dataclass
class Side:
    """A position in the program: where fetch requests, or where commands are taken."""

    place: int
    left: int
    """Commands up to the end of the innermost body, or of the program."""
    bodies: list[Body] = field(default_factory=list)

    def on(self, n: int) -> tuple[Body | None, bool]:
        """``n`` commands on; the body that has ended a turn, and whether that was its last one."""
        assert 0 < n <= self.left
        self.place, self.left = self.place + n, self.left - n
        if self.left or not self.bodies:
            return None, False
        body = self.bodies[-1]
        if body.turns > 1:
            body.turns -= 1
            self.place, self.left = body.begin, body.commands
            return body, False
        self.left = self.bodies.pop().rest
        return body, True


EVENTS = {
    "turn in the window", "turn of a body in one that is kept", "fetch turns", "kept body not all requested",
    "kept body all requested", "body in a kept one", "body fetched again", "four deep", "drop", "drop in a kept body",
    "drop while resolve is full", "quiet", "burst ends with a body", "stop", "held while there is room ahead",
    "frees many",
}
"""What programs may exercise."""


class Front:
    """Registers of fetch and of resolve's line; methods without "do" decide, the others update."""

    def __init__(self, config: Config, timing: Timing, address: int, program: Sequence[Command],
                 steps: Sequence[Step]) -> None:
        self.c, self.x, self.address, self.program, self.steps = config, timing, address, program, steps
        self.fetch, self.takes = Side(0, len(program)), Side(0, len(program))
        # commands by their number as fetch requests them: requested, there, next to take, first one that is kept
        self.requested = self.arrived = self.read = self.kept = 0
        self.window: dict[int, int] = {}  # their places
        self.anchored: Body | None = None
        self.dropping = 0
        self.stopped = False  # a control command was not fine
        assert timing.resolve > 1, "a stage before the queue"
        self.stages: list[int | None] = [None] * (timing.resolve - 1)
        self.queue: list[int] = []  # behind them; its room is a register
        self.age = 0  # of the command in the first stage
        self.taken = 0
        self.seen: Counter[str] = Counter()
        """Of :data:`EVENTS`."""

    # decisions of a cycle

    def _control(self, d: int) -> bool:
        return self.program[self.steps[d].place].unit == CONTROL

    def _may_leave_first(self) -> bool:
        d = self.stages[0]
        return d is not None and (not self._control(d) or self.age >= self.x.control)

    def head(self) -> int | None:
        """The command that may leave resolve, or shows its fault."""
        return self.queue[0] if self.queue else None

    def wants(self) -> bool:
        """Whether a command is taken into resolve."""
        moves = len(self.queue) < 2 or None in self.stages[1:]
        room = self.stages[0] is None or (self._may_leave_first() and moves)
        return room and not self.dropping and not self.stopped and self.read < self.arrived and self.takes.left > 0

    def drops(self) -> bool:
        return self.dropping > 0 and self.read < self.arrived

    def effect(self) -> int | None:
        """The control command whose effect is there from the next cycle on."""
        d = self.stages[0]
        return d if d is not None and self._control(d) and self.age == self.x.control - 1 else None

    def burst(self) -> range:
        """Bytes to request; empty: nothing."""
        begin = self.address + COMMAND_BYTES * self.fetch.place
        to_boundary = (self.c.burst_bytes - begin % self.c.burst_bytes) // COMMAND_BYTES
        n = min(to_boundary, self.fetch.left)
        if self.c.fetch_queue - (self.requested - self.kept) < n:
            return range(0)
        d = self.effect()
        if d is not None and self.program[self.steps[d].place].op == COp.REPEAT:
            self.seen["quiet"] += n > 0
            return range(0)
        self.seen["burst ends with a body"] += 0 < n < to_boundary and len(self.fetch.bodies) > 0
        return range(begin, begin + COMMAND_BYTES * n)

    @property
    def finished(self) -> bool:
        """Everything is taken, nothing is left to drop, resolve is empty."""
        return not (self.takes.left or self.takes.bodies or self.dropping or self.queue or
                    any(d is not None for d in self.stages))

    # updates at the end of a cycle

    def do_request(self, piece: range) -> None:
        n = len(piece) // COMMAND_BYTES
        for i in range(n):
            self.window[self.requested + i] = self.fetch.place + i
        self.requested += n
        self.fetch.on(n)
        self.seen["fetch turns"] += self.fetch.place <= self.window[self.requested - 1]

    def do_take(self) -> int:
        d = self.taken
        assert self.window[self.read] == self.takes.place == self.steps[d].place
        self.taken += 1
        self.read += 1
        body, last = self.takes.on(1)
        if body is not None and self.anchored is not None:
            if not last:
                self.read = body.number
                self.seen["turn in the window" if body is self.anchored else "turn of a body in one that is kept"] += 1
            elif body is self.anchored:
                self.anchored = None
                self.seen["frees many"] += body.commands > 1
        self._free()
        return d

    def do_drop(self) -> None:
        assert self.window[self.read] == self.takes.place
        self.seen["drop"] += 1
        self.seen["drop in a kept body"] += self.anchored is not None
        self.seen["drop while resolve is full"] += None not in self.stages and len(self.queue) == 2
        self.dropping -= 1
        self.read += 1
        self.takes.place, self.takes.left = self.takes.place + 1, self.takes.left - 1
        self._free()

    def _free(self) -> None:
        if self.anchored is None:
            self.kept = self.read

    def do_effect(self, d: int) -> None:
        step, takes, fetch = self.steps[d], self.takes, self.fetch
        command = self.program[step.place]
        if step.fault:
            self.stopped = True
            self.seen["stop"] += 1
            return
        if command.op != COp.REPEAT:
            return
        n, times = command.fields["body"], step.times
        if times == 0:
            self.dropping = n
            return
        body = Body(takes.place, n, times, takes.left - n, self.read)
        takes.bodies.append(body)
        takes.left = n
        self.seen["four deep"] += len(takes.bodies) == 4
        if self.anchored is not None:
            self.seen["body in a kept one"] += 1
            return
        short, ahead = n <= self.c.fetch_queue, self.requested - self.read
        if short:
            self.anchored = body
            self.seen["kept body not all requested" if ahead < n else "kept body all requested"] += 1
        if ahead < n:
            self.seen["body fetched again"] += not short and times > 1
            fetch.bodies.append(Body(takes.place, n, 1 if short else times, fetch.left - (n - ahead)))
            fetch.left = n - ahead

    def do_move(self, pushed: bool, take: int | None) -> None:
        """Each command moves on where there is room; one that is taken comes behind."""
        stages = self.stages
        leaves, held = self._may_leave_first(), stages[0]
        self.seen["held while there is room ahead"] += held is not None and not leaves and None in stages
        room = len(self.queue) < 2
        if pushed:
            self.queue.pop(0)
        if room and stages[-1] is not None and (len(stages) > 1 or leaves):
            self.queue.append(stages[-1])
            stages[-1] = None
        for n in reversed(range(1, len(stages))):
            if stages[n] is None and (n > 1 or leaves):
                stages[n], stages[n - 1] = stages[n - 1], None
        self.age += 1
        if take is not None:
            assert stages[0] is None
            stages[0] = take
        if stages[0] is not held:
            self.age = 0
