"""Greedy tokens in one launch: those of single launches, the same cache, in no more cycles than all of these."""

from __future__ import annotations

import numpy as np
import pytest

from gemmule.compiler import compile_decoder
from gemmule.compiler.decoder_program import DecoderProgram
from gemmule.compiler.errors import CompileError
from gemmule.compiler.greedy_loop import GreedyLoop, compile_greedy_loop
from gemmule.config import Config, load_config
from gemmule.sim.launch import Launch
from gemmule.sim.simulator import Simulator
from gemmule.sw.text import bundled_model

BASE, EDGE = load_config("base"), load_config("edge")


def one_by_one(program: DecoderProgram, cache: np.ndarray, token: int, position: int,
               steps: int) -> tuple[list[int], np.ndarray, int]:
    """Tokens, cache and cycles of a launch a token."""
    device, dram, tokens, cycles = Simulator(program.config, dram_bytes=program.size), program.dram.copy(), [token], 0
    program.put(dram, "kv", cache)
    for i in range(steps):
        registers = program.registers(tokens[-1:], position + i)
        if i == 0:
            device.load(program.launch("first", dram, registers))
        device.bases[:], device.limits[:], device.lengths[:] = registers
        cycles += device.run().cycles
        tokens += program.read_tokens(device.read_dram, 1)
    return tokens[1:], program.read(device.read_dram, "kv").copy(), cycles


def looped(program: GreedyLoop, cache: np.ndarray, token: int, position: int, steps: int) -> Launch:
    dram = program.dram.copy()
    program.put(dram, "kv", cache)
    return program.launch("loop", dram, program.registers([token], position, steps=steps))


@pytest.mark.parametrize("config", [BASE, EDGE], ids=lambda config: config.name)
def test_eight_steps_of_the_bundled_draft(config: Config) -> None:
    model = bundled_model("draft")
    single, loop = compile_decoder(model, config, tokens=True, max_rows=1), compile_greedy_loop(model, config)
    random, device = np.random.default_rng(3), Simulator(config, dram_bytes=loop.size)
    for position in (0, 37, loop.max_positions - 8):
        cache = random.integers(0, 256, single.symbols["kv"][1], dtype=np.uint8)
        token = int(random.integers(loop.shape.vocab))
        tokens, after, cycles = one_by_one(single, cache, token, position, 8)
        device.load(looped(loop, cache, token, position, 8))
        result = device.run()
        assert result.fault == 0
        assert loop.read_tokens(device.read_dram, 8) == tokens
        assert np.array_equal(loop.read(device.read_dram, "kv"), after)
        assert result.cycles <= cycles


@pytest.mark.parametrize("changes", [{}, {"gated": True, "activation": "silu"}, {"tied": False, "layers": 3}])
def test_other_models(make_model, changes) -> None:
    """Every number of steps up to the whole context."""
    model = make_model(seed=5, **changes)
    single, loop = compile_decoder(model, BASE, tokens=True, max_rows=1), compile_greedy_loop(model, BASE)
    device = Simulator(BASE, dram_bytes=loop.size)
    cache = np.random.default_rng(1).integers(0, 256, single.symbols["kv"][1], dtype=np.uint8)
    for position, steps in ((0, 1), (0, loop.max_positions), (7, 5), (loop.max_positions - 1, 1)):
        tokens, after, _ = one_by_one(single, cache, 9, position, steps)
        device.load(looped(loop, cache, 9, position, steps))
        device.run()
        assert loop.read_tokens(device.read_dram, steps) == tokens
        assert np.array_equal(loop.read(device.read_dram, "kv"), after)


def test_steps_out_of_range(make_model) -> None:
    loop = compile_greedy_loop(make_model(), BASE)
    for position, steps in ((0, 0), (0, 33), (31, 2)):
        with pytest.raises(CompileError, match=f"must be from 1 to 32, not {position} \\+ {steps}"):
            loop.registers([1], position, steps=steps)
    with pytest.raises(CompileError, match="logit_rows must be 1, not 0"):
        loop.registers([1], 0, 0)
    with pytest.raises(CompileError, match="1 to 1 tokens, not 2"):
        loop.registers([1, 2], 0)
