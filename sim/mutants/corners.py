"""Programs for what random ones seldom or never draw: long rows, many rows, sums that follow at once, large sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.isa import (
    COMMAND_BYTES,
    HEADER,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    AddFlag,
    Command,
    CommitFlag,
    ImportanceFlag,
    KeysFlag,
    ListFlag,
    MatrixFlag,
    MoveFlag,
    SoftmaxFlag,
    SOp,
    Unit,
    VOp,
    body_of,
    encode_program,
)
from gemmule.sim.fuzz.builder import Builder
from gemmule.sim.fuzz.draw import Draw
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.fuzz.reveal import line
from gemmule.sim.launch import Launch
from gemmule.sim.mutants.recorded import Check
from gemmule.sim.mutants.setup import Setup

__all__ = ["corner_checks"]

BROAD, COMMANDS = 6, 120
"""Programs of many rows and columns, and commands of each."""
WRITTEN = "sums", "indexed", "long", "sought", "strides", "behind", "listed", "held", "scaled"
"""Programs by hand."""
SCALED = 24
"""Sums of two rows with factors."""
LENGTH = 300
"""In every length register of a program by hand."""
make = Command.make
_A, _N, _ADD = MoveFlag.ACCUMULATOR, MoveFlag.NARROW, MoveFlag.ADD


class Broad(Draw):
    """More rows and columns than usual, and length registers with more bits."""

    def __init__(self, config: Config, random: np.random.Generator, bases: np.ndarray, lengths: np.ndarray) -> None:
        lengths[1:] = random.integers(0, 1 << random.integers(1, 10, NUM_LENGTHS - 1))
        super().__init__(config, random, bases, lengths)

    def size(self, groups: int) -> int:
        found = super().size(groups)
        return (1 << self.integer(3, 7)) + self.integer(-2, 2) if found and self.chance(0.3) else found


def _sums(config: Config, random: np.random.Generator, source: int) -> Iterator[Command]:
    """One row takes the sums of several commands, which have waited for a long one: then one a cycle."""
    for flags, element in ((frozenset([_A, _N, _ADD]), 1), (frozenset([_A, _ADD]), 4)):
        for size in (config.dim * element, element, config.bus_bytes) * 4:
            yield make(Unit.LOAD, offset=0, bytes=16 * config.burst_bytes, row=0, block_stride=1, rows=1)
            row = int(random.integers(config.acc_rows))
            for _ in range(8):
                yield make(Unit.LOAD, flags=flags, offset=4 * int(random.integers(0, source // 8)), bytes=size, rows=1,
                           row=row, block_stride=1)


def _indexed(config: Config, random: np.random.Generator, frame: Frame) -> Iterator[Command]:
    """Row numbers with all their bits, limited to every power of two."""
    count = min(64, config.list_entries)
    most = (1 << config.index_bits) - 1
    for flags in ([], [ListFlag.HIGH])[:1 + (most > MAX_LENGTH)]:
        yield make(Unit.LOAD, offset=int(random.integers(1 << 12)), bytes=2 * count, row=0, block_stride=1, rows=1)
        yield make(Unit.SELECT, op=SOp.LIST_LOAD, flags=flags, n=count, src0=0, dst=0)
        for bit in range(16 if not flags else config.index_bits):
            for last in ((1 << bit) + int(random.integers(1 << bit)), 1 << bit):
                stride = int(min(last, most) < frame.source)  # beyond, all rows are one
                yield make(Unit.LOAD, flags=[MoveFlag.INDEXED], bytes=config.dim, row=4 * bit, row_stride=1,
                           block_stride=1, rows=8, stride=stride, list=int(random.integers(count - 8)),
                           last_index=min(last, most))


def _long(config: Config, frame: Frame) -> Iterator[Command]:
    """Rows of many bytes, and many rows of few."""
    size = config.spm_rows * config.dim
    for bit in range(8, 18):
        for more in (-4, 0, 4):
            length = (1 << bit) + more
            if length <= size:
                yield make(Unit.LOAD, bytes=length, row=0, block_stride=1, rows=1, offset=0)
            if length <= 4 * config.acc_rows * config.dim:
                yield make(Unit.LOAD, flags=[_A], bytes=length, row=0, block_stride=1, rows=1, offset=4 * bit)
            if length <= frame.target // 2:
                yield make(Unit.STORE, bytes=length, row=0, block_stride=int(length <= size), rows=1,
                           offset=frame.source)
    for rows in (129, 256, 300, 513, config.spm_rows):
        if rows <= config.spm_rows:
            yield make(Unit.LOAD, bytes=2, row=0, row_stride=1, block_stride=1, rows=rows, stride=2)
        yield make(Unit.STORE, bytes=2, row=3, row_stride=0, block_stride=1, rows=rows, stride=2, offset=frame.source)


def _sought(config: Config, random: np.random.Generator, target: int) -> Iterator[Command]:
    """Importance up to the largest sum, keys of it by every shift, and very long searches."""
    dim, rows = config.dim, config.spm_rows // 4
    yield make(Unit.LOAD, offset=0, bytes=config.spm_rows * dim, row=0, block_stride=1, rows=1)
    groups = min(10, config.select_keys // dim)
    wide: dict[str, Any] = {"flags": [ImportanceFlag.WIDE], "n": dim, "src0_stride": 0}
    # Sums that differ little; then sums of every size.
    for group in range(groups):
        yield make(Unit.SELECT, op=SOp.IMPORTANCE, first=group * dim, m=rows // 3, src0=0, **wide)
        yield make(Unit.SELECT, op=SOp.IMPORTANCE, first=group * dim, m=1 + 3 * group, n=dim, src0_stride=0)
    yield from _keys(config, groups, 1, target)
    for group in range(groups):
        for _ in range(1 << max(0, group - 2)):
            yield make(Unit.SELECT, op=SOp.IMPORTANCE, first=group * dim, m=min(rows, 4 << group),
                       src0=int(random.integers(rows)), **wide)
    yield from _keys(config, groups, 3, target + (1 << 14))
    for _ in range(100):
        yield make(Unit.SELECT, op=SOp.IMPORTANCE, first=(groups - 1) * dim, m=2 * rows, **wide)
    yield from _keys(config, groups, 4, target + (3 << 13))
    yield make(Unit.SELECT, op=SOp.COMMIT, n=groups * dim, flags=[CommitFlag.CLEAR])
    for bit in range(7, 16):
        yield make(Unit.SELECT, op=SOp.ARGMAX, m=1, n=(1 << bit) + dim + 1, src0=bit, src0_stride=0, dst=bit)


def _keys(config: Config, groups: int, step: int, target: int) -> Iterator[Command]:
    """The order of what has been summed, by keys of every shift, to DRAM."""
    count, row = groups * config.dim, config.spm_rows // 2
    yield make(Unit.SELECT, op=SOp.COMMIT, n=count)
    for shift in range(0, 32, step):
        yield make(Unit.SELECT, op=SOp.KEYS, flags=[KeysFlag.FROM_IMPORTANCE], n=count, shift=shift)
        for i, k in enumerate((1, 2, 3, count // 4, count // 2, count - 2)):  # they come by position, not by key
            yield make(Unit.SELECT, op=SOp.TOP_K, n=count, k=k, dst=i * count)
        yield make(Unit.SELECT, op=SOp.LIST_STORE, n=6 * count, dst=row)
        yield line(Unit.STORE, target + 512 * (shift // step), row, min(512, 12 * count))


def _strides(config: Config, random: np.random.Generator, target: int) -> Iterator[Command]:
    """Column groups by every power of two apart; products of many rows, transposed."""
    dim = config.dim
    yield make(Unit.LOAD, offset=0, bytes=config.spm_rows * dim, row=0, block_stride=1, rows=1)
    for bit in range(3, (config.spm_rows - 1).bit_length()):
        stride, row = 1 << bit, int(random.integers(config.spm_rows // 4))
        near = min(stride, config.acc_rows // 2)
        each: dict[str, Any] = {"m": 2, "n": 2 * dim}
        yield make(Unit.MATRIX, k=2 * dim, a_row=row, a_stride=stride, b_row=row // dim * dim, b_stride=stride,
                   c_row=4 * bit, c_stride=near, **each)
        yield make(Unit.VECTOR, op=VOp.REQUANT, src0=4 * bit, src0_stride=near, dst=row, dst_stride=stride, mult=1,
                   shift=8, **each)
        yield make(Unit.SELECT, op=SOp.ARGMAX, src0=row, src0_stride=stride, dst=2 * bit, **each)
    for rows in (17 * dim + 1, 33 * dim + 1, 63 * dim - 1):
        yield make(Unit.MATRIX, flags=[MatrixFlag.A_TRANSPOSED], m=rows, n=dim, k=dim, a_row=0, a_stride=dim,
                   b_row=config.spm_rows // 2, c_row=0)
        yield make(Unit.STORE, flags=[_A], bytes=4 * rows * dim, row=0, block_stride=1, rows=1,
                   offset=target + 16 * rows * dim)


def _behind(config: Config) -> Iterator[Command]:
    """Softmax of rows of which some columns lie behind the piece, in every context."""
    for i, behind in enumerate((-300, -40, -1, 0, 1, 31, 32, 33, 40, 64, 100, 129)):
        register = 1 + i % (NUM_LENGTHS - 1)
        for n in (2 * config.dim, 9 * config.dim):
            each: dict[str, Any] = {
                "m": min(8, config.stat_rows), "n": n, "aux": (LENGTH - behind) << 4 | register, "mult": 40000,
                "shift": 17, "flags": [SoftmaxFlag.CAUSAL], "context": i % config.stat_contexts, "src0": 0,
                "src0_stride": 9, "dst": config.spm_rows // 2 + 16 * i, "dst_stride": 8}
            for op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM):
                yield make(Unit.VECTOR, op=op, **each)


def _listed(config: Config, frame: Frame) -> Iterator[Command]:
    """Many rows by a list, of a load and of a store."""
    count = min(LENGTH, config.list_entries)
    yield make(Unit.LOAD, offset=0, bytes=2 * count, row=0, block_stride=1, rows=1)
    yield make(Unit.SELECT, op=SOp.LIST_LOAD, n=count, src0=0, dst=0)
    each: dict[str, Any] = {"flags": [MoveFlag.INDEXED], "bytes": config.dim, "row": 0, "row_stride": 1,
                            "block_stride": 1, "stride": config.dim, "list": 0, "last_index": 255}
    for rows in (count, count // 2):
        yield make(Unit.LOAD, rows=rows, **each)
        yield make(Unit.STORE, rows=rows, offset=frame.source, **each)


def _held(config: Config) -> Iterator[Command]:
    """In every bank of the accumulator a vector command's sums, while a load and a product want the bank."""
    for bank in range(config.acc_banks):
        row, dim = bank * config.acc_bank_rows, config.dim
        yield make(Unit.VECTOR, op=VOp.RESCALE, m=2, n=2 * dim, src0=row, src0_stride=2, dst=row, dst_stride=2)
        yield make(Unit.LOAD, flags=[_A], bytes=4 * dim, row=row + 4, block_stride=1, rows=1, offset=0)
        yield make(Unit.MATRIX, m=2, n=dim, k=dim, a_row=0, b_row=config.spm_rows // 2, c_row=row + 6)


def _scaled(config: Config, random: np.random.Generator) -> Iterator[Command]:
    """Sums of rows times factors of all bits, in 16 bits."""
    yield make(Unit.LOAD, offset=0, bytes=config.spm_rows * config.dim, row=0, block_stride=1, rows=1)
    for i in range(SCALED):
        mult, aux = (int(value) for value in random.integers(1 << 16, size=2))
        yield make(Unit.VECTOR, op=VOp.ADD, flags=[AddFlag.WIDE], m=2, n=config.dim, src0=4 * i, src0_stride=2,
                   src1=4 * i + 2, dst=config.spm_rows // 2 + 4 * i, dst_stride=4, mult=mult, aux=aux, shift=9)


def written(config: Config, seed: int, which: int) -> Launch:
    """One of the programs by hand: between the fill and the dump of random ones."""
    random = np.random.default_rng([seed, which])
    frame = Frame(config, 1000)
    bases, limits = np.zeros(NUM_BASES, dtype=np.int64), np.full(NUM_BASES, frame.end, dtype=np.int64)
    lengths = np.full(NUM_LENGTHS, LENGTH, dtype=np.int64)
    draw, builder = Draw(config, random, bases, lengths), Builder(config, bases, limits, lengths, random)
    for command in (
        *frame.fill(draw),
        *(_sums(config, random, frame.source), _indexed(config, random, frame), _long(config, frame),
          _sought(config, random, frame.source), _strides(config, random, frame.source), _behind(config),
          _listed(config, frame), _held(config), _scaled(config, random))[which],
        *frame.dump_upper(), *frame.dump_lower(table=False, words=False),
    ):
        builder.must(command)
    return Launch(WRITTEN[which], seed, encode_program(builder.commands), frame.program, frame.memory(random), bases,
                  limits, lengths)


def spare(launch: Launch) -> Launch:
    """The program with all bits of its commands set that belong to no field."""
    image = b""
    for at in range(0, len(launch.image), COMMAND_BYTES):
        word = int.from_bytes(launch.image[at:at + COMMAND_BYTES], "little")
        used = sum(bits for _, bits in (*HEADER, *body_of(word & 7, word >> 3 & 31)))
        image += (word | (1 << 8 * COMMAND_BYTES) - (1 << used)).to_bytes(COMMAND_BYTES, "little")
    return Launch("spare bits", launch.seed, image, launch.program, launch.dram, launch.bases,
                  launch.limits, launch.lengths)


def corner_checks(setup: Setup, seed: int) -> list[Check]:
    config = setup.config
    launches = [spare(setup.program.launch), *(written(config, seed, which) for which in range(len(WRITTEN)))]
    broad = (generate(config, seed + i, COMMANDS, brief=True, taste=Broad) for i in range(BROAD))
    return [*(setup.record(launch).check for launch in launches),
            *(Check(f"broad-{i}", setup.record(launch).exact) for i, launch in enumerate(broad))]
