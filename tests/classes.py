"""Random commands in range, for every operation with every legal set of flags."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gemmule.config import Config
from gemmule.isa import NUM_BASES, NUM_LENGTHS, Command, MatrixFlag, MoveFlag, Unit, VOp, table_row
from gemmule.operations import OPERATIONS
from gemmule.resolve import OUT, resolve

__all__ = ["DRAM_BYTES", "Drawn", "classes", "draw"]

DRAM_BYTES = 1 << 16


class Drawn(NamedTuple):
    """A legal command of non-zero length, its decoded row and its resolved columns."""

    command: Command
    row: np.ndarray
    out: np.ndarray


def classes(config: Config) -> Iterator[tuple[Unit, int, int]]:
    """(unit, operation, flags) of everything that is legal on this configuration."""
    for (unit, op), known in OPERATIONS.items():
        for flags in range(256):
            if known.legal(flags) and known.needs(flags) <= config.features:
                yield Unit(unit), op, flags


def _fields(config: Config, random: np.random.Generator, unit: Unit, op: int, flags: int) -> dict[str, Any]:
    dim = config.dim

    def upto(most: int, least: int = 0) -> int:
        return int(random.integers(least, most + 1))

    if unit in (Unit.LOAD, Unit.STORE):
        words = flags >> MoveFlag.ACCUMULATOR & 1 and not flags >> MoveFlag.NARROW & 1
        size = 4 * upto(3 * dim, 1) if words else upto(4 * dim, 1)
        return {"bytes": size, "stride": size + upto(9), "rows": upto(5, 1), "row": upto(20), "row_stride": upto(9, 1),
                "block_stride": upto(19, 1), "offset": upto(40) * config.bus_bytes, "list": upto(9),
                "last_index": upto(12)}
    if unit is Unit.MATRIX:
        small = flags >> MatrixFlag.REUSE & 1
        size = dim if small else 4 * dim
        step = config.preload
        return {"m": upto(2 * dim, 1), "n": upto(size, 1), "k": upto(size, 1), "a_row": upto(9), "a_stride": upto(30),
                "b_row": (config.spm_rows // 2 + upto(9)) // step * step, "b_stride": upto(12) * step, "c_row": upto(9),
                "c_stride": upto(19), "group": upto(2)}
    fields = {"m": upto(config.stat_rows // 2, 1), "n": upto(4 * dim, 1), "src0": upto(30), "src0_stride": upto(40),
              "dst": upto(30), "aux": upto(60)}
    if unit is Unit.SELECT:
        return fields | {"k": upto(9, 1), "first": upto(9), "number": upto(3, 1), "shift": upto(9)}
    if op in (VOp.TABLE, VOp.WORD_TABLE):
        del fields["m"], fields["n"]
    return fields | {"src1": upto(50), "dst_stride": upto(40), "mult": upto(65535), "shift": upto(20),
                     "shift2": upto(20), "period": 0 if op != VOp.ROPE else upto(2),
                     "context": upto(config.stat_contexts - 2)}


def draw(config: Config, random: np.random.Generator, unit: Unit, op: int, flags: int) -> Drawn:
    """A command of this class that resolves without a fault."""
    bases, limits = np.zeros(NUM_BASES, np.int64), np.full(NUM_BASES, DRAM_BYTES)
    lengths = np.zeros(NUM_LENGTHS, np.int64)
    for _ in range(400):
        command = Command.make(unit, op=op, flags=[bit for bit in range(8) if flags >> bit & 1],
                               **_fields(config, random, unit, op, flags))
        row = table_row(command)
        out = resolve(row[None], bases, limits, lengths, config)[0]
        if not out[OUT["fault"]] and not out[OUT["zero"]]:
            return Drawn(command, row, out)
    raise AssertionError(f"no legal command of {unit.name} {op} with flags {flags:#x}")

