"""The combinational resolve stage equals ``resolve_row`` on random words, in and out of range."""

import random

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.hw.resolve import Resolve
from gemmule.hw.testing import run_bench
from gemmule.isa import BODY, HEADER, LENGTHS, NUM_BASES, NUM_LENGTHS, Unit, decode_table
from gemmule.resolve import FAULTS, OUT, STREAM_UNIT, resolve

CONFIGS = {
    "tiny": load_config("tiny"),
    "base": load_config("base"),
    "odd": Config(dim=8, bus_bytes=2, spm_kib=2, spm_banks=2, acc_kib=8, acc_banks=1, preload=4,
                  stat_contexts=1, stat_rows=4, address_bits=37),
}


def pack(layout, values):
    word = shift = 0
    for name, bits in layout:
        word |= (values.get(name, 0) & ((1 << bits) - 1)) << shift
        shift += bits
    return word


def random_word(rng: random.Random, config: Config) -> int:
    """Mostly legal fields, so that every check is reached from both sides."""
    unit = rng.choice((0, 1, 2, 2, 3, 3, 3, 3, 3, 3, rng.randrange(8)))
    op = rng.randrange(8) if unit == 3 else 0
    if rng.random() < 0.05:
        op = rng.randrange(32)
    header = {name: rng.getrandbits(bits) for name, bits in HEADER}
    header |= {"unit": unit, "op": op}
    if rng.random() < 0.6:
        header["dyn_which"] = 0
    elif rng.random() < 0.8:
        header |= {"dyn_reg": rng.randrange(1, NUM_LENGTHS), "dyn_stride": rng.randrange(4)}
    values = {}
    if unit in BODY:
        small = rng.random() < 0.8  # small sizes stay inside the memories now and then
        for name, bits in BODY[Unit(unit)]:
            value = rng.getrandbits(bits)
            if small and name in ("a_row", "b_row", "row", "src0", "src1", "dst", "aux"):
                value = rng.randrange(config.spm_rows * 9 // 8)
            elif small and name == "c_row":
                value = rng.randrange(config.acc_rows * 9 // 8)
            elif small and name.endswith("stride"):
                value = rng.randrange(3 * config.dim)
            elif small and name == "bytes":
                value = rng.randrange(6 * config.dim)
            elif small and name == "offset":
                value = rng.randrange(4096)
            elif small and name == "context":
                value = rng.randrange(config.stat_contexts + 1)
            values[name] = value
        for name in LENGTHS[Unit(unit)]:
            if small:
                values[f"{name}_cap"] = rng.randrange(4 * config.dim)
                values[f"{name}_offset"] = rng.choice((0, 0, rng.randrange(256)))
        if rng.random() < 0.7:
            for name in ("b_row", "b_stride", "offset", "stride"):
                values[name] = values.get(name, 0) // 16 * 16
    return pack(HEADER, header) | pack(BODY.get(Unit(unit), ()) if unit < 5 else (), values) << 64


@pytest.mark.parametrize("name", CONFIGS)
def test_equals_model(name: str) -> None:
    config = CONFIGS[name]
    rng = random.Random(20)
    print("seed 20", name)
    lengths = [65535, *(rng.choice((rng.randrange(64), rng.getrandbits(16))) for _ in range(NUM_LENGTHS - 1))]
    bits = config.address_bits
    bases = [rng.getrandbits(bits - 1) for _ in range(NUM_BASES)]
    bases = [b if rng.random() < 0.1 else b // 64 * 64 for b in bases]
    limits = [rng.choice((rng.randrange(8192), rng.getrandbits(bits - 1), (1 << bits) - 1))
              for _ in range(NUM_BASES)]
    words = [random_word(rng, config) for _ in range(2000)]
    image = b"".join(word.to_bytes(32, "little") for word in words)
    table = decode_table(image)
    expected = resolve(table, np.array(bases), np.array(limits), np.array(lengths), config)
    seen: dict[tuple[int, str], int] = {}
    dut = Resolve(config=config)

    async def bench(ctx):
        ctx.set(dut.lengths, lengths)
        for word, row, fields in zip(words, expected, table):
            out = {key: int(row[i]) for key, i in OUT.items()}
            ctx.set(dut.word, word)
            ctx.set(dut.base, bases[ctx.get(dut.base_index)])
            ctx.set(dut.limit, limits[ctx.get(dut.base_index)])
            where = f"{word:064x} {out}"
            assert ctx.get(dut.fault) == out["fault"], where
            key = (out["unit"], FAULTS[out["fault"]] if not out["zero"] else "zero")
            seen[key] = seen.get(key, 0) + 1
            assert ctx.get(dut.unit) == out["unit"]
            if out["fault"]:
                continue
            assert ctx.get(dut.zero) == out["zero"], where
            unit = out["unit"]
            for stream in range(3):
                has = stream < STREAM_UNIT.count(unit)
                assert ctx.get(dut.claims[stream]) == (out[f"claim{stream}"] if has else 0), (where, stream)
            waits = fields[2:6]
            assert [ctx.get(dut.waits[i]) for i in range(4)] == waits.tolist()
            view, want = {
                0: (dut.move, {"rows": "m", "address": "address", "row": "row0"}),
                1: (dut.move, {"rows": "m", "address": "address", "row": "row0"}),
                2: (dut.matrix, {"m": "m", "n": "n", "k": "k", "a_row": "row0", "b_row": "row1",
                                 "c_row": "row2", "flags": "flags"}),
                3: (dut.vector, {"m": "m", "n": "n", "src0": "row0", "src1": "row1", "dst": "row2",
                                 "op": "op", "flags": "flags"}),
            }[unit]
            assert ctx.get(view.zero) == out["zero"]
            for field, source in want.items():
                mask = (1 << len(view[field])) - 1
                assert ctx.get(view[field]) == out[source] & mask, (where, field)
            raw = {n: (word >> 64 + shift) & ((1 << b) - 1) for (n, b), shift in zip(
                BODY[Unit(unit)], np.cumsum([0, *(b for _, b in BODY[Unit(unit)])]).tolist())}
            for field in view.shape().members:
                if field not in want and field not in ("zero", "op", "flags"):
                    assert ctx.get(view[field]) == raw[field], (where, field)

    run_bench(dut, bench)
    print(seen)
    for unit in range(4):  # the generator must reach every outcome
        for outcome in ("none", "zero", "rows"):
            assert seen.get((unit, outcome), 0) > 5, (unit, outcome, seen)
    for outcome in ("limit", "align"):
        assert seen.get((0, outcome), 0) > 2
    assert seen.get((4, "illegal"), 0) > 2


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_limit_and_memory_ends_are_exact(config: Config) -> None:
    """The last byte below the limit and the last row of the scratchpad are legal, the next are not."""
    dut = Resolve(config=config)
    fields = {"offset": 16, "stride": 64, "bytes": 2, "rows_cap": 3, "row_stride": 1}
    end = 16 + 2 * 64 + 2

    async def bench(ctx):
        for unit in (0, 1):
            for row, limit, fault in (
                (0, end, "none"), (0, end - 1, "limit"), (config.spm_rows - 3, end, "none"),
                (config.spm_rows - 2, end, "rows"), (config.spm_rows - 2, end - 1, "rows"),
            ):
                word = pack(HEADER, {"unit": unit}) | pack(BODY[Unit.LOAD], fields | {"row": row}) << 64
                ctx.set(dut.word, word)
                ctx.set(dut.lengths, [65535] * NUM_LENGTHS)
                ctx.set(dut.limit, limit)
                assert ctx.get(dut.fault) == FAULTS.index(fault), (unit, row, limit)

    run_bench(dut, bench)
