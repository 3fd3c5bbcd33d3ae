"""Single commands through the resolve stage, written shortly."""

from amaranth.hdl import Module
from amaranth.lib.wiring import Component

from gemmule.config import Config, load_config
from gemmule.hw.command.extents import Extents
from gemmule.hw.command.resolve import Resolve
from gemmule.isa import NUM_LENGTHS, Command, SOp, Unit, VOp, encode
from gemmule.resolve import FAULTS

from ..bench import run_bench

TINY = load_config("tiny").model_copy(update={"select_keys": 128, "list_entries": 256})
"""DIM 4, 4 scratchpad banks of 256 rows, 4 accumulator banks of 64 rows."""
ONE_BANK = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=1, acc_kib=4, acc_banks=1, preload=4, stat_rows=16,
                  select_keys=128, list_entries=256)
SPM, ACC = 1024, 256
KEYS, ENTRIES = 128, 256
FAR = {"a_row": 0, "b_row": 512, "a_stride": 8, "b_stride": 8, "c_stride": 8}


class Whole(Component):
    """Both stages of resolve in one cycle; the outputs are those of ``resolve``."""

    def __init__(self, config: Config) -> None:
        self.extents, self.resolve = Extents(), Resolve(config=config)
        super().__init__({})
        self.word, self.lengths, self.base_index = self.extents.word, self.extents.lengths, self.extents.base_index
        self.base, self.limit = self.resolve.base, self.resolve.limit
        for name in ("fault", "unit", "zero", "waits", "predicate", "move", "matrix", "vector", "select", "claims"):
            setattr(self, name, getattr(self.resolve, name))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.extents, m.submodules.resolve = self.extents, self.resolve
        m.d.comb += [self.resolve.word.eq(self.word), self.resolve.extents.eq(self.extents.result)]
        return m


def fault_of(commands: list[tuple[Command, str]], config: Config, *, limit: int = 4096, base: int = 0,
             lengths: list[int] | None = None) -> None:
    """Asserts the fault of every command."""
    dut = Whole(config)

    async def bench(ctx):
        ctx.set(dut.lengths, lengths or [65535] * NUM_LENGTHS)
        ctx.set(dut.base, base)
        ctx.set(dut.limit, limit)
        for command, fault in commands:
            ctx.set(dut.word, encode(command))
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
