"""Small programs for launches that are worked out by hand."""

from __future__ import annotations

from gemmule.config import Config, load_config
from gemmule.isa import Command, Unit, encode_program
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.timing import Timing

TINY = load_config("tiny")  # DIM 4, bus 4, bursts of 64 bytes = 16 beats = 2 commands
# written out, so that the numbers below do not move when the RTL's latencies do
TIMING = Timing(
    fetch_start=1, registers=1, resolve=1, done=2, unit_start=0, unit_report=0, load_first=1, load_write=1,
    load_zero=2, load_fill=2,
    store_first=1, store_send=2, store_zero=2, matrix_first=1, matrix_zero=2, matrix_rmw=2, matrix_commands=8,
    store_commands=8, matrix_drain=8, vector_first=1, vector_write=9, vector_stat=12, vector_zero=2, vector_mean=4,
    vector_rescale=5, norm_serial=36, softmax_serial=19, select_first=1, select_write=4, select_pack=5, select_result=8,
    select_zero=2, index_cycles=3)


def model_of(program: list[Command], timing: Timing = TIMING, config: Config = TINY) -> Simulator:
    model = Simulator(config, timing)
    model.limits[:] = 1 << 20
    model.load_program(encode_program(program), 0)
    return model


def timed(*program: Command, config: Config = TINY) -> Result:
    return model_of(list(program), config=config).run(timing_only=True)


def matrix(a: int, b: int, n: int, **waits: dict) -> Command:
    return Command.make(
        Unit.MATRIX, a_row=a, a_stride=4, b_row=b, b_stride=4, c_row=0, c_stride=4, m=4, n=n, k=4, **waits)


def load(offset: int, size: int, rows: int, *flags: int, stride: int = 0) -> Command:
    return Command.make(Unit.LOAD, flags=flags, offset=offset, bytes=size, rows=rows, stride=stride,
                        row=0, row_stride=32, block_stride=1)
