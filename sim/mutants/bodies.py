"""Checks of control commands: how often a body comes, values of registers, places far into an image, stalls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from gemmule.config import Config
from gemmule.control import (
    MAX_DEPTH,
    Local,
    Source,
    begin,
    execute,
    new_local,
    params,
    repeat,
    set_displacement,
    set_length,
)
from gemmule.isa import (
    COMMAND_BYTES,
    CONTROL,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    PARAMETER_BITS,
    PARAMS_WORDS,
    Command,
    COp,
    Length,
    Unit,
    decode,
    decode_table,
    encode_program,
)
from gemmule.resolve import config_vector
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup, launch_of
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["body_checks"]

NOTHING = Command.make(Unit.MATRIX)
"""Of length zero: it only counts."""
OBSERVED = 1, 2
"""Length registers: whose value is seen, and what shows a displacement."""
TURNS = (1 << 9) - 2
"""Turns of a body that is fetched for each of them: even, so that a bit that is wrong beside another one is wrong an
odd number of times."""
LONG = 12
"""Bits of the longest body that comes twice."""
FAR = 16
"""Bits of the place of a fault."""
VALUES = 400
"""Random SET commands."""
STALLED = 2
"""Programs on a memory that stalls, with this many REPEAT commands at least."""


def _is(register: int, value: int) -> list[Command]:
    """A body that comes once if the length register holds ``value``, and not once otherwise."""
    times = Length(3, register, max(value - 1, 0))
    return [repeat(1, times), NOTHING]


def turns() -> Iterator[Command]:
    """Lengths of one bit by every shift, and caps of one bit."""
    for bit in range(16):
        yield set_length(OBSERVED[0], amount=1 << bit)
        for shift in range(16):
            yield from (repeat(1, Length(3, OBSERVED[0]), shift=shift), NOTHING)
    for bit in range(12):
        yield from (repeat(1, 1 << bit), NOTHING)


def _sparse(draw: random.Random, bits: int) -> int:
    power = 1 << draw.randrange(bits)
    return draw.choice((power, power - 1, power + draw.randrange(3), draw.getrandbits(bits))) % (1 << bits)


def _random_set(draw: random.Random, config: Config, local: Local) -> Command:
    """A SET that is legal."""
    source = draw.choice(list(Source))
    of_parameter = source in (Source.WORD, Source.HALF)
    source_reg = draw.randrange(NUM_BASES if source is Source.DISPLACEMENT else NUM_LENGTHS)
    index = 0
    if of_parameter:
        known = np.flatnonzero(local.written)
        if not len(known):
            return set_length(OBSERVED[0], amount=_sparse(draw, 16))
        number = int(draw.choice(known)) * (2 if source is Source.HALF else 1)
        held = int(local.lengths[source_reg]) if source_reg else 0
        source_reg, index = (source_reg, number - held) if held <= number else (0, number)
    sign = draw.choice((-1, 1))
    if draw.random() < 0.4:
        return set_displacement(draw.randrange(NUM_BASES), source, source_reg, amount=sign * _sparse(draw, 47),
                                index=index)
    modulus = draw.choice((0, 0, _sparse(draw, 16)))
    return set_length(draw.randrange(1, NUM_LENGTHS), source, source_reg, amount=sign * _sparse(draw, 18),
                      modulus=modulus, index=index)


def values(config: Config, seed: int) -> Iterator[Command]:
    """Random SET commands of few bits, each followed by bodies that come only if the result is right."""
    draw, local, cfg = random.Random(seed), new_local(config), config_vector(config)
    none = np.zeros(NUM_BASES, dtype=np.int64)
    begin(local, none, none, none[:NUM_LENGTHS], 0)

    def telling(command: Command) -> bool:
        """It changes its register, to what is not a limit."""
        held = [array.copy() for array in local]
        done(command)
        register, to_base = command.fields["target_reg"], command.fields["target"]
        now, before = (lists[bool(to_base)][register] for lists in (local, held))
        for array, old in zip(local, held):
            array[...] = old
        return bool(now != before and (to_base or 0 < now < MAX_LENGTH))

    def done(command: Command) -> Command:
        fault = execute(decode_table(encode_program([command]))[0], local, cfg)
        assert fault == 0, command
        return command

    for turn in range(VALUES):
        if turn % 8 == 0:
            first = min(_sparse(draw, config.parameter_words.bit_length() - 1), config.parameter_words - PARAMS_WORDS)
            words = (_sparse(draw, PARAMETER_BITS) - (1 << PARAMETER_BITS - 1) for _ in range(PARAMS_WORDS))
            yield done(params(first, *words))
        drawn = [_random_set(draw, config, local) for _ in range(10)]
        command = next(filter(telling, drawn), drawn[0]) if draw.random() < 0.8 else drawn[0]
        yield done(command)
        register = command.fields["target_reg"]
        if command.fields["target"]:
            yield done(set_length(OBSERVED[1], Source.DISPLACEMENT, register,
                                  amount=1 - int(local.displacements[register])))
            register = OBSERVED[1]
        yield from _is(register, int(local.lengths[register]))


def nested(config: Config) -> Iterator[Command]:
    """Four bodies, one in another and each ending right behind the one in it, with any number of turns from 1 to 3; all
    of them longer than fetch's queue, or the innermost one shorter."""
    for inner in (config.fetch_queue + 2, 3):
        for turns in product((1, 2, 3), repeat=MAX_DEPTH):
            first = config.fetch_queue if inner < config.fetch_queue else 0  # in the body around the short one
            for depth, times in enumerate(turns):
                around = MAX_DEPTH - 1 - depth  # bodies in this one: each has a REPEAT before and a command behind it
                yield repeat(inner + 2 * around + first * (around > 0), times)
                if around == 1:
                    yield from [NOTHING] * first
            yield from [NOTHING] * (inner + MAX_DEPTH - 1)


def often(config: Config) -> list[Command]:
    """A body longer than fetch's queue, so that it is fetched for every turn, comes as often as nine bits count, and
    again as the innermost of four; longer ones by bits of their length come twice. A fault behind them."""
    inner = config.fetch_queue + 1
    commands = [repeat(inner, TURNS), *[NOTHING] * inner]
    for depth in range(MAX_DEPTH):
        around = MAX_DEPTH - 1 - depth
        commands.append(repeat(inner + 2 * around, TURNS // 4 - 1 if around == 0 else 1 + around % 2))
    commands += [NOTHING] * (inner + MAX_DEPTH - 1)
    for bit in range(6, LONG):
        commands += [repeat(1 << bit, 2), *[NOTHING] * (1 << bit)]
    return [*commands, Command.make(Unit.LOAD, op=31)]


def brinks() -> Iterator[list[Command]]:
    """Bodies as far before the end of what is around them as one bit of a number says, which they may be; then those
    that may not begin: too long by one, ending with the one around, the fifth, at the end of another, of no length."""
    end = [NOTHING] * 4
    yield [command for bit in range(LONG) for command in (
        repeat(3 + (1 << bit), 1), repeat(2, 1), *[NOTHING] * (2 + (1 << bit)))]
    yield [*end, repeat(4, 1), *end]
    yield [*end, repeat(5, 1), *end]
    yield [repeat(3, 1), repeat(2, 1), *end]
    yield [repeat(3, 1), repeat(3, 1), *end]
    yield [*(repeat(2 * MAX_DEPTH - 2 * depth + 1, 1) for depth in range(MAX_DEPTH)), repeat(1, 1), *end * MAX_DEPTH]
    yield [repeat(2, 1), NOTHING, repeat(1, 1), *end]
    yield [*end, repeat(0, 1), *end]


def far() -> list[Command]:
    """Two turns of a body of which all but the end is dropped, and a fault behind it: its place is all ones."""
    body = (1 << FAR) - 2
    dropped = body - 3
    return [repeat(body, 2), repeat(dropped, 0), *[NOTHING] * (body - 1), Command.make(Unit.LOAD, op=31)]


def _stalled(config: Config, seed: int) -> Iterator[Launch]:
    """Programs with bodies."""
    found = 0
    while found < STALLED:
        seed += 1
        launch = generate(config, seed, 60, brief=True)
        commands = (decode(int.from_bytes(launch.image[at:at + COMMAND_BYTES], "little"))
                    for at in range(0, len(launch.image), COMMAND_BYTES))
        if sum(command.unit == CONTROL and command.op == COp.REPEAT for command in commands) > STALLED:
            found += 1
            yield launch


def body_checks(setup: Setup, seed: int) -> list[Check]:
    def exact(name: str, commands: list[Command], program: int | None = None) -> Check:
        size = 1 << max(14, (2 * COMMAND_BYTES * len(commands)).bit_length())
        recorded = setup.record(launch_of(name, commands, size=size, program=program))
        return Check(name, lambda rtl: recorded.exact(rtl) or setup.recovered(rtl))

    def stalls(chance: int) -> Callable[[RtlDevice], str]:
        return lambda rtl: next(filter(None, (
            setup.clean.exact(rtl) or program.moved(rtl, chance) for program in stalled)), "") or setup.recovered(rtl)

    brink = [setup.record(launch_of("brinks", commands, size=1 << 18)) for commands in brinks()]
    stalled = [setup.record(launch) for launch in _stalled(setup.config, seed)]
    return [
        exact("turns", list(turns())), exact("values", list(values(setup.config, seed))), exact("far", far()),
        exact("nested", list(nested(setup.config))), exact("often", often(setup.config)),
        Check("brinks", lambda rtl: next(filter(None, (program.exact(rtl) for program in brink)), "")
              or setup.recovered(rtl)),
        *(Check(f"bodies in stalls, {chance} in 256", stalls(chance)) for chance in (30, 200)),
    ]
