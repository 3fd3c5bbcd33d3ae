"""Random control commands: registers from every source, values at their ends, bodies that come any number of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gemmule.control import Local, params, repeat, set_displacement, set_length
from gemmule.isa import MAX_LENGTH, NUM_BASES, NUM_LENGTHS, PARAMS_WORDS, Command, Length, Source
from gemmule.sim.fuzz.draw import FAR, NEAR, TARGETS, Draw

__all__ = ["draw_control", "draw_params", "draw_repeat", "draw_set", "draw_step", "turns_of"]

AMOUNTS = -(1 << 47), (1 << 47) - 1
"""Ends of what SET adds."""
ROOM = 6000
"""Bytes from a base register to its limit that leave most moves legal."""


def draw_control(draw: Draw, local: Local) -> list[Command]:
    """One of PARAMS and SET, or a few that follow from each other."""
    if draw.chance(0.2) or not local.written.any():
        return [draw_params(draw, local)]
    if draw.chance(0.5):
        return [draw_set(draw, local)]
    return _displaced(draw, local)


def draw_params(draw: Draw, local: Local) -> Command:
    """Words at either end of the memory, behind others, or anywhere: small halves, small numbers, any."""
    words = len(local.words)
    written = np.flatnonzero(local.written)
    last = words - PARAMS_WORDS
    behind = int(written[draw.integer(0, len(written) - 1)]) + 1 if len(written) else 0
    first = draw.choice([0, last, last, min(behind, last), draw.integer(0, last)])
    each = [int(draw.choice([
        draw.integer(0, 4 * draw.config.dim) | draw.integer(0, 4 * draw.config.dim) << 16,
        draw.integer(-4 * draw.config.dim, 4 * draw.config.dim), draw.integer(-1 << 31, (1 << 31) - 1),
        draw.choice([-1 << 31, (1 << 31) - 1, -1, 0x7FFF, 0xFFFF])])) for _ in range(PARAMS_WORDS)]
    return params(first, *each)


def _source(draw: Draw, local: Local) -> tuple[Source, int, int, int]:
    """Source, its register and index, and what it holds now."""
    source = draw.choice(list(Source))
    register, index = draw.integer(0, NUM_LENGTHS - 1), draw.integer(0, (1 << 16) - 1)
    if source is Source.LENGTH:
        register = 0 if draw.chance(0.3) else register
        return source, register, index, int(local.lengths[register]) if register else MAX_LENGTH
    if source is Source.DISPLACEMENT:
        register = int(draw.choice(draw.moved)) if draw.moved and draw.chance(0.5) else draw.integer(0, NUM_BASES - 1)
        return source, register, index, int(local.displacements[register])
    written = np.flatnonzero(local.written)
    if source is Source.ZERO or not len(written):
        return Source.ZERO, register, index, 0
    word = int(written[draw.integer(0, len(written) - 1)])
    halves, odd = (2, draw.integer(0, 1)) if source is Source.HALF else (1, 0)
    number, value = halves * word + odd, int(local.words[word])
    fits = [at for at in range(1, NUM_LENGTHS) if local.lengths[at] <= number]
    register = int(draw.choice(fits)) if fits and draw.chance(0.6) else 0
    index = number - (int(local.lengths[register]) if register else 0)
    return source, register, index, value >> 16 * odd & MAX_LENGTH if source is Source.HALF else value


def draw_set(draw: Draw, local: Local) -> Command:
    """SET of a length: to what it may be at the launch's begin, or by an amount that limits it."""
    register, (source, number, index, have) = draw.integer(1, NUM_LENGTHS - 1), _source(draw, local)
    dim = draw.config.dim
    goal = int(draw.choice([0, 1, dim, draw.integer(0, 4 * dim), draw.integer(0, 4 * dim), draw.integer(0, 4 * dim),
                            draw.integer(0, 4 * dim), draw.integer(200, 4000)]))
    amount, modulus = goal - have, 0
    kind = draw.integer(0, 9)
    if kind == 0:  # below all lengths
        most = max(AMOUNTS[0], -1 - have)
        amount = draw.choice([AMOUNTS[0], most, draw.integer(AMOUNTS[0], most)])
        modulus = draw.choice([0, max(0, min(MAX_LENGTH, -have - amount))])
    elif kind < 3:  # above all
        amount = draw.choice([AMOUNTS[1], MAX_LENGTH + 1 - have, draw.integer(MAX_LENGTH - have, AMOUNTS[1])])
        modulus = draw.choice([0, draw.integer(1, MAX_LENGTH)])
    elif kind < 7:  # once around, either way, or not at all
        modulus = draw.choice([goal + 1, draw.integer(goal + 1, MAX_LENGTH)])
        amount += draw.choice([0, modulus, -modulus])
    amount = min(max(amount, AMOUNTS[0]), AMOUNTS[1])
    draw.fresh = (register, *draw.fresh[:3])
    return set_length(register, source, number, amount=amount, index=index, modulus=modulus)


def _displaced(draw: Draw, local: Local) -> list[Command]:
    """SET of a displacement, to where moves are still within their limit; before that perhaps to anywhere."""
    base = int(draw.choice([draw.choice(NEAR), draw.choice(TARGETS), draw.choice(TARGETS), draw.choice(FAR), 0]))
    have, space = int(local.displacements[base]), 1 << draw.config.address_bits
    source, number, index, value = _source(draw, local)
    room = max(0, int(local.limits[base]) + have - ROOM)
    goal = draw.integer(0, min(room, draw.choice([64, 4096, 1 << 47])))
    goal -= goal % draw.config.bus_bytes if draw.chance(0.5) else 0
    found = []
    if base in FAR:
        goal = draw.choice([goal, draw.integer(0, space - 1)])
    elif draw.chance(0.3):
        ends = max(-1 - value, AMOUNTS[0]), min(space - 1 - value, AMOUNTS[1])
        amount = int(draw.choice([*AMOUNTS, *ends, draw.integer(*AMOUNTS)]))
        found.append(set_displacement(base, source, number, amount=amount, index=index))
        source, number, value = Source.DISPLACEMENT, base, value + amount & space - 1
    amount = goal - value + draw.choice([0, space, -space])
    if not AMOUNTS[0] <= amount <= AMOUNTS[1]:
        amount = min((goal - value + turn for turn in (0, space, -space)), key=abs)
    if not AMOUNTS[0] <= amount <= AMOUNTS[1]:  # half of the largest space away
        source, amount = Source.ZERO, goal if goal <= AMOUNTS[1] else goal - space
    found.append(set_displacement(base, source, number % NUM_LENGTHS if source is not Source.DISPLACEMENT else number,
                                  amount=amount, index=index))
    draw.moved = (base, *draw.moved[:3])
    return found


def draw_step(draw: Draw, local: Local, lengths: Sequence[int], bases: Sequence[int]) -> Command:
    """SET that differs turn by turn: a register on by a step, or the parameter that one of them numbers."""
    config = draw.config
    if bases and (not lengths or draw.chance(0.45)):
        base = int(draw.choice(bases))
        step = draw.choice([config.bus_bytes, draw.integer(1, 9), draw.integer(1, 16) * config.bus_bytes, 256])
        if local.displacements[base] > 4 * step and draw.chance(0.5):
            step = -step
        return set_displacement(base, Source.DISPLACEMENT, base, amount=step)
    register = int(draw.choice(lengths))
    number = int(local.lengths[register])
    if number < len(local.written) and local.written[number] and draw.chance(0.4):
        target, amount = draw.integer(1, NUM_LENGTHS - 1), draw.choice([0, draw.integer(-config.dim, config.dim)])
        if draw.chance(0.5):
            return set_length(target, Source.WORD, register, amount=amount)
        return set_length(target, Source.HALF, register, index=number + draw.integer(0, 1), amount=amount)
    step = draw.choice([1, 1, -1, -1, config.dim, -config.dim, draw.integer(-9, 9)])
    modulus = draw.choice([0, 0, draw.integer(1, 4 * config.dim)])
    return set_length(register, Source.LENGTH, register, amount=step, modulus=modulus)


def turns_of(command: Command, lengths: np.ndarray) -> int:
    """How often the body of a REPEAT comes."""
    fields = command.fields
    have = int(lengths[fields["times_reg"]]) if fields["times_reg"] else MAX_LENGTH
    value = max(have - fields["times_offset"], 0)
    return min(-(-value >> fields["times_shift"]), fields["times_cap"])


def _counts(draw: Draw, lengths: np.ndarray, turns: int) -> Iterator[tuple[int, int, int]]:
    """Register, offset and shift that say ``turns``, through every register that can."""
    for register in range(NUM_LENGTHS):
        have, shift = int(lengths[register]) if register else MAX_LENGTH, draw.choice([0, 0, *range(1, 16)])
        low, high = (turns - 1 << shift) + 1, min(turns << shift, have)
        if turns == 0:
            yield register, draw.integer(have, MAX_LENGTH), shift
        elif low <= high:
            yield register, have - draw.choice([low, high, draw.integer(low, high)]), shift


def draw_repeat(draw: Draw, lengths: np.ndarray, turns: int, steps: Sequence[int] = ()) -> Command:
    """REPEAT of a body that is not known yet, so often with these lengths: by its constant, or by a register.

    ``steps``: registers that bodies around it change.
    """
    found = list(_counts(draw, lengths, turns))
    if steps and draw.chance(0.5) and (register := draw.choice(steps)) and lengths[register] >= turns:
        return repeat(0, Length(MAX_LENGTH, register, int(lengths[register]) - turns))
    if draw.chance(0.4) or not found:
        return repeat(0, turns)
    register, offset, shift = draw.choice(found)
    if draw.fresh and draw.chance(0.5):
        register, offset, shift = draw.choice([each for each in found if each[0] in draw.fresh] or found)
    cap = draw.choice([turns, turns + 1, MAX_LENGTH]) if turns else draw.integer(0, MAX_LENGTH)
    return repeat(0, Length(cap, register, offset), shift=shift)
