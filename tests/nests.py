"""Programs with control commands for the tests of the model: random nests, and what they mean, written from the rules.

Nothing here comes from :mod:`gemmule.control` but the functions that make commands: bodies are turns of a recursive
function, registers are plain Python integers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.control import params, repeat, set_displacement, set_length
from gemmule.isa import CONTROL, LENGTHS, Command, COp, Dyn, Length, Source, Target, Unit, VOp

__all__ = ["Nests", "Run", "State", "Step", "as_arrays", "interpret", "unrolled"]

SIZES = 1, 1, 2, 3, 5, 8, 13, 30, 31, 32, 32, 33, 45
"""Of bodies: about the 32 commands that a window holds, too."""
DYNAMIC = {
    Unit.LOAD: {Dyn.DST: "row", Dyn.SRC1: "list"}, Unit.STORE: {Dyn.SRC0: "row", Dyn.SRC1: "list"},
    Unit.MATRIX: {Dyn.SRC0: "a_row", Dyn.SRC1: "b_row", Dyn.DST: "c_row"},
    Unit.VECTOR: {Dyn.SRC0: "src0", Dyn.SRC1: "src1", Dyn.DST: "dst"},
    Unit.SELECT: {Dyn.SRC0: "src0", Dyn.SRC1: "first", Dyn.DST: "dst"},
}
"""The row or entry that is dynamic."""


class StopError(Exception):
    """A control command faults: the name of the fault."""


class State(NamedTuple):
    """Registers as a command sees them."""

    lengths: tuple[int, ...]
    displacements: tuple[int, ...]


class Step(NamedTuple):
    """A command of a launch."""

    place: int
    state: State
    fault: str = ""
    """Of a control command."""
    times: int = -1
    """Of a REPEAT that does not fault."""


class Run(NamedTuple):
    """A launch, up to a control command that faults or as far as one asks."""

    steps: list[Step]
    words: dict[int, int]
    """Parameters at its end."""
    whole: bool
    """It ended, or faulted, within what was asked for."""


class _EnoughError(Exception):
    """More commands than asked for."""


@dataclass
class _Interpreter:
    program: Sequence[Command]
    config: Config
    lengths: list[int]
    words: dict[int, int]
    most: int
    displacements: list[int] = field(default_factory=lambda: [0] * 32)
    steps: list[Step] = field(default_factory=list)

    def turn(self, place: int, end: int, depth: int) -> None:
        """The commands from ``place`` to before ``end``, the end of the program or of a body, once."""
        while place < end:
            if len(self.steps) == self.most:
                raise _EnoughError
            command, at = self.program[place], len(self.steps)
            self.steps.append(Step(place, State(tuple(self.lengths), tuple(self.displacements))))
            place += 1
            if command.unit != CONTROL:
                continue
            try:
                if command.op == COp.REPEAT:
                    body, times = self.repeat(command, end - place, depth)
                    self.steps[at] = self.steps[at]._replace(times=times)
                    for _ in range(times):
                        self.turn(place, place + body, depth + 1)
                    place += body
                else:
                    self.write(command)
            except StopError as stop:
                if not self.steps[-1].fault:
                    self.steps[-1] = self.steps[-1]._replace(fault=str(stop))
                raise

    def repeat(self, command: Command, left: int, depth: int) -> tuple[int, int]:
        """How many commands how often; ``left`` stand behind it before the end of what is around it."""
        self.header(command)
        value = command.fields.get
        body = value("body", 0)
        if body == 0 or depth == 4 or body > left - (depth > 0):
            raise StopError("illegal")
        reg = value("times_reg", 0)
        rest = max((self.lengths[reg] if reg else 65535) - value("times_offset", 0), 0)
        return body, min(-(-rest // 2 ** value("times_shift", 0)), value("times_cap", 0))

    @staticmethod
    def header(command: Command) -> None:
        if command.waits or command.flags or command.predicate or any(command.dyn) or command.op > COp.REPEAT:
            raise StopError("illegal")

    def write(self, command: Command) -> None:
        self.header(command)
        value = {name: command.fields.get(name, 0) for name in (
            "target", "target_reg", "source", "source_reg", "index", "amount", "modulus", "first")}
        words = self.config.parameter_words
        if command.op == COp.PARAMS:
            if value["first"] + 5 > words:
                raise StopError("rows")
            for i in range(5):
                word = command.fields.get(f"word{i}", 0)
                self.words[value["first"] + i] = word - 2 ** 32 if word >= 2 ** 31 else word
            return
        source, reg, to = value["source"], value["source_reg"], value["target_reg"]
        length, modulus = value["target"] == Target.LENGTH, value["modulus"]
        if source > 4 or source != Source.DISPLACEMENT and reg > 15 or length and not 1 <= to <= 15 or (
                not length and modulus):
            raise StopError("illegal")
        index = value["index"] + (self.lengths[reg] if reg and source in (Source.WORD, Source.HALF) else 0)
        if source == Source.WORD and index >= words or source == Source.HALF and index >= 2 * words:
            raise StopError("rows")
        total = value["amount"] + {
            Source.ZERO: lambda: 0,
            Source.LENGTH: lambda: self.lengths[reg] if reg else 65535,
            Source.DISPLACEMENT: lambda: self.displacements[reg],
            Source.WORD: lambda: self.words.get(index, 0),
            Source.HALF: lambda: self.words.get(index // 2, 0) // 65536 ** (index % 2) % 65536,
        }[Source(source)]()
        if not length:
            self.displacements[to] = total % 2 ** self.config.address_bits
            return
        if modulus and total >= modulus:
            total -= modulus
        elif modulus and total < 0:
            total += modulus
        self.lengths[to] = max(0, min(65535, total))


def interpret(program: Sequence[Command], config: Config, lengths: Sequence[int],
              words: dict[int, int] | None = None, most: int = 1 << 16) -> Run:
    """A launch with the host's length registers and with what the parameter memory holds (else 0)."""
    interpreter = _Interpreter(program, config, [int(n) for n in lengths], dict(words or {}), most)
    whole = True
    try:
        interpreter.turn(0, len(program), 0)
    except StopError:
        pass
    except _EnoughError:
        whole = False
    return Run(interpreter.steps, interpreter.words, whole)


SOFTMAX = VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM


def unrolled(program: Sequence[Command], run: Run) -> tuple[list[Command], list[int]]:
    """The same commands without control commands, with the registers of their turn put in by hand; length registers.

    These are for columns behind a piece of softmax alone, which have no field of their own.

    Raises:
        ValueError: there are not as many registers.
    """
    out, behind = [], {0: 0}
    for step in run.steps:
        command = program[step.place]
        if command.unit == CONTROL:
            continue
        unit, lengths = Unit(command.unit), step.state.lengths
        fields = dict(command.fields)
        for name in LENGTHS[unit]:
            reg, offset, cap = (fields.get(f"{name}_{part}", 0) for part in ("reg", "offset", "cap"))
            fields |= {f"{name}_reg": 0, f"{name}_offset": 0,
                       f"{name}_cap": min(max((lengths[reg] if reg else 65535) - offset, 0), cap)}
        which, reg, stride = command.dyn
        if which in DYNAMIC[unit]:
            name = DYNAMIC[unit][which]
            fields[name] = fields.get(name, 0) + (lengths[reg] if reg else 65535) * stride
        aux = fields.get("aux", 0)
        if unit is Unit.VECTOR and command.op in SOFTMAX:
            columns = max(lengths[aux & 15] - (aux >> 4), 0) if aux & 15 else 0
            fields["aux"] = behind.setdefault(columns, len(behind))
        if unit in (Unit.LOAD, Unit.STORE):
            moved = fields.get("offset", 0) + step.state.displacements[fields.get("base", 0)]
            fields["offset"] = moved % 2**32  # beyond 32 bits only of what moves nothing from or to DRAM
        out.append(replace(command, fields=fields, dyn=(Dyn.NONE, 0, 0)))
    if len(behind) > 16:
        raise ValueError(f"columns behind a piece must have 15 values at most, not {len(behind) - 1}")
    return out, [*behind, *[0] * (16 - len(behind))]


@dataclass
class Nests:
    """Draws nests of bodies around commands of any kind; length registers 4 to 15 are theirs."""

    rng: random.Random
    config: Config
    command: Callable[[], Command]
    """One that is no control command."""
    lengths: int = 30
    """Registers 1 to 3, which commands may read, stay below or at this."""
    bytes: int = 1
    """Displacements are multiples of it."""
    wild: bool = False
    """Registers may get any value, and some control commands fault."""

    def commands(self, count: int, depth: int = 0) -> list[Command]:
        """So many, in ``depth`` bodies."""
        out: list[Command] = []
        ended = -1  # a body, in front of the next command
        while len(out) < count:
            behind, kind = count - len(out) - 1, self.rng.random()
            if ended == len(out) and kind < 0.7:  # what the window held of the body before is then gone
                kind = 0
            most = behind - 1 if depth else behind  # no two bodies end together
            if most > 0 and depth < 4 and kind < 0.15:
                body = min(most, self.rng.choice(SIZES))
                out += [self.repeat(body), *self.commands(body, depth + 1)]
                ended = len(out)
            elif kind < 0.35:
                out.append(self.write())
            else:
                out.append(self.command())
        if self.wild and not depth and out and self.rng.random() < 0.3:
            out[self.rng.randrange(count)] = self.broken()
        return out

    def repeat(self, body: int) -> Command:
        rng = self.rng
        if rng.random() < 0.5:
            return repeat(body, rng.choice((0, 1, 1, 2, 3)))
        times = Length(rng.choice((1, 2, 2, 3)), rng.randint(1, 15), rng.choice((0, 0, 1, 5, 65535)))
        return repeat(body, times, shift=rng.choice((0, 0, 1, 4, 15)))

    def write(self) -> Command:
        """A SET or PARAMS, which do not fault but where LEN is large."""
        rng, words = self.rng, self.config.parameter_words
        kind, reg = rng.random(), rng.randint(4, 15)
        if kind < 0.2:
            some = [rng.choice((0, 1, -1, 2 ** 31 - 1, -2 ** 31, rng.randint(-2 ** 31, 2 ** 31 - 1))) for _ in range(5)]
            return params(rng.choice((0, 1, 5, words - 5)), *some)
        if kind < 0.35:
            source = rng.choice((Source.ZERO, Source.DISPLACEMENT, *([Source.WORD] if self.wild else [])))
            return set_displacement(rng.randint(0, 3), source, 0 if source == Source.WORD else rng.randint(0, 3),
                                    amount=self.bytes * rng.randint(0 if source == Source.ZERO else -1, 9))
        if kind < 0.55 and not self.wild:  # what commands read
            return set_length(rng.randint(1, 3), Source.LENGTH, rng.randint(1, 3), amount=rng.randint(-2, 2),
                              modulus=self.lengths)
        source = rng.choice((Source.ZERO, Source.LENGTH, Source.DISPLACEMENT, Source.WORD, Source.HALF))
        inside = source in (Source.WORD, Source.HALF)
        top = words * (2 if source == Source.HALF else 1)
        return set_length(
            rng.randint(1, 15) if self.wild else reg, source,
            rng.choice((0, reg)) if self.wild and inside else 0 if inside else rng.randint(0, 15),
            index=rng.choice((0, 1, 2, 7, top - 1)) if inside else 0,
            amount=rng.choice((0, 0, 1, -1, 3, 65535, -65535, 2 ** 47 - 1, -2 ** 47)),
            modulus=rng.choice((0, 0, 1, 5, 64, 65535)))

    def broken(self) -> Command:
        rng, words = self.rng, self.config.parameter_words
        good = repeat(1, 1)
        return rng.choice((
            repeat(0, 1), repeat(1 << 23, 1), params(words - 4), Command(CONTROL, {}, 3), replace(good, predicate=1),
            replace(good, waits={Unit.LOAD: 1}), replace(good, flags=frozenset({2})), set_length(0), set_length(16),
            set_length(1, Source.WORD, index=words), set_length(1, Source.HALF, index=2 * words),
            set_length(1, Source.LENGTH, 16), replace(set_displacement(1), fields={"target": 1, "modulus": 1}),
            replace(set_length(1), fields={"target_reg": 1, "source": 5}),
        ))


def as_arrays(state: State, bases: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bases, limits and lengths of a command of a launch with these registers of the host."""
    shift = np.array(state.displacements, dtype=np.int64)
    return bases + shift, limits - shift, np.array(state.lengths, dtype=np.int64)
