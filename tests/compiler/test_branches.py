"""Rows of one cache, each of which sees rows of its own: answers are the interpreter's, whatever places rows take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import IntegerInterpreter, Network, Rows
from gemmule.compiler.ir.cache import Cache
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.programs.texts.branches_program import BranchesProgram
from gemmule.compiler.search.cost import prompt_cycles
from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import thinned

SEED, ROOM = 20261127, 200
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=2, vocab=61, positions=90)
KINDS = {"shared heads": LLAMA, "prefix": replace(LLAMA, prefix=2), "gpt2": replace(LLAMA, family="gpt2"),
         "a head each": replace(LLAMA, kv_heads=6)}
ROWS = {"base": 8, "edge": 2}


class Branching:
    """A general program and the interpreter, pass by pass over one cache."""

    def __init__(self, network: Network, program: Any, *others: Any) -> None:
        assert isinstance(program, BranchesProgram)
        self.program, self.network = program, network
        self.interpreter, self.cache = IntegerInterpreter(network), Cache(network.graph)
        self.devices = [Simulator(program.config, dram_bytes=program.base_address + program.size), *others]
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))

    @property
    def cached(self) -> int:
        """Without the prefix."""
        return self.cache.length() - self.network.graph.prefix

    def forward(self, rows: Rows, *, plain: bool = False) -> int:
        """A pass whose logits, or greedy tokens, are the interpreter's; its cycles, of timing alone too."""
        program, graph = self.program, self.network.graph
        rows, context = rows.behind(graph.prefix), self.cache.length()
        by = program if plain else program.general
        step = program.step(rows, len(rows), [context]) if plain else program.general_step(
            rows, [context], (0, graph.layers), Answers(rows=len(rows), logits=True))
        expected, cycles = self.interpreter.forward(rows, self.cache), []
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content.tobytes())
            device.load(by.launch("pass", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            cycles.append(int(result.cycles))
            if plain:
                assert program.tokens_of(device.read_dram, rows, len(rows)) == expected.argmax(axis=1).tolist()
            else:
                np.testing.assert_array_equal(program.general.read_logits(device.read_dram, len(rows)), expected)
        timer = Simulator(program.config, dram_bytes=1)
        timer.load(by.launch("pass", NO_DRAM, step.registers))
        alone = timer.run(timing_only=True, indices=program.gathered(rows, by.commands),
                          scattered=program.scattered(rows, [context]))
        assert {*cycles, int(alone.cycles)} == {cycles[0]}
        return cycles[0]


def _network(kind: str) -> Network:
    return random_network(KINDS[kind], SEED)


def _compiled(network: Network, preset: str, **options: Any) -> BranchesProgram:
    made = compile_network(network, load_config(preset), tokens=True, general=True, **{
        "rows": ROWS.get(preset, 2), "branches": ROOM, **options})
    assert isinstance(made, BranchesProgram)
    return made


def _walk(bench: Branching, steps: int) -> None:
    """A prompt, then passes whose rows see any of the cached ones and take any places that none of them sees."""
    random, most = np.random.default_rng(SEED), bench.program.max_rows
    positions, vocab = LLAMA.positions, LLAMA.vocab
    for _ in range(3):
        bench.forward(Rows.chain(random.integers(0, vocab, most).tolist(), bench.cached), plain=True)
    for number in range(steps):
        count, cached = int(random.integers(1, most + 1)), bench.cached
        hidden = random.random(cached) < 0.1
        seen = (random.random((count, cached)) < random.choice([0.1, 0.6, 1.0])) & ~hidden
        free = random.permutation(np.flatnonzero(hidden))[:count]
        places = random.permutation([*free, *range(cached, cached + count - len(free))])
        mask = np.eye(count, dtype=bool) | np.tri(count, dtype=bool) & (random.random((count, count)) < 0.3)
        bench.forward(Rows(
            tokens=random.integers(0, vocab, count), sequences=np.zeros(count, dtype=np.int64), mask=mask,
            positions=random.integers(0, positions - LLAMA.prefix - 2, count)).branching(seen, places),
            plain=number % 3 == 2)


@pytest.mark.parametrize(("kind", "preset"), thinned(KINDS, ROWS))
def test_equals_the_interpreter(kind: str, preset: str) -> None:
    print(f"seed {SEED}")
    network, rows = _network(kind), 4 if kind == "a head each" and preset == "edge" else ROWS[preset]
    _walk(Branching(network, _compiled(network, preset, rows=rows)), 24)


def test_more_cached_rows_than_scores_that_stay() -> None:
    """A cache of which the scores of the first rows stay in the accumulator, and those behind come twice."""
    network = random_network(replace(LLAMA, heads=3, kv_heads=1, layers=1, positions=900), SEED)
    bench = Branching(network, _compiled(network, "base", rows=16, branches=1100))
    assert bench.program.max_positions == 1100
    random = np.random.default_rng(SEED)
    for _ in range(44):
        bench.forward(Rows.chain(random.integers(0, 61, 16).tolist(), bench.cached), plain=True)
    _walk(bench, 3)


def test_the_cost_of_prompts_begins_with_an_empty_cache() -> None:
    """Which tells what a prefill is worth: a prefix does not count among the cached rows of a text."""
    assert prompt_cycles(_compiled(_network("prefix"), "base"), 20) > 0


def test_a_branch_is_its_text_alone() -> None:
    """Two texts that go on differently behind a prompt, in one cache: each has the logits of a cache of its own."""
    network = _network("shared heads")
    program = _compiled(network, "base")
    tails, prompt = ([7, 8, 9], [1, 2, 3]), [5, 6, 7, 8, 9]
    expected = [IntegerInterpreter(network).forward(Rows.chain([*prompt, *tail]), Cache(network.graph))[len(prompt):]
                for tail in tails]
    bench = Branching(network, program)
    bench.forward(Rows.chain(prompt))
    cache, interpreter = Cache(network.graph), IntegerInterpreter(network)
    interpreter.forward(Rows.chain(prompt), cache)
    seen = np.zeros((2, 11), dtype=bool)
    seen[:, :5] = True
    for number in range(3):
        cached = 5 + 2 * number
        rows = Rows(tokens=np.array([tail[number] for tail in tails]), positions=np.full(2, 5 + number),
                    sequences=np.zeros(2, dtype=np.int64), mask=np.eye(2, dtype=bool)).branching(
                        seen[:, :cached], np.arange(cached, cached + 2))
        bench.forward(rows)
        np.testing.assert_array_equal(interpreter.forward(rows, cache), [part[number] for part in expected])
        seen[0, cached], seen[1, cached + 1] = True, True


class _OneMore(BranchesProgram):
    """Bitmaps of the cache in which each row also sees the first free one."""

    def _seen(self, seen: np.ndarray) -> np.ndarray:
        seen = seen.copy()
        seen[:, np.argmin(seen.any(axis=0))] = True
        return super()._seen(seen)


class _InOrder(BranchesProgram):
    """Rows that go behind the cached ones, whatever they are told."""

    def scattered(self, rows: Rows, cached: Any) -> np.ndarray:
        return cached[0] + np.arange(len(rows))


@pytest.mark.parametrize("kind", [_OneMore, _InOrder])
def test_planted_faults_are_seen(kind: type[BranchesProgram]) -> None:
    network = _network("shared heads")
    program = _compiled(network, "base")
    wrong = kind(**{name: getattr(program, name) for name in program.__dataclass_fields__})
    with pytest.raises(AssertionError):
        _walk(Branching(network, wrong), 24)


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    network = random_network(replace(LLAMA, hidden=16, inner=16, heads=4, kv_heads=2, head_dim=8), SEED)
    config = load_config("tiny")
    with RtlDevice(config) as rtl:
        _walk(Branching(network, _compiled(network, "tiny", rows=2, branches=64), rtl), 5)


@pytest.mark.parametrize(("change", "rule"), [
    ({"batch": 2}, "a single cache"), ({"pool": 64}, "a single cache"), ({"standard": True}, "a single cache"),
    ({"rows": 1}, "must be at least 4, not 3: use more rows"),
])
def test_refused(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        compile_network(_network("shared heads"), load_config("base"), **{"rows": 4, "branches": ROOM, **change})


ROWS_OF_TWO = Rows(tokens=np.array([1, 2]), positions=np.array([4, 4]), sequences=np.zeros(2, dtype=np.int64),
                   mask=np.eye(2, dtype=bool))


@pytest.mark.parametrize(("places", "rule"), [
    ([4, 6], "different ones of 4 cached rows, or the next ones behind them, not"), ([4, 4], "different ones"),
    ([-1, 4], "different ones"), ([0, 4], "a row must see no cached row whose place a new one takes"),
    ([4], "must be those of 2 rows of one sequence, not 1"),
])
def test_refuses_places(places: list[int], rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        ROWS_OF_TWO.branching(np.ones((2, 4), dtype=bool), np.array(places))


def test_refuses_rows_that_see_others_than_the_cached_ones() -> None:
    program = _compiled(_network("shared heads"), "base")
    rows = ROWS_OF_TWO.branching(np.ones((2, 4), dtype=bool), np.array([4, 5]))
    with pytest.raises(CompileError, match="must be told of 9 cached rows, not of 4"):
        program.general_step(rows, [9], (0, 2), Answers(rows=2, logits=True))
