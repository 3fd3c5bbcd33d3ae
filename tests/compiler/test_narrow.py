"""Passes of few rows by programs beside the one that decodes: the interpreter's answers, in fewer cycles."""

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
from gemmule.compiler.search.narrow import GAIN, chosen_program, narrow_programs
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261126
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=2, vocab=61,
              positions=4000)
CASES = {"llama, shared heads": LLAMA, "qwen3": replace(LLAMA, family="qwen3", layers=3),
         "int4 by groups": replace(LLAMA, bits=4, group=32, hidden=64)}


def _programs(network: Network, config: Config, rows: int) -> tuple[ModelProgram, tuple[ModelProgram, ...]]:
    program = compile_network(network, config, rows=rows, tokens=True)
    narrow = narrow_programs(network, program, base_address=round_up(program.size, 1 << 12))
    assert narrow
    return program, narrow


class Both(Bench):
    """A program and those beside it in one DRAM."""

    def __init__(self, network: Network, config: Config, rows: int, *others: RtlDevice) -> None:
        program, self.narrow = _programs(network, config, rows)
        super().__init__(program, network, *others)
        last = self.narrow[-1]
        self.devices[0] = Simulator(config, dram_bytes=last.base_address + last.size)
        self.ran: set[int] = set()
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))
            for one in self.narrow:
                device.write_dram(one.program_address, one.image)

    def step(self, tokens: Sequence[int]) -> None:
        """Rows by the program that sessions take: the greedy tokens are the interpreter's."""
        rows, cycles = Rows.chain(tokens, self.cache.length()), []
        chosen = chosen_program(self.narrow, len(tokens), self.cache.length())
        assert chosen is not None
        self.ran.add(self.narrow.index(chosen))
        made = chosen.step(rows, len(tokens))
        expected = self.interpreter.forward(rows, self.cache).argmax(axis=-1).tolist()
        for device in self.devices:
            for address, content in made.inputs:
                device.write_dram(address, content)
            device.load(chosen.launch("step", NO_DRAM, made.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            assert chosen.read_tokens(device.read_dram, len(tokens)) == expected
            cycles.append(result.cycles)
        assert len(set(cycles)) == 1, cycles

    def walk(self, counts: Sequence[int]) -> None:
        """Passes of so many rows by the program; negative: by those beside it."""
        random, vocab = np.random.default_rng(SEED), self.network.graph.vocab
        for count in counts:
            tokens = random.integers(0, vocab, abs(count)).tolist()
            if count > 0:
                self.chain(tokens)
            else:
                self.step(tokens)


@pytest.mark.parametrize(("name", "device"), thinned(CASES, [(BASE, 8), (EDGE, 4)]))
def test_equals_the_interpreter(name: str, device: tuple[Config, int]) -> None:
    """All programs go on with each other's cache."""
    config, rows = device
    print(f"seed {SEED}")
    both = Both(random_network(CASES[name], SEED), config, rows)
    few = sorted({one.max_rows for one in both.narrow})
    both.walk([-1, rows, *(-count for count in few), *[rows] * 17, -1, 3, *(-count for count in few)])
    assert len(both.ran) > 1


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    with RtlDevice(TINY) as rtl:
        Both(random_network(replace(LLAMA, head_dim=8, hidden=20, inner=24, positions=512), SEED), TINY, 2, rtl).walk(
            [-1, 2, -1, 1, *[2] * 8, -1, -1])


def test_no_context_races() -> None:
    """Many numbers of cached rows are verified, those around blocks among them."""
    _, narrow = _programs(random_network(replace(LLAMA, positions=1000), SEED), EDGE, 4)
    for one in narrow:
        most = one.max_positions
        one.verified(*(one.registers(rows, cached, min(wanted, rows)) for rows in {1, one.max_rows}
                       for cached in (*range(140), most - rows - 1, most - rows) for wanted in (0, one.max_rows)))


def test_keys_are_read_once() -> None:
    """Where scores stay, as many rows as they stay for; behind longer contexts as many as the mesh has lanes."""
    program, narrow = _programs(random_network(LLAMA, SEED), BASE, 8)
    assert program.scores == "kept in part"
    *narrow, halves = narrow
    assert (halves.max_rows, halves.scores) == (8, "kept")  # by halves of the rows, the last
    kept = [one for one in narrow if one.scores == "kept"]
    rows, positions = ([getattr(one, name) for one in kept] for name in ("max_rows", "max_positions"))
    assert rows == [1, 2, 4, 8]
    assert positions == sorted(set(positions), reverse=True)
    some = narrow[len(kept):]
    assert {(one.max_rows, one.max_positions) for one in some} <= {
        (1, program.max_positions), (BASE.dim // 3, program.max_positions)}
    assert some[-1].max_rows == BASE.dim // 3
    for one in narrow:
        assert not one.constants
        assert one.layout == program.layout
        assert one.size < program.size / 4
        behind = [(one.max_rows, one.max_positions // 2)]
        assert passes_cost(one, behind) < GAIN * passes_cost(program, behind)
    assert all(one.base_address >= before.base_address + before.size for before, one in zip(narrow, narrow[1:]))


def test_the_first_that_takes_a_pass() -> None:
    """It is the fastest, or takes not much longer: tiles of small networks do not divide evenly."""
    program, narrow = _programs(random_network(LLAMA, SEED), BASE, 8)
    for rows, cached in ((1, 50), (1, 1500), (2, 700), (4, 300), (8, 100), (8, 3000), (3, 3990), (8, 3992)):
        able = [one for one in (*narrow, program) if rows <= one.max_rows and rows + cached <= one.max_positions]
        chosen = chosen_program(narrow, rows, cached) or program
        costs = {one.base_address: passes_cost(one, [(rows, cached)]) for one in able}
        assert costs[chosen.base_address] <= 1.1 * min(costs.values()), (rows, cached, costs)


def test_as_far_as_scores_are_kept() -> None:
    """Half of the positions; behind more others go on, which keep scores of some."""
    program, narrow = _programs(random_network(replace(LLAMA, positions=8192, layers=1), SEED), BASE, 8)
    single = narrow[0]
    most = single.max_positions
    assert most == program.max_positions // 2
    with pytest.raises(CompileError, match=f"cached and new rows must be at most {most}"):
        single.step(Rows.chain([1], most), 1)
    assert chosen_program(narrow, 1, most - 1) is single
    some = chosen_program(narrow, 1, most)
    assert some
    assert (some.max_rows, some.scores) == (1, "kept in part")
    assert chosen_program(narrow, 8, most) is None


def test_none_where_it_gains_nothing() -> None:
    kept = random_network(replace(LLAMA, positions=60), SEED)
    long = random_network(LLAMA, SEED)
    for network, options in ((kept, {"rows": 4}), (long, {"rows": 1}), (long, {"rows": 4, "batch": 2})):
        program = compile_network(network, BASE, tokens=True, **options)
        assert narrow_programs(network, program, base_address=1 << 26) == ()
