"""Programs for ``tiny`` whose energy is measured: directed ones, each about a few events, and others held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Rows
from gemmule.compiler.layout import WeightFormat
from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, Command, MatrixFlag, MoveFlag, RequantFlag, SOp, Unit, VOp, encode_program
from gemmule.operations import CONTROL, COp, Source, Target
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.launch import Launch
from gemmule.sw.workloads.programs import product
from tests.compiler.integer_networks import Sizes, random_network

__all__ = ["directed", "held_out", "mixed"]

DRAM = 1 << 15
PROGRAM = 1 << 14
OUT = 1 << 13
"""DRAM addresses: random data from 0 on, results, the program."""
SPM, ACC = 64, 16
"""Rows of each bank that programs fill."""
WORDS = [MoveFlag.ACCUMULATOR]
make = Command.make


def _launch(config: Config, name: str, commands: Sequence[Command], seed: int) -> Launch:
    random = np.random.default_rng(seed)
    dram = random.integers(0, 256, DRAM, dtype=np.uint8)
    dram[4096:OUT] = random.integers(-3000, 3000, (OUT - 4096) // 4).astype(np.int32).view(np.uint8)
    lengths = np.zeros(16, dtype=np.int64)
    registers = np.zeros(32, dtype=np.int64), np.full(32, DRAM, dtype=np.int64), lengths
    return Launch(name, seed, encode_program(commands), PROGRAM, dram, *registers)


def _fill(config: Config) -> list[Command]:
    """Random rows at the beginning of every bank."""
    each: dict[str, Any] = {"row_stride": 1, "block_stride": 1, "rows": 1}
    spm = [make(Unit.LOAD, row=bank * config.spm_bank_rows, offset=bank * SPM * config.dim, bytes=SPM * config.dim,
                **each) for bank in range(config.spm_banks)]
    acc = [make(Unit.LOAD, row=bank * config.acc_bank_rows, offset=4096 + bank * ACC * 4 * config.dim,
                bytes=ACC * 4 * config.dim, flags=WORDS, **each) for bank in range(config.acc_banks)]
    return spm + acc


def _after(commands: Sequence[Command], unit: Unit) -> list[Command]:
    """Commands of a unit that begin when everything is loaded."""
    first, *rest = commands
    return [replace(first, waits={**first.waits, Unit.LOAD: 1}), *rest]


def _vector(config: Config, op: VOp, count: int, m: int, n: int, **more: Any) -> list[Command]:
    groups, bank = -(-n // config.dim), config.spm_bank_rows
    inside = op in (VOp.PRODUCT, VOp.ADD, VOp.NORM_STAT, VOp.NORM_APPLY)
    planes = 2 if op in (VOp.NORM_STAT, VOp.NORM_APPLY) else 1
    stride = m * planes
    assert stride * groups <= (SPM if inside else ACC)
    return [make(Unit.VECTOR, op=op, m=m, n=n, src0=0, src0_stride=stride, src1=bank,
                 dst=(config.acc_bank_rows if op is VOp.RESCALE else 2 * bank) + 0, dst_stride=stride,
                 **({"mult": 23456 + 101 * i, "shift": 16, "shift2": 14, "context": i % 2} | more))
            for i in range(count)]


def _matrix(config: Config, count: int, m: int, n: int, k: int, flags: Sequence[MatrixFlag] = ()) -> list[Command]:
    bank = config.spm_bank_rows
    lines = k if MatrixFlag.B_INT4 not in flags else -(-k // 2)
    return [make(Unit.MATRIX, m=m, n=n, k=k, a_row=i % 4, a_stride=m, b_row=bank + i % 4, b_stride=lines,
                 c_row=0, c_stride=m, flags=flags) for i in range(count)]


def directed(config: Config) -> Iterator[Launch]:
    """Programs that hardly do more than one kind of work each, some in two sizes."""
    fill, dim, bank = _fill(config), config.dim, config.spm_bank_rows
    each: dict[str, Any] = {"row_stride": 1, "block_stride": 1, "rows": 1}

    def program(name: str, commands: Sequence[Command], seed: int) -> Launch:
        return _launch(config, name, commands, seed)

    yield program("fill", fill, 1)
    for turns in (1, 4):
        yield program(f"load {turns}", fill[:4] * turns, 2)
        yield program(f"load words {turns}", fill[4:] * turns, 3)
        stores = [make(Unit.STORE, row=(i % 4) * bank, offset=OUT + 256 * (i % 4), bytes=SPM * dim, **each)
                  for i in range(4 * turns)]
        yield program(f"store {turns}", [*fill, *_after(stores, Unit.STORE)], 4)
        words = [make(Unit.STORE, row=(i % 4) * config.acc_bank_rows, offset=OUT + 256 * (i % 4), bytes=ACC * 4 * dim,
                      flags=WORDS, **each) for i in range(4 * turns)]
        yield program(f"store words {turns}", [*fill, *_after(words, Unit.STORE)], 5)
    rows = [make(Unit.LOAD, row=i * 8, offset=64 * i + i % 3, bytes=16, rows=8, stride=24, row_stride=1,
                 block_stride=8) for i in range(12)]
    yield program("load rows", rows, 6)
    sets = [Command(CONTROL, {"target": int(Target.LENGTH), "target_reg": 1 + i % 8, "source": int(Source.ZERO),
                              "amount": 37 * i}, int(COp.SET)) for i in range(48)]
    yield program("control", sets, 7)
    empty = [make(Unit(i % 5), **({"op": SOp.ARGMAX} if i % 5 == Unit.SELECT else {})) for i in range(60)]
    yield program("empty", empty, 8)
    for body, times in ((4, 24), (12, 8)):
        repeat = Command(CONTROL, {"body": body, "times_reg": 0, "times_cap": times}, int(COp.REPEAT))
        yield program(f"repeat {body} {times}", [repeat, *empty[:body]], 8)
    for name, flags in (("int8", ()), ("int8 transposed", (MatrixFlag.B_TRANSPOSED,)),
                        ("int8 accumulate", (MatrixFlag.ACCUMULATE,)), ("int4", (MatrixFlag.B_INT4,)),
                        ("outputs", (MatrixFlag.OUTPUT_STATIONARY,))):
        for m, n, k, count in ((16, 4, 4, 12), (4, 8, 8, 12), (12, 4, 16, 8)):
            yield program(f"matrix {name} {m}x{k}x{n}", [
                *fill, *_after(_matrix(config, count, m, n, k, flags), Unit.MATRIX)], 9 + m)
    vectors: tuple[tuple[str, VOp, dict[str, Any]], ...] = (
        ("scale", VOp.REQUANT, {"shift": 26}), ("scale wide", VOp.REQUANT, {"flags": [RequantFlag.WIDE]}),
        ("lookup", VOp.REQUANT, {"flags": [RequantFlag.LOOKUP], "shift": 26}), ("gelu", VOp.I_GELU, {"shift": 20}),
        ("add", VOp.ADD, {"aux": 19999, "shift": 15}), ("product", VOp.PRODUCT, {"aux": 4, "shift": 21}),
        ("rope", VOp.ROPE, {"aux": bank, "shift": 26}), ("norm_stat", VOp.NORM_STAT, {}),
        ("norm_apply", VOp.NORM_APPLY, {}), ("maximum", VOp.SOFTMAX_MAX, {}), ("absmax", VOp.ABSMAX, {"context": 1}),
        ("exponential", VOp.SOFTMAX_EXP, {}), ("normalise", VOp.SOFTMAX_NORM, {}), ("rescale", VOp.RESCALE, {}))
    for name, op, more in vectors:
        before: list[Command] = []
        if op in (VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM, VOp.RESCALE):
            before = _vector(config, VOp.SOFTMAX_MAX, 2, 4, 16)
        if op in (VOp.SOFTMAX_NORM, VOp.RESCALE):
            before += _vector(config, VOp.SOFTMAX_EXP, 2, 4, 16)
        if op is VOp.NORM_APPLY:
            before = _vector(config, VOp.NORM_STAT, 2, 4, 16)
        if more.get("flags") == [RequantFlag.LOOKUP]:
            before = [make(Unit.VECTOR, op=VOp.TABLE, src0=0)]
        for m, n, count in ((4, 16, 12), (2, 12, 24)):
            small = op is VOp.ROPE
            commands = before + _vector(config, op, count, 2 if small else m, 8 if small else n, **more)
            yield program(f"vector {name} {m}x{n}", [*fill, *_after(commands, Unit.VECTOR)], 30 + m)
    tables = [make(Unit.VECTOR, op=op, src0=0) for op in (VOp.TABLE, VOp.TABLE, VOp.WORD_TABLE, VOp.TABLE)]
    yield program("tables", [*fill, *_after(tables, Unit.VECTOR)], 40)
    keys = make(Unit.SELECT, op=SOp.KEYS, n=64, src0=0, src0_stride=2)
    for n, k, count in ((64, 16, 6), (64, 16, 2), (24, 4, 6)):
        top = [replace(keys, waits={Unit.LOAD: 1}), *(make(Unit.SELECT, op=SOp.TOP_K, n=n, k=k, dst=i)
                                                      for i in range(count))]
        yield program(f"top {n} {count}", [*fill, *top], 41)
    scans = {
        "keys": [keys] * 8,
        "argmax": [make(Unit.SELECT, op=SOp.ARGMAX, m=4, n=32, src0=0, src0_stride=8)] * 8,
        "importance": [make(Unit.SELECT, op=SOp.IMPORTANCE, m=4, n=32, src0=0, src0_stride=4)] * 8,
        "compare": [make(Unit.SELECT, op=SOp.COMPARE, m=4, n=32, src0=0, src0_stride=4, number=1, aux=255)] * 8,
        "lists": [make(Unit.SELECT, op=SOp.LIST_LOAD, n=64, src0=0, dst=0),
                  make(Unit.SELECT, op=SOp.LIST_STORE, n=64, dst=2 * bank)] * 4,
    }
    for name, commands in scans.items():
        yield program(f"scan {name}", [*fill, *_after(commands, Unit.SELECT)], 43)


SHAPES = ((8, 16, 8, 8), (1, 32, 16, 8), (16, 24, 12, 4), (5, 19, 13, 8), (12, 12, 32, 4))
"""M, K, N and bits of weights; the fit takes others."""
FITTED_SHAPES = ((6, 20, 12, 8), (1, 24, 24, 4), (3, 40, 8, 8), (14, 9, 20, 4))
SEEDS = (101, 102, 103, 104, 105, 106, 107, 201, 205)
"""Of random programs: some that can be cut without a fault."""
FAMILIES = ("gpt2", "llama")
RANDOM = 90
"""Commands of a random program: the rest would store all memories."""


def _products(config: Config, shapes: Sequence[tuple[int, int, int, int]]) -> Iterator[Launch]:
    for m, k, n, bits in shapes:
        work = product(config, m, k, n, m, weights=WeightFormat(bits, 0), dataflow="ws", mapping=None)
        yield replace(work.case, name=f"product {m}x{k}x{n} int{bits}")


def _decoder(config: Config, family: str) -> Launch:
    """The first token of a random decoder of one layer."""
    network = random_network(Sizes(family=family, layers=1), 5)
    program = compile_network(network, config, rows=1, tokens=True)
    dram = np.zeros(program.base_address + program.size, dtype=np.uint8)
    dram[program.base_address:] = program.fill(network)
    step = program.step(Rows.chain([7]), 1)
    for address, content in step.inputs:
        dram[address:address + content.size] = content.view(np.uint8).reshape(-1)
    return program.launch(f"decoder {family}", dram, step.registers)


def mixed(config: Config) -> Iterator[Launch]:
    """Products for the fit: what real work has beside directed programs."""
    return _products(config, FITTED_SHAPES)


def held_out(config: Config) -> Iterator[Launch]:
    """Whole products, random programs of all units, and passes of decoders, which no fit sees."""
    yield from _products(config, SHAPES)
    for seed in SEEDS:
        case = generate(config, seed, 60, brief=True)
        yield replace(case, name=f"random {seed}", image=case.image[:RANDOM * COMMAND_BYTES])
    for family in FAMILIES:
        yield _decoder(config, family)
