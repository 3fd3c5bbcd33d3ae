"""Encoding round trips and refuses what does not fit."""

from typing import Any

import numpy as np
import pytest

from gemmule.isa import (
    BODY,
    HEADER,
    TABLE_FIELDS,
    ColumnFlag,
    Command,
    Dyn,
    IsaError,
    Length,
    ProductFlag,
    RequantFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
    decode,
    decode_table,
    disassemble,
    encode,
    encode_program,
)
from gemmule.operations import OPERATIONS


def random_command(rng: np.random.Generator) -> Command:
    unit = Unit(int(rng.integers(0, 4)))
    fields = {name: int(rng.integers(0, 1 << bits)) for name, bits in BODY[unit]}
    waits = {u: int(rng.integers(1, 64)) for u in Unit if rng.random() < 0.5}
    flags = frozenset(int(b) for b in np.flatnonzero(rng.random(8) < 0.3))
    dyn = (Dyn(int(rng.integers(0, 4))), int(rng.integers(0, 16)), int(rng.integers(0, 1024)))
    return Command(unit, fields, int(rng.integers(0, 32)), waits, flags, dyn)


def test_round_trip() -> None:
    rng = np.random.default_rng(1)
    commands = [random_command(rng) for _ in range(300)]
    for command in commands:
        assert decode(encode(command)) == command
    table = decode_table(encode_program(commands))
    for row, command in zip(table, commands):
        for name, value in command.fields.items():
            assert row[TABLE_FIELDS.index(name)] == value


def test_layouts_fit() -> None:
    assert sum(bits for _, bits in HEADER) == 64
    assert all(sum(bits for _, bits in body) <= 192 for body in BODY.values())


def test_long_waits_saturate_to_a_stronger_wait() -> None:
    command = Command.make(Unit.LOAD, bytes=4, rows=1, waits={Unit.MATRIX: 500})
    assert decode(encode(command)).waits == {Unit.MATRIX: 63}


@pytest.mark.parametrize(("fields", "message"), [
    ({"row": 70000}, "load command: row must be from 0 to 65535, not 70000"),
    ({"bytes": -1}, "load command: bytes must be from 0 to 1048575, not -1"),
    ({"colour": 1}, "load command: unknown field 'colour'"),
])
def test_fields_that_do_not_fit(fields: dict, message: str) -> None:
    with pytest.raises(IsaError) as error:
        encode(Command.make(Unit.LOAD, **fields))
    assert str(error.value).startswith(message)


def test_length_rule() -> None:
    lengths = [0] * 16
    lengths[3] = 10
    assert Length(8, 3, 4).resolve(lengths) == 6
    assert Length(4, 3, 4).resolve(lengths) == 4
    assert Length(4, 3, 20).resolve(lengths) == 0
    assert Length(7).resolve(lengths) == 7


def test_listing() -> None:
    command = Command.make(
        Unit.VECTOR, op=VOp.ROPE, src0=3, m=Length(16, 1), n=32, waits={Unit.MATRIX: 1},
        flags=[ColumnFlag.COLUMN], dyn=(Dyn.DST, 2, 1), note="rotate keys")
    assert disassemble(command) == (
        "vector.rope          src0=3 m=len1-0<=16 n=32 dst+=len2*1 column waits matrix:1  # rotate keys")


def test_program_image_length() -> None:
    with pytest.raises(IsaError, match="multiple of 32 bytes, not 33"):
        decode_table(bytes(33))


def test_listings_call_fields_by_what_they_are() -> None:
    def line(op: int, **fields: Any) -> str:
        flags = fields.pop("flags", ())
        return disassemble(Command.make(fields.pop("unit", Unit.VECTOR), op=op, flags=flags, **fields))

    assert "angles=7 period=2" in line(VOp.ROPE, aux=7, period=2)
    assert "behind=33" in line(VOp.SOFTMAX_MAX, aux=33)
    assert "exponential=1" in line(VOp.SOFTMAX_EXP, period=1)
    assert "src1_stride=9" in line(VOp.PRODUCT, aux=9)
    assert line(VOp.PRODUCT, aux=9, flags=[ProductFlag.WIDE]).endswith("wide")
    assert "limits=5" in line(VOp.REQUANT, aux=5)
    assert "residual_mult=5" in line(VOp.REQUANT, aux=5, flags=[RequantFlag.RESIDUAL])
    assert "threshold=4" in line(SOp.COMPARE, unit=Unit.SELECT, aux=4)


def test_every_flag_has_its_own_name() -> None:
    assert SoftmaxFlag.TREE.name == "TREE"
    for (_, _), operation in OPERATIONS.items():
        assert len({flag.value for flag in operation.flags}) == len(operation.flags)
        assert len({type(flag) for flag in operation.flags}) <= 1
