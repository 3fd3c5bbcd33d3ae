"""The C header of a device: registers, counters, faults and the encoding of commands, from the contracts themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

import gemmule
from gemmule import csr
from gemmule.config import Config
from gemmule.control import MAX_COMMANDS, MAX_DEPTH
from gemmule.csr import AFTER_RESET, COUNTER_MEANING, COUNTERS, READABLE, WRITABLE, Control, Csr, Status
from gemmule.isa import (
    BODY,
    COMMAND_BYTES,
    CONTROL_BODY,
    HEADER,
    MAX_LENGTH,
    MAX_WAIT,
    NUM_BASES,
    NUM_LENGTHS,
    NUM_PREDICATES,
    PARAMETER_BITS,
    PARAMS_WORDS,
    AddFlag,
    ArgmaxFlag,
    ColumnFlag,
    CommitFlag,
    CompareFlag,
    COp,
    Dyn,
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
    signed_field,
)
from gemmule.resolve import FAULTS

__all__ = ["HEADER_NAME", "Constant", "header_text", "sections"]

HEADER_NAME = "gemmule.h"
PREFIX = "GEMMULE_"
FLAGS = (MoveFlag, MatrixFlag, RequantFlag, ColumnFlag, ProductFlag, AddFlag, NormFlag, SoftmaxFlag, ArgmaxFlag,
         KeysFlag, TopKFlag, ImportanceFlag, ListFlag, CommitFlag, CompareFlag)
NUMBERS: dict[str, tuple[type[IntEnum], ...]] = {
    "UNIT": (Unit, FrontEnd), "OP_VECTOR": (VOp,), "OP_SELECT": (SOp,), "OP_CONTROL": (COp,), "TARGET": (Target,),
    "SOURCE": (Source,), "DYN": (Dyn,),
}
"""Enumerations of the instruction set by what their constants begin with."""
SIZES = ("dim", "bus_bytes", "spm_rows", "spm_banks", "acc_rows", "acc_banks", "stat_contexts", "stat_rows",
         "select_keys", "list_entries", "index_bits", "parameter_words", "address_bits")
"""What a program must fit, of a configuration."""


class Constant(NamedTuple):
    """One ``#define``."""

    name: str
    value: int
    note: str = ""
    hexadecimal: bool = False

    @property
    def line(self) -> str:
        value = f"0x{self.value:x}u" if self.hexadecimal else f"{self.value}u"
        return f"#define {PREFIX}{self.name} {value}" + (f" /* {self.note} */" if self.note else "")


def _registers() -> Iterator[Constant]:
    yield Constant("CSR_BYTES", 1 << csr.CSR_BITS, "of the block of registers")
    for register in Csr:
        access = "write" if register not in READABLE else "read, write" if register in WRITABLE else "read"
        after = "" if register not in READABLE or register is Csr.CONFIGURATION else (
            f"; {AFTER_RESET[register]:#x} after reset")
        yield Constant(f"CSR_{register.name}", int(register), f"{access}{after}", hexadecimal=True)
    yield Constant("IDENTITY", csr.IDENTITY, "what CSR_IDENTITY reads", hexadecimal=True)
    yield Constant("WATCHDOG_CYCLES", csr.WATCHDOG_CYCLES, "CSR_WATCHDOG after reset")
    yield Constant("LENGTHS", NUM_LENGTHS, "length registers, 4 bytes apart; number 0 always reads MAX_LENGTH")
    yield Constant("BASES", NUM_BASES, "base and limit registers, 8 bytes apart")
    yield Constant("MAX_LENGTH", MAX_LENGTH)
    for name, bits in (("CONTROL", Control), ("STATUS", Status)):
        yield from (Constant(f"{name}_{bit.name}", int(bit), hexadecimal=True) for bit in bits)
    yield Constant("STATUS_FAULT_SHIFT", csr.FAULT_SHIFT)
    yield Constant("STATUS_FAULT_MASK", (1 << csr.FAULT_BITS) - 1, "behind the shift", hexadecimal=True)


def _counters() -> Iterator[Constant]:
    yield Constant("COUNTERS", len(COUNTERS), "of the last launch, 8 bytes apart from CSR_COUNTER_LO on")
    yield Constant("COUNTER_BITS", csr.COUNTER_BITS)
    yield Constant("CAUSES", len(csr.CAUSES), "of a unit, one behind the other: they add up to the launch's cycles")
    for number, name in enumerate(COUNTERS):
        yield Constant(f"COUNTER_{name.upper()}", number, COUNTER_MEANING[name])


def _fields(group: str, layout: Iterable[tuple[str, int]], first: int) -> Iterator[Constant]:
    """Lowest bit within the command, and bits, of each field."""
    layout = tuple(layout)
    for (name, bits), low in zip(layout, accumulate((bits for _, bits in layout), initial=first)):
        yield Constant(f"FIELD_{group}_{name.upper()}_BIT", low)
        yield Constant(f"FIELD_{group}_{name.upper()}_BITS", bits,
                       "two's complement" if group in COp.__members__ and signed_field(name) else "")


def _commands() -> Iterator[Constant]:
    yield Constant("COMMAND_BYTES", COMMAND_BYTES, "little-endian; a program begins at a multiple of it")
    yield Constant("MAX_COMMANDS", MAX_COMMANDS, "of a launch, repeated ones included")
    yield Constant("MAX_DEPTH", MAX_DEPTH, "of nested bodies")
    yield Constant("MAX_WAIT", MAX_WAIT)
    yield Constant("PREDICATES", NUM_PREDICATES, "number 0 is always true")
    yield Constant("PARAMETER_BITS", PARAMETER_BITS)
    yield Constant("PARAMS_WORDS", PARAMS_WORDS, "that one PARAMS loads")
    for name, kinds in NUMBERS.items():
        yield from (Constant(f"{name}_{each.name}", int(each)) for kind in kinds for each in kind)
    bits = sum(bits for _, bits in HEADER)
    yield from _fields("HEADER", HEADER, 0)
    for unit, layout in BODY.items():
        yield from _fields(unit.name, layout, bits)
    for op, layout in CONTROL_BODY.items():
        yield from _fields(op.name, layout, bits)
    for kind in FLAGS:
        group = kind.__name__.removesuffix("Flag").upper()
        yield from (Constant(f"FLAG_{group}_{flag.name}", 1 << flag, hexadecimal=True) for flag in kind)


def _configuration(config: Config) -> Iterator[Constant]:
    yield Constant("CONFIGURATION", config.identity, "what CSR_CONFIGURATION reads", hexadecimal=True)
    yield from (Constant(name.upper(), int(getattr(config, name))) for name in SIZES)


def _dram(config: Config) -> Iterator[Constant]:
    dram = config.dram
    for name in ("latency", "banks", "row_bytes", "row_miss", "turnaround", "beat_cycles", "refresh_cycles",
                 "refresh_period"):
        yield Constant(f"DRAM_{name.upper()}", getattr(dram, name))


def sections(config: Config) -> dict[str, list[Constant]]:
    """All constants, by the comment above them."""
    return {
        "Registers: byte offsets, values after reset, bits": list(_registers()),
        "Fault codes in CSR_STATUS": [Constant(f"FAULT_{name.upper()}", code) for code, name in enumerate(FAULTS)],
        "Counters, by number": list(_counters()),
        "Commands: sizes, units, operations; lowest bit and bits of each field; flags as bits of the field FLAGS":
            list(_commands()),
        f"The configuration {config.name}": list(_configuration(config)),
        "The DRAM of the testbench and the model; the device does not depend on it": list(_dram(config)),
    }


ARRAYS = """\
/* Registers that there are several of. */
#define GEMMULE_CSR_LENGTH(number) (GEMMULE_CSR_LENGTH0 + 4u * (number))
#define GEMMULE_CSR_BASE(number) (GEMMULE_CSR_BASE_LO + 8u * (number)) /* low word; the high one follows */
#define GEMMULE_CSR_LIMIT(number) (GEMMULE_CSR_LIMIT_LO + 8u * (number))
#define GEMMULE_CSR_COUNTER(number) (GEMMULE_CSR_COUNTER_LO + 8u * (number))
"""


def _names() -> Iterator[str]:
    """Names for a report of the driver: initialisers of arrays of strings."""
    for name, values in (("COUNTER_NAMES", COUNTERS), ("FAULT_NAMES", FAULTS)):
        lines = [f'  "{value}"' for value in values]
        yield f"#define {PREFIX}{name} {{ \\\n" + ", \\\n".join(lines) + " }"


def header_text(config: Config) -> str:
    """The header of a device; C99, without includes."""
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0", " *",
        f" * Registers, counters and commands of the Gemmule device {config.name}, version {gemmule.__version__}.",
        f" * Made by `gemmule header --config {config.name}`; do not edit. What it all means: docs/registers.md,",
        " * docs/isa.md, docs/timing.md, docs/driver.md.", " */", "#ifndef GEMMULE_H", "#define GEMMULE_H", ""]
    for title, constants in sections(config).items():
        lines += [f"/* {title}. */", *(constant.line for constant in constants), ""]
    return "\n".join([*lines, ARRAYS, "/* Initialisers of arrays of names, by number. */", *_names(), "",
                      "#endif"]) + "\n"
