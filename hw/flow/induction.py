"""Invariants of a netlist: what holds after a reset and, if all of them hold, still does a cycle later."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmule.hw.flow.ask import never_rises
from gemmule.hw.flow.cells import Bit, Netlist
from gemmule.hw.flow.devices import Devices
from gemmule.hw.flow.tools import Progress, Tools

__all__ = ["Invariant", "Known", "View", "known_of"]

RESET = "rst"


@dataclass(frozen=True, eq=False)
class View:
    """The right device in one cycle: signals by name, and gates on them.

    Signals are those of the RTL, with the numbers left out that Yosys gives to names.
    """

    devices: Devices
    cycle: int

    def __getitem__(self, name: str) -> list[Bit]:
        """The bits of a signal.

        Raises:
            KeyError: the netlist has no such signal.
        """
        return self.devices.bits(self.devices.netlist.names[name], self.cycle, False)

    def no(self, bit: Bit) -> Bit:
        return self.devices.gate("$not", bit)

    def both(self, *bits: Bit) -> Bit:
        return self.no(self.devices.any([self.no(bit) for bit in bits]))

    def some(self, *bits: Bit) -> Bit:
        return self.devices.any(list(bits))

    def if_(self, *conditions: Bit, then: Bit) -> Bit:
        return self.some(*map(self.no, conditions), then)

    def equal(self, bits: Sequence[Bit], number: int) -> Bit:
        return self.both(*(bit if number >> i & 1 else self.no(bit) for i, bit in enumerate(bits)))


@dataclass(frozen=True)
class Invariant:
    """Something about the state that holds in every cycle."""

    name: str
    why: str
    holds: Callable[[View], Bit]
    zeros: tuple[tuple[str, int], ...] = ()
    """(signal, bit) of registers that are never 1 by it."""


@dataclass(frozen=True)
class Known:
    """Invariants that were proved."""

    invariants: tuple[Invariant, ...]

    def zeros(self, netlist: Netlist) -> list[Bit]:
        """Bits that are always 0."""
        return [netlist.names[name][bit] for invariant in self.invariants for name, bit in invariant.zeros]

    def hold(self, devices: Devices, cycle: int) -> Bit:
        """All that the netlist has the signals for hold at the beginning of a cycle."""
        view = View(devices, cycle)
        return view.both(*(made for invariant in self.invariants if (made := _made(invariant, view)) is not None))


def _made(invariant: Invariant, view: View) -> Bit | None:
    """Whether the invariant holds; None: a signal is missing."""
    try:
        return invariant.holds(view)
    except KeyError:
        return None


def known_of(netlist: Netlist, invariants: Sequence[Invariant], folder: Path, tools: Tools,
             progress: Progress = lambda step: None) -> Known:
    """Those of the invariants that the netlist has the signals for and that are proved, all of them together.

    An invariant is refused if a cycle of reset may lead to a state without it, from whatever state, or any other cycle
    from one in which all hold. The others are then tried without it, until none is refused.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))
    left = [each for each in invariants if _made(each, View(Devices(netlist, None, 0), 0)) is not None]

    def proved(one: Invariant, reset: bool) -> bool:
        devices = Devices(netlist, None, 0)
        before, after = View(devices, 0), View(devices, 1)
        given = before[RESET][0] if reset else Known(tuple(left)).hold(devices, 0)
        text = devices.module(broken=[before.both(given, before.no(one.holds(after)))])
        return never_rises("broken", folder, text, tools, progress)

    left = [one for one in left if proved(one, True)]
    while refused := [one for one in left if not proved(one, False)]:
        left = [one for one in left if one not in refused]
    return Known(tuple(left))
