"""Equal layers as one body: what differs between them comes from displacements and length registers.

Layers are lists of the same commands that differ in where their data lie in DRAM, each base register by the same number
of bytes from layer to layer, and in the scalings of vector commands. The body is the first layer; its displacements
move on behind each turn, and its scalings come from the parameter memory, where all layers' stand.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmule.compiler.errors import CompileError
from gemmule.config import Config
from gemmule.control import params, repeat, set_displacement, set_length
from gemmule.isa import (
    MAX_LENGTH,
    PARAMS_WORDS,
    Command,
    RequantFlag,
    Source,
    Unit,
    VOp,
)

__all__ = ["ScalingRegisters", "roll_layers"]

_SCALING = ("mult", "shift", "shift2", "aux")


@dataclass(frozen=True)
class ScalingRegisters:
    """Length registers that the body may use: one that counts, and ``count`` from ``first`` on for scalings."""

    pointer: int
    first: int
    count: int


def _takes_factor(command: Command) -> bool:
    """Whether ``aux`` is a scaling too."""
    return command.op == VOp.ADD or command.op == VOp.REQUANT and {
        RequantFlag.RESIDUAL, RequantFlag.RESCALE} <= command.flags


def _halves(command: Command) -> tuple[int, ...]:
    """What the registers of a command's scaling hold."""
    mult, shift, shift2, aux = (command.fields.get(name, 0) for name in _SCALING)
    return (mult, shift | shift2 << 6, *([aux] if _takes_factor(command) else []))


class _Roller:
    def __init__(self, layers: Sequence[Sequence[Command]], registers: ScalingRegisters) -> None:
        self.layers, self.registers = layers, registers
        self.strides: dict[int, int] = {}
        """Bytes that a base register moves from layer to layer."""
        self.places: dict[tuple[tuple[int, ...], ...], int] = {}
        """Scalings by layer -> number of the first half of each layer's."""
        self.used = 0
        self.size = 2 + any(command.unit is Unit.VECTOR and _takes_factor(command) for command in layers[0])
        self.slots: OrderedDict[tuple[tuple[int, ...], ...], int] = OrderedDict()
        self.body: list[Command] = []

    def command(self, number: int) -> None:
        """Command ``number`` of every layer."""
        same = [layer[number] for layer in self.layers]
        first = same[0]
        differ = {name for name in first.fields if any(c.fields.get(name, 0) != first.fields[name] for c in same)}
        if any(replace(c, fields={}, note="") != replace(first, fields={}, note="") for c in same[1:]):
            raise CompileError(f"layers must be equal but for scalings and offsets; command {number} ({first.note}) is "
                               "another in some of them")
        moved = {"offset"} if first.unit in (Unit.LOAD, Unit.STORE) else set()
        if moved:
            self._move(number, same)
        scaling = first.unit is Unit.VECTOR and bool(differ)
        rest = differ - moved - (set(_SCALING if _takes_factor(first) else _SCALING[:3]) if scaling else set())
        if rest:
            raise CompileError(f"layers must be equal but for scalings and offsets; {min(rest)} of command {number} "
                               f"({first.note}) differs")
        if scaling:
            register = self._register(tuple(_halves(c) for c in same))
            kept = {name: value for name, value in first.fields.items()
                    if name not in (_SCALING if _takes_factor(first) else _SCALING[:3])}
            first = replace(first, fields={**kept, "scale_reg": register})
        self.body.append(first)

    def _move(self, number: int, same: Sequence[Command]) -> None:
        offsets, base = [c.fields.get("offset", 0) for c in same], same[0].fields.get("base", 0)
        steps = {b - a for a, b in zip(offsets, offsets[1:])} or {0}
        if len(steps) > 1 or self.strides.setdefault(base, min(steps)) != min(steps):
            raise CompileError(f"base register {base} must move by the same bytes from layer to layer for all its "
                               f"commands, not by {sorted(steps)} for command {number} ({same[0].note}): give that "
                               "another base register")

    def _register(self, halves: tuple[tuple[int, ...], ...]) -> int:
        """The register from which on a scaling stands; it is brought there if it does not stand yet."""
        if halves in self.slots:
            self.slots.move_to_end(halves)
            return self.slots[halves]
        taken = len(self.slots)
        if (taken + 1) * self.size > self.registers.count:
            _, register = self.slots.popitem(last=False)
        else:
            register = self.registers.first + taken * self.size
        if halves not in self.places:
            self.places[halves] = self.used
            self.used += len(halves[0])
        at = self.places[halves]
        self.body += [set_length(register + i, Source.HALF, self.registers.pointer, index=at + i)
                      for i in range(len(halves[0]))]
        self.slots[halves] = register
        return register

    def finish(self, config: Config) -> list[Command]:
        """Parameters, the loop, its body."""
        count, pointer = len(self.layers), self.registers.pointer
        halves = [0] * (self.used * count)
        for scalings, at in self.places.items():
            for i, scaling in enumerate(scalings):
                halves[i * self.used + at:i * self.used + at + len(scaling)] = scaling
        halves += [0] * (-len(halves) % 2)
        words = [low | high << 16 for low, high in zip(halves[::2], halves[1::2])]
        words = [word - (word >> 31 << 32) for word in words]
        room = config.parameter_words // PARAMS_WORDS * PARAMS_WORDS
        if len(words) > room or len(halves) > MAX_LENGTH:
            raise CompileError(f"the scalings of {count} layers must fit {room} parameter words, not {len(words)}: "
                               "raise parameter_words or give layers equal scalings")
        begin = [params(at, *words[at:at + PARAMS_WORDS]) for at in range(0, len(words), PARAMS_WORDS)]
        if self.used:
            begin.append(set_length(pointer, note="scalings of layer 0"))
            self.body.append(set_length(pointer, Source.LENGTH, pointer, amount=self.used, note="of the next layer"))
        self.body += [set_displacement(base, Source.DISPLACEMENT, base, amount=stride, note="the next layer")
                      for base, stride in self.strides.items() if stride]
        return [*begin, repeat(len(self.body), count, note="layers"), *self.body]


def roll_layers(layers: Sequence[Sequence[Command]], config: Config, registers: ScalingRegisters) -> list[Command]:
    """A program that does what the layers do one after another; waits are the first layer's.

    Displacements of the base registers that move stay behind the last layer's.

    Raises:
        CompileError: layers that differ otherwise, or more scalings than parameters.
    """
    if len({len(layer) for layer in layers}) != 1:
        raise CompileError(f"layers must have equally many commands, not {sorted({len(layer) for layer in layers})}")
    roller = _Roller(layers, registers)
    for number in range(len(layers[0])):
        roller.command(number)
    return roller.finish(config)
