"""The device with SET, PARAMS and REPEAT: what runs, when a launch ends, where a fault is."""

import random
from dataclasses import replace

import numpy as np
import pytest

from gemmule.control import Sequence, begin, execute, new_local, params, repeat, set_displacement, set_length, take
from gemmule.csr import Csr, length_offset
from gemmule.hw.device.top import Gemmule
from gemmule.isa import CONTROL, Command, Length, Source, Unit, decode_table, encode_program
from gemmule.resolve import FAULTS, OUT, OUT_FIELDS, TERMS, config_vector, resolve_row

from ...thinned import some
from ..bench import Simulated
from .top_bench import BASES, CONFIG, LENGTHS, LIMITS, TIMING, Bench, StandIns, random_program


@pytest.fixture(scope="module")
def device() -> Simulated:
    return Simulated(Gemmule(config=CONFIG, timing=TIMING, units=StandIns()))


def load(**values: int | Length) -> Command:
    return Command.make(Unit.LOAD, **({"bytes": 4, "rows": 1} | values))


def stream(commands: list[Command]) -> tuple[list[int], int, int, int]:
    """Units of the commands that are dispatched, fault code, index, place; by the contract."""
    table, local, cfg = decode_table(encode_program(commands)), new_local(CONFIG), config_vector(CONFIG)
    begin(local, BASES, LIMITS, LENGTHS, len(commands))
    units: list[int] = []
    index = 0
    out, terms = np.zeros(len(OUT_FIELDS), dtype=np.int64), np.zeros(TERMS, dtype=np.int64)
    while local.sequence[Sequence.LEFT]:
        place = int(local.sequence[Sequence.PLACE])
        take(local)
        if commands[place].unit == CONTROL:
            fault = int(execute(table[place], local, cfg))
        else:
            resolve_row(table[place], local.bases, local.limits, local.lengths, cfg, out, terms)
            fault = int(out[OUT["fault"]])
            units += [int(commands[place].unit)] * (not fault)
        if fault:
            return units, fault, index, place
        index += 1
    return units, 0, 0, 0


async def check(ctx, host: Bench, commands: list[Command]) -> tuple[list[int], int]:
    """Launch, and compare with the contract."""
    await host.launch(ctx, commands)
    units, fault, index, place = stream(commands)
    for u in Unit:
        assert sum(unit == u for _, unit in host.issues) == units.count(u) == len(host.finishes[u])
    assert await host.read(ctx, Csr.STATUS) == 2 | fault << 8
    assert await host.read(ctx, Csr.FAULT_INDEX) == index
    assert await host.read(ctx, Csr.FAULT_PLACE) == place
    assert await host.read(ctx, Csr.CYCLES) == host.irq_at
    return units, fault


def nested(rng: random.Random, count: int, depth: int = 0) -> list[Command]:
    """A random program of bodies."""
    commands: list[Command] = []
    while len(commands) < count:
        kind = rng.random()
        if kind < 0.15 and depth < 3:
            body = nested(rng, rng.choice((1, 2, 5, 12, 30, 34)), depth + 1)
            commands += [repeat(len(body), Length(reg=rng.randrange(3), offset=rng.randrange(2), cap=rng.randrange(4))),
                         *body]
        elif kind < 0.25:
            register, amount = rng.randrange(4), rng.randrange(-3, 4)
            commands.append(rng.choice((
                set_length(rng.randrange(1, 4), Source.LENGTH, register, amount=amount, modulus=5),
                set_length(2, Source.HALF, 1, index=rng.randrange(4)),
                params(rng.randrange(3), 2, 1 << 16, 3, 5 << 16, 0),
                set_displacement(rng.randrange(2), amount=4 * rng.randrange(20)))))
        else:
            commands += random_program(rng, 1)
    if depth and commands[-1].unit == CONTROL:
        commands.append(load())  # a REPEAT may not end a body
    return commands


@pytest.mark.parametrize(("seed", "stall", "least"), some([
    (1, 0.3, (0, 60)), (1, 0.3, (0, 60, 0, 100, 0, 60)), (0, 0.0, (0, 60, 0, 100, 0, 60))]))
def test_streams_of_several_launches(device: Simulated, seed: int, stall: float, least: tuple[int, ...]) -> None:
    rng = random.Random(seed)
    print("seed", seed)

    async def bench(ctx) -> None:
        host = Bench(device.component, rng, stall)
        await host.set_up(ctx)
        faults = []
        for commands in least:
            program = nested(rng, 20)
            while not commands <= len(stream(program)[0]) < 300:
                program = nested(rng, 20)
            _, fault = await check(ctx, host, program)
            faults.append(fault)
            for i in range(1, 16):  # a launch's registers end with it
                assert await host.read(ctx, length_offset(i)) == LENGTHS[i]
        assert 0 in faults
        print(faults)

    device.run(bench, cycles=60000)


def test_where_a_fault_is(device: Simulated) -> None:
    """In a turn of a body, of a move and of a control command; behind a body that was not wanted."""
    programs = {
        "limit": [load(), repeat(3, 5), load(base=1), set_displacement(1, Source.DISPLACEMENT, 1, amount=2048), load()],
        "rows": [repeat(2, 4), set_length(1, Source.LENGTH, 1, amount=200), set_length(2, Source.WORD, 1), load()],
        "illegal": [repeat(2, 0), load(), load(), load(), repeat(4, 1), load()],
    }

    async def bench(ctx) -> None:
        host = Bench(device.component, random.Random(1))
        await host.set_up(ctx)
        for name, program in programs.items():
            _, fault = await check(ctx, host, program)
            assert FAULTS[fault] == name
        _, fault = await check(ctx, host, [replace(load(), predicate=0)] * 3)  # and the next launch is clean
        assert fault == 0

    device.run(bench)


def test_when_a_launch_ends(device: Simulated) -> None:
    """With its last control command, or one cycle behind the last command that is dropped."""
    stay = TIMING.control

    async def bench(ctx) -> None:
        host = Bench(device.component, random.Random(2))
        await host.set_up(ctx)
        for dropped in (0, 1, 2, 9, 40):
            program = [repeat(dropped, 0), *[load()] * dropped] if dropped else [set_length(1)]
            await check(ctx, host, program)
            taken = max(host.beats[0] + 1, TIMING.registers)
            last = taken
            for i in range(1, dropped + 1):
                last = max(last + 1, taken + stay + 1, host.beats[i] + 1)
            gone = taken + stay + TIMING.resolve  # what was taken leaves resolve
            assert host.irq_at == max(last, gone) + 2

    device.run(bench)


def test_a_body_is_read_once(device: Simulated) -> None:
    """A body that the window holds comes over the bus for its first turn; a longer one for every one."""
    async def bench(ctx) -> None:
        host = Bench(device.component, random.Random(3))
        await host.set_up(ctx)
        for body, reads in ((CONFIG.fetch_queue, 1), (CONFIG.fetch_queue + 1, 3)):
            await check(ctx, host, [repeat(body, 3), *[load(rows=0)] * body])
            assert sum(beats for _, beats in host.requests) * CONFIG.bus_bytes == (1 + body * reads) * 32

    device.run(bench)
