"""Greedy tokens in one launch: those of single launches, the same cache, in no more cycles than all of these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.greedy_loop import GreedyLoop
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.config import Config, load_config
from gemmule.sim.launch import Launch
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.models.bundled_models import bundled_model
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some

TINY, BASE, EDGE = (load_config(name) for name in ("tiny", "base", "edge"))
LLAMA = Sizes(family="llama", hidden=48, inner=100, heads=6, kv_heads=3, head_dim=24, layers=3, vocab=1003)


def filled(loop: GreedyLoop, network: Network, seed: int) -> np.ndarray:
    """DRAM with a random cache."""
    dram = loop.fill(network)
    loop.put(dram, CACHE, np.random.default_rng(seed).integers(0, 256, loop.symbols[CACHE][1], dtype=np.uint8))
    return dram


def run(device: Simulator, program: Program, step: Step) -> int:
    """Cycles of a launch."""
    for address, content in step.inputs:
        device.write_dram(address, content)
    device.load(program.launch("launch", NO_DRAM, step.registers))
    result = device.run()
    assert result.fault == 0, (result.fault, result.fault_index)
    return int(result.cycles)


def compare(loop: GreedyLoop, dram: np.ndarray, token: int, position: int, steps: int) -> tuple[int, int]:
    """Cycles of a launch, and of a launch a token; tokens and cache must be the same."""
    devices = [Simulator(loop.config, dram_bytes=loop.base_address + loop.size) for _ in range(2)]
    for device in devices:
        device.write_dram(loop.base_address, dram)
    tokens, apart = [token], 0
    for i in range(steps):
        apart += run(devices[0], loop.single, loop.single.step(Rows.chain(tokens[-1:], position + i), 1))
        tokens += loop.single.read_tokens(devices[0].read_dram, 1)
    together = run(devices[1], loop, loop.step(token, position, steps))
    assert loop.read_tokens(devices[1].read_dram, steps) == tokens[1:]
    assert np.array_equal(*(loop.read(device.read_dram, CACHE) for device in devices))
    return together, apart


def looped(loop: GreedyLoop, dram: np.ndarray, token: int, position: int, steps: int) -> Launch:
    """A launch that brings all of its DRAM."""
    step = loop.step(token, position, steps)
    for address, content in step.inputs:
        dram[address:address + content.size] = content
    return loop.launch("loop", dram, step.registers)


@pytest.mark.parametrize(("config", "effort"), some([(BASE, 1), (EDGE, 4)]),
                         ids=lambda value: getattr(value, "name", str(value)))
def test_eight_steps_of_the_bundled_draft(config: Config, effort: int) -> None:
    network = bundled_model("draft").network
    loop = compile_greedy(network, config, effort=effort)
    for seed, position in enumerate((0, 37, loop.max_positions - 8)):
        together, apart = compare(loop, filled(loop, network, seed), 77 + seed, position, 8)
        assert together <= apart


@pytest.mark.parametrize(("name", "config"), some(
    [("gpt2", BASE), ("qwen3", EDGE), ("llama", EDGE), ("phi", EDGE), ("gpt_neox", EDGE), ("qwen3", BASE),
     ("llama", BASE), ("gpt2", EDGE), ("phi", BASE), ("gpt_neox", BASE)]))
def test_other_networks(name: str, config: Config) -> None:
    """Every number of steps up to the whole context, from an address that is not 0."""
    network = random_network(replace(LLAMA, family=name, layers=2), 5)
    loop = compile_greedy(network, config, effort=1, base_address=1 << 14)
    for position, steps in ((0, 1), (0, loop.max_positions), (7, 5), (loop.max_positions - 1, 1)):
        compare(loop, filled(loop, network, 1), 9, position, steps)


def test_the_whole_context_beside_passes_of_several_rows() -> None:
    """Each step stores its token alone, however many rows a pass beside it takes."""
    network = random_network(replace(LLAMA, positions=32, layers=1), 7)
    loop = compile_greedy(network, EDGE, effort=1, rows=8)
    compare(loop, filled(loop, network, 3), 9, 0, 32)


def test_block_by_block() -> None:
    """A context that attention takes in blocks."""
    network = random_network(replace(LLAMA, positions=4096, layers=2, vocab=61), 6)
    loop = compile_greedy(network, TINY, effort=1)
    for position, steps in ((0, 3), (62, 5), (loop.max_positions - 3, 3)):
        compare(loop, filled(loop, network, 2), 9, position, steps)


@pytest.mark.rtl
def test_on_rtl() -> None:
    """Three tokens of the bundled draft: every byte and every cycle."""
    network = bundled_model("draft").network
    loop = compile_greedy(network, EDGE, effort=1)
    model = Simulator(EDGE, dram_bytes=loop.size)
    with RtlDevice(EDGE) as rtl:
        report = cosim(looped(loop, filled(loop, network, 2), 77, 40, 3), model, rtl)
        assert report.ok, report.text
        assert loop.read_tokens(rtl.read_dram, 3) == loop.read_tokens(model.read_dram, 3)


def test_steps_out_of_range() -> None:
    loop = compile_greedy(random_network(replace(LLAMA, positions=32, layers=1), 3), EDGE, effort=1)
    for position, steps in ((0, 0), (0, 33), (31, 2)):
        with pytest.raises(CompileError, match=f"must be from 1 to 32, not {position} \\+ {steps}"):
            loop.registers(position, steps)
    with pytest.raises(CompileError, match="tokens must be from 0 to 1002, not 1003"):
        loop.step(1003, 0, 1)
