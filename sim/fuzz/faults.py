"""Commands that fault when they are resolved, whatever the length registers hold: every check of the contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gemmule.config import Config
from gemmule.control import Local, params, repeat, set_displacement, set_length
from gemmule.isa import (
    CONTROL,
    MAX_LENGTH,
    MAX_WAIT,
    NUM_BASES,
    NUM_LENGTHS,
    NUM_PREDICATES,
    PARAMS_WORDS,
    AddFlag,
    Command,
    CommitFlag,
    COp,
    Dyn,
    ImportanceFlag,
    KeysFlag,
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
    legal_flags,
)
from gemmule.operations import EXPONENTIALS, OPERATIONS

__all__ = ["faulty_commands", "faulty_controls"]


def faulty_commands(config: Config, bases: np.ndarray, random: np.random.Generator) -> list[Command]:
    """One command a check: unknown units, operations and flags; rows, limits and sizes out of bounds."""
    return [*_illegal(random), *_exponentials(config), *_lacking(config), *_rows(config), *_moves(config, bases),
            *_select(config)]


def faulty_controls(config: Config, local: Local, random: np.random.Generator) -> list[Command]:
    """Control commands that fault wherever they stand, with these registers."""
    words, some = config.parameter_words, int(random.integers(1, NUM_LENGTHS))
    have = int(local.lengths[some])
    legal = [set_length(some), set_displacement(some), params(0), repeat(1, int(random.integers(0, 3)))]
    heads: list[dict[str, Any]] = [
        {"waits": {Unit(int(random.integers(len(Unit)))): int(random.integers(1, MAX_WAIT + 1))}},
        {"flags": frozenset([int(random.integers(8))])}, {"dyn": (Dyn(int(random.integers(1, 4))), 0, 0)},
        {"dyn": (Dyn.NONE, some, 0)}, {"dyn": (Dyn.NONE, 0, 1 << int(random.integers(10)))},
        {"predicate": int(random.integers(1, NUM_PREDICATES))}]
    found = [replace(legal[random.integers(len(legal))], **head) for head in heads]
    found += [Command(CONTROL, {}, int(random.integers(len(COp), 32))), set_length(0), repeat(0, 0), repeat(0, 2)]
    found.append(set_length(int(random.integers(NUM_LENGTHS, NUM_BASES))))
    for target in Target:
        each = {"target": int(target), "target_reg": some}
        found += [Command(CONTROL, each | {"source": source}) for source in range(len(Source), 8)]
        beyond = int(random.integers(NUM_LENGTHS, NUM_BASES))
        found += [Command(CONTROL, each | {"source": source, "source_reg": beyond})
                  for source in Source if source is not Source.DISPLACEMENT]
        for source, last in ((Source.WORD, words), (Source.HALF, 2 * words)):
            found += [Command(CONTROL, each | {"source": source, "index": index}) for index in (last, MAX_LENGTH)]
            found.append(Command(CONTROL, each | {
                "source": source, "source_reg": some, "index": max(0, last - have)}))
            found.append(Command(CONTROL, each | {"source": source, "source_reg": some, "index": MAX_LENGTH}))
    found.append(Command(CONTROL, {"target": Target.DISPLACEMENT, "target_reg": some,
                                   "modulus": 1 << int(random.integers(16))}))
    return found + [params(first) for first in (words - PARAMS_WORDS + 1, words, MAX_LENGTH)]


def _illegal(random: np.random.Generator) -> list[Command]:
    """A predicate that cannot be set, operations, and for each of them a set of flags that it does not have."""
    found = [
        Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=1),
        *(Command.make(unit, op=int(random.integers(1, 32))) for unit in (Unit.LOAD, Unit.STORE, Unit.MATRIX)),
        Command.make(Unit.VECTOR, op=int(random.integers(len(VOp), 32))),
        Command.make(Unit.SELECT, op=int(random.integers(len(SOp), 32))),
    ]
    for unit, op in OPERATIONS:
        wrong = [flags for flags in range(256) if not legal_flags(unit, op, flags)]
        flags = wrong[random.integers(len(wrong))]
        # Illegal flags fault at length zero too.
        found.append(Command.make(Unit(unit), op=op, flags=[bit for bit in range(8) if flags >> bit & 1]))
    return found


def _exponentials(config: Config) -> list[Command]:
    """Exponentials that no device has, or that this one has not. They fault at length zero too."""
    softmax, kinds = (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM), range(len(EXPONENTIALS), 8)
    found: list[dict[str, Any]] = [{"op": op, "period": kind} for op in softmax for kind in kinds]
    if not config.comparison_modes:
        found += [{"op": op, "period": kind} for op in softmax for kind in range(1, len(EXPONENTIALS))]
    return [Command.make(Unit.VECTOR, **values) for values in found]


def _lacking(config: Config) -> list[Command]:
    """Of every operation, the fewest flags that need a feature which the device lacks; moves by too large an index.
    They fault at length zero too.
    """
    found = []
    for (unit, op), known in OPERATIONS.items():
        legal = [flags for flags in range(256) if known.legal(flags)]
        for feature in {name: None for flags in legal for name in sorted(known.needs(flags) - config.features)}:
            flags = min((one for one in legal if feature in known.needs(one)), key=lambda one: (one.bit_count(), one))
            found.append(Command.make(Unit(unit), op=op, flags=[bit for bit in range(8) if flags >> bit & 1]))
    if not config.wide_indices:
        found += [Command.make(unit, flags=[MoveFlag.INDEXED], last_index=MAX_LENGTH + 1)
                  for unit in (Unit.LOAD, Unit.STORE)]
    return found


def _rows(config: Config) -> list[Command]:
    """Operands beyond their memory, weights to reuse that do not exist, B and statistics out of place."""
    dim, spm, acc = config.dim, config.spm_rows, config.acc_rows
    one = {"m": 1, "n": 1, "k": 1}
    beyond: list[dict[str, Any]] = [
        {"a_row": spm, "flags": [MatrixFlag.REUSE]}, {"a_row": spm - 1, "k": 2, "flags": [MatrixFlag.A_TRANSPOSED]},
        {"b_row": spm - spm % config.preload}, {"c_row": acc}, {"c_row": acc - 1, "m": 2},
        {"b_row": spm - dim // 2, "flags": [MatrixFlag.B_INT4, MatrixFlag.GROUP_SCALES]},
        {"n": dim + 1, "flags": [MatrixFlag.REUSE]}, {"k": dim + 1, "flags": [MatrixFlag.REUSE]},
        {"flags": [MatrixFlag.OUTPUT_STATIONARY]},  # A and B in one bank
    ]
    if config.preload > 1:
        beyond += [{"b_row": 1}, {"b_stride": config.preload - 1}]
    found = [Command.make(Unit.MATRIX, **(one | values)) for values in beyond]
    column, bias = RequantFlag.COLUMN, RequantFlag.BIAS  # ROPE and I_GELU, NORM_APPLY: the same bits
    vectors: list[dict[str, Any]] = [
        {"op": VOp.REQUANT, "src0": acc}, {"op": VOp.REQUANT, "dst": spm},
        {"op": VOp.REQUANT, "flags": [column], "src1": spm - 2},
        {"op": VOp.REQUANT, "flags": [column, bias], "src1": spm - 6},
        {"op": VOp.REQUANT, "flags": [RequantFlag.RESIDUAL], "dst_stride": 2, "dst": spm - 1},
        {"op": VOp.ADD, "src1": spm}, {"op": VOp.PRODUCT, "src0": spm}, {"op": VOp.TABLE, "src0": spm - 1},
        {"op": VOp.ADD, "flags": [AddFlag.WIDE], "dst_stride": 2, "dst": spm - 1},
        *({"op": VOp.PRODUCT, "flags": [ProductFlag.WIDE], stride: 2, row: spm - 1}  # the high plane
          for stride, row in (("src0_stride", "src0"), ("aux", "src1"), ("dst_stride", "dst"))),
        {"op": VOp.ROPE, "aux": spm - 3}, {"op": VOp.NORM_APPLY, "src1": spm - 1},
        {"op": VOp.NORM_STAT, "m": config.stat_rows + 1}, {"op": VOp.SOFTMAX_MAX, "m": config.stat_rows + 1},
        {"op": VOp.NORM_APPLY, "flags": [bias], "src1": spm - 5}, {"op": VOp.WORD_TABLE, "src0": spm - 1},
        {"op": VOp.NORM_APPLY, "flags": [NormFlag.WIDE], "dst_stride": 2, "dst": spm - 1},
        {"op": VOp.SOFTMAX_NORM, "flags": [SoftmaxFlag.WIDE], "dst_stride": 2, "dst": spm - 1},
        {"op": VOp.SOFTMAX_MAX, "flags": [SoftmaxFlag.TREE], "src1": spm}, {"op": VOp.ABSMAX, "src0": acc},
        {"op": VOp.ABSMAX, "context": config.stat_contexts - 1},
        {"op": VOp.RESCALE, "src0": acc}, {"op": VOp.RESCALE, "dst": acc}, {"op": VOp.RESCALE, "dst": acc - 1, "m": 2},
        {"op": VOp.RESCALE, "m": config.stat_rows + 1}, {"op": VOp.I_GELU, "src0": acc},
        {"op": VOp.I_GELU, "dst": spm}, {"op": VOp.I_GELU, "flags": [column, bias], "src1": spm - 6},
        {"op": VOp.SOFTMAX_MAX, "flags": [SoftmaxFlag.TREE], "m": max(8 * dim, config.stat_rows) + 1},
    ]
    if config.stat_contexts < 16:
        vectors += [{"op": op, "context": config.stat_contexts} for op in (VOp.SOFTMAX_EXP, VOp.RESCALE)]
    found += [Command.make(Unit.VECTOR, **({"m": 1, "n": 1} | values)) for values in vectors]
    return [command for command in found if all(value < 1 << 16 for value in command.fields.values())]


def _moves(config: Config, bases: np.ndarray) -> list[Command]:
    """Rows of both memories, the DRAM limit, int32 of odd sizes, BROADCAST off a bus boundary."""
    dim, bus = config.dim, config.bus_bytes
    move: dict[str, Any] = {"bytes": dim, "rows": 1, "row_stride": 1, "block_stride": 1}
    into, narrow = [MoveFlag.ACCUMULATOR], [MoveFlag.ACCUMULATOR, MoveFlag.NARROW]
    last, long = config.acc_rows - 1, max(config.spm_kib, 64) << 10
    wrong: list[dict[str, Any]] = [
        {"row": config.spm_rows - 1, "rows": 2}, {"row": last, "rows": 2, "flags": narrow},
        {"row": last, "bytes": 4 * dim + 4, "flags": into}, {"offset": (1 << 32) - dim},
        {"rows": 2, "stride": (1 << 24) - 1}, {"bytes": 6, "flags": into},
        {"row": 1, "bytes": min(long, (1 << 20) - 1)},
        {"list": config.list_entries, "flags": [MoveFlag.INDEXED]},
        {"last_index": 65535, "stride": (1 << 24) - 1, "flags": [MoveFlag.INDEXED]},
    ]
    found = [Command.make(unit, **(move | values)) for unit in (Unit.LOAD, Unit.STORE) for values in wrong]
    away = -int(bases[1]) % bus + 1
    loads: list[dict[str, Any]] = [
        {"row": config.spm_rows - 1, "rows": 2, "flags": [MoveFlag.ZERO]},
        {"row": last, "rows": 2, "bytes": 4, "flags": [*into, MoveFlag.ADD]},
        {"base": 1, "offset": away, "bytes": 1, "flags": [MoveFlag.BROADCAST]},
        {"offset": (1 << 32) - dim, "flags": [MoveFlag.BROADCAST]},
    ]
    return found + [Command.make(Unit.LOAD, **(move | values)) for values in loads]


def _select(config: Config) -> list[Command]:
    """Rows, keys, positions, list entries, ids and statistics beyond their memories."""
    dim, spm, keys, entries = config.dim, config.spm_rows, config.select_keys, config.list_entries
    important, wide = [KeysFlag.FROM_IMPORTANCE], [ImportanceFlag.WIDE]
    wrong: list[dict[str, Any]] = [
        {"op": SOp.ARGMAX, "src0": spm}, {"op": SOp.ARGMAX, "src0": spm - 1, "src0_stride": 2},
        {"op": SOp.ARGMAX, "dst": entries}, {"op": SOp.ARGMAX, "m": config.stat_rows + 1},
        {"op": SOp.KEYS, "src0": spm}, {"op": SOp.KEYS, "dst": keys},
        {"op": SOp.KEYS, "first": (1 << config.index_bits) - 1, "n": 2},
        {"op": SOp.KEYS, "first": keys, "flags": important}, {"op": SOp.KEYS, "dst": keys, "flags": important},
        {"op": SOp.TOP_K, "n": keys + 1}, {"op": SOp.TOP_K, "dst": entries - 1, "n": 2, "k": 2},
        {"op": SOp.IMPORTANCE, "src0": spm}, {"op": SOp.IMPORTANCE, "first": keys},
        {"op": SOp.IMPORTANCE, "src0": spm - 1, "src0_stride": 2, "flags": wide},
        {"op": SOp.COMMIT, "first": keys - 1, "n": 2}, {"op": SOp.COMPARE, "src0": spm - 1, "m": 2, "number": 1},
        {"op": SOp.LIST_LOAD, "src0": spm - 1, "n": dim // 2 + 1}, {"op": SOp.LIST_LOAD, "dst": entries},
        {"op": SOp.LIST_STORE, "dst": spm}, {"op": SOp.LIST_STORE, "first": entries - 1, "n": 2},
        {"op": SOp.TOP_K, "dst": entries - 1, "n": 2, "flags": [TopKFlag.NONZERO]},
        {"op": SOp.COMMIT, "first": keys - 1, "n": 2, "flags": [CommitFlag.FROM_KEYS]},
        {"op": SOp.PACK, "src0": spm}, {"op": SOp.PACK, "dst": spm - 1, "src0_stride": 2, "n": dim + 1},
        {"op": SOp.PACK, "dst": spm - 1, "m": 2}, {"op": SOp.PACK, "n": keys + 1, "src0_stride": 1, "dst": spm // 2},
    ]
    found = [Command.make(Unit.SELECT, **({"m": 1, "n": 1, "k": 1} | values)) for values in wrong]
    return [command for command in found if all(value < 1 << 16 for value in command.fields.values())]
