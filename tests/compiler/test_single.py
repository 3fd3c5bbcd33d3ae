"""Steps of one row by a program beside the one that decodes: the interpreter's answers, in fewer cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.cost import passes_cost
from gemmule.compiler.search.single import GAIN, best_single
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261126
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=2, vocab=61,
              positions=4000)
CASES = {"llama, shared heads": LLAMA, "qwen3": replace(LLAMA, family="qwen3", layers=3),
         "int4 by groups": replace(LLAMA, bits=4, group=32, hidden=64)}


def _programs(network: Network, config: Config, rows: int) -> tuple[ModelProgram, ModelProgram]:
    program = compile_network(network, config, rows=rows, tokens=True)
    single = best_single(network, program, base_address=round_up(program.size, 1 << 12))
    assert single is not None
    return program, single


class Both(Bench):
    """A program and the one for single rows in one DRAM."""

    def __init__(self, network: Network, config: Config, rows: int, *others: RtlDevice) -> None:
        program, self.single = _programs(network, config, rows)
        super().__init__(program, network, *others)
        self.devices[0] = Simulator(config, dram_bytes=self.single.base_address + self.single.size)
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))
            device.write_dram(self.single.program_address, self.single.image)

    def step(self, token: int) -> None:
        """A row by the single program: the greedy token is the interpreter's."""
        rows, cycles = Rows.chain([token], self.cache.length()), []
        made = self.single.step(rows, 1)
        expected = int(self.interpreter.forward(rows, self.cache)[0].argmax())
        for device in self.devices:
            for address, content in made.inputs:
                device.write_dram(address, content)
            device.load(self.single.launch("step", NO_DRAM, made.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            assert self.single.read_tokens(device.read_dram, 1) == [expected]
            cycles.append(result.cycles)
        assert len(set(cycles)) == 1, cycles

    def walk(self, counts: Sequence[int]) -> None:
        """Passes of so many rows; 0: a step by the single program."""
        random, vocab = np.random.default_rng(SEED), self.network.graph.vocab
        for count in counts:
            tokens = random.integers(0, vocab, max(1, count)).tolist()
            if count:
                self.chain(tokens)
            else:
                self.step(tokens[0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("config", "rows"), [(EDGE, 4), (BASE, 8)], ids=["edge", "base"])
def test_equals_the_interpreter(config: Config, rows: int, name: str) -> None:
    """Both programs go on with each other's cache."""
    print(f"seed {SEED}")
    Both(random_network(CASES[name], SEED), config, rows).walk([0, rows, 0, 0, *[rows] * 17, 0, 3, 0])


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    with RtlDevice(TINY) as rtl:
        Both(random_network(replace(LLAMA, head_dim=8, hidden=20, inner=24, positions=512), SEED), TINY, 2, rtl).walk(
            [0, 2, 0, 1, *[2] * 8, 0, 0])


def test_no_context_races() -> None:
    """Many numbers of cached rows are verified, those around blocks among them."""
    _, single = _programs(random_network(replace(LLAMA, positions=1000), SEED), EDGE, 4)
    most = single.max_positions
    single.verified(*(single.registers(1, cached, wanted) for cached in (*range(140), most - 2, most - 1)
                      for wanted in (0, 1)))


def test_keys_are_read_once() -> None:
    program, single = _programs(random_network(LLAMA, SEED), BASE, 8)
    assert (program.scores, single.scores, single.max_rows) == ("computed twice", "kept", 1)
    assert not single.constants
    assert single.layout == program.layout
    assert single.size < program.size / 4
    behind = [(1, single.max_positions // 2)]
    assert passes_cost(single, behind) < 0.9 * GAIN * passes_cost(program, behind)


def test_as_far_as_scores_are_kept() -> None:
    """Half of the positions, or a quarter, where the accumulator has no room for more."""
    program, single = _programs(random_network(replace(LLAMA, positions=8192, layers=1), SEED), BASE, 8)
    assert single.max_positions == program.max_positions // 2
    with pytest.raises(CompileError, match="cached and new rows must be at most 4096"):
        single.step(Rows.chain([1], 4096), 1)


def test_none_where_it_gains_nothing() -> None:
    kept = random_network(replace(LLAMA, positions=60), SEED)
    long = random_network(LLAMA, SEED)
    for network, options in ((kept, {"rows": 4}), (long, {"rows": 1}), (long, {"rows": 4, "batch": 2})):
        program = compile_network(network, BASE, tokens=True, **options)
        assert best_single(network, program, base_address=1 << 26) is None
