"""The instruction set, defined once: 32-byte commands, their fields, encoding and listing.

A command is a header (64 bits) and a body (192 bits) whose layout depends on its unit. RTL,
model, compiler, disassembler and ``docs/isa.md`` are all built from the tables in this file.

Lengths are written as (register, offset, cap) and mean
``min(max(LEN[register] - offset, 0), cap)``; ``LEN[0]`` always reads 65535, so register 0
with offset 0 is the constant ``cap``. One first row (or entry) of a command may be dynamic:
``row + LEN[dyn_reg] * dyn_stride``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from itertools import accumulate

import numpy as np

from .operations import (
    CONTROL,
    OPERATIONS,
    AddFlag,
    ArgmaxFlag,
    ColumnFlag,
    CommitFlag,
    CompareFlag,
    COp,
    FrontEnd,
    ImportanceFlag,
    KeysFlag,
    ListFlag,
    MatrixFlag,
    MoveFlag,
    NormFlag,
    ProductFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Source,
    Target,
    TopKFlag,
    Unit,
    VOp,
    field_name,
    flag_name,
    legal_flags,
)

__all__ = [
    "BODY", "COMMAND_BYTES", "CONTROL", "CONTROL_BODY", "HEADER", "INDEX_BITS", "LENGTHS", "MAX_LENGTH", "MAX_WAIT",
    "NUM_BASES", "NUM_LENGTHS", "NUM_PREDICATES", "PARAMETER_BITS", "PARAMS_WORDS", "TABLE_FIELDS", "AddFlag",
    "ArgmaxFlag", "COp", "ColumnFlag", "Command", "CommitFlag", "CompareFlag", "Dyn", "FrontEnd", "ImportanceFlag",
    "IsaError", "KeysFlag", "Length", "ListFlag", "MatrixFlag", "MoveFlag", "NormFlag", "ProductFlag", "RequantFlag",
    "SOp", "SoftmaxFlag", "Source", "Target", "TopKFlag", "Unit", "VOp", "body_of", "control_columns", "decode",
    "decode_table", "disassemble", "encode", "encode_program", "field_bits", "legal_flags", "signed_field", "table_row",
]

COMMAND_BYTES = 32
NUM_BASES = 32
"""Base (and limit) registers for DRAM addresses."""
NUM_LENGTHS = 16
"""Length registers; number 0 reads :data:`MAX_LENGTH`."""
MAX_LENGTH = (1 << 16) - 1
"""The largest value of a length register, and the value that register 0 always reads."""
NUM_PREDICATES = 4
"""Predicates; number 0 is always true."""
INDEX_BITS = (16, 18)
"""Possible widths of an index on a device: an id, an entry of the index lists, the number of a DRAM row."""
MAX_WAIT = 63
"""Longest wait distance; a longer one is written as 63, which waits for more commands."""


class IsaError(ValueError):
    """A command with a field that does not fit; the message names value, rule and fix."""


class Dyn(IntEnum):
    """Which row or entry of a command is dynamic."""

    NONE = 0
    SRC0 = 1  # store: row; matrix: a_row; vector, select: src0
    SRC1 = 2  # load, store: list; matrix: b_row; vector: src1; select: first
    DST = 3  # load: row; matrix: c_row; vector, select: dst


HEADER: tuple[tuple[str, int], ...] = (
    ("unit", 3), ("op", 5),
    ("wait_load", 6), ("wait_store", 6), ("wait_matrix", 6), ("wait_vector", 6), ("wait_select", 6),
    ("flags", 8), ("dyn_which", 2), ("dyn_reg", 4), ("dyn_stride", 10), ("predicate", 2),
)


def _length(name: str) -> tuple[tuple[str, int], ...]:
    return ((f"{name}_reg", 4), (f"{name}_offset", 8), (f"{name}_cap", 16))


_MOVE = (
    ("base", 5), ("offset", 32), ("stride", 24), ("bytes", 20),
    ("row", 16), ("row_stride", 16), ("block_stride", 16), *_length("rows"), ("list", 16),
    ("last_index", 18),
)
BODY: dict[Unit, tuple[tuple[str, int], ...]] = {
    Unit.LOAD: _MOVE,
    Unit.STORE: _MOVE,
    Unit.MATRIX: (
        ("a_row", 16), ("a_stride", 16), ("b_row", 16), ("b_stride", 16),
        ("c_row", 16), ("c_stride", 16), *_length("m"), *_length("n"), *_length("k"), ("group", 4),
    ),
    Unit.VECTOR: (
        ("src0", 16), ("src0_stride", 16), ("src1", 16), ("aux", 16),
        ("dst", 16), ("dst_stride", 16), *_length("m"), *_length("n"),
        ("mult", 16), ("shift", 6), ("shift2", 6), ("context", 4), ("period", 3), ("scale_reg", 4),
    ),
    Unit.SELECT: (
        ("src0", 16), ("src0_stride", 16), ("dst", 16), ("first", 16), ("aux", 16),
        *_length("m"), *_length("n"), *_length("k"), ("shift", 6), ("number", 2),
        ("first_high", 2),
    ),
}
PARAMETER_BITS = 32
"""A word of the parameter memory, signed."""
PARAMS_WORDS = 5
"""Words that one PARAMS loads."""
CONTROL_BODY: dict[COp, tuple[tuple[str, int], ...]] = {
    COp.SET: (("target", 1), ("target_reg", 5), ("source", 3), ("source_reg", 5), ("index", 16), ("amount", 48),
              ("modulus", 16)),
    COp.PARAMS: (("first", 16), *((f"word{i}", PARAMETER_BITS) for i in range(PARAMS_WORDS))),
    COp.REPEAT: (("body", 24), ("times_reg", 4), ("times_offset", 16), ("times_shift", 4), ("times_cap", 16)),
}
"""Bodies of control commands; ``amount`` and words are two's complement."""
LENGTHS: dict[int, tuple[str, ...]] = {
    Unit.LOAD: ("rows",), Unit.STORE: ("rows",), Unit.MATRIX: ("m", "n", "k"),
    Unit.VECTOR: ("m", "n"), Unit.SELECT: ("m", "n", "k"),
}
_WAITS = ("wait_load", "wait_store", "wait_matrix", "wait_vector", "wait_select")


def body_of(unit: int, op: int = 0) -> tuple[tuple[str, int], ...]:
    """Field table (name, bits) of a unit's or control command's body, lowest bits first; empty if there is no body."""
    if unit == CONTROL:
        return CONTROL_BODY[COp(op)] if op < len(COp) else ()
    return BODY.get(Unit(unit), ()) if unit < len(Unit) else ()


def field_bits(unit: Unit, name: str) -> int:
    """Width of a field of a unit's body, or of the header."""
    return dict((*HEADER, *body_of(unit)))[name]


def signed_field(name: str) -> bool:
    """Whether a field of a control command is two's complement."""
    return name == "amount" or name.startswith("word")


@dataclass(frozen=True)
class Length:
    """``min(max(LEN[reg] - offset, 0), cap)`` rows or columns."""

    cap: int
    reg: int = 0
    offset: int = 0

    def resolve(self, lengths: Iterable[int]) -> int:
        value = MAX_LENGTH if self.reg == 0 else list(lengths)[self.reg]
        return min(max(value - self.offset, 0), self.cap)


@dataclass(frozen=True)
class Command:
    """One command: unit, operation, raw body fields, waits (unit -> distance), flag bits.

    Control commands have only fields.
    """

    unit: Unit | FrontEnd
    fields: Mapping[str, int]
    op: int = 0
    waits: Mapping[Unit, int] = field(default_factory=dict)
    flags: frozenset[int] = frozenset()
    dyn: tuple[Dyn, int, int] = (Dyn.NONE, 0, 0)
    note: str = ""
    """Text for listings; not encoded."""
    predicate: int = 0
    """The command runs only if this predicate is 1; number 0 always is."""

    @staticmethod
    def make(
        unit: Unit | FrontEnd, *, op: int = 0, waits: Mapping[Unit, int] | None = None,
        flags: Iterable[int] = (), dyn: tuple[Dyn, int, int] = (Dyn.NONE, 0, 0), note: str = "",
        predicate: int = 0, **values: int | Length,
    ) -> Command:
        """Build a command; a :class:`Length` value expands to its three raw fields, ``first`` to its two."""
        raw: dict[str, int] = {}
        for name, value in values.items():
            if isinstance(value, Length):
                raw |= {f"{name}_reg": value.reg, f"{name}_offset": value.offset,
                        f"{name}_cap": value.cap}
            elif name in LENGTHS.get(unit, ()):
                raw |= {f"{name}_reg": 0, f"{name}_offset": 0, f"{name}_cap": value}
            elif unit == Unit.SELECT and name == "first" and MAX_LENGTH < value < 1 << max(INDEX_BITS):
                raw |= {"first": value & MAX_LENGTH, "first_high": value >> INDEX_BITS[0]}
            else:
                raw[name] = value
        return Command(unit, raw, int(op), dict(waits or {}), frozenset(map(int, flags)), dyn, note, predicate)


@cache
def _places(layout: tuple[tuple[str, int], ...]) -> dict[str, tuple[int, int, bool]]:
    """(lowest bit, bits, two's complement) of each field."""
    edges = accumulate((bits for _, bits in layout), initial=0)
    return {name: (low, bits, signed_field(name)) for (name, bits), low in zip(layout, edges)}


def _pack(layout: tuple[tuple[str, int], ...], values: Mapping[str, int], where: str) -> int:
    word, places = 0, _places(layout)
    for name, value in values.items():
        if name not in places:
            raise IsaError(f"{where}: unknown field {name!r}; fields: {', '.join(sorted(places))}")
        (low, bits, signed), number = places[name], int(value)
        if signed and -1 << bits - 1 <= number < 0:
            number += 1 << bits
        if not 0 <= number < 1 << bits:
            raise IsaError(
                f"{where}: {name} must be from 0 to {(1 << bits) - 1}, not {number}")
        word |= number << low
    return word


def _header(command: Command) -> dict[str, int]:
    return {
        "unit": command.unit, "op": command.op, "flags": sum(1 << bit for bit in command.flags),
        "dyn_which": command.dyn[0], "dyn_reg": command.dyn[1], "dyn_stride": command.dyn[2],
        "predicate": command.predicate,
        **{_WAITS[unit]: min(distance, MAX_WAIT) for unit, distance in command.waits.items()},
    }


def encode(command: Command) -> int:
    """The 256-bit word of a command (header in bits 0..63, body above).

    Raises:
        IsaError: a field is unknown or does not fit its bits.
    """
    where = f"{command.unit.label} command"
    header = _header(command)
    for distance in command.waits.values():
        if distance < 0:
            raise IsaError(f"{where}: wait distance must not be negative, not {distance}")
    return _pack(HEADER, header, where) | _pack(body_of(command.unit, command.op), command.fields, where) << 64


def _unpack(layout: Iterable[tuple[str, int]], word: int) -> dict[str, int]:
    values = {}
    for name, bits in layout:
        values[name] = word & ((1 << bits) - 1)
        word >>= bits
    return values


def decode(word: int) -> Command:
    """Inverse of :func:`encode` (waits of zero distance are left out)."""
    header = _unpack(HEADER, word)
    if header["unit"] > CONTROL:
        raise IsaError(f"unit must be from 0 to {int(CONTROL)}, not {header['unit']}")
    unit = CONTROL if header["unit"] == CONTROL else Unit(header["unit"])
    waits = {Unit(i): header[name] for i, name in enumerate(_WAITS) if header[name]}
    flags = frozenset(bit for bit in range(8) if header["flags"] >> bit & 1)
    dyn = (Dyn(header["dyn_which"]), header["dyn_reg"], header["dyn_stride"])
    body = body_of(unit, header["op"])
    values = {name: value - (signed_field(name) and value >> bits - 1 << bits)
              for (name, bits), value in zip(body, _unpack(body, word >> 64).values())}
    return Command(unit, values, header["op"], waits, flags, dyn, predicate=header["predicate"])


def encode_program(commands: Iterable[Command]) -> bytes:
    """Program image: 32 bytes per command, little-endian."""
    return b"".join(encode(command).to_bytes(COMMAND_BYTES, "little") for command in commands)


TABLE_FIELDS: tuple[str, ...] = tuple(name for name, _ in HEADER) + tuple(
    dict.fromkeys(name for layout in BODY.values() for name, _ in layout))
"""Columns of :func:`decode_table`; a field that a unit does not have is 0."""
_COLUMN = {name: i for i, name in enumerate(TABLE_FIELDS)}


def control_columns(op: COp) -> dict[str, int]:
    """Columns of :func:`decode_table` that hold the fields of a control command: those directly after the header."""
    return {name: i for i, (name, _) in enumerate(CONTROL_BODY[op], len(HEADER))}


def table_row(command: Command) -> np.ndarray:
    """One command as a row of :func:`decode_table`, made without encoding it; not checked."""
    row = np.zeros(len(TABLE_FIELDS), dtype=np.int64)
    head = _header(command)
    columns = _COLUMN
    if command.unit == CONTROL and command.op < len(COp):
        columns = _COLUMN | control_columns(COp(command.op))
    for name, value in (*head.items(), *command.fields.items()):
        row[columns[name]] = value
    return row


def decode_table(image: bytes) -> np.ndarray:
    """Decode a program image to ``int64[commands, len(TABLE_FIELDS)]`` for compiled code.

    It decodes one column at a time, because every launch decodes its image.
    """
    if len(image) % COMMAND_BYTES:
        raise IsaError(
            f"program image must be a multiple of {COMMAND_BYTES} bytes, not {len(image)}")
    words = np.frombuffer(image, dtype="<u8").reshape(-1, 4)
    table = np.zeros((len(words), len(TABLE_FIELDS)), dtype=np.int64)

    def fill(layout: tuple[tuple[str, int], ...], shift: int, rows: np.ndarray | slice, columns: list[int]) -> None:
        parts = [np.ascontiguousarray(part) for part in words[rows].T]
        found = np.empty((len(parts[0]), len(layout)), dtype=np.int64)
        for i, (_, bits) in enumerate(layout):
            word, low = divmod(shift, 64)
            value = parts[word] >> np.uint64(low)
            if low + bits > 64:
                value |= parts[word + 1] << np.uint64(64 - low)
            found[:, i] = value & np.uint64((1 << bits) - 1)
            if signed_field(layout[i][0]):
                found[:, i] -= found[:, i] >> bits - 1 << bits
            shift += bits
        table[rows if isinstance(rows, slice) else rows[:, None], columns] = found

    fill(HEADER, 0, slice(None), list(range(len(HEADER))))
    units, ops = table[:, _COLUMN["unit"]], table[:, _COLUMN["op"]]
    for unit, layout in BODY.items():
        fill(layout, 64, np.flatnonzero(units == unit), [_COLUMN[name] for name, _ in layout])
    if (units == CONTROL).any():
        for op, layout in CONTROL_BODY.items():
            fill(layout, 64, np.flatnonzero((units == CONTROL) & (ops == op)), list(control_columns(op).values()))
    return table


def _listed_control(command: Command) -> str:
    """``control.set  len3 = half[12+len2] + 1 mod 64``, ``control.repeat  next 12, len3-0 >> 6 <= 100 times``."""
    values = {name: int(command.fields.get(name, 0)) for name, _ in body_of(CONTROL, command.op)}
    if command.op == COp.SET:
        at = f"{values['index']}" + (f"+len{values['source_reg']}" if values["source_reg"] else "")
        reg, source = values["source_reg"], values["source"]
        sources = ("0", f"len{reg}", f"displacement{reg}", f"word[{at}]", f"half[{at}]")
        found = sources[source] if source < len(sources) else f"source{source}"
        amount, name = values["amount"], ("len", "displacement")[values["target"]]
        text = f"{name}{values['target_reg']} = {found}" + (f" {'-' if amount < 0 else '+'} {abs(amount)}" if amount
                                                             else "")
        text += f" mod {values['modulus']}" if values["modulus"] else ""
    elif command.op == COp.PARAMS:
        text = f"word[{values['first']}] = " + ", ".join(str(values[f"word{i}"]) for i in range(PARAMS_WORDS))
    else:
        reg, cap = values["times_reg"], values["times_cap"]
        times = f"{cap}" if not reg else (
            f"len{reg}-{values['times_offset']} >> {values['times_shift']} <= {cap}")
        text = f"next {values['body']}, {times} times"
    return f"{CONTROL.label}.{COp(command.op).name.lower():<12} {text}" + (
        f"  # {command.note}" if command.note else "")


def disassemble(command: Command) -> str:
    """One readable line: ``vector.rope  src0=0 ... m=len1-0<=16  waits matrix:1``."""
    if command.unit == CONTROL and command.op < len(COp):
        return _listed_control(command)
    known = OPERATIONS.get((command.unit, command.op))
    name = known.label if known else command.unit.label
    values = {name: command.fields[name] for name, _ in body_of(command.unit, command.op) if name in command.fields}
    parts = []
    for length in LENGTHS.get(command.unit, ()):
        reg, offset, cap = (values.pop(f"{length}_{part}", 0) for part in ("reg", "offset", "cap"))
        parts.append(f"{length}={cap}" if reg == 0 else f"{length}=len{reg}-{offset}<={cap}")
    if high := values.pop("first_high", 0):
        values["first"] = values.get("first", 0) | high << INDEX_BITS[0]
    names = {key: field_name(command.unit, command.op, command.flags, key) for key in values}
    parts = [f"{names[key]}={value}" for key, value in values.items() if value] + parts
    if command.dyn[0]:
        parts.append(f"{command.dyn[0].name.lower()}+=len{command.dyn[1]}*{command.dyn[2]}")
    if command.predicate:
        parts.append(f"if p{command.predicate}")
    parts += [flag_name(command.unit, command.op, command.flags, bit) for bit in sorted(command.flags)]
    if command.waits:
        parts.append("waits " + ",".join(
            f"{unit.label}:{distance}" for unit, distance in sorted(command.waits.items())))
    return f"{name:<20} {' '.join(parts)}" + (f"  # {command.note}" if command.note else "")
