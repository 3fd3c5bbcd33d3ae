"""Dispatch: cycles of resolve and queues, wait targets, faults; resolved by the model."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gemmule.config import Config
from gemmule.hw.command.dispatch import Dispatch
from gemmule.isa import Command, Length, MatrixFlag, MoveFlag, SOp, Unit, VOp, decode_table, encode_program
from gemmule.resolve import FAULTS, OUT, STREAM_UNIT, resolve
from gemmule.timing import Timing

from ..bench import run_bench
from .registers import launch_registers

CONFIG = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=4, acc_banks=2, unit_queue=5)
LENGTHS = np.array([65535, 3, 0, 7, *range(12)])
BASES = np.arange(32) * 4096
LIMITS = np.full(32, 4096)
UNITS = ("load", "store", "matrix", "vector", "select")
STAGES = Timing.of(CONFIG).resolve


def random_command(rng: random.Random) -> Command:
    unit = rng.choice([*Unit, Unit.MATRIX, Unit.MATRIX])
    waits = {u: rng.choice((1, 1, 2, 5, 63)) for u in Unit if rng.random() < 0.4}
    size = Length(cap=rng.randrange(1, 9), reg=rng.choice((0, 0, 1, 2, 3)))
    if unit <= Unit.STORE:
        flags = rng.choice(((), (), (MoveFlag.ZERO,), (MoveFlag.BROADCAST,))) if unit is Unit.LOAD else ()
        return Command.make(unit, waits=waits, flags=flags, base=rng.randrange(32), offset=4 * rng.randrange(64),
                            stride=4 * rng.randrange(8), bytes=rng.randrange(12), row=rng.randrange(512),
                            row_stride=1, block_stride=9, rows=size)
    if unit is Unit.MATRIX:
        flags = (MatrixFlag.OUTPUT_STATIONARY,) if rng.random() < 0.7 else ()
        return Command.make(unit, waits=waits, flags=flags, a_row=rng.randrange(512), a_stride=8,
                            b_row=rng.randrange(1024), b_stride=8, c_row=rng.randrange(128),
                            c_stride=8, m=size, n=5, k=6)
    if unit is Unit.SELECT:
        op = rng.choice((SOp.ARGMAX, SOp.KEYS, SOp.TOP_K, SOp.LIST_STORE))
        return Command.make(unit, op=op, waits=waits, src0=rng.randrange(1024), src0_stride=8, m=size, n=7, k=size,
                            dst=rng.randrange(1024), first=rng.randrange(1024))
    return Command.make(unit, op=VOp.REQUANT, waits=waits, src0=rng.randrange(128), src0_stride=8,
                        dst=rng.randrange(512), dst_stride=8, m=size, n=7)


def program(rng: random.Random, count: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Image, decoded table, and what it resolves to; none of the commands faults, half of them have a predicate."""
    commands: list[Command] = []
    while len(commands) < count:
        command = random_command(rng)
        row = resolve(decode_table(encode_program([command])), BASES, LIMITS, LENGTHS, CONFIG)[0]
        if row[OUT["fault"]] == 0:
            commands.append(replace(command, predicate=rng.choice((0, rng.randrange(1, 4)))))
    image = encode_program(commands)
    table = decode_table(image)
    return image, table, resolve(table, BASES, LIMITS, LENGTHS, CONFIG)


def words_of(image: bytes) -> list[int]:
    return [int.from_bytes(image[i:i + 32], "little") for i in range(0, len(image), 32)]


def registers(ctx, dut: Dispatch) -> None:
    ctx.set(dut.base, int(BASES[ctx.get(dut.base_index)]))
    ctx.set(dut.limit, int(LIMITS[ctx.get(dut.base_index)]))


async def launch(ctx, dut: Dispatch) -> None:
    """Length registers are the host's at the start strobe."""
    await launch_registers(ctx, dut, dut.length, LENGTHS.tolist())
    ctx.set(dut.length, 0)


@pytest.mark.parametrize(("seed", "feed", "drain"), [(0, 0.5, 0.5), (1, 1.0, 0.2), (2, 1.0, 1.0)])
def test_random(seed: int, feed: float, drain: float) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    image, table, resolved = program(rng, 300)
    words = words_of(image)
    dut = Dispatch(config=CONFIG)

    async def bench(ctx):
        await launch(ctx, dut)
        taken = 0
        inside: list[tuple[int, int]] = []  # commands in resolve, with the first cycle in which each may leave
        queues: list[list[tuple[int, bool]]] = [[] for _ in UNITS]
        dispatched = [0] * 5
        full = 0
        stationary = False  # dataflow of the last matrix command of non-zero length pushed
        doubtful = False  # the last matrix command pushed has a predicate
        kinds = {"zero": 0, "load": 0, "change": 0, "doubtful": 0, "plain": 0}
        for t in range(3000):
            registers(ctx, dut)
            assert list(ctx.get(dut.dispatched)) == dispatched, t
            assert ctx.get(dut.total) == sum(dispatched)
            assert ctx.get(dut.fault) == 0
            pop = 0
            for u, queue in enumerate(queues):
                assert (ctx.get(dut.valid) >> u & 1) == bool(queue), (t, u)
                if not queue:
                    continue
                index, alone = queue[0]
                assert (ctx.get(dut.alone) >> u & 1) == alone, (t, index)
                row = resolved[index]
                assert (ctx.get(dut.zero) >> u & 1) == row[OUT["zero"]], index
                assert ctx.get(dut.predicate[u]) == words[index] >> 62 & 3
                first = STREAM_UNIT.index(u)
                for s in range(STREAM_UNIT.count(u)):
                    assert ctx.get(dut.claims[first + s]) == row[OUT[f"claim{s}"]], index
                head = getattr(dut, UNITS[u])
                row0 = head.a_row if u == 2 else head.src0 if u > 2 else head.row
                assert ctx.get(row0) == row[OUT["row0"]]
                if rng.random() < drain:
                    pop |= 1 << u
            valid = taken < len(words) and rng.random() < feed
            ctx.set(dut.command_valid, valid)
            ctx.set(dut.command, words[taken] if valid else rng.getrandbits(256))
            ctx.set(dut.pop, pop)
            for u, queue in enumerate(queues):
                for s in range(STREAM_UNIT.count(u)) if len(queue) > 1 else ():
                    told = ctx.get(dut.following_claims[STREAM_UNIT.index(u) + s])
                    assert told == resolved[queue[1][0]][OUT[f"claim{s}"]], t
            # Decisions of this cycle, from registered state only.
            head = inside[0][0] if inside and inside[0][1] <= t else None
            unit = None if head is None else int(resolved[head][OUT["unit"]])
            push = unit is not None and len(queues[unit]) < CONFIG.unit_queue
            full += unit is not None and not push
            take = valid and len(inside) <= STAGES  # the last stage is a queue of two
            assert ctx.get(dut.command_take) == take, t
            assert ctx.get(dut.push) == push, t
            for u in range(5):
                if pop >> u & 1:
                    queues[u].pop(0)
            if push:
                assert list(ctx.get(dut.distances)) == table[head][2:7].tolist(), (t, head)
                assert ctx.get(dut.unit) == unit, t
                for s in range(STREAM_UNIT.count(unit)) if not queues[unit] else ():
                    told = ctx.get(dut.following_claims[STREAM_UNIT.index(unit) + s])
                    assert told == resolved[head][OUT[f"claim{s}"]], t
                row, flags = resolved[head], int(resolved[head][OUT["flags"]])
                kind = "plain"
                if row[OUT["zero"]]:
                    kind = "zero"
                elif unit == Unit.LOAD and flags & (1 << MoveFlag.ZERO | 1 << MoveFlag.BROADCAST):
                    kind = "load"
                elif unit == Unit.MATRIX and (flags >> MatrixFlag.OUTPUT_STATIONARY & 1) != stationary:
                    kind, stationary = "change", not stationary
                elif unit == Unit.MATRIX and doubtful:
                    kind = "doubtful"
                if unit == Unit.MATRIX:
                    doubtful = words[head] >> 62 & 3 != 0
                kinds[kind] += 1
                queues[unit].append((head, kind != "plain"))
                dispatched[unit] += 1
                inside.pop(0)
            if take:
                inside.append((taken, t + STAGES))
                taken += 1
            await ctx.tick()
            if taken == len(words) and not any(queues) and not inside:
                break
        assert sum(dispatched) == len(words)
        assert min(kinds.values()) > 3, kinds
        if seed == 1:
            assert full > 50  # queues were full

    run_bench(dut, bench)


@pytest.mark.parametrize(("code", "command"), [
    ("illegal", Command.make(Unit.SELECT, op=SOp.COMPARE, m=1, n=1)),
    ("rows", Command.make(Unit.LOAD, bytes=4, row=1024, rows=1)),
    ("limit", Command.make(Unit.STORE, bytes=8, offset=4092, rows=1)),
    ("align", Command.make(Unit.LOAD, flags=(MoveFlag.ACCUMULATOR,), bytes=6, rows=1)),
])
def test_fault_blocks_until_clear(code: str, command: Command) -> None:
    dut = Dispatch(config=CONFIG)
    good = Command.make(Unit.LOAD, bytes=4, rows=1)
    words = words_of(encode_program([good, command, good]))

    async def bench(ctx):
        await launch(ctx, dut)
        for _ in range(2):
            for word in words[:2]:
                ctx.set(dut.command, word)
                ctx.set(dut.command_valid, 1)
                registers(ctx, dut)
                assert ctx.get(dut.command_take)
                await ctx.tick()
            ctx.set(dut.command, words[2])
            for t in range(2, STAGES + 6):  # the first command was taken in cycle 0
                registers(ctx, dut)
                assert ctx.get(dut.fault) == (FAULTS.index(code) if t > STAGES else 0), t
                assert ctx.get(dut.command_take) == (t <= STAGES + 1), t
                assert ctx.get(dut.total) == (t > STAGES)
                await ctx.tick()
            ctx.set(dut.command_valid, 0)
            await launch(ctx, dut)
            assert (ctx.get(dut.fault), ctx.get(dut.valid), ctx.get(dut.total)) == (0, 0, 0)

    run_bench(dut, bench)


def test_stop_holds_commands_back() -> None:
    dut = Dispatch(config=CONFIG)
    word = words_of(encode_program([Command.make(Unit.LOAD, bytes=4, rows=1)]))[0]

    async def bench(ctx):
        await launch(ctx, dut)
        ctx.set(dut.command, word)
        ctx.set(dut.command_valid, 1)
        ctx.set(dut.stop, 1)
        registers(ctx, dut)
        for t in range(STAGES + 3):
            registers(ctx, dut)
            assert (ctx.get(dut.valid), ctx.get(dut.command_take)) == (0, t <= STAGES)
            await ctx.tick()
        ctx.set(dut.stop, 0)
        await ctx.tick()
        assert ctx.get(dut.valid) == 1

    run_bench(dut, bench)


def test_clear_forgets_the_dataflow() -> None:
    """An output-stationary command runs alone at the start of every launch; one of length zero changes nothing."""
    dut = Dispatch(config=CONFIG)
    sizes = {"b_row": 512, "m": 1, "n": 1, "k": 1}
    still = Command.make(Unit.MATRIX, flags=(MatrixFlag.OUTPUT_STATIONARY,), **sizes)
    nothing = Command.make(Unit.MATRIX, **(sizes | {"m": 0}))
    words = words_of(encode_program([still, nothing, still]))

    async def bench(ctx):
        await launch(ctx, dut)
        for _ in range(2):
            seen = []
            for t in range(STAGES + 7):
                ctx.set(dut.command_valid, t < 3)
                ctx.set(dut.command, words[min(t, 2)])
                registers(ctx, dut)
                assert ctx.get(dut.fault) == 0
                ctx.set(dut.pop, ctx.get(dut.valid))
                if ctx.get(dut.valid):
                    seen.append((ctx.get(dut.zero) >> 2 & 1, ctx.get(dut.alone) >> 2 & 1))
                await ctx.tick()
            assert seen == [(0, 1), (1, 1), (0, 0)]
            await launch(ctx, dut)

    run_bench(dut, bench)


def test_behind_a_predicate_alone() -> None:
    """A matrix command after one with a predicate runs alone, of whatever length that one is; the next need not."""
    dut = Dispatch(config=CONFIG)
    sizes = {"b_row": 512, "m": 1, "n": 1, "k": 1}
    plain, nothing = words_of(encode_program([
        Command.make(Unit.MATRIX, **sizes), Command.make(Unit.MATRIX, **(sizes | {"m": 0}))]))
    vector = words_of(encode_program([Command.make(Unit.VECTOR, op=VOp.REQUANT, m=1, n=1)]))[0]
    predicate = 3 << 62
    words = [plain, plain | predicate, vector | predicate, plain | 1 << 62, plain, plain, nothing | predicate, plain,
             plain]

    async def bench(ctx):
        await launch(ctx, dut)
        seen = []
        for t in range(len(words) + STAGES + 3):
            ctx.set(dut.command_valid, t < len(words))
            ctx.set(dut.command, words[min(t, len(words) - 1)])
            registers(ctx, dut)
            assert ctx.get(dut.fault) == 0
            valid = ctx.get(dut.valid)
            ctx.set(dut.pop, valid)
            if valid:
                alone = int(ctx.get(dut.alone) & valid != 0)
                seen.append((valid, ctx.get(dut.predicate[valid.bit_length() - 1]), alone))
            await ctx.tick()
        assert seen == [(4, 0, 0), (4, 3, 0), (8, 3, 0), (4, 1, 1), (4, 0, 1), (4, 0, 0), (4, 3, 1), (4, 0, 1),
                        (4, 0, 0)]
        # the next launch knows nothing of a predicate in the last one
        ctx.set(dut.pop, 0)
        await launch(ctx, dut)
        for word in (plain | predicate, *[None] * (STAGES + 1), plain, *[None] * (STAGES + 1)):
            ctx.set(dut.command_valid, word is not None)
            ctx.set(dut.command, word or 0)
            await ctx.tick()
            if word is None and ctx.get(dut.valid) and ctx.get(dut.predicate[2]) != 0:
                await launch(ctx, dut)
        assert (ctx.get(dut.valid), ctx.get(dut.alone) & 4) == (4, 0)

    run_bench(dut, bench)
