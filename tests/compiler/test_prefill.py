"""A prefill beside a program: the same cache bytes by more rows a launch, whatever is decoded behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, Rows
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.contents import Contents
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram, compile_prefill
from gemmule.compiler.search.cost import prompt_cost
from gemmule.compiler.search.prefill import best_prefill, prefill_rows
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261128
LLAMA = Sizes(family="llama", hidden=48, inner=100, heads=4, kv_heads=2, head_dim=24, layers=3, vocab=61, positions=90)
CASES = {
    "llama, shared heads": LLAMA,
    "gpt2": replace(LLAMA, family="gpt2", kv_heads=4, layers=2),
    "phi, one layer": replace(LLAMA, family="phi", layers=1),
    "qwen3, two layers": replace(LLAMA, family="qwen3", layers=2),
    "gpt-neox, two layers": replace(LLAMA, family="gpt_neox", kv_heads=4, layers=2),
    "int4 by groups": replace(LLAMA, bits=4, group=32, hidden=64, head_dim=16),
    "many heads": replace(LLAMA, heads=12, kv_heads=12, head_dim=16, hidden=64, positions=200),
    "a long context": replace(LLAMA, positions=4000, layers=2),
}


class Both(Bench):
    """A program and its prefill in one DRAM."""

    def __init__(self, network: Network, config: Config, rows: int, more: int, *others: Any) -> None:
        program = compile_network(network, config, rows=rows, tokens=True)
        super().__init__(program, network, *others)
        self.prefill = compile_prefill(network, program, rows=more, base_address=round_up(program.size, 1 << 12))
        self.devices[0] = Simulator(config, dram_bytes=self.prefill.base_address + self.prefill.size)
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))
            device.write_dram(self.prefill.program_address, self.prefill.image)

    def prompt(self, tokens: Sequence[int]) -> int:
        """A pass by the prefill; it loads and stores what the last one says. Returns its cycles."""
        rows, cycles = Rows.chain(tokens, self.cache.length()), []
        step = self.prefill.step(rows, 0)
        self.interpreter.forward(rows, self.cache)
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content)
            device.load(self.prefill.launch("prompt", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            cycles.append(result.cycles)
            self.loaded, self.stored = (int(result.dram_bytes[name]) for name in ("load", "store"))
        assert len(set(cycles)) == 1, cycles
        self.check_cache()
        return int(cycles[0])

    def check_cache(self) -> None:
        """Every cached byte is the interpreter's."""
        begin, layout = self.program.symbols[CACHE][0], self.program.layout
        for number, node in enumerate(self.network.graph.attentions):
            parts = [part.reshape(-1, node.kv_heads, node.head_dim).astype(np.int8)
                     for part in self.cache.contents(node.name)]
            for at, content in layout.contents(number, *parts):
                for device in self.devices:
                    found = np.frombuffer(bytes(device.read_dram(begin + at, content.size)), dtype=np.uint8)
                    assert np.array_equal(found, content), (node.name, at)


def _walk(bench: Both, last: int) -> None:
    """Passes of both programs in turn, of all sizes."""
    random, vocab = np.random.default_rng(SEED), bench.network.graph.vocab
    while (left := last - bench.cache.length()) > 0:
        count = min(left, int(random.integers(1, bench.prefill.max_rows + 1)))
        bench.prompt(random.integers(0, vocab, count).tolist())
        if left > count:
            bench.chain(random.integers(0, vocab, min(left - count, bench.program.max_rows)).tolist())
    bench.check_cache()


@pytest.mark.parametrize(("name", "device"), thinned(CASES, [(EDGE, 2, 8), (BASE, 4, 24)]))
def test_equals_the_interpreter(name: str, device: tuple[Config, int, int]) -> None:
    """With so many rows of a pass and of a prompt's."""
    config, rows, more = device
    print(f"seed {SEED}")
    _walk(Both(random_network(CASES[name], SEED), config, rows, more), 88)


def test_ways_of_attention_and_layouts() -> None:
    """The cases above lay the cache out in each way: no heads joined, all, and some."""
    found = {name: compile_network(random_network(CASES[name], SEED), BASE, rows=4, tokens=True).layout.joined
             for name in ("a long context", "gpt2", "many heads")}
    assert found["a long context"] == 0
    assert found["gpt2"] == 4
    assert 0 < found["many heads"] <= 12


def test_blocks_of_a_cache_of_joined_heads() -> None:
    """So many rows that a whole context no longer fits beside them, which it does beside the program's."""
    network = random_network(replace(CASES["many heads"], positions=500), SEED)
    bench = Both(network, BASE, 8, 64)
    assert bench.program.layout.joined
    assert bench.program.scores == "kept" != bench.prefill.scores
    _walk(bench, 260)


def test_online_attention() -> None:
    network = random_network(LLAMA, SEED).with_softmax(None, 2 * EDGE.dim)
    bench = Both(network, EDGE, 2, 8)
    assert bench.prefill.scores == "seen once"
    _walk(bench, 60)


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    network = random_network(replace(LLAMA, head_dim=8, hidden=20, inner=24, layers=2, positions=24), SEED)
    with RtlDevice(TINY) as rtl:
        _walk(Both(network, TINY, 2, 4, rtl), 24)


@pytest.mark.parametrize(("device", "name"), thinned(
    [(TINY, 4), (EDGE, 8), (BASE, 24)], ["llama, shared heads", "gpt2"]))
def test_no_context_races(device: tuple[Config, int], name: str) -> None:
    """Every number of cached rows is verified."""
    config, rows = device
    network = random_network(replace(CASES[name], head_dim=8, positions=70, layers=2), SEED)
    prefill = compile_prefill(network, compile_network(network, config, rows=2, tokens=True), rows=rows,
                              base_address=1 << 20)
    most = network.graph.positions
    prefill.verified(*(prefill.registers(count, cached) for count in (1, rows - 1, rows)
                       for cached in range(most - count + 1)))


def test_the_last_layer_is_keys_and_values_alone() -> None:
    """What a pass without answers loads less: the last layer's other weights, which nobody would see."""
    bench = Both(random_network(replace(LLAMA, positions=60), SEED), BASE, 4, 4)
    bench.chain([1, 2, 3, 4], wanted=0)
    plain = bench.loaded
    bench.prompt([1, 2, 3, 4])
    dim, groups = BASE.dim, {n: -(-n // BASE.dim) for n in (24, 48, 100)}
    inner = groups[100] * dim
    left_out = (4 * groups[24] * dim * (48 + 48)  # queries and output, of heads of 32 lanes
                + 3 * inner * 48) // dim * dim
    assert plain - bench.loaded > 0.9 * left_out


def test_weights_are_the_other_programs() -> None:
    """A prefill has none of its own; its products read the same bytes, tiles of other widths too."""
    network = random_network(CASES["many heads"], SEED)
    program = compile_network(network, BASE, rows=4, tokens=True)
    prefill = compile_prefill(network, program, rows=48, base_address=1 << 20)
    assert not prefill.constants
    assert prefill.size < program.size / 4
    assert {name: prefill.symbols[name] for name in program.constants} == {
        name: program.symbols[name] for name in program.constants}
    assert prefill.layout == program.layout


def test_contents_that_stand_apart_come_by_several_loads() -> None:
    program = compile_network(random_network(LLAMA, SEED), BASE, rows=4, tokens=True)
    parts = program.constants["weights"]
    contents = Contents(program.constants, BASE.dim)
    (first_at, first), (second_at, second) = parts[0], parts[-1]
    assert contents.runs("weights", [first]) == [(first_at, first.size)]
    assert contents.runs("weights", [first, second]) == [(first_at, first.size), (second_at, second.size)]
    one = first.groups(BASE.dim)
    assert contents.runs("weights", one[1:2]) == [(first_at + one[0].size, one[1].size)]
    with pytest.raises(CompileError, match="both programs must have the same weights"):
        contents.runs("weights", [replace(first, depth=first.depth[:BASE.dim])])


# -- how many rows


def _beside(program: ModelProgram, network: Network, **options: Any) -> PrefillProgram | None:
    return best_prefill(network, program, effort=2, base_address=1 << 22, **options)


def test_rows_by_the_cycles_of_prompts() -> None:
    network = random_network(replace(LLAMA, positions=120, hidden=96, inner=200), SEED)
    program = compile_network(network, BASE, rows=4, tokens=True)
    costs = {rows: prompt_cost(compile_prefill(network, program, rows=rows, base_address=1 << 22))
             for rows in prefill_rows(program)}
    assert list(costs) == [8, 16, 32]  # two heads share one: statistics of 64 rows
    found = _beside(program, network)
    assert found is not None
    assert costs[found.max_rows] == min(costs.values()) < prompt_cost(program)
    asked = _beside(program, network, rows=16)
    assert asked is not None
    assert asked.max_rows == 16


def test_none_where_none_pays_or_fits() -> None:
    network = random_network(LLAMA, SEED)
    full = BASE.model_copy(update={"address_bits": 22})
    assert _beside(compile_network(network, full, rows=4, tokens=True), network) is None
    short = compile_network(network, BASE, rows=4, tokens=True, context=5)
    assert _beside(short, network) is None, "no prompt is longer than a pass"
    pool = compile_network(network, BASE, rows=4, tokens=True, pool=90)
    assert _beside(pool, network) is None
    with pytest.raises(CompileError, match="whose cache stands in order or is a batch's"):
        _beside(pool, network, rows=8)
    with pytest.raises(CompileError, match="rows of a launch times the heads that share a KV head"):
        _beside(compile_network(network, BASE, rows=4, tokens=True), network, rows=64)


def test_answers_are_refused() -> None:
    network = random_network(LLAMA, SEED)
    prefill = compile_prefill(network, compile_network(network, BASE, rows=4, tokens=True), rows=8,
                              base_address=1 << 20)
    with pytest.raises(CompileError, match="a prefill answers no rows, not 1"):
        prefill.step(Rows.chain([1, 2]), 1)
    with pytest.raises(CompileError, match="a launch takes 1 to 8 rows, not 9"):
        prefill.step(Rows.chain(range(9)), 0)
