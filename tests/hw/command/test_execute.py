"""SET, PARAMS and REPEAT equal ``gemmule.control.execute``, and take the steps that they say."""

import random
from collections import Counter

import numpy as np
import pytest

from gemmule.config import Config
from gemmule.control import MAX_DEPTH, Local, Sequence, begin, execute, new_local
from gemmule.hw.command.execute import Execute
from gemmule.hw.command.lookup import READS
from gemmule.isa import (
    CONTROL,
    CONTROL_BODY,
    HEADER,
    MAX_LENGTH,
    NUM_BASES,
    NUM_LENGTHS,
    COp,
    Source,
    Target,
    Unit,
    decode_table,
)
from gemmule.resolve import FAULTS, config_vector
from gemmule.timing import Timing

from ...thinned import some
from ..bench import run_bench
from .registers import launch_registers

SMALL = {"dim": 4, "bus_bytes": 4, "spm_kib": 4, "spm_banks": 4, "acc_kib": 4, "acc_banks": 2}
CONFIGS = {
    "32 bits": Config(parameter_words=16, **SMALL),
    "16 bits": Config(parameter_words=512, address_bits=16, **SMALL),
    "48 bits": Config(parameter_words=4096, address_bits=48, **SMALL),
}
LAST = Timing.control


def pack(layout: tuple[tuple[str, int], ...], values: dict[str, int]) -> int:
    word = shift = 0
    for name, bits in layout:
        word |= (values.get(name, 0) & ((1 << bits) - 1)) << shift
        shift += bits
    return word


def control_word(op: int, values: dict[str, int], rng: random.Random, **header: int) -> int:
    """What is behind the fields of a body means nothing."""
    body = CONTROL_BODY[COp(op)] if op < len(COp) else ()
    used = sum(bits for _, bits in HEADER + body)
    return (pack(HEADER, {"unit": CONTROL, "op": op} | header) | pack(body, values) << 64
            | rng.getrandbits(256 - used) << used)


def near(rng: random.Random, *values: int) -> int:
    return rng.choice(values) + rng.randrange(-2, 3)


def random_set(rng: random.Random, config: Config, local: Local) -> dict[str, int]:
    """Mostly legal; sums are often next to where something changes."""
    target, source = rng.choice(list(Target)), rng.choice([*Source, Source.WORD])
    register = rng.randrange(NUM_BASES if source == Source.DISPLACEMENT else NUM_LENGTHS)
    words = config.parameter_words
    values = {
        "target": target, "target_reg": rng.randrange(1, NUM_LENGTHS) if target == Target.LENGTH
        else rng.randrange(NUM_BASES),
        "source": source, "source_reg": register, "index": rng.randrange(words),
        "modulus": 0 if target == Target.DISPLACEMENT else rng.choice((0, 0, 1, 3, 64, 1000, MAX_LENGTH - 1, MAX_LENGTH,
                                                                       rng.getrandbits(16))),
    }
    if source >= Source.WORD:
        count = words * (1 + (source == Source.HALF))
        length = int(local.lengths[register]) if register else 0
        values["index"] = max(0, rng.choice((rng.randrange(count) - length, near(rng, count - length), 0))) & MAX_LENGTH
    size, modulus = 1 << config.address_bits, values["modulus"]
    start = 0
    if source == Source.LENGTH:
        start = int(local.lengths[register]) if register else MAX_LENGTH
    elif source == Source.DISPLACEMENT:
        start = int(local.displacements[register])
    elif source >= Source.WORD and rng.random() < 0.5:
        at = values["index"] + (int(local.lengths[register]) if register else 0)
        start = int(local.words[at % words])
    edges = (0, modulus, -modulus, MAX_LENGTH, MAX_LENGTH + modulus, 2 * MAX_LENGTH, 2 * MAX_LENGTH + 2, -MAX_LENGTH,
             size, -size, 1 << 47)
    values["amount"] = rng.choice((
        0, 1, -1, rng.randrange(-100, 100), near(rng, *edges) - start, near(rng, *edges) - start,
        rng.randrange(-1 << 47, 1 << 47), (1 << 47) - 1, -1 << 47))
    if rng.random() < 0.15:  # one field of any value
        name, bits = rng.choice(CONTROL_BODY[COp.SET])
        values[name] = rng.getrandbits(bits)
    return values


def random_params(rng: random.Random, config: Config) -> dict[str, int]:
    words = config.parameter_words
    edges = (0, 1, -1, (1 << 31) - 1, -1 << 31, MAX_LENGTH, 1 << 16, -1 << 16)
    return {"first": rng.choice((rng.randrange(words - 4), rng.randrange(words - 4), near(rng, words - 5),
                                 rng.getrandbits(16))),
            **{f"word{i}": rng.choice((*edges, rng.getrandbits(32))) for i in range(5)}}


def random_repeat(rng: random.Random, local: Local) -> dict[str, int]:
    left, register = int(local.sequence[Sequence.LEFT]), rng.randrange(NUM_LENGTHS)
    length = int(local.lengths[register]) if register else MAX_LENGTH
    shift, within = rng.randrange(16), rng.randrange(left + 1)
    return {
        "body": max(0, rng.choice((within, within, within, near(rng, left), rng.getrandbits(24)))),
        "times_reg": register, "times_shift": shift,
        "times_offset": rng.choice((0, 0, rng.randrange(256), max(0, near(rng, length)), max(0, near(rng, length - (
            rng.randrange(8) << shift))), rng.getrandbits(16))),
        "times_cap": rng.choice((MAX_LENGTH, 0, 1, 2, max(0, near(rng, length >> shift)), rng.getrandbits(16))),
    }


def copy_of(local: Local) -> Local:
    return Local(*(array.copy() for array in local))


def length(ctx, dut: Execute, register: int) -> int:
    """What every look-up of a length register finds."""
    for name in READS:
        ctx.set(dut.registers[name], register)
    (found,) = {ctx.get(dut.lengths[name]) for name in READS}
    return found


def lengths_of(ctx, dut: Execute, turns: random.Random) -> list[int]:
    """All length registers, each found by one look-up; by which one is drawn."""
    names, found = turns.sample(READS, len(READS)), list[int]()
    for first in range(0, NUM_LENGTHS, len(names)):
        asked = dict(zip(names, range(first, NUM_LENGTHS)))
        for name, register in asked.items():
            ctx.set(dut.registers[name], register)
        found += [ctx.get(dut.lengths[name]) for name in asked]
    return found


@pytest.mark.parametrize("name", some(CONFIGS))
def test_random_fields(name: str) -> None:
    config = CONFIGS[name]
    rng, turns = random.Random(name), random.Random(1)
    print("seed", name)
    dut = Execute(config=config)
    local, cfg = new_local(config), config_vector(config)
    seen: Counter[tuple[int, str]] = Counter()
    figures: Counter[str] = Counter()

    async def step(ctx, word: int, standing: int) -> tuple[list[tuple[int, int, int]], int]:
        """Let a command stay in the first stage until it may leave; (age, body, times) of its effects, refusal."""
        effects = []
        ctx.set(dut.enter, 1)
        await ctx.tick()
        ctx.set(dut.enter, 0)
        ctx.set(dut.present, 1)
        ctx.set(dut.word, word)
        shift = 88 if word >> 3 & 31 == COp.REPEAT else 73
        register = word >> shift & 15
        age, waited = 0, 0
        while True:
            ctx.set(dut.length, length(ctx, dut, register))
            ctx.set(dut.repeat.standing, waited < standing)
            assert ctx.get(dut.control)
            assert ctx.get(dut.held) == (age < LAST)
            pause = word >> 3 & 31 == COp.REPEAT and age == LAST - 1
            assert ctx.get(dut.repeat.pause) == pause
            if ctx.get(dut.repeat.effect):
                effects.append((age, ctx.get(dut.repeat.body), ctx.get(dut.repeat.times)))
            if age == LAST:
                break
            if not pause or waited == standing:
                age += 1
            else:
                waited += 1
            await ctx.tick()
        for _ in range(rng.choice((0, 0, 1, 3))):  # no room
            await ctx.tick()
        refusal = ctx.get(dut.refusal)
        await ctx.tick()
        ctx.set(dut.present, 0)
        ctx.set(dut.word, 0)
        return effects, refusal

    async def start(ctx) -> None:
        lengths = [MAX_LENGTH, *(rng.choice((0, 1, MAX_LENGTH, rng.randrange(300), rng.getrandbits(16)))
                                 for _ in range(NUM_LENGTHS - 1))]
        await launch_registers(ctx, dut, dut.initial, lengths)
        ctx.set(dut.initial, rng.getrandbits(16))
        begin(local, np.zeros(NUM_BASES, np.int64), np.zeros(NUM_BASES, np.int64), np.array(lengths), 0)

    async def bench(ctx) -> None:
        await start(ctx)
        for _ in range(1200):
            # Where the stream stands.
            depth = rng.choice((0, 0, 0, 0, 1, 1, MAX_DEPTH - 1, MAX_DEPTH - 1, MAX_DEPTH))
            local.sequence[:] = (1000, rng.choice((0, 1, 2, 70, rng.getrandbits(24))), depth, rng.random() < 0.1)
            op: int = rng.choice([*COp, COp.SET, COp.SET, COp.SET])
            values = {COp.SET: random_set(rng, config, local), COp.PARAMS: random_params(rng, config),
                      COp.REPEAT: random_repeat(rng, local)}[op]
            header = {}
            if rng.random() < 0.04:
                field, bits = rng.choice(HEADER[2:])
                header = {field: 1 << rng.randrange(bits)}
            elif rng.random() < 0.02:
                op = rng.randrange(len(COp), 32)
            word = control_word(op, values, rng, **header)
            row = decode_table(word.to_bytes(32, "little"))[0]
            before = copy_of(local)
            fault = int(execute(row, local, cfg))
            seen[min(op, 3), FAULTS[fault]] += 1
            # What fetch says of a REPEAT.
            left, body = int(before.sequence[Sequence.LEFT]), values.get("body", 0)
            ctx.set(dut.repeat.allows, not before.sequence[Sequence.CLOSED] and depth < MAX_DEPTH
                    and 0 < body <= left - (depth > 0))
            effects, refusal = await step(ctx, word, rng.choice((0, 0, 1, 5)))
            where = f"{op} {values} {header} {before.lengths}"
            assert refusal == fault, where
            if op == COp.REPEAT and not fault:
                times = 0
                if local.sequence[Sequence.DEPTH] > depth:
                    times = int(local.loops[depth, 2])
                figures["never"] += not times
                figures["often"] += times > 1
                assert effects == [(LAST - 1, body, times)], where
            elif fault:
                assert effects == [], where
            assert lengths_of(ctx, dut, turns) == [MAX_LENGTH, *local.lengths[1:]], where
            for base in {values.get("target_reg", 0), rng.randrange(NUM_BASES)}:
                ctx.set(dut.word, base << 64)
                assert ctx.get(dut.displacement) == local.displacements[base], (base, where)
            changed = local.lengths != before.lengths
            if changed.any():
                value = int(local.lengths[changed][0])
                figures["limited"] += value in (0, MAX_LENGTH)
                figures["wrapped"] += values["modulus"] != 0
            if fault:
                assert all((a == b).all() for a, b in zip(local, before))
                await start(ctx)

    run_bench(dut, bench, cycles=40000)
    print(seen, figures)
    for op in COp:
        assert seen[op, "none"] > 40
        assert seen[op, "illegal"] > 3
    assert min(seen[op, "rows"] for op in (COp.SET, COp.PARAMS)) > 20
    assert seen[3, "illegal"] > 3
    assert min(figures.values()) > 5, figures


def test_other_commands_do_nothing_and_are_not_held() -> None:
    dut = Execute(config=CONFIGS["32 bits"])
    rng = random.Random(7)

    async def bench(ctx) -> None:
        await launch_registers(ctx, dut, dut.initial, [0] * 16)
        for _ in range(200):
            word = rng.getrandbits(256) & ~7 | rng.choice([*Unit, 6, 7])
            ctx.set(dut.word, word)
            ctx.set(dut.present, rng.randrange(2))
            ctx.set(dut.enter, rng.randrange(2))
            assert not any(ctx.get(signal) for signal in (
                dut.control, dut.held, dut.refusal, dut.repeat.pause, dut.repeat.effect))
            assert [length(ctx, dut, i) for i in range(NUM_LENGTHS)] == [MAX_LENGTH] + [0] * 15
            assert ctx.get(dut.displacement) == 0
            await ctx.tick()

    run_bench(dut, bench)
