"""Resolve equals ``resolve_row`` on random words, in and out of range."""

import random
from collections import Counter

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.command.resolve import Resolve
from gemmule.isa import (
    BODY,
    HEADER,
    LENGTHS,
    NUM_BASES,
    NUM_LENGTHS,
    TABLE_FIELDS,
    MatrixFlag,
    MoveFlag,
    SOp,
    Unit,
    VOp,
    decode_table,
    legal_flags,
)
from gemmule.operations import needs
from gemmule.resolve import FAULTS, OUT, STREAM_UNIT, resolve

from ...thinned import of_methods
from ..bench import run_bench
from .resolve_commands import resolved

CONFIGS = {
    "tiny": load_config("tiny"),
    "edge": load_config("edge"),
    "base": load_config("base"),
    "one bank": Config(dim=8, bus_bytes=2, spm_kib=2, spm_banks=1, acc_kib=8, acc_banks=1, preload=4,
                       stat_contexts=2, stat_rows=4, select_keys=64, list_entries=64, address_bits=37),
    "dim 2": Config(dim=2, bus_bytes=2, spm_kib=2, spm_banks=16, acc_kib=1, acc_banks=4, preload=2,
                    stat_rows=8, select_keys=128, list_entries=64, address_bits=48),
    "dim 64": Config(dim=64, bus_bytes=64, spm_kib=1024, spm_banks=16, acc_kib=512, acc_banks=2, preload=4,
                     burst_bytes=1024, select_keys=8192, list_entries=16384, address_bits=40),
}


def pack(layout, values):
    word = shift = 0
    for name, bits in layout:
        word |= (values.get(name, 0) & ((1 << bits) - 1)) << shift
        shift += bits
    return word


LEGAL = {(unit, op): [flags for flags in range(256) if legal_flags(unit, op, flags)]
         for unit, op in [(0, 0), (1, 0), (2, 0), *((3, op) for op in VOp), *((4, op) for op in SOp)]}


MOVED = {"rows": "m", "address": "address", "row": "row0", "list": "row1", "flags": "flags", "joined": "joined"}
"""Fields of a resolved load or store by the model's name."""
SUMS = (VOp.REQUANT, VOp.ROPE, VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM, VOp.ABSMAX, VOp.RESCALE, VOp.I_GELU)
"""Operations that read the accumulator."""


def random_word(rng: random.Random, config: Config) -> int:
    """Mostly legal fields, so that every check is reached from both sides."""
    unit = rng.choice((0, 0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, rng.choice((0, 1, 2, 3, 4, 6, 7))))
    op = rng.randrange({3: len(VOp), 4: len(SOp)}.get(unit, 1))
    if rng.random() < 0.05:
        op = rng.randrange(32)
    header = {name: rng.getrandbits(bits) for name, bits in HEADER}
    header |= {"unit": unit, "op": op}
    if (unit, op) in LEGAL and rng.random() < 0.9:
        header["flags"] = rng.choice(LEGAL[unit, op])
    if rng.random() < 0.6:
        header["dyn_which"] = 0
    elif rng.random() < 0.8:
        header |= {"dyn_reg": rng.randrange(1, NUM_LENGTHS), "dyn_stride": rng.randrange(4)}
    values = {}
    if unit in BODY:
        small = rng.random() < 0.8  # small sizes stay inside the memories now and then
        for name, bits in BODY[Unit(unit)]:
            value = rng.getrandbits(bits)
            sums = (name == "c_row" or unit == 3 and name == "src0" and op in SUMS
                    or unit == 3 and name == "dst" and op == VOp.RESCALE or name == "row" and header["flags"] & 1)
            if small and sums:
                value = rng.randrange(config.acc_rows * 9 // 8)
            elif small and unit == 4 and name in ("first", "dst") and op != SOp.LIST_STORE:
                value = rng.randrange(rng.choice((config.select_keys, config.list_entries)) * 9 // 8)
            elif small and name == "first":
                value = rng.randrange(config.list_entries * 9 // 8)
            elif small and name == "list" and rng.random() < 0.7:
                value = rng.randrange(config.list_entries)
            elif small and name == "first_high":
                value = rng.randrange(rng.choice((1, 1, 4)))
            elif small and name == "last_index":
                value = rng.randrange(16)
            elif small and unit == 3 and name == "aux" and op in (VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.SOFTMAX_NORM):
                value = rng.randrange(16) | rng.randrange(64) << 4
            elif small and name in ("a_row", "b_row", "row", "src0", "src1", "dst", "aux"):
                value = rng.randrange(config.spm_rows * 9 // 8)
            elif small and unit < 2 and name in ("row_stride", "block_stride"):
                value = rng.randrange(6)
            elif small and name.endswith("stride"):
                value = rng.randrange(3 * config.dim)
            elif small and name == "bytes":
                value = rng.randrange(6 * config.dim)
            elif small and name == "offset":
                value = rng.randrange(4096)
            elif small and name == "context":
                value = rng.randrange(config.stat_contexts + 1)
            elif name == "scale_reg" and rng.random() < 0.6:
                value = 0
            elif small and name == "period":
                value = rng.randrange(4)
            values[name] = value
        for name in LENGTHS[Unit(unit)]:
            if small:
                values[f"{name}_cap"] = rng.randrange(rng.choice((1, 1, 4)) * config.dim + 1)
                values[f"{name}_offset"] = rng.choice((0, 0, 0, rng.randrange(256)))
                values[f"{name}_reg"] = rng.choice((0, rng.randrange(16)))
        if rng.random() < 0.7:
            for name in ("b_row", "b_stride", "offset", "stride"):
                values[name] = values.get(name, 0) // 16 * 16
        if rng.random() < 0.7:
            values["bytes"] = values.get("bytes", 0) // 4 * 4
        if values.get("list", 1) % 3 == 0:  # rows that may be joined
            values["stride"] = values["bytes"] = values.get("bytes", 0) // config.bus_bytes * config.bus_bytes
        if header["flags"] >> MatrixFlag.REUSE and rng.random() < 0.7:
            values["n_cap"], values["k_cap"] = rng.randrange(config.dim + 2), rng.randrange(config.dim + 2)
    return pack(HEADER, header) | pack(BODY.get(Unit(unit), ()) if unit < len(Unit) else (), values) << 64


@pytest.mark.parametrize("name", of_methods(CONFIGS, ("tiny", "one bank")))
def test_equals_model(name: str) -> None:
    config = CONFIGS[name]
    rng = random.Random(20)
    print("seed 20", name)
    lengths = [65535, *(rng.choice((rng.randrange(64), rng.getrandbits(16))) for _ in range(NUM_LENGTHS - 1))]
    bits = config.address_bits
    bases = [rng.getrandbits(bits - 1) for _ in range(NUM_BASES)]
    bases = [b if rng.random() < 0.1 else b // 64 * 64 for b in bases]
    bases[1::4] = [(1 << bits) - rng.choice((1, 64, 4096, 1 << 14)) for _ in bases[1::4]]  # the space's end
    limits = [rng.choice((rng.randrange(1024), rng.randrange(8192), rng.getrandbits(bits - 1), (1 << bits) - 1))
              for _ in range(NUM_BASES)]
    words = [random_word(rng, config) for _ in range(3600)]
    image = b"".join(word.to_bytes(32, "little") for word in words)
    table = decode_table(image)
    expected = resolve(table, np.array(bases), np.array(limits), np.array(lengths), config)
    seen: dict[tuple[int, str], int] = {}
    kinds: Counter[tuple[int, int, int, int]] = Counter()
    dut = Resolve(config=config)

    afters = scaled = joined = 0

    async def bench(ctx):
        nonlocal afters, scaled, joined
        async for i in resolved(ctx, dut, words, lengths=lengths, bases=bases, limits=limits):
            word, row, fields = words[i], expected[i], table[i]
            out = {key: int(row[i]) for key, i in OUT.items()}
            if (out["unit"], out["op"]) not in LEGAL:
                out["fault"] = FAULTS.index("illegal")  # whatever its flags
            where = f"{word:064x} {out}"
            assert ctx.get(dut.fault) == out["fault"], where
            key = (out["unit"], FAULTS[out["fault"]] if not out["zero"] else "zero")
            seen[key] = seen.get(key, 0) + 1
            afters += out["after"] > 0
            scaled += bool(out["unit"] == 3 and not out["fault"] and fields[TABLE_FIELDS.index("scale_reg")])
            if not out["fault"] and not out["zero"]:
                kinds[out["unit"], out["op"], out["flags"], out["apart"]] += 1
            assert ctx.get(dut.unit) == out["unit"]
            if out["fault"]:
                continue
            assert ctx.get(dut.zero) == out["zero"], where
            unit = out["unit"]
            for stream in range(3):
                has = stream < STREAM_UNIT.count(unit)
                assert ctx.get(dut.claims[stream]) == (out[f"claim{stream}"] if has else 0), (where, stream)
            waits = fields[2:7]
            assert [ctx.get(dut.waits[i]) for i in range(5)] == waits.tolist()
            assert ctx.get(dut.predicate) == word >> 62 & 3
            view, want = {
                0: (dut.move, MOVED), 1: (dut.move, MOVED),
                2: (dut.matrix, {"m": "m", "n": "n", "k": "k", "a_row": "row0", "b_row": "row1",
                                 "c_row": "row2", "flags": "flags", "apart": "apart"}),
                3: (dut.vector, {"m": "m", "n": "n", "src0": "row0", "src1": "row1", "dst": "row2",
                                 "op": "op", "flags": "flags", "apart": "apart", "after": "after", "mult": "mult",
                                 "shift": "shift", "shift2": "shift2", "aux": "aux"}),
                4: (dut.select, {"m": "m", "n": "n", "k": "k", "src0": "row0", "first": "row1",
                                 "dst": "row2", "op": "op", "flags": "flags"}),
            }[unit]
            assert ctx.get(view.zero) == out["zero"]
            for field, source in want.items():
                mask = (1 << len(view[field])) - 1
                assert ctx.get(view[field]) == out[source] & mask, (where, field)
            raw = {n: (word >> 64 + shift) & ((1 << b) - 1) for (n, b), shift in zip(
                BODY[Unit(unit)], np.cumsum([0, *(b for _, b in BODY[Unit(unit)])]).tolist())}
            if unit < 2 and out["joined"] and not out["zero"]:
                joined += out["m"] > 1
                assert raw["bytes"] == raw["stride"]
                raw["stride"] *= out["m"]  # of all rows
            for field in view.shape().members:
                if field not in want and field not in ("zero", "op", "flags") and not (
                        out["zero"] and field == "stride"):
                    assert ctx.get(view[field]) == raw[field] & (1 << len(view[field])) - 1, (where, field)

    run_bench(dut, bench)
    print(seen)
    for unit in Unit:  # the generator must reach every outcome
        for outcome in ("none", "zero", "rows"):
            assert seen.get((unit, outcome), 0) > 5, (unit, outcome, seen)
    for outcome in ("limit", "align"):
        assert seen.get((0, outcome), 0) > 2, seen
    assert seen.get((6, "illegal"), 0) > 2
    assert afters > 10
    assert scaled > 20
    assert joined > 3
    for unit, ops in ((3, VOp), (4, SOp)):
        for op in ops:
            legal = needs(unit, op, 0) <= config.features
            assert any(key[:2] == (unit, op) for key in kinds) == legal, (unit, op)
    assert seen.get((3, "illegal"), 0) > 20
    for unit, flags in ((0, MoveFlag), (2, MatrixFlag)):
        for flag in flags:
            if flag is MatrixFlag.OUTPUT_STATIONARY and config.spm_banks == 1:
                continue  # its operands need two banks
            if unit == 2 and not needs(2, 0, 1 << flag) <= config.features:
                continue
            assert any(key[0] == unit and key[2] >> flag & 1 for key in kinds), flag
    assert any(key[0] == 2 and key[3] for key in kinds)
