"""Single commands through the resolve stage, written shortly."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from gemmule.config import Config, load_config
from gemmule.hw.command.resolve import Resolve
from gemmule.isa import MAX_LENGTH, NUM_BASES, NUM_LENGTHS, Command, SOp, Unit, VOp, encode
from gemmule.resolve import FAULTS
from gemmule.timing import Timing

from ..bench import run_bench
from .registers import launch_registers

TINY = load_config("tiny").model_copy(update={"select_keys": 128, "list_entries": 256})
"""DIM 4, 4 scratchpad banks of 256 rows, 4 accumulator banks of 64 rows."""
ONE_BANK = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=1, acc_kib=4, acc_banks=1, preload=4, stat_rows=16,
                  select_keys=128, list_entries=256)
SPM, ACC = 1024, 256
KEYS, ENTRIES = 128, 256
FAR = {"a_row": 0, "b_row": 512, "a_stride": 8, "b_stride": 8, "c_stride": 8}


async def resolved(
    ctx: Any, dut: Resolve, words: Sequence[int], *, lengths: Sequence[int] = (MAX_LENGTH,) * NUM_LENGTHS,
    bases: Sequence[int] = (0,) * NUM_BASES, limits: Sequence[int] = (0,) * NUM_BASES,
) -> AsyncIterator[int]:
    """Index of each word, one a cycle, while the outputs tell of it."""
    stages = Timing.of(dut.config).resolve
    await launch_registers(ctx, dut, dut.length, lengths)
    ctx.set(dut.leave, 1)
    for t in range(len(words) + stages):
        ctx.set(dut.valid, t < len(words))
        ctx.set(dut.word, words[t] if t < len(words) else 0)
        ctx.set(dut.base, bases[ctx.get(dut.base_index)])
        ctx.set(dut.limit, limits[ctx.get(dut.base_index)])
        assert ctx.get(dut.take) == (t < len(words))
        assert ctx.get(dut.full) == (t >= stages), t
        if t >= stages:
            unit, clean = ctx.get(dut.unit), ctx.get(dut.fault) == 0
            assert ctx.get(dut.goes) == clean << min(unit, len(Unit)), t  # control commands: the last bit
            yield t - stages
        await ctx.tick()


def fault_of(commands: list[tuple[Command, str]], config: Config, *, limit: int = 4096, base: int = 0,
             lengths: list[int] | None = None) -> None:
    """Asserts the fault of every command."""
    dut = Resolve(config=config)

    async def bench(ctx):
        async for i in resolved(ctx, dut, [encode(command) for command, _ in commands],
                                lengths=lengths or [MAX_LENGTH] * NUM_LENGTHS, bases=[base] * NUM_BASES,
                                limits=[limit] * NUM_BASES):
            command, fault = commands[i]
            assert FAULTS[ctx.get(dut.fault)] == fault, command

    run_bench(dut, bench)


def move(unit: Unit = Unit.LOAD, *flags: int, **fields: int) -> Command:
    return Command.make(unit, flags=flags, **({"rows": 3, "bytes": 8, "row_stride": 10, "block_stride": 100} | fields))


def matrix(*flags: int, **fields: int) -> Command:
    return Command.make(Unit.MATRIX, flags=flags, **({"m": 6, "n": 7, "k": 11} | FAR | fields))


def vector(op: VOp, *flags: int, **fields: int) -> Command:
    values = {"m": 5, "n": 7, "src0": 0, "src0_stride": 21, "src1": 0, "dst": 0, "dst_stride": 31, "aux": 0}
    return Command.make(Unit.VECTOR, op=op, flags=flags, **(values | fields))


def select(op: SOp, *flags: int, **fields: int) -> Command:
    """5 rows of 11 columns (3 groups of 4), 21 apart."""
    values = {"m": 5, "n": 11, "k": 3, "src0": 0, "src0_stride": 21, "dst": 0, "first": 0, "number": 1}
    return Command.make(Unit.SELECT, op=op, flags=flags, **(values | fields))
