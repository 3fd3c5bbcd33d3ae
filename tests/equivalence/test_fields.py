"""Every field of a command does what its clause in ``docs/isa.md`` says, on the model and on the RTL.

A command runs with two or three values of the field between a fill and a dump. All that it leaves equals a statement
of the pages (``statement.py``), and every value leaves something else.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.clauses import BODY_CLAUSES, HEADER_CLAUSES
from gemmule.config import load_config
from gemmule.isa import (
    BODY,
    COMMAND_BYTES,
    HEADER,
    Command,
    CommitFlag,
    Dyn,
    KeysFlag,
    ListFlag,
    MatrixFlag,
    MoveFlag,
    ProductFlag,
    RequantFlag,
    SOp,
    TopKFlag,
    Unit,
    VOp,
    encode,
    encode_program,
)
from gemmule.resolve import FAULTS
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

from .mutant_programs import LINE, in_turn
from .statement import Statement

pytestmark = [pytest.mark.rtl, pytest.mark.slow]
TINY = load_config("tiny")
make = Command.make
SPM, ACC, ENTRIES = 256, 64, 32
"""Rows and entries that are filled and dumped."""
RESULTS, DUMP, PROGRAM, SIZE = 4096, 8192, 16384, 32768
"""DRAM: below, random bytes; results of stores; the dump; the program."""
BASES = np.array([0, 64, RESULTS, RESULTS + 128, *[0] * 28], dtype=np.int64)
LENGTHS = np.array([0, 8, 5, 3, 0, 11, 29 | 9 << 6, 4000, *[0] * 8], dtype=np.int64)
WORDS = [MoveFlag.ACCUMULATOR]
FILL = [
    make(Unit.LOAD, bytes=4 * SPM, **LINE), make(Unit.LOAD, offset=1024, bytes=16 * ACC, flags=WORDS, **LINE),
    make(Unit.SELECT, op=SOp.COMMIT, n=64, flags=[CommitFlag.CLEAR]), make(Unit.SELECT, op=SOp.KEYS, n=64),
    make(Unit.SELECT, op=SOp.LIST_LOAD, n=ENTRIES, src0=200),
]
DUMPED = [
    make(Unit.STORE, offset=DUMP, bytes=4 * SPM, **LINE),
    make(Unit.STORE, offset=DUMP + 1024, bytes=16 * ACC, flags=WORDS, **LINE),
    make(Unit.SELECT, op=SOp.LIST_STORE, n=ENTRIES),
    make(Unit.STORE, offset=DUMP + 2048, bytes=2 * ENTRIES, **LINE),
    # before the upper halves, which are zeros, stand in these rows
    *(make(Unit.STORE, offset=DUMP + 2560 + 4 * i, row=i, bytes=4, predicate=i, **LINE) for i in (1, 2, 3)),
    make(Unit.SELECT, op=SOp.LIST_STORE, n=ENTRIES, flags=[ListFlag.HIGH]),
    make(Unit.STORE, offset=DUMP + 2048 + 2 * ENTRIES, bytes=2 * ENTRIES, **LINE),
]

Values = dict[str, tuple[int, ...]]
Case = tuple[Command, Values, list[Command], list[Command]]
"""A command, fields with their values, what comes before and after it."""


def lengths(*names: str) -> Values:
    """Each length's register, offset and cap."""
    return {f"{name}{part}": values for name in names for part, values in (
        ("_reg", (1, 2, 3)), ("_offset", (0, 2, 7)), ("_cap", (0, 1, 4)))}


def through(command: Command, **values: int) -> Command:
    """The command with these fields set as they are: ``m_reg`` and not ``m``."""
    return replace(command, fields={**command.fields, **values})


def by_register(*names: str) -> dict[str, int]:
    return {f"{name}{part}": value for name in names for part, value in (("_reg", 1), ("_cap", 8))}


MOVED: Values = {"stride": (8, 24), "bytes": (4, 8, 12), "row": (0, 5, 130), "row_stride": (3, 7),
                 "block_stride": (1, 2), **lengths("rows")}
LOAD = through(make(Unit.LOAD, base=1, offset=4, stride=16, bytes=8, row=16, row_stride=8, block_stride=5),
               **by_register("rows"))
STORE = replace(through(LOAD, base=2), unit=Unit.STORE)
GATHERED: Values = {"list": (0, 3), "last_index": (0, 2, 9)}
MATRIX = through(make(Unit.MATRIX, a_row=0, a_stride=10, b_row=64, b_stride=12, c_row=4, c_stride=11),
                 **by_register("m", "n", "k"))
REQUANT = through(make(Unit.VECTOR, op=VOp.REQUANT, src0=2, src0_stride=9, dst=30, dst_stride=8, mult=9, shift=28),
                  **by_register("m", "n"))
ADD = through(make(Unit.VECTOR, op=VOp.ADD, src0=2, src0_stride=9, src1=40, dst=130, dst_stride=8, mult=9, aux=5,
                   shift=4), **by_register("m", "n"))
RESIDUAL = replace(through(REQUANT, dst=100, dst_stride=16, aux=700, shift2=9),
                   flags=frozenset([RequantFlag.RESIDUAL, RequantFlag.RESCALE]))
WORDS_TIMES = replace(through(ADD, src0_stride=18, aux=16, dst_stride=20, mult=900, shift=24), op=VOp.PRODUCT,
                      flags=frozenset([ProductFlag.WIDE]))
ROPE = replace(through(REQUANT, dst=200, aux=60, shift2=14), op=VOp.ROPE)
ARGMAX = through(make(Unit.SELECT, op=SOp.ARGMAX, src0=8, src0_stride=20, dst=3, first=100), **by_register("m", "n"))
KEYS = through(make(Unit.SELECT, op=SOp.KEYS, src0=8, src0_stride=2, first=100), **by_register("n"))
TOP_K = through(make(Unit.SELECT, op=SOp.TOP_K, dst=4), **by_register("n", "k"))
IMPORTANT = [through(make(Unit.SELECT, op=SOp.IMPORTANCE, src0=8, src0_stride=20), **by_register("m", "n")),
             make(Unit.SELECT, op=SOp.COMMIT, n=64)]
SPARSE = [make(Unit.SELECT, op=SOp.COMMIT, n=64), make(Unit.SELECT, op=SOp.IMPORTANCE, src0=8, n=3, first=5),
          make(Unit.SELECT, op=SOp.IMPORTANCE, src0=9, n=2, first=20), make(Unit.SELECT, op=SOp.COMMIT, n=64),
          make(Unit.SELECT, op=SOp.KEYS, flags=[KeysFlag.FROM_IMPORTANCE], n=40)]
KEPT = through(make(Unit.SELECT, op=SOp.COMMIT, flags=[CommitFlag.FROM_KEYS]), **by_register("n"))
PACK = through(make(Unit.SELECT, op=SOp.PACK, src0=8, src0_stride=20, dst=130), **by_register("m", "n"))
FROM = replace(through(KEYS, first=0), flags=frozenset([KeysFlag.FROM_IMPORTANCE]))
COMPARE = through(make(Unit.SELECT, op=SOp.COMPARE, src0=8, src0_stride=3, aux=250, number=2), m_cap=2, n_cap=2)
ABSMAX = [make(Unit.VECTOR, op=VOp.ABSMAX, src0=row, src0_stride=9, m=8, n=8, context=context)
          for row, context in ((2, 0), (30, 2))]

CASES: dict[str, Case] = {
    "load": (LOAD, {"base": (0, 1), "offset": (0, 5, 900)} | MOVED, [], []),
    "store": (STORE, {"base": (2, 3), "offset": (0, 5, 900)} | MOVED, [], []),
    "gather": (replace(through(LOAD, last_index=11), flags=frozenset([MoveFlag.INDEXED])), GATHERED, [], []),
    "scatter": (replace(through(STORE, last_index=11), flags=frozenset([MoveFlag.INDEXED])), GATHERED, [], []),
    "matrix": (MATRIX, {"a_row": (0, 3), "a_stride": (8, 10), "b_row": (64, 70), "b_stride": (8, 12),
                        "c_row": (0, 4), "c_stride": (8, 11), **lengths("m", "n", "k")}, [], []),
    "scaled": (replace(through(MATRIX, k_reg=0, k_cap=16), flags=frozenset([
        MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES])), {"group": (0, 1, 2)}, [], []),
    "requant": (REQUANT, {"src0": (2, 7), "src0_stride": (8, 9), "dst": (30, 41), "dst_stride": (8, 13),
                          "mult": (9, 60000), "shift": (27, 28, 63), "scale_reg": (0, 5, 6),
                          **lengths("m", "n")}, [], []),
    "add": (ADD, {"src1": (40, 45), "aux": (5, 4000), "scale_reg": (0, 5)}, [], []),
    "product": (replace(ADD, op=VOp.PRODUCT), {"aux": (8, 12)}, [], []),
    "product of words": (WORDS_TIMES, {"src0_stride": (17, 18), "aux": (16, 19, 20), "dst_stride": (16, 21),
                                       "shift": (18, 24), "scale_reg": (0, 5)}, [], []),
    "residual": (RESIDUAL, {"aux": (700, 65535), "shift2": (9, 11), "scale_reg": (0, 5)}, [], []),
    "rope": (ROPE, {"aux": (60, 61), "period": (0, 1), "shift2": (13, 15)}, [], []),
    "context": (replace(through(REQUANT, mult=30_000, shift=20), flags=frozenset([RequantFlag.ROW])),
                {"context": (0, 2)}, ABSMAX, []),
    "argmax": (ARGMAX, {"src0": (8, 60), "src0_stride": (16, 20), "dst": (3, 4), "first": (100, 65000),
                        "first_high": (0, 1, 3), **lengths("m", "n")}, [], []),
    "keys": (KEYS, {"first": (0, 7)}, [], [make(Unit.SELECT, op=SOp.TOP_K, n=6, k=4)]),
    "top_k": (TOP_K, {"dst": (0, 9), **lengths("k")}, [KEYS], []),
    "importance": (FROM, {"shift": (0, 9), "aux": (0, 2, 3 << 8)}, IMPORTANT,
                   [make(Unit.SELECT, op=SOp.TOP_K, n=8, k=3)]),
    "nonzero": (replace(TOP_K, flags=frozenset([TopKFlag.NONZERO])), {"dst": (0, 9), **lengths("n")}, SPARSE, []),
    "top_k alone": (replace(TOP_K, flags=frozenset([TopKFlag.KEEP])), {**lengths("k")}, [KEYS],
                    [make(Unit.SELECT, op=SOp.TOP_K, n=9, k=3, dst=20)]),
    "kept": (KEPT, {"first": (0, 2), **lengths("n")}, [KEYS, make(Unit.SELECT, op=SOp.TOP_K, n=29, k=20)],
             [replace(through(FROM, first=0, dst=0, n_reg=0, n_cap=18), flags=frozenset(KeysFlag)),
              make(Unit.SELECT, op=SOp.TOP_K, flags=[TopKFlag.NONZERO], n=18, k=1),
              through(PACK, m_reg=0, m_cap=1, n_reg=0, n_cap=18)]),
    "pack": (PACK, {"src0": (8, 9), "src0_stride": (12, 20), "dst": (130, 131), **lengths("m", "n")},
             [KEYS, make(Unit.SELECT, op=SOp.TOP_K, n=29, k=13)], []),
    "compare": (COMPARE, {"aux": (0, 256), "number": (1, 2, 3)}, [], []),
}
PARTS = [(name, field) for name, (_, values, _, _) in CASES.items() for field in values]


@pytest.fixture(scope="module")
def devices():
    with RtlDevice(TINY, watchdog=200_000) as rtl:
        yield Simulator(TINY, dram_bytes=SIZE), rtl


def launch(commands: list[Command]) -> Launch:
    dram = np.zeros(SIZE, dtype=np.uint8)
    dram[:RESULTS] = np.random.default_rng(7).integers(0, 256, RESULTS)
    dram[800:800 + 4 * ENTRIES:2] %= 12  # the list holds numbers of rows
    dram[801:801 + 4 * ENTRIES:2] = 0
    return Launch("fields", 7, encode_program(commands), PROGRAM, dram, BASES, np.full(32, SIZE) - BASES, LENGTHS)


def left(devices: Any, commands: list[Command]) -> bytes:
    """What a program leaves in DRAM: the same on model, RTL and paper."""
    model, rtl = devices
    case = launch(in_turn(commands))
    report = cosim(case, model, rtl)
    assert report.ok, report.text
    assert FAULTS[report.seen.fault] == "none"
    paper = Statement(TINY, case.dram, BASES, LENGTHS)
    for command in commands:
        paper.run(command)
    found = model.read_dram(0, PROGRAM)
    wrong = np.flatnonzero(np.frombuffer(found, np.uint8) != paper.dram[:PROGRAM])
    assert not len(wrong), f"byte {wrong[0]} differs from the statement"
    return found


def with_field(command: Command, field: str, value: int) -> Command:
    """The command with one of its fields, of header or body, set."""
    which, register, stride = command.dyn
    if field in ("dyn_which", "dyn_reg", "dyn_stride"):
        return replace(command, dyn=(Dyn(value) if field == "dyn_which" else which,
                                     value if field == "dyn_reg" else register,
                                     value if field == "dyn_stride" else stride))
    if field in ("op", "predicate"):
        return replace(command, **{field: value})
    if field == "flags":
        return replace(command, flags=frozenset(bit for bit in range(8) if value >> bit & 1))
    return through(command, **{field: value})


def differ(devices: Any, case: Case, field: str, values: tuple[int, ...]) -> None:
    command, _, before, after = case
    seen = {left(devices, [*FILL, *before, with_field(command, field, value), *after, *DUMPED]) for value in values}
    assert len(seen) == len(values)


@pytest.mark.parametrize(("name", "field"), PARTS)
def test_field(devices, name, field):
    differ(devices, CASES[name], field, CASES[name][1][field])


DYNAMIC = (Dyn.DST, 2, 3)
HEADERS: dict[str, tuple[Case, tuple[int, ...]]] = {
    "op": ((ADD, {}, [], []), (VOp.ADD, VOp.PRODUCT)),
    "flags": ((LOAD, {}, [], []), (0, 1 << MoveFlag.ZERO)),
    "dyn_which": ((replace(ADD, dyn=DYNAMIC), {}, [], []), tuple(Dyn)),
    "dyn_reg": ((replace(ADD, dyn=DYNAMIC), {}, [], []), (1, 2, 3)),
    "dyn_stride": ((replace(ADD, dyn=DYNAMIC), {}, [], []), (0, 3, 9)),
    "predicate": ((LOAD, {}, [COMPARE], []), (1, 0)),
}
WAITS = {f"wait_{unit.label}": unit for unit in Unit}
LONG = {
    Unit.LOAD: make(Unit.LOAD, offset=64, bytes=512, **LINE),
    Unit.STORE: make(Unit.STORE, offset=RESULTS, bytes=512, row=512, **LINE),
    Unit.MATRIX: make(Unit.MATRIX, a_row=256, a_stride=64, b_row=320, b_stride=64, m=64, n=4, k=4),
    Unit.VECTOR: make(Unit.VECTOR, op=VOp.REQUANT, src0=64, src0_stride=32, dst=768, dst_stride=64, m=16, n=16),
    Unit.SELECT: make(Unit.SELECT, op=SOp.ARGMAX, src0=600, src0_stride=32, m=16, n=4),
}
"""A command of each unit that takes a while and is in nobody's way."""


@pytest.mark.parametrize("field", HEADERS)
def test_field_of_the_header(devices, field):
    case, values = HEADERS[field]
    differ(devices, case, field, values)


@pytest.mark.parametrize("field", WAITS)
def test_wait(devices, field):
    """Of three long commands of a unit, the third last, the second last or the last has finished at issue."""
    model, rtl = devices
    unit = WAITS[field]
    other = Unit.MATRIX if unit is not Unit.MATRIX else Unit.VECTOR
    issues = []
    for distance in (0, 3, 2, 1):
        waiting = replace(LONG[other], waits={unit: distance} if distance else {})
        report = cosim(launch([LONG[unit]] * 3 + [waiting]), model, rtl)
        assert report.ok, report.text
        issue, finish = report.seen.issue, report.seen.finish
        assert not distance or issue[3] > finish[3 - distance]
        issues.append(int(issue[3] - finish[0]))
    assert issues[0] < 0 < issues[1] < issues[2] < issues[3]


@pytest.mark.parametrize("number", range(8))
def test_unit(devices, number):
    """The unit that the first field names takes the command; there are five."""
    model, rtl = devices
    word = encode(make(Unit.LOAD)) | number
    case = replace(launch([]), image=word.to_bytes(COMMAND_BYTES, "little"))
    report = cosim(case, model, rtl)
    assert report.ok, report.text
    assert FAULTS[report.seen.fault] == ("none" if number < len(Unit) else "illegal")
    taken = [unit for unit, split in report.seen.counters.items() if split["empty"] < report.seen.cycles]
    assert taken == ([Unit(number).label] if number < len(Unit) else [])


@pytest.mark.parametrize(("field", "value"), [("op", 14), ("op", 31), ("flags", 1)])
def test_header_that_no_operation_has(devices, field, value):
    model, rtl = devices
    report = cosim(launch([with_field(ADD, field, value)]), model, rtl)
    assert report.ok, report.text
    assert FAULTS[report.seen.fault] == "illegal"


def test_every_field_has_a_clause_and_a_test():
    assert list(HEADER_CLAUSES) == [name for name, _ in HEADER]
    assert {"unit", *WAITS, *HEADERS} == {name for name, _ in HEADER}
    tested = {(CASES[name][0].unit, field) for name, field in PARTS}
    for unit, body in BODY.items():
        assert list(BODY_CLAUSES[unit]) == [name for name, _ in body]
        assert {name for name, _ in body} == {field for of, field in tested if of is unit}, unit
