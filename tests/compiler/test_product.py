"""Products of any shape against numpy, race-free, near the mesh's peak or the roofline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.kernels.product import ORDERS, ROWS, ProductMapping, ProductShape
from gemmule.compiler.layout import WeightFormat
from gemmule.compiler.mapping.product.formula import by_formula
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.product import INT8, compile_product
from gemmule.config import Config, load_config
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator

TWO_BANKS = Config(name="two", dim=4, bus_bytes=2, spm_kib=2, spm_banks=2, acc_kib=1, acc_banks=1, preload=4,
                   burst_bytes=32, unit_queue=4)
ONE_BANK = Config(name="one", dim=8, bus_bytes=4, spm_kib=8, spm_banks=1, acc_kib=2, acc_banks=2, preload=2)
CONFIGS = {"base": load_config("base"), "tiny": load_config("tiny"), "two": TWO_BANKS, "one": ONE_BANK}
INT4 = WeightFormat(4)


def _check(config: Config, m: int, k: int, n: int, weights: WeightFormat = INT8, dataflow: str = "ws",
           mapping: ProductMapping | None = None) -> Result:
    random = np.random.default_rng(m * 10007 + k * 101 + n)
    program = compile_product(config, m, k, n, base_address=1024, weights=weights, dataflow=dataflow, mapping=mapping)
    a = random.integers(-128, 128, (m, k)).astype(np.int8)
    half = 1 << weights.bits - 1
    b = random.integers(-half, half, (k, n)).astype(np.int8)
    scales, exact_b = None, b.astype(np.int64)
    if weights.group:
        scales = random.integers(1, 16, (-(-k // weights.group), n)).astype(np.uint8)
        for row in range(k):
            exact_b[row] *= scales[row // weights.group]
    mult, shift = random.integers(1 << 15, 1 << 16, n), random.integers(18, 27, n)
    simulator = Simulator(config, dram_bytes=program.base_address + program.size)
    simulator.load(program.launch("product", program.fill(a, b, mult, shift, scales), program.registers()))
    result = simulator.run()
    assert result.fault == 0
    exact = a.astype(np.int64) @ exact_b * mult
    wanted = np.clip((exact + (1 << shift >> 1)) >> shift, -128, 127)
    assert np.array_equal(program.read_output(simulator.memory.read), wanted)
    assert program.dram_bytes >= program.roofline_bytes
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


@pytest.mark.parametrize("kept", ["", "a", "b", "ab"])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_and_what_is_kept(order: str, kept: str) -> None:
    """Every loop order and residency gives the same results; what is kept is loaded less often."""
    mapping = ProductMapping(m=7, n=2, k=3, order=order, kept=kept, a_slots=4, b_slots=3, ahead=4, panel=4, stage=4)
    moved = []
    for across in (False, True):
        choice = replace(mapping, across=across)
        _check(CONFIGS["tiny"], 20, 22, 64, mapping=choice)
        moved.append(compile_product(CONFIGS["tiny"], 20, 22, 64, mapping=choice).dram_bytes)
    streamed = compile_product(CONFIGS["tiny"], 20, 22, 64, mapping=replace(mapping, kept="")).dram_bytes
    outer = "a" if order == ROWS else "b"
    assert (moved[0] < streamed) == (outer in kept)
    assert moved[1] <= moved[0]


@pytest.mark.parametrize("name", ["base", "tiny", "two", "one"])
def test_modes(name: str) -> None:
    config, random = CONFIGS[name], np.random.default_rng(43)
    dim = config.dim
    for m, k, n in np.exp(random.uniform(0, np.log(8 * dim), (4, 3))).astype(int).tolist():
        for group in (0, dim, 4 * dim):
            _check(config, m, k, n, WeightFormat(4, group))
        if config.spm_banks > 1:
            _check(config, m, k, n, dataflow="os")
        else:
            _check(config, m, k, n)


def test_depth_of_grouped_weights_is_cut_at_groups() -> None:
    weights = WeightFormat(4, 16)
    program = compile_product(CONFIGS["tiny"], 20, 900, 20, weights=weights)
    assert program.mapping.k * 4 < 900
    assert program.mapping.k % 4 == 0
    _check(CONFIGS["tiny"], 20, 900, 20, weights)


def test_depth_is_split_when_it_does_not_fit() -> None:
    program = compile_product(CONFIGS["tiny"], 20, 900, 20)
    assert program.mapping.k * 4 < 900
    _check(CONFIGS["tiny"], 20, 900, 20)


@pytest.mark.parametrize(("size", "weights", "dataflow", "utilization", "roofline"), [
    ((512, 768, 768), INT8, "ws", 0.99, 0.0), ((128, 768, 768), INT8, "ws", 0.97, 0.0),
    ((512, 768, 768), INT8, "os", 0.98, 0.0), ((512, 768, 768), INT4, "ws", 0.99, 0.0),
    ((1, 768, 3072), INT8, "ws", 0.0, 0.97), ((8, 2048, 2048), INT8, "ws", 0.0, 0.97),
    ((1, 768, 3072), INT4, "ws", 0.0, 0.94), ((1, 768, 3072), WeightFormat(4, 64), "ws", 0.0, 0.93),
])
def test_speed_on_base(size: tuple[int, int, int], weights: WeightFormat, dataflow: str, utilization: float,
                       roofline: float) -> None:
    config = CONFIGS["base"]
    program = compile_product(config, *size, weights=weights, dataflow=dataflow)
    simulator = Simulator(config)
    simulator.load(program.launch("product", NO_DRAM, program.registers()))
    cycles = simulator.run(timing_only=True).cycles
    share = 1 - config.dram.refresh_share
    assert program.utilization(cycles) >= utilization
    assert program.roofline_bytes / config.bus_bytes / share / cycles >= roofline
    assert abs(program.estimate / cycles - 1) < 0.05


def _timed(config: Config, size: tuple[int, int, int], mapping: ProductMapping) -> int:
    program = compile_product(config, *size, mapping=mapping)
    simulator = Simulator(config, dram_bytes=1)
    simulator.load(program.launch("product", NO_DRAM, program.registers()))
    return simulator.run(timing_only=True).cycles


@pytest.mark.parametrize(("name", "beat", "size", "most"), [
    ("tiny", 4, (40, 64, 64), 0.7), ("tiny", 8, (64, 48, 96), 0.75), ("base", 8, (256, 256, 256), 0.8),
    ("tiny", 2, (20, 33, 17), 0.85),
])
def test_slow_dram_takes_tiles_that_move_less(name: str, beat: int, size: tuple[int, int, int], most: float) -> None:
    """Other tiles than with a beat a cycle, faster on the device, and an estimate that follows the simulator better."""
    fast = load_config(name)
    slow = Config(**(fast.model_dump() | {"name": "slow", "dram": fast.dram.model_dump() | {"beat_cycles": beat}}))
    shape = ProductShape(m=size[0], k=size[1], n=size[2])
    found, blind = (by_formula(config, shape, "ws") for config in (slow, fast))
    assert found.mapping != blind.mapping
    cycles, before = (_timed(slow, size, choice.mapping) for choice in (found, blind))
    assert cycles <= most * before
    assert abs(found.cycles / cycles - 1) < 0.25 < abs(blind.cycles / before - 1)


def test_errors() -> None:
    for size, message in (
        ((0, 1, 1), "M must be"), ((1, 1, -3), "N must be"), ((1, 140000, 1), "K must stay below"),
    ):
        with pytest.raises(CompileError, match=message):
            compile_product(CONFIGS["base"], *size)
    for options, message in (
        ({"dataflow": "rs"}, "dataflow must be one of ws, os"),
        ({"dataflow": "os", "weights": INT4}, "output-stationary dataflow takes int8"),
        ({"weights": WeightFormat(3)}, "4 or 8 bits, not 3"),
        ({"weights": WeightFormat(4, 24)}, "times a power of two of int4 weights, not 24:"),
        ({"weights": WeightFormat(8, 16)}, "groups of scales are of int4 weights, not of int8"),
    ):
        with pytest.raises(CompileError, match=message):
            compile_product(CONFIGS["base"], 16, 64, 16, **options)
    plain = load_config("examples/configs/unusual/plain.yaml")
    with pytest.raises(CompileError, match="needs a device with output_stationary, not plain: use ws"):
        compile_product(plain, 16, 64, 16, dataflow="os")
    with pytest.raises(CompileError, match="int4 weights need a device with int4, not plain: use int8"):
        compile_product(plain, 16, 64, 16, weights=INT4)
    with pytest.raises(CompileError, match="two scratchpad banks or more"):
        compile_product(ONE_BANK, 16, 64, 16, dataflow="os")
    with pytest.raises(CompileError, match="base_address must be a multiple"):
        compile_product(CONFIGS["base"], 1, 1, 1, base_address=8)
    with pytest.raises(CompileError, match="raise address_bits"):
        compile_product(Config(**(TWO_BANKS.model_dump() | {"address_bits": 16})), 4, 4, 4, base_address=1 << 16)
    program = compile_product(CONFIGS["base"], 2, 2, 2)
    with pytest.raises(CompileError, match="scales must be left out"):
        program.fill(*(np.zeros(s, np.int8) for s in ((2, 2), (2, 2), 2, 2)), np.ones((1, 2), np.uint8))
    with pytest.raises(CompileError, match="must have shape"):
        program.fill(np.zeros((2, 3), np.int8), np.zeros((2, 2), np.int8), np.ones(2), np.ones(2))
