"""Control commands: which command comes next, and what SET, PARAMS and REPEAT change.

Control commands go to no unit. They act in program order, at the point where commands read registers, and change the
registers of the launch: lengths start with the host's values and displacements with 0, and both end with the launch. A
REPEAT turns the commands after it into a *body*. A launch is the resulting stream of commands; it depends only on
registers and image. The functions work on plain integer arrays, as in :mod:`gemmule.resolve`: the model compiles them,
the verifier calls them, and the RTL is tested against them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .config import Config
from .isa import (
    CONTROL,
    CONTROL_BODY,
    HEADER,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    PARAMS_WORDS,
    TABLE_FIELDS,
    Command,
    COp,
    Length,
    Source,
    Target,
    control_columns,
)
from .resolve import CONFIG, FAULTS

__all__ = [
    "MAX_COMMANDS", "MAX_DEPTH", "Local", "Loop", "Sequence", "begin", "execute", "new_local",
    "parameter_read", "params", "refusal", "repeat", "set_displacement", "set_length", "take",
]

MAX_DEPTH = 4
"""How deep bodies may nest."""
MAX_COMMANDS = (1 << 24) - 1
"""Commands of a launch, control commands and repeated ones included; one more faults (``illegal``)."""


class Sequence(IntEnum):
    """The position of the stream; indices of :attr:`Local.sequence`."""

    PLACE = 0  # of the next command, in the image
    LEFT = 1  # commands from there to the end of the innermost body, or of the program
    DEPTH = 2  # number of bodies around the next command
    CLOSED = 3  # the last command was the last one of a body


class Loop(IntEnum):
    """Columns of :attr:`Local.loops`."""

    BEGIN = 0  # place of the body's first command
    COMMANDS = 1
    TURNS = 2  # turns left, including the current one
    REST = 3  # commands after the body, up to the end of the surrounding body or program


class Local(NamedTuple):
    """Registers of one launch."""

    lengths: np.ndarray
    """int64[16]."""
    displacements: np.ndarray
    """int64[32]: bytes added to a base register before offsets."""
    bases: np.ndarray
    """int64[32]: base + displacement."""
    limits: np.ndarray
    """int64[32]: limit - displacement."""
    words: np.ndarray
    """int64[parameter_words]; kept across launches."""
    written: np.ndarray
    """bool[parameter_words]: words loaded in this launch."""
    sequence: np.ndarray
    """int64[4], see :class:`Sequence`."""
    loops: np.ndarray
    """int64[4, 4], see :class:`Loop`: outermost first."""


_PLACE, _LEFT, _DEPTH, _CLOSED = map(int, Sequence)
_BEGIN, _COMMANDS, _TURNS, _REST = map(int, Loop)
_MAX_DEPTH, _MAX_LENGTH, _PARAMS_WORDS, _LENGTHS = MAX_DEPTH, MAX_LENGTH, PARAMS_WORDS, NUM_LENGTHS
_NONE, _ILLEGAL, _ROWS = (FAULTS.index(name) for name in ("none", "illegal", "rows"))
_SET, _PARAMS, _REPEAT = map(int, COp)
_F_OP, _F_REST = TABLE_FIELDS.index("op"), len(HEADER)
_S = control_columns(COp.SET)
_F_TARGET, _F_TARGET_REG, _F_SOURCE, _F_SOURCE_REG, _F_INDEX, _F_AMOUNT, _F_MODULUS = (
    _S[name] for name, _ in CONTROL_BODY[COp.SET])
_F_FIRST = control_columns(COp.PARAMS)["first"]
_R = control_columns(COp.REPEAT)
_F_BODY, _F_TIMES, _F_OFFSET, _F_SHIFT, _F_CAP = (_R[name] for name, _ in CONTROL_BODY[COp.REPEAT])
_TO_LENGTH = int(Target.LENGTH)
_ZERO, _LENGTH, _DISPLACEMENT, _WORD, _HALF = map(int, Source)
_ADDRESS_BITS, _WORDS = CONFIG["address_bits"], CONFIG["parameter_words"]


def new_local(config: Config) -> Local:
    """Registers of a device after power-up."""
    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)

    words = config.parameter_words
    return Local(zeros(NUM_LENGTHS), zeros(NUM_BASES), zeros(NUM_BASES), zeros(NUM_BASES), zeros(words),
                 np.zeros(words, dtype=np.bool_), zeros(len(Sequence)), zeros(MAX_DEPTH, len(Loop)))


def begin(local, bases, limits, lengths, count):  # type: ignore[no-untyped-def]
    """Start a launch of an image of ``count`` commands with the host's registers."""
    local.lengths[:] = lengths
    local.displacements[:] = 0
    local.bases[:] = bases
    local.limits[:] = limits
    local.written[:] = False
    local.sequence[:] = 0
    local.sequence[_LEFT] = count


def take(local):  # type: ignore[no-untyped-def]
    """Take the next command: advance to the one after it, or back to the start of its body."""
    sequence = local.sequence
    sequence[_PLACE] += 1
    sequence[_LEFT] -= 1
    sequence[_CLOSED] = 0
    depth = sequence[_DEPTH]
    if depth > 0 and sequence[_LEFT] == 0:
        sequence[_CLOSED] = 1
        loop = local.loops[depth - 1]
        if loop[_TURNS] > 1:
            loop[_TURNS] -= 1
            sequence[_PLACE], sequence[_LEFT] = loop[_BEGIN], loop[_COMMANDS]
        else:
            sequence[_LEFT], sequence[_DEPTH] = loop[_REST], depth - 1


def execute(row, local, cfg):  # type: ignore[no-untyped-def]
    """Execute a control command that has just been taken; returns its fault, as an index into ``FAULTS``.

    ``row`` is a row of :func:`gemmule.isa.decode_table`, ``cfg`` a vector of :func:`gemmule.resolve.config_vector`. A
    command that faults changes nothing.
    """
    for i in range(_F_OP + 1, _F_REST):
        if row[i] != 0:  # waits, flags, a dynamic row or a predicate
            return _ILLEGAL
    if row[_F_OP] == _SET:
        return _execute_set(row, local, cfg)
    if row[_F_OP] == _PARAMS:
        first = row[_F_FIRST]
        if first + _PARAMS_WORDS > cfg[_WORDS]:
            return _ROWS
        for i in range(_PARAMS_WORDS):
            local.words[first + i] = row[_F_FIRST + 1 + i]
            local.written[first + i] = True
        return _NONE
    return _execute_repeat(row, local) if row[_F_OP] == _REPEAT else _ILLEGAL


def _index(row, local):  # type: ignore[no-untyped-def]
    """Number of the word or half that a SET names."""
    register = row[_F_SOURCE_REG]
    return row[_F_INDEX] + (local.lengths[register] if register else 0)


def parameter_read(row, local):  # type: ignore[no-untyped-def]
    """Number of the parameter word that a control command reads, possibly beyond the memory; -1: none."""
    if row[_F_OP] != _SET or row[_F_SOURCE] < _WORD or row[_F_SOURCE] > _HALF or row[_F_SOURCE_REG] >= _LENGTHS:
        return -1
    return _index(row, local) // 2 if row[_F_SOURCE] == _HALF else _index(row, local)


def _execute_set(row, local, cfg):  # type: ignore[no-untyped-def]
    """Source + amount. A length wraps once and is limited to 0 .. 65535; a displacement is modulo the address space."""
    target, number, source, register = row[_F_TARGET], row[_F_TARGET_REG], row[_F_SOURCE], row[_F_SOURCE_REG]
    modulus, to_length = row[_F_MODULUS], target == _TO_LENGTH
    if source > _HALF or (source != _DISPLACEMENT and register >= _LENGTHS):
        return _ILLEGAL
    if (number == 0 or number >= _LENGTHS) if to_length else modulus != 0:
        return _ILLEGAL
    value = 0
    if source == _LENGTH:
        value = local.lengths[register] if register else _MAX_LENGTH
    elif source == _DISPLACEMENT:
        value = local.displacements[register]
    elif source != _ZERO:
        at = parameter_read(row, local)
        if at >= cfg[_WORDS]:
            return _ROWS
        value = local.words[at]
        if source == _HALF:
            value = (value >> 16 * (_index(row, local) & 1)) & _MAX_LENGTH
    value += row[_F_AMOUNT]
    if to_length:
        if modulus and value >= modulus:
            value -= modulus
        elif modulus and value < 0:
            value += modulus
        local.lengths[number] = min(max(value, 0), _MAX_LENGTH)
    else:
        shift = value & ((1 << cfg[_ADDRESS_BITS]) - 1)
        change = shift - local.displacements[number]
        local.displacements[number] = shift
        local.bases[number] += change
        local.limits[number] -= change
    return _NONE


def _execute_repeat(row, local):  # type: ignore[no-untyped-def]
    """Make a body of the next commands, or skip them."""
    sequence, body = local.sequence, row[_F_BODY]
    depth, left = sequence[_DEPTH], sequence[_LEFT]
    # A body ends before the one around it does, so that no command ends two.
    if sequence[_CLOSED] or body == 0 or depth == _MAX_DEPTH or body > (left - 1 if depth else left):
        return _ILLEGAL
    register = row[_F_TIMES]
    value = max((local.lengths[register] if register else _MAX_LENGTH) - row[_F_OFFSET], 0)
    times = min((value + (1 << row[_F_SHIFT]) - 1) >> row[_F_SHIFT], row[_F_CAP])
    if times == 0:
        sequence[_PLACE] += body
        sequence[_LEFT] -= body
        return _NONE
    loop = local.loops[depth]
    loop[_BEGIN], loop[_COMMANDS], loop[_TURNS], loop[_REST] = sequence[_PLACE], body, times, left - body
    sequence[_LEFT], sequence[_DEPTH] = body, depth + 1
    return _NONE


def refusal(row: np.ndarray, local: Local) -> str:
    """Why the next control command faults, as the end of a sentence that begins with the command."""
    op, left, depth = int(row[_F_OP]), int(local.sequence[_LEFT]) - 1, int(local.sequence[_DEPTH])
    if row[_F_OP + 1:_F_REST].any():
        return "must have no waits, flags, dynamic row or predicate"
    if op == _SET:
        register, number = int(row[_F_SOURCE_REG]), int(row[_F_TARGET_REG])
        if row[_F_SOURCE] > _HALF:
            return f"must have a source from 0 to {_HALF}, not {int(row[_F_SOURCE])}"
        if row[_F_SOURCE] != _DISPLACEMENT and register >= _LENGTHS:
            return f"must name length registers up to {_LENGTHS - 1}, not {register}"
        if row[_F_TARGET] == _TO_LENGTH and not 1 <= number < _LENGTHS:
            return f"must set one of length registers 1 to {_LENGTHS - 1}, not {number}"
        if row[_F_TARGET] != _TO_LENGTH and row[_F_MODULUS]:
            return "must have no modulus: displacements count modulo the address space"
        return f"must read one of {len(local.words)} parameters, not number {int(parameter_read(row, local))}"
    if op == _PARAMS:
        last = int(row[_F_FIRST]) + _PARAMS_WORDS - 1
        return f"must write parameters up to {len(local.words) - 1}, not {last}"
    if op != _REPEAT:
        return f"must have an operation from 0 to {_REPEAT}, not {op}"
    body = int(row[_F_BODY])
    if depth == _MAX_DEPTH:
        return f"must stand within fewer than {_MAX_DEPTH} bodies"
    if depth and left == 0:
        return "must not be the last command of a body: let one more follow its own"
    where = "before the body around it" if depth else "within the program"
    return f"must have a body of 1 command or more that ends {where} (commands left: {left}), not of {body}"


def _control(op: COp, note: str, **values: int) -> Command:
    return Command(CONTROL, {name: int(value) for name, value in values.items()}, op, note=note)


def set_length(register: int, source: Source = Source.ZERO, source_reg: int = 0, *, amount: int = 0, index: int = 0,
               modulus: int = 0, note: str = "") -> Command:
    """SET of a length register: source + amount, wrapped once by ``modulus`` if that is not 0, limited to 0 .. 65535.

    With WORD and HALF, the number read is ``index`` + LEN[source_reg], or ``index`` if ``source_reg`` is 0.
    """
    return _control(COp.SET, note, target=Target.LENGTH, target_reg=register, source=source, source_reg=source_reg,
                    amount=amount, index=index, modulus=modulus)


def set_displacement(base: int, source: Source = Source.ZERO, source_reg: int = 0, *, amount: int = 0, index: int = 0,
                     note: str = "") -> Command:
    """SET of the displacement of a base register, in bytes, modulo the address space."""
    return _control(COp.SET, note, target=Target.DISPLACEMENT, target_reg=base, source=source, source_reg=source_reg,
                    amount=amount, index=index)


def params(first: int, *words: int, note: str = "") -> Command:
    """PARAMS: load up to five words of the parameter memory, starting at number ``first``; missing words become 0."""
    return _control(COp.PARAMS, note, first=first, **{f"word{i}": word for i, word in enumerate(words)})


def repeat(body: int, times: int | Length, *, shift: int = 0, note: str = "") -> Command:
    """REPEAT: run the next ``body`` commands ``times`` times.

    A :class:`Length` means min(ceil(max(LEN[reg] - offset, 0) / 2^shift), cap) times.
    """
    length = times if isinstance(times, Length) else Length(times)
    return _control(COp.REPEAT, note, body=body, times_reg=length.reg, times_offset=length.offset, times_shift=shift,
                    times_cap=length.cap)
