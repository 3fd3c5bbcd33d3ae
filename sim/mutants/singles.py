"""Checks of single commands: every operation with every set of flags, and lengths and places of one bit each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.csr import FAULT_SHIFT, Control, Csr, Status
from gemmule.isa import (
    BODY,
    COMMAND_BYTES,
    HEADER,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    Dyn,
    SOp,
    Unit,
    VOp,
    decode_table,
    legal_flags,
)
from gemmule.operations import OPERATIONS
from gemmule.resolve import FAULTS, OUT, resolve
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import MARGIN, Check
from gemmule.sim.mutants.setup import Setup
from gemmule.sim.rtl.device import RtlDevice

__all__ = ["NONE", "Registers", "Singles", "bare", "moved", "single_checks"]

SPARSE = 400
"""Random commands."""
ROUNDS = 4
"""Sets of registers for them."""
LARGE = 0, 5
"""Turns in which rows are moved by every stride: by length register 15, which then holds 2^15 and 2^4."""
CAP = 9
"""A length of several column groups: strides count. One less has more bits."""
AROUND = 16
"""Cycles that a launch of the registers takes beside the device's own."""
Registers = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Bases, limits, lengths."""
NONE = np.zeros(NUM_BASES, dtype=np.int64)
_MOVED = (Unit.LOAD, 0), (Unit.STORE, 0), (Unit.MATRIX, 0), (Unit.VECTOR, VOp.PRODUCT), (Unit.SELECT, SOp.COMPARE)
"""An operation of every unit."""
_AT = {name: sum(bits for _, bits in HEADER[:i]) for i, (name, _) in enumerate(HEADER)}
_BITS = dict(HEADER)


def _word(unit: int, op: int, flags: int, body: int = 0) -> int:
    """A command on a predicate that is 0: it is resolved and does nothing."""
    return (unit | op << _AT["op"] | flags << _AT["flags"] | 1 << _AT["predicate"]) | body << 64


def bare(unit: int, op: int, flags: int = 0, **fields: int) -> int:
    """A command whose lengths are 1 and whose other fields are 0, but for these, where its unit has them."""
    body = at = 0
    for name, bits in BODY[Unit(unit)]:
        body |= fields.get(name, int(name.endswith("_cap"))) << at
        at += bits
    return _word(unit, op, flags, body)


def moved(word: int, which: int, register: int, stride: int) -> int:
    return word | which << _AT["dyn_which"] | register << _AT["dyn_reg"] | stride << _AT["dyn_stride"]


@dataclass(frozen=True, eq=False)
class Singles:
    """Commands that are launched one by one, with the same registers: ``launch`` is the first of them."""

    launch: Launch
    faults: Sequence[int]

    @staticmethod
    def of(config: Config, words: Iterable[int], registers: Registers) -> Singles:
        image = b"".join(word.to_bytes(COMMAND_BYTES, "little") for word in words)
        faults = resolve(decode_table(image), *registers, config)[:, OUT["fault"]].tolist()
        dram = np.frombuffer(image, dtype=np.uint8)
        return Singles(Launch("singles", 0, image[:COMMAND_BYTES], 0, dram, *registers), faults)

    def run(self, rtl: RtlDevice) -> str:
        rtl.watchdog = MARGIN
        rtl.load(self.launch)
        cycles = rtl.run().cycles + AROUND
        steps: list[tuple[str | int, ...]] = []
        for i in range(len(self.faults)):
            steps += [("write", Csr.PROGRAM_LO, COMMAND_BYTES * i), ("write", Csr.CONTROL, Control.START),
                      ("wait", cycles), ("read", Csr.STATUS)]
        for i, (fault, status) in enumerate(zip(self.faults, rtl.steps(steps), strict=True)):
            if status != Status.DONE | int(fault) << FAULT_SHIFT:
                word = self.launch.dram[COMMAND_BYTES * i:][:COMMAND_BYTES][::-1].tobytes().hex()
                return f"single command {word}: expected fault {FAULTS[fault]}, seen status {status:#x}"
        return ""


def legality(config: Config) -> Singles:
    """Every set of flags with every table of legal ones; every operation, and those that there are not, with some."""
    tables: dict[tuple[bool, ...], list[tuple[int, int]]] = {}
    for unit, op in OPERATIONS:
        tables.setdefault(tuple(legal_flags(unit, op, flags) for flags in range(256)), []).append((unit, op))
    words = [_word(*same[flags % len(same)], flags) for same in tables.values() for flags in range(256)]
    words += [_word(unit, op, flags) for unit in range(8) for op in range(32) for flags in (0, 0x80 >> op % 8)]
    return Singles.of(config, words, (NONE, NONE, np.zeros(NUM_LENGTHS, dtype=np.int64)))


def _sparse(draw: random.Random, bits: int) -> int:
    """0, a power of two, or a little more or less: a carry or a lost bit shows."""
    power = 1 << draw.randrange(bits)
    return draw.choice([0, 1, power, power, power + draw.randrange(4), power - 1, draw.getrandbits(bits)]) % (1 << bits)


def _drawn(draw: random.Random, unit: int, op: int, few: float, cap: int = 1) -> int:
    """A random command of which ``few`` fields are not small, and lengths are ``cap``."""
    body = at = 0
    for name, bits in BODY[Unit(unit)]:
        often = name.endswith("_cap") and draw.random() < few
        value = _sparse(draw, bits) if often or draw.random() < few else cap * name.endswith("_cap")
        body |= value << at
        at += bits
    moves = 0
    if draw.random() < few:
        moves = (draw.randrange(4) << _AT["dyn_which"] | draw.randrange(16) << _AT["dyn_reg"]
                 | _sparse(draw, _BITS["dyn_stride"]) << _AT["dyn_stride"])
    legal = [flags for flags in range(256) if legal_flags(unit, op, flags)]
    return _word(unit, op, draw.choice(legal), body) | moves


def _brink(word: int, at: int, bits: int, faults: Callable[[Iterable[int]], Sequence[int]]) -> list[int]:
    """The command with a field as large as it can be, and beyond that by every power of two."""
    rest = word & ~(((1 << bits) - 1) << at)
    legal, wrong = 0, (1 << bits) - 1
    if [bool(fault) for fault in faults([rest, rest | wrong << at])] != [False, True]:
        return []
    while wrong - legal > 1:
        middle = (legal + wrong) // 2
        legal, wrong = (legal, middle) if faults([rest | middle << at])[0] else (middle, wrong)
    values = [legal, *(legal + (1 << i) for i in range(bits))]
    return [rest | value << at for value in values if value >> bits == 0]


def _brinks(draw: random.Random, unit: int, op: int, faults: Callable[[Iterable[int]], Sequence[int]]) -> list[int]:
    """The brinks of every field of an operation."""
    found: list[int] = []
    for few, cap in ((0.0, 1), (0.0, CAP), (0.0, CAP - 1), (0.05, CAP)):
        word, at = _drawn(draw, unit, op, few, cap), 64
        for name, bits in BODY[Unit(unit)]:
            if not name.endswith(("_reg", "_offset")):
                found += _brink(word, at, bits, faults)
            at += bits
    return found


def sparse(config: Config, seed: int) -> Iterator[Singles]:
    """Random commands of few large fields, and of every operation some at the brink of a fault; with register values of
    one bit."""
    draw = random.Random(seed)
    for turn in range(ROUNDS):
        bases, limits = (np.array([_sparse(draw, config.address_bits) for _ in range(NUM_BASES)]) for _ in range(2))
        registers = bases, limits, np.array([_sparse(draw, 16) for _ in range(NUM_LENGTHS)])

        def faults(words: Iterable[int], registers: Registers = registers) -> Sequence[int]:
            return Singles.of(config, words, registers).faults

        words = [_drawn(draw, *draw.choice(list(OPERATIONS)), draw.random()) for _ in range(SPARSE // ROUNDS)]
        for unit, op in list(OPERATIONS)[turn::ROUNDS]:
            words += _brinks(draw, unit, op, faults)
        yield Singles.of(config, words, registers)


def registered(config: Config) -> Iterator[Singles]:
    """Every bit of every length register, through every look-up: as rows, columns, depth and as a moved row.

    The command then just leaves its memory. Moved rows of every bit, by stride.
    """
    last = config.spm_rows - 1
    ends: dict[str, int] = {"row": last, "a_row": last, "b_row": last, "src0": last, "first": config.select_keys - 1}
    for turn in range(16):
        lengths = np.array([1 << (i + turn) % 16 for i in range(NUM_LENGTHS)])
        words = []
        for i in range(1, NUM_LENGTHS):
            words += [
                bare(Unit.LOAD, 0, rows_reg=i, rows_cap=MAX_LENGTH, row_stride=1, bytes=1, **ends),
                bare(Unit.SELECT, SOp.COMMIT, n_reg=i, n_cap=MAX_LENGTH, **ends),
                bare(Unit.MATRIX, 0, k_reg=i, k_cap=MAX_LENGTH, b_row=last),
                moved(bare(Unit.LOAD, 0, bytes=1, row=last), Dyn.DST, i, 1),
            ]
        if turn in LARGE:  # the largest length, and a smaller one
            words += [moved(bare(unit, op, bytes=1, number=1), which, 15, 1 << bit)
                      for unit, op in _MOVED for which in Dyn for bit in range(10)]
        yield Singles.of(config, words, (NONE, NONE, lengths))


def single_checks(setup: Setup, seed: int) -> list[Check]:
    every = [("legality", legality(setup.config)),
             *(("length registers", singles) for singles in registered(setup.config)),
             *(("single commands", singles) for singles in sparse(setup.config, seed))]
    return [Check(name, singles.run) for name, singles in every]
