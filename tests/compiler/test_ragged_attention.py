"""Attention over a cache of any length: one program for every context, and a batch of ragged sequences."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.quantize import to_mult_shift
from gemmule.compiler.ragged_attention import BLOCK, RaggedProgram, compile_ragged_attention, ragged_attention
from gemmule.config import Config, load_config
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator

TINY, BASE = load_config("tiny"), load_config("base")
SIZES = {"tiny": (2, 3, 8), "base": (2, 16, 32)}
"""Heads, new rows, columns of a head."""
CONTEXTS = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 3, 1000, 4095, 4096)


def scalings(heads: int, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of uniform random bytes with a deviation of two octaves."""
    score = 2 * 1024 / (74 ** 2 * head_dim ** 0.5) * np.linspace(0.5, 1.5, heads)
    return np.stack(to_mult_shift(score), axis=1), np.stack(to_mult_shift(np.full(heads, 1.5)), axis=1)


def operands(random: np.random.Generator, program: RaggedProgram) -> dict[str, np.ndarray]:
    """Random q, k, v, and a cache, by sequence."""
    count = max(1, len(program.sequences))
    return {name: random.integers(-128, 128, (count, program.heads, rows, program.head_dim)).astype(np.int8)
            for name, rows in (("q", program.rows), ("k_new", program.rows), ("v_new", program.rows),
                               ("k", program.capacity), ("v", program.capacity))}


def golden(program: RaggedProgram, inputs: dict[str, np.ndarray], sequence: int, new: int, context: int) -> np.ndarray:
    """int64 [heads, new, head_dim]."""
    cut = {name: values[sequence][:, :context if name in "kv" else new] for name, values in inputs.items()}
    return ragged_attention(**cut, **dict(zip(("score", "scale"), scalings(program.heads, program.head_dim))))


def compiled(config: Config, capacity: int, sequences: tuple[tuple[int, int], ...] = ()) -> RaggedProgram:
    heads, rows, head_dim = SIZES[config.name]
    score, scale = scalings(heads, head_dim)
    return compile_ragged_attention(config, heads, rows, head_dim, capacity, score=score, scale=scale,
                                    sequences=sequences, base_address=2048)


def case(program: RaggedProgram, inputs: dict[str, np.ndarray], new: int, context: int) -> Launch:
    return program.launch(f"context {context}", program.fill(**inputs), program.registers(new, context))


@pytest.mark.parametrize("config", [TINY, BASE], ids=lambda config: config.name)
def test_any_context_from_one_program(config: Config) -> None:
    program, random = compiled(config, 4096), np.random.default_rng(7)
    inputs, device = operands(random, program), Simulator(config, dram_bytes=1 << 22)
    for context in CONTEXTS:
        new = int(random.integers(1, program.rows + 1))
        device.load(case(program, inputs, new, context))
        assert device.run().fault == 0
        got = program.read_output(device.read_dram)[0][:, :new]
        assert np.array_equal(got, golden(program, inputs, 0, new, context)), context


def check_on_rtl(config: Config, rtl: RtlDevice, contexts: tuple[int, ...]) -> None:
    """Bytes, cycles and counters of model and RTL over contexts of one program."""
    program, random = compiled(config, max(contexts)), np.random.default_rng(8)
    inputs, model = operands(random, program), Simulator(config, dram_bytes=1 << 22)
    for i, context in enumerate(contexts):
        report = cosim(case(program, inputs, 1 + i % program.rows, context), model, rtl)
        assert report.ok, report.text
        assert report.counter_differences == 0


@pytest.mark.rtl
@pytest.mark.slow
def test_model_and_rtl() -> None:
    with RtlDevice(TINY, watchdog=1_000_000) as rtl:
        check_on_rtl(TINY, rtl, CONTEXTS)


@pytest.mark.parametrize("config", [TINY, BASE], ids=lambda config: config.name)
def test_a_ragged_batch(config: Config) -> None:
    rows = SIZES[config.name][1]
    sequences = ((1, 5), (rows, 0), (2, 700), (1, BLOCK), (rows, 2 * BLOCK + 2), (1, 0))
    program = compiled(config, 768, sequences)
    inputs, device = operands(np.random.default_rng(9), program), Simulator(config, dram_bytes=1 << 22)
    device.load(program.launch("batch", program.fill(**inputs), program.registers()))
    assert device.run().fault == 0
    got = program.read_output(device.read_dram)
    for i, (new, context) in enumerate(sequences):
        assert np.array_equal(got[i][:, :new], golden(program, inputs, i, new, context)), (i, new, context)


def test_sizes_out_of_range() -> None:
    program = compiled(TINY, 100)
    for new, context in ((0, 5), (4, 5), (1, 101), (1, -1)):
        with pytest.raises(CompileError, match="1 to 3 new rows and 0 to 100 rows of cache"):
            program.registers(new, context)
    with pytest.raises(CompileError, match="1 to 3 new rows"):
        compiled(TINY, 100, ((1, 101),))
    score, scale = scalings(1, 6)
    with pytest.raises(CompileError, match="head_dim must be a multiple of dim = 4 .* not 6 and 10"):
        compile_ragged_attention(TINY, 1, 1, 6, 10, score=score, scale=scale)
    with pytest.raises(CompileError, match="use fewer rows or a larger accumulator"):
        compile_ragged_attention(TINY, 1, 16, 4, 10, score=score, scale=scale)
    with pytest.raises(CompileError, match="510 parameter words, a word a sequence, not 511 sequences"):
        compiled(TINY, 1, ((1, 0),) * 511)
