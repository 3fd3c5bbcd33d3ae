"""Proofs that a mutant changes nothing though bits of its state may differ for any time, because nobody looks at them.

The device with the mutation in every cycle is compared with the device without it. A relation says how their states
may differ: bits of the state are equal, but for some that are equal only while conditions hold, which are bits of the
state of the device without the mutation. It is proved that the relation is kept:

- from any two states that are so related, of which the first is one in which invariants hold, with the same inputs:
  what leaves the devices and what enters a RAM is the same, and the states after the cycle are related again;
- a cycle of reset, from one state that is any at all, leads to states that are related, and RAMs take up the same.

Both devices begin with a reset in the same state, whatever it is; invariants hold behind it (``induction.py``). So what
leaves them is the same in every cycle thereafter. What a channel of the bus shows beside a ``valid`` that is 0 means
nothing and may differ.

The relation is found, not given: at first all bits are equal; one that a counterexample shows to differ is from then on
equal under conditions alone, at first under each of many; those that counterexamples refute are dropped. Only the proof
at the end counts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path

from gemmule.hw.flow.ask import counterexample, never_rises
from gemmule.hw.flow.cells import MEMORY, REGISTERS, Bit, Netlist
from gemmule.hw.flow.gates import TooLargeError
from gemmule.hw.flow.induction import RESET, Known
from gemmule.hw.flow.live import CLOCKS, seen
from gemmule.hw.flow.mutate import Mutant
from gemmule.hw.flow.product import Product
from gemmule.hw.flow.tools import Progress, Tools

__all__ = ["Condition", "Related", "Search", "conditions", "related", "resets"]

ROUNDS = 60
"""Questions after which no relation is looked for any longer."""
HEADER = 8
"""Lowest bits of a register that may say what its other bits mean."""
FORWARD, BACK = 3, 3
"""Gates from a bit on, and from there back, within which conditions are looked for."""
FEW, GATE = 2, 12
"""Bits of an input, and of all inputs of a gate, that may decide something."""
MOST = 40
"""Bits of which conditions are."""
MOST_LOOSE = 128
"""Bits that may differ."""


@dataclass(frozen=True)
class Condition:
    """A bit of the state has a value."""

    bit: Bit
    value: bool


class Related(Product):
    """Both devices, the mutation in every cycle, from states that are related.

    Parameters
    ----------
    zeros: bits that are 0 in both devices; with ``reset`` only behind the cycle.
    loose: bits of registers, and of what clocked read ports of RAMs hold, that are equal where one of these conditions
        holds.
    reset: the cycle is one of reset, from any state.
    """

    def __init__(self, netlist: Netlist, mutant: Mutant, zeros: Sequence[Bit],
                 loose: Mapping[Bit, Sequence[Condition]], reset: bool) -> None:
        super().__init__(netlist, mutant, 0, zeros)
        assert not self.zeros & loose.keys()
        self.loose, self.reset = {bit: tuple(of) for bit, of in loose.items()}, reset
        if reset:
            self.zeros = frozenset()

    @cached_property
    def seen(self) -> frozenset[Bit]:
        return seen(self.netlist, *self.also)  # without zeros: the mutant may not keep what follows from them

    def begin(self) -> set[str]:
        return set() if self.reset else {self.netlist.driver[bit] for bit in self.loose}

    def first(self, name: str, bit: Bit, right: Bit, wrong: bool) -> Bit:
        return self.given("loose", name, bit) if wrong and not self.reset and bit in self.loose else right

    def holds_now(self, condition: Condition, cycle: int) -> Bit:
        bit = self.bit(condition.bit, cycle, False)
        return bit if condition.value else self.gate("$not", bit)

    def assumed(self) -> list[Bit]:
        """Whether a bit differs that may not in the first cycle."""
        found = []
        for bit, of in self.loose.items():
            name = self.netlist.driver[bit]
            other = self.differ([self.right_of(name, bit)], [self.given("loose", name, bit)])
            found += [self.gate("$and", other, self.holds_now(condition, 0)) for condition in of]
        return found

    def right_of(self, name: str, bit: Bit) -> Bit:
        """What the right device holds in a bit in the first cycle."""
        return self.after(name, 0, False)[bit]

    def after(self, name: str, cycle: int, wrong: bool) -> dict[Bit, Bit]:
        """What a register or the clocked read ports of a RAM hold when a cycle begins, by bit of their output."""
        cell = self.netlist.cells[name]
        if cell.kind in REGISTERS:
            return dict(zip(cell.nets["Q"], self.state(name, cycle, wrong), strict=True))
        found: dict[Bit, Bit] = {}
        for port in range(cell.number("RD_PORTS")):
            _, data, clocked = self.read_port(cell, port)
            if clocked:
                found |= dict(zip(cell.nets["RD_DATA"][data], self.latched(name, port, cycle, wrong), strict=True))
        return found

    def differing(self) -> dict[Bit, Bit]:
        """Bits of the state that are seen and may differ behind the cycle: whether they do."""
        found: dict[Bit, Bit] = {}
        for name in sorted(self.touched(0)[0]):
            if self.holds(name):
                right, wrong = (self.after(name, 1, side) for side in (False, True))
                found |= {bit: self.differ([right[bit]], [wrong[bit]]) for bit in right
                          if bit in self.seen and right[bit] != wrong[bit]}
        return {bit: other for bit, other in found.items() if other != "0"}

    def shown(self, cycle: int) -> Bit:
        """Whether what leaves the device, where that means anything, or enters a RAM differs; of RAMs in a reset."""
        found: list[Bit] = []
        touched, _, out = self.touched(cycle)
        if out and not self.reset:
            for valid, bits in channels(self.netlist).items():
                other = self.differ(*(self.bits(list(bits), cycle, wrong) for wrong in (False, True)))
                if valid is not None and other != "0":
                    either = [self.bit(valid, cycle, wrong) for wrong in (False, True)]
                    other = self.gate("$and", other, self.any(either))
                found.append(other)
        for name in sorted(touched):
            if self.netlist.cells[name].kind == MEMORY:
                found.append(self.differ(*(self.written(name, cycle, wrong) for wrong in (False, True))))
        return self.any(found)


CHANNEL = re.compile(r"^(m_axi_(?:ar|aw|w)|s_axil_[rb])(?!ready$|valid$)\w+$")
"""A payload of a channel of the bus that the device drives."""


@cache
def channels(netlist: Netlist) -> dict[Bit | None, tuple[Bit, ...]]:
    """Outputs by the bit that says whether they mean anything; by None those that always do."""
    found: dict[Bit | None, list[Bit]] = {}
    for name, bits in netlist.ports.items():
        channel = CHANNEL.match(name)
        valid = netlist.ports.get(f"{channel[1]}valid") if channel else None
        found.setdefault(valid[0] if valid else None, []).extend(bits)
    return {valid: tuple(bits) for valid, bits in found.items()}


def _beside(netlist: Netlist, bit: Bit) -> Iterator[Bit]:
    """Single bits beside which gates look at a bit of the state, from the nearest on, and what registers take it by."""
    level, been = [bit], {bit}
    for _ in range(FORWARD):
        following: list[Bit] = []
        for each in level:
            for name in sorted(netlist.users.get(each, ())):
                cell = netlist.cells[name]
                for port, bits in cell.nets.items():
                    if cell.directions[port] == "input" and port not in CLOCKS and len(set(bits)) <= FEW:
                        yield from (one for one in dict.fromkeys(bits) if one not in been and not isinstance(one, str))
                if cell.kind not in (*REGISTERS, MEMORY):
                    following += [one for one in cell.outputs() if one not in been]
                    been |= set(following)
        level = following


def conditions(netlist: Netlist, bit: Bit) -> list[Condition]:
    """What may say whether a bit of the state means anything: the first bits of its register, which may be a command's,
    and bits of the state that decide, over few gates, what becomes of it."""
    cell = netlist.cells[netlist.driver[bit]]
    near: list[Bit] = list(cell.nets["Q"][:HEADER]) if cell.kind in REGISTERS else []
    level = list(dict.fromkeys(_beside(netlist, bit)))
    for _ in range(BACK):
        before: list[Bit] = []
        for one in level:
            driver = netlist.cells.get(netlist.driver.get(one, ""))
            if driver and driver.kind in REGISTERS:
                near.append(one)
            elif driver and driver.kind != MEMORY and len(list(driver.inputs())) <= GATE:
                before += [each for each in driver.inputs() if not isinstance(each, str)]
        level = list(dict.fromkeys(before))
    return [Condition(one, value) for one in list(dict.fromkeys(near))[:MOST] if one != bit for value in (True, False)]


@dataclass(frozen=True)
class _Question:
    """Two devices that are related, and whether they still are behind the cycle.

    Members
    -------
    given: bits that are 1 where the states are related.
    apart: bits of the state that must be equal: whether they are not.
    broken: conditions of bits: whether they hold behind the cycle and the bits differ.
    """

    devices: Related
    given: list[Bit]
    apart: dict[Bit, Bit]
    broken: dict[tuple[Bit, Condition], Bit]

    @staticmethod
    def of(devices: Related, known: Known) -> _Question:
        differing = devices.differing()
        broken = {(bit, condition): devices.gate("$and", other, devices.holds_now(condition, 1))
                  for bit, other in differing.items() for condition in devices.loose.get(bit, ())}
        if devices.reset:  # from one state, of which nothing is known
            given = [devices.bit(devices.netlist.names[RESET][0], 0, False)]
        else:
            given = [known.hold(devices, 0), *(devices.gate("$not", bit) for bit in devices.assumed())]
        return _Question(devices, given, {bit: other for bit, other in differing.items() if bit not in devices.loose},
                         broken)

    def all(self, bits: Sequence[Bit]) -> Bit:
        gate = self.devices.gate
        return gate("$not", self.devices.any([gate("$not", bit) for bit in bits]))

    def text(self, *every: Condition) -> str:
        """A module with ``wrong``, which rises where the states are no longer related, or something shows; or where
        each of these conditions is broken for some bit, if any are named."""
        shown, apart, broken = self.devices.shown(0), list(self.apart.values()), list(self.broken.values())
        wrong = self.devices.any([shown, *apart, *broken]) if not every else self.all([self.devices.any(
            [other for (_, condition), other in self.broken.items() if condition == one]) for one in every])
        return self.devices.module(wrong=[self.all([*self.given, wrong])], shown=[shown], apart=apart or ["0"],
                                   broken=broken or ["0"])


class Search:
    """Looks for a relation that a mutant keeps.

    Members
    -------
    loose: conditions of the bits that may differ.
    """

    def __init__(self, netlist: Netlist, mutant: Mutant, known: Known,
                 ask: Callable[[str], dict[str, list[bool]] | None]) -> None:
        self.netlist, self.mutant, self.known, self.ask = netlist, mutant, known, ask
        self.zeros = known.zeros(netlist)
        self.loose: dict[Bit, list[Condition]] = {}
        self.left = ROUNDS

    def question(self, reset: bool) -> _Question:
        return _Question.of(Related(self.netlist, self.mutant, self.zeros, self.loose, reset), self.known)

    def answer(self, question: _Question, *every: Condition) -> dict[str, list[bool]] | None:
        self.left -= 1
        return self.ask(question.text(*every)) if self.left >= 0 else None

    def drop(self, question: _Question, found: Mapping[str, list[bool]]) -> None:
        """Without the conditions that a counterexample breaks; what one bit of a register breaks all others lose."""
        lost = {(self.netlist.driver[bit], condition) for (bit, condition), other in zip(
            question.broken, found["broken"], strict=False) if other}
        for bit, of in self.loose.items():
            self.loose[bit] = [one for one in of if (self.netlist.driver[bit], one) not in lost]

    def thin(self) -> None:
        """Many conditions are dropped at once, all of those that can be broken together."""
        for value in (True, False):
            groups = [[one for one in dict.fromkeys(chain(*self.loose.values())) if one.value is value]]
            while groups:
                question = self.question(False)
                left = {condition for _, condition in question.broken}
                group = [one for one in groups.pop() if one in left]
                if not group:
                    continue
                found = self.answer(question, *group)
                if found is None:
                    return  # it takes too long
                if found:
                    self.drop(question, found)
                elif len(group) > 1:
                    groups += [group[len(group) // 2:], group[:len(group) // 2]]

    def run(self) -> bool:
        """Whether a relation was found and proved."""
        reset = False
        while True:
            question = self.question(reset)
            found = self.answer(question)
            if found is None or found and found["shown"][0]:
                return False
            if not found:
                if reset:
                    return True
                reset = True
                continue
            reset = False
            new = [bit for bit, other in zip(question.apart, found["apart"], strict=False) if other]
            # What one bit of a register may hold, others that the mutation reaches mostly may too.
            cells = {self.netlist.driver[bit] for bit in new}
            all_of = [bit for bit in question.apart if self.netlist.driver[bit] in cells and bit not in self.zeros]
            new = all_of if set(new) <= set(all_of) and len(self.loose) + len(all_of) <= MOST_LOOSE else new
            if any(bit in self.zeros for bit in new) or len(self.loose) + len(new) > MOST_LOOSE:
                return False
            self.drop(question, found)
            if new:
                self.loose |= {bit: conditions(self.netlist, bit) for bit in new}
                self.thin()


def related(netlist: Netlist, mutant: Mutant, known: Known, folder: Path, tools: Tools,
            progress: Progress = lambda step: None) -> int | None:
    """How many bits may differ in a relation that is proved to be kept; None: none was found.

    Raises:
        SynthError: Yosys is missing.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))
    search = Search(netlist, mutant, known, lambda text: counterexample(
        folder, text, ("shown", "apart", "broken"), tools, progress))
    try:
        return len(search.loose) if search.run() else None
    except TooLargeError:
        return None


def resets(netlist: Netlist, mutant: Mutant, known: Known, folder: Path, tools: Tools,
           progress: Progress = lambda step: None) -> bool:
    """Whether a cycle of reset leads to the same state with the mutation and without it, from any state."""
    try:
        text = _Question.of(Related(netlist, mutant, known.zeros(netlist), {}, True), known).text()
    except TooLargeError:
        return False
    return never_rises("wrong", folder, text, tools, progress)
