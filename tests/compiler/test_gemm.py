"""Products of any shape against numpy, race-free, near the mesh's peak or the roofline."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.gemm import compile_gemm
from gemmule.config import Config, load_config
from gemmule.sim.result import Result
from gemmule.sim.run import Model
from gemmule.sim.verify import verify

TWO_BANKS = Config(name="two", dim=4, bus_bytes=2, spm_kib=2, spm_banks=2, acc_kib=1, acc_banks=1, preload=4,
                   burst_bytes=32, unit_queue=4)
CONFIGS = {"base": load_config("base"), "tiny": load_config("tiny"), "two": TWO_BANKS}


def _check(config: Config, m: int, k: int, n: int) -> Result:
    random = np.random.default_rng(m * 10007 + k * 101 + n)
    program = compile_gemm(config, m, k, n, base_address=1024)
    a, b = (random.integers(-128, 128, size).astype(np.int8) for size in ((m, k), (k, n)))
    mult, shift = random.integers(1 << 15, 1 << 16, n), random.integers(18, 27, n)
    model = Model(config, dram_bytes=program.base_address + program.size)
    model.memory.write(program.base_address, program.fill(a, b, mult, shift))
    model.load_program(program.image, program.program_address)
    registers = program.registers()
    verify(program.commands, config, *registers)
    model.bases[:], model.limits[:], model.lengths[:] = registers
    result = model.run()
    assert result.fault == 0
    exact = a.astype(np.int64) @ b.astype(np.int64) * mult
    wanted = np.clip((exact + (1 << shift >> 1)) >> shift, -128, 127)
    assert np.array_equal(program.read_output(model.memory.read), wanted)
    assert sum(result.dram_bytes.values()) == program.dram_bytes >= program.roofline_bytes
    return result


@pytest.mark.parametrize(("m", "k", "n"), [
    (1, 1, 1), (16, 16, 16), (17, 33, 65), (300, 5, 7), (5, 700, 3), (33, 1000, 40), (3, 3, 3000),
    (1, 256, 512), (2, 40, 9000),
])
def test_base(m: int, k: int, n: int) -> None:
    _check(CONFIGS["base"], m, k, n)


@pytest.mark.parametrize("name", ["tiny", "two"])
def test_random_shapes(name: str) -> None:
    random = np.random.default_rng(41)
    for size in [(1, 1, 1), *np.exp(random.uniform(0, np.log(90), (12, 3))).astype(int).tolist()]:
        _check(CONFIGS[name], *size)


def test_depth_is_split_when_it_does_not_fit() -> None:
    program = compile_gemm(CONFIGS["tiny"], 20, 900, 20)
    assert program.plan.k * 4 < 900
    _check(CONFIGS["tiny"], 20, 900, 20)


@pytest.mark.parametrize(("size", "utilization", "roofline"), [
    ((512, 768, 768), 0.99, 0.0), ((128, 768, 768), 0.97, 0.0),
    ((1, 768, 3072), 0.0, 0.97), ((8, 2048, 2048), 0.0, 0.97),
])
def test_speed_on_base(size: tuple[int, int, int], utilization: float, roofline: float) -> None:
    config = CONFIGS["base"]
    program = compile_gemm(config, *size)
    model = Model(config)
    model.load_program(program.image, program.program_address)
    model.bases[:], model.limits[:], model.lengths[:] = program.registers()
    cycles = model.run(timing_only=True).cycles
    share = 1 - config.dram.refresh_cycles / config.dram.refresh_period
    assert program.utilization(cycles) >= utilization
    assert program.roofline_bytes / config.bus_bytes / share / cycles >= roofline
    assert abs(program.plan.cycles / cycles - 1) < 0.05


def test_errors() -> None:
    for size, message in (
        ((0, 1, 1), "M must be"), ((1, 1, -3), "N must be"), ((1, 140000, 1), "K must stay below"),
    ):
        with pytest.raises(CompileError, match=message):
            compile_gemm(CONFIGS["base"], *size)
    with pytest.raises(CompileError, match="base_address must be a multiple"):
        compile_gemm(CONFIGS["base"], 1, 1, 1, base_address=8)
    with pytest.raises(CompileError, match="raise address_bits"):
        compile_gemm(Config(**(TWO_BANKS.model_dump() | {"address_bits": 16})), 4, 4, 4, base_address=1 << 16)
    program = compile_gemm(CONFIGS["base"], 2, 2, 2)
    with pytest.raises(CompileError, match="must have shape"):
        program.fill(np.zeros((2, 3), np.int8), np.zeros((2, 2), np.int8), np.ones(2), np.ones(2))
