"""The compiler's passes, from a graph to a program of which it is proved that nothing races or faults.

:data:`PASSES` is the one list of them. Every kind of program goes through it, or through its end: those without a
network of their own begin at ``lower``, commands of other programs at ``turns``. What holds after a pass is checked
after every run of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gemmule.compiler.errors import CheckError
from gemmule.compiler.passes import checks
from gemmule.compiler.passes.emit import emit
from gemmule.compiler.passes.entry import Entry
from gemmule.compiler.passes.turns import place_turn_waits
from gemmule.compiler.passes.waits import place_straight_waits
from gemmule.compiler.program import Program

__all__ = ["PASSES", "Pass", "finish", "run"]

P = TypeVar("P", bound=Program)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One step of a compilation.

    Members
    -------
    does: what comes in, and what becomes of it.
    holds: what is true of the result, whatever the program.
    run: does it, and leaves the result in the entry program.
    check: says where ``holds`` is not true; None: nowhere.
    """

    name: str
    does: str
    holds: str
    run: Callable[[Entry[Any]], None]
    check: Callable[[Entry[Any]], str | None]


def _fuse(entry: Entry[Any]) -> None:
    entry.operators = entry.fuse()


def _map(entry: Entry[Any]) -> None:
    entry.candidates = entry.choose()


def _lower(entry: Entry[Any]) -> None:
    entry.lowered = entry.lower()


def _schedule(entry: Entry[Any]) -> None:
    entry.scheduled = entry.schedule()


def _allocate(entry: Entry[Any]) -> None:
    entry.placed = entry.allocate()


def _emit(entry: Entry[Any]) -> None:
    entry.bases = entry.name_bases()
    entry.emitted = emit(entry.scheduled.items, entry.placed, entry.bases)


def _waits(entry: Entry[Any]) -> None:
    entry.bounds = entry.limit()
    entry.commands = place_straight_waits(entry.emitted, entry.config, entry.bounds)


def _link(entry: Entry[Any]) -> None:
    entry.program = entry.build()


def _turns(entry: Entry[Any]) -> None:
    launches = entry.program.extremes() if entry.turns else []
    for most in entry.turns:
        commands = place_turn_waits(entry.program.commands, entry.config, launches, turns=most)
        entry.program = entry.program.written(commands)


def _verify(entry: Entry[Any]) -> None:
    entry.program.verified(*entry.program.extremes())


PASSES = (
    Pass(name="fuse", run=_fuse, check=checks.fused,
         does="nodes of the graph become operators, each of which one kernel writes whole",
         holds="every node belongs to one operator at most, and each is one that a kernel knows"),
    Pass(name="map", run=_map, check=checks.mapped,
         does="lists how the network may be cut for the device: tiles, weight ring, blocks of attention, by preference",
         holds="there is a mapping, and the weight ring of each fits the scratchpad by itself"),
    # From here to allocate with one mapping after another, until the buffers of one fit (:mod:`.fit`).
    Pass(name="lower", run=_lower, check=checks.lowered,
         does="kernels write each operator as commands on virtual buffers, in an order right one after another",
         holds="commands name rows inside their buffers, and exactly loads and stores name a DRAM region"),
    Pass(name="schedule", run=_schedule, check=checks.scheduled,
         does="parameters of neighbours come with one load, equal layers become one body, loads move up",
         holds="the same operations run as often, and the same bytes of each region move"),
    Pass(name="allocate", run=_allocate, check=checks.allocated,
         does="buffers get rows by their lifetimes, classes in banks of their own where there are enough",
         holds="buffers lie in their memory, and those that live at the same time share no row"),
    Pass(name="emit", run=_emit, check=checks.emitted,
         does="names become numbers: rows, base registers, bodies behind their REPEAT",
         holds="every item is one command, bodies nest, every region has a base register of its own"),
    Pass(name="waits", run=_waits, check=checks.waiting,
         does="each command gets the waits that its rows need, in the order in which commands stand",
         holds="commands are otherwise as they were; every wait reaches back no further than the device counts"),
    # All entry programs that share DRAM come this far before the linker lays it out.
    Pass(name="link", run=_link, check=checks.linked,
         does="images, constants, inputs, answers and caches get addresses; base registers stand at them",
         holds="no two regions share a byte, each image fills its own, each base register has a region"),
    Pass(name="turns", run=_turns, check=checks.tightened,
         does="adds the waits between turns of a body that launches at the ends of their ranges need",
         holds="every wait of a straight line is still there, or reaches less far back"),
    Pass(name="verify", run=_verify, check=lambda entry: None,
         does="runs the program through the verifier for the same launches",
         holds="no two commands race, none faults, none leaves its buffers; else ProgramError ends the compilation"),
)
"""In the order in which they run."""


def run(entry: Entry[Any], first: str, last: str) -> None:
    """The passes from one to another, by name, each with its check.

    Raises:
        CompileError: the program does not fit the device.
        CheckError: what must hold after a pass does not; the message names pass and place.
    """
    names = [step.name for step in PASSES]
    for step in PASSES[names.index(first):names.index(last) + 1]:
        step.run(entry)
        if place := step.check(entry):
            raise CheckError(f"after {step.name} of {entry.name} it must hold that {step.holds}, but {place}: the "
                             "compiler is wrong")


def finish(program: P, turns: Sequence[int | None], *, last: str = "verify") -> P:
    """A program whose commands lack only waits between turns, with these (``turns``: as of :class:`Entry`), verified.

    Raises:
        CompileError: as of :func:`run`.
    """
    entry: Entry[P] = Entry(program.config)
    entry.program, entry.commands, entry.turns = program, list(program.commands), turns
    run(entry, "turns", last)
    return entry.program
