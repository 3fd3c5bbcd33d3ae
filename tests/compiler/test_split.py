"""Attention in two halves of its rows: the interpreter's logits, for chains and trees, behind any context."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.kernels.attention.split import BLOCK, SplitMapping
from gemmule.compiler.passes.map import choices
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.beside import compile_beside
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.cost import passes_cost
from gemmule.compiler.search.narrow import chosen_program, narrow_programs
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench

EDGE, BASE = load_config("edge"), load_config("base")
SEED = 20261127
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=2, vocab=61,
              positions=4000)
GPT2 = Sizes(family="gpt2", hidden=64, inner=64, heads=4, kv_heads=4, head_dim=16, layers=2, vocab=61, positions=4000)
CASES = {
    "llama, shared heads": (LLAMA, BASE, 8), "behind a prefix": (replace(LLAMA, prefix=3), BASE, 8),
    "a head each": (GPT2, BASE, 16), "more rows than lanes": (replace(GPT2, prefix=1), BASE, 24),
    "halves that differ": (replace(LLAMA, heads=3, kv_heads=1), BASE, 7),
    "int4 by groups": (replace(LLAMA, bits=4, group=32, hidden=64), BASE, 6),
    "edge": (replace(LLAMA, heads=2, kv_heads=1), EDGE, 8)}
POSITIONS = 3 * BLOCK + 40


def _split(network: Network, config: Config, rows: int) -> tuple[ModelProgram, ModelProgram]:
    """A program, and one beside it by halves of the rows, with logits."""
    program = compile_network(network, config, rows=rows)
    among = [choice for choice in choices(network.graph, config, rows=rows, batch=1, context=POSITIONS, tokens=False,
                                          cache=program.layout)
             if isinstance(choice.mappings[0].attention, SplitMapping)]
    return program, compile_beside(ModelProgram, network, program, rows=rows, context=POSITIONS, answered=True,
                                   base_address=round_up(program.size, 1 << 12), among=among, tokens=False)


class Split(Bench):
    """Passes by halves of the rows, in another program's cache."""

    def __init__(self, network: Network, config: Config, rows: int, *others: RtlDevice) -> None:
        program, split = _split(network, config, rows)
        super().__init__(program, network, *others)
        self.program = split
        self.devices[0] = Simulator(config, dram_bytes=split.base_address + split.size)
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))
            device.write_dram(split.program_address, split.image)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_interpreter(name: str) -> None:
    """Every number of rows, behind no context, at borders of blocks and at the last position."""
    print(f"seed {SEED}")
    sizes, config, rows = CASES[name]
    bench, random = Split(random_network(sizes, SEED), config, rows), np.random.default_rng(SEED)
    most, filled = bench.program.max_positions - sizes.prefix, 0
    for context in (0, 30, BLOCK - 1, BLOCK, 2 * BLOCK - 2, 3 * BLOCK, most - rows - 1):
        if (left := context - bench.cache.length() + sizes.prefix) > 0:
            filled += 1
            bench.fill_cache(left, SEED + filled)
        for count in {rows, int(random.integers(1, rows + 1)), 1}:
            if bench.cache.length() + count <= bench.program.max_positions:
                parents = [-1, *(int(random.integers(-1, i)) for i in range(1, count))]
                at = bench.cache.length()
                bench.forward(Rows.tree(random.integers(0, 61, count).tolist(), parents, at))
                bench.cache.keep([*range(at)], 0)
    assert filled


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    """Equal cycles too."""
    with RtlDevice(EDGE) as rtl:
        bench = Split(random_network(replace(LLAMA, heads=2, kv_heads=1, layers=1), SEED), EDGE, 8, rtl)
        bench.fill_cache(BLOCK + 3, SEED)
        bench.forward(Rows.tree([1, 2, 3, 4, 5, 6, 7, 8], [-1, 0, 0, 1, 1, 2, 5, -1], bench.cache.length()))


def test_no_context_races() -> None:
    """Every number of rows behind many numbers of cached ones is verified, those around blocks among them."""
    _, split = _split(random_network(GPT2, SEED), BASE, 16)
    most = split.max_positions
    split.verified(*(split.registers(rows, cached, rows) for rows in (1, 7, 8, 9, 15, 16)
                     for cached in (0, 1, 63, 64, 65, 127, 128, 129, 191, 192, most - rows - 1, most - rows)))


def test_taken_behind_long_contexts() -> None:
    """Beside a program that computes scores twice; behind few positions those go on whose scores stay as they are."""
    network = random_network(replace(LLAMA, layers=3, head_dim=64), SEED)
    program = compile_network(network, BASE, rows=8, tokens=True)
    narrow = narrow_programs(network, program, base_address=round_up(program.size, 1 << 12))
    split = next(one for one in narrow if isinstance(one.choice.mappings[0].attention, SplitMapping))
    assert split.max_rows == 8
    assert split.scores == "kept"
    assert narrow[-1] is split
    least, most = split.least_cached, split.max_positions - 8
    assert chosen_program(narrow, 8, most) is split
    assert chosen_program(narrow, 8, most + 1) is None
    for cached in (least, (least + most) // 2, most):
        assert chosen_program(narrow, 8, cached) is split
        assert passes_cost(split, [(8, cached)]) < passes_cost(program, [(8, cached)])
    assert chosen_program(narrow, 8, least - 1) is not split
    assert passes_cost(split, [(8, most)]) < .93 * passes_cost(program, [(8, most)])
