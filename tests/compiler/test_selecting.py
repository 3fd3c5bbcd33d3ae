"""Selecting passes: the lists and the kept cache are those of the integer interpreter, in every way of cutting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.importers.architectures import architecture
from gemmule.compiler.ir import Cache, Network, Rows
from gemmule.compiler.kernels.attention.halves.packing import Packing
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.moves import LISTS, list_pitch
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.selecting import KEPT, Selection, compile_selection
from gemmule.compiler.quantize.by_shape import by_shape
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sw.device.chosen import chosen_rows
from gemmule.sw.kv.pruning import Pruning
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261126
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61, positions=300)
KINDS = {
    "whole contexts": replace(LLAMA, positions=96), "blocks": LLAMA, "prefix": replace(LLAMA, prefix=2),
    "scores twice": replace(LLAMA, positions=900, layers=2),
    "scores twice, prefix": replace(LLAMA, positions=900, layers=2, prefix=1), "gpt2": replace(LLAMA, family="gpt2"),
    "a head each": replace(LLAMA, kv_heads=6),
    "more positions than keys": replace(LLAMA, positions=2048, layers=2),
}
FIRST, LAST = 3, 5


class Selecting(Bench):
    """A program, what chooses rows beside it, and the interpreter with a whole and a kept cache."""

    def __init__(self, network: Network, config: Config, rows: int, *others: Any, first: int = FIRST,
                 last: int = LAST, packed: Packing | None = None, heavy: bool = False) -> None:
        self.pruning, self.chosen = Pruning(keep=1.0, first=first, last=last), chosen_rows
        program = compile_network(network, config, rows=rows, tokens=True, packed=packed)
        self.begin(network, program, compile_selection(
            network, program, rows=rows, first=first, last=last, heavy=heavy,
            base_address=round_up(program.size, 1 << 12)), *others)

    def begin(self, network: Network, program: ModelProgram, selection: Selection, *others: Any) -> None:
        """Both programs on the devices."""
        super().__init__(program, network, *others)
        self.selection, select = selection, selection.select
        self.devices[0] = Simulator(program.config, dram_bytes=select.base_address + select.size)
        dram = np.zeros(select.size, dtype=np.uint8)
        self.selection.fill(dram, network)
        for device in self.devices:
            device.write_dram(program.base_address, program.fill(network))
            device.write_dram(select.base_address, dram)
        self.kept = Cache(network.graph)

    def grow(self, count: int) -> None:
        """So many cached rows, those that are there or more."""
        while self.cache.length() < count:
            tokens = np.random.default_rng(self.cache.length()).integers(0, self.network.graph.vocab, min(
                self.program.max_rows, count - self.cache.length()))
            self.chain(tokens.tolist(), 0)
        self.cache.truncate(count)

    def run(self, program: Program, step: Step) -> None:
        """A launch on all devices, in as many cycles."""
        cycles = []
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content)
            device.load(program.launch("choose", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0, (result.fault, result.fault_index)
            cycles.append(result.cycles)
        assert len(set(cycles)) == 1, cycles

    def choose(self, tokens: list[int], kept: int) -> dict[str, np.ndarray]:
        """Rows behind the cached ones choose; lists and both caches are the interpreter's. Returns the lists."""
        select, prefix = self.selection.select, self.network.graph.prefix
        rows, before = Rows.chain(tokens, self.cache.length()), self.cache.length()
        self.run(select, select.choosing(rows, before, kept))
        self.run(self.selection.gather, self.selection.gathering(kept))
        importance = self.interpreter.importance(rows, self.cache)
        lists = {name: self.chosen(found, kept, self.pruning) for name, found in importance.items()}
        pitch, heads = list_pitch(select.config, select.max_positions), self.network.graph.attentions[0].kv_heads
        for device in self.devices:
            raw = np.frombuffer(device.read_dram(*select.symbols[LISTS]), dtype="<u2").reshape(-1, pitch // 2)
            for number, found in enumerate(lists.values()):
                np.testing.assert_array_equal(raw[number * heads:(number + 1) * heads, :kept], found + prefix)
        self.kept = Cache(self.network.graph)
        self.kept.begin_with(self.cache, 0)
        self.kept.keep_by_head({name: np.concatenate([np.tile(np.arange(prefix), (heads, 1)), found + prefix], axis=1)
                                for name, found in lists.items()})
        self.check(CACHE, self.cache)
        self.check(KEPT, self.kept)
        return lists

    def check(self, region: str, cache: Cache) -> None:
        """A cache on the devices is the interpreter's."""
        layout, (address, _) = self.program.layout, self.selection.select.symbols[region]
        for number, node in enumerate(self.network.graph.attentions):
            parts = (part.reshape(len(part), node.kv_heads, node.head_dim).astype(np.int8)
                     for part in cache.contents(node.name))
            for at, content in layout.contents(number, *parts):
                for device in self.devices:
                    np.testing.assert_array_equal(
                        np.frombuffer(device.read_dram(address + at, content.size), dtype=np.uint8), content)

    def pass_kept(self, tokens: list[int]) -> None:
        """A pass over the kept cache answers as the interpreter with it."""
        rows, program = Rows.chain(tokens, self.cache.length()), self.program
        expected = self.interpreter.forward(rows, self.kept).argmax(axis=1).tolist()
        step = program.step(rows, len(rows), [self.kept.length() - len(rows)])
        moved = step.registers.displaced(program.symbols[CACHE], self.selection.displacement)
        self.run(program, step._replace(registers=moved))
        for device in self.devices:
            assert program.read_tokens(device.read_dram, len(rows)) == expected


def _walk(bench: Selecting, rows: int, counts: list[int]) -> None:
    """Contexts of so many rows, each of which chooses from all to few, with passes behind the choice."""
    random, vocab = np.random.default_rng(SEED), bench.network.graph.vocab
    for count in counts:
        bench.grow(count)
        tokens = random.integers(0, vocab, rows).tolist()
        every = bench.cache.length() + rows - bench.network.graph.prefix
        for kept in {every, max(FIRST + LAST, every // 2), FIRST + LAST}:
            bench.cache.truncate(count)
            lists = bench.choose(tokens, kept)
            for found in lists.values():
                assert (np.diff(found) > 0).all()
                assert found[:, :FIRST].tolist() == [list(range(FIRST))] * len(found)
                assert (found[:, -LAST:] == np.arange(every - LAST, every)).all()
            bench.pass_kept(random.integers(0, vocab, 1).tolist())
            bench.pass_kept(random.integers(0, vocab, rows).tolist())


@pytest.mark.parametrize(("kind", "config"), thinned(KINDS, [EDGE, BASE]))
def test_equals_the_interpreter(config: Config, kind: str) -> None:
    print(f"seed {SEED}")
    rows = 8 if config is BASE else 4
    bench = Selecting(random_network(KINDS[kind], SEED), config, rows)
    _walk(bench, rows, [max(LAST, 6), 67, min(KINDS[kind].positions, 400) - 3 * rows])


@pytest.mark.parametrize("seed", some(range(6)))
def test_random_schedules(seed: int) -> None:
    """Any numbers of rows, of those that always stay, and of those that are kept."""
    random = np.random.default_rng(seed)
    first, last = (int(random.integers(0, 12)) for _ in range(2))
    bench = Selecting(random_network(replace(LLAMA, positions=200, prefix=int(random.integers(0, 3))), seed), EDGE, 4,
                      first=first, last=last)
    for count in sorted(random.integers(max(first + last, 8), 180, 3).tolist()):
        bench.grow(count)
        every = bench.cache.length() + 4 - bench.network.graph.prefix
        bench.choose(random.integers(0, 61, 4).tolist(), int(random.integers(max(1, first + last), every + 1)))
        bench.pass_kept(random.integers(0, 61, 3).tolist())


def _one_less(importance: np.ndarray, kept: int, pruning: Pruning) -> np.ndarray:
    found = chosen_rows(importance, kept - 1, pruning)
    return np.concatenate([found, found[:, -1:]], axis=1)


def _shifted(importance: np.ndarray, kept: int, pruning: Pruning) -> np.ndarray:
    return chosen_rows(np.roll(importance, 1, axis=1), kept, pruning)


def _last_one_less(importance: np.ndarray, kept: int, pruning: Pruning) -> np.ndarray:
    return chosen_rows(importance, kept, replace(pruning, last=pruning.last - 1))


@pytest.mark.parametrize("fault", [_one_less, _shifted, _last_one_less])
def test_planted_faults_are_seen(fault: Any) -> None:
    """A selection that is off by one in any way differs from the device's."""
    bench = Selecting(random_network(LLAMA, SEED), EDGE, 4)
    bench.fill_cache(150, SEED)
    bench.choose([1, 2, 3, 4], 40)
    bench.cache.truncate(150)
    bench.chosen = fault
    with pytest.raises(AssertionError):
        bench.choose([1, 2, 3, 4], 40)


def test_heads_choose_for_themselves() -> None:
    bench = Selecting(random_network(LLAMA, SEED), BASE, 8)
    bench.fill_cache(120, SEED)
    lists = bench.choose([1, 2, 3, 4, 5, 6, 7, 8], 40)
    assert len({found.tobytes() for lists_ in lists.values() for found in lists_}) == 6


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    sizes = replace(LLAMA, head_dim=8, hidden=20, inner=24, positions=80, layers=2, prefix=1)
    with RtlDevice(TINY) as rtl:
        _walk(Selecting(random_network(sizes, SEED), TINY, 2, rtl), 2, [7, 33])


@pytest.mark.parametrize(("rows", "cached", "kept", "message"), [
    (7, 60, 30, "a selecting pass takes 8 rows, not 7"), (8, 60, 7, "rows to keep must be from 8 .* to 68 .* not 7"),
    (8, 60, 69, "rows to keep must be from 8 .* to 68 .* not 69")])
def test_refuses(rows: int, cached: int, kept: int, message: str) -> None:
    selection = Selecting(random_network(LLAMA, SEED), BASE, 8).selection
    with pytest.raises(CompileError, match=message):
        selection.select.choosing_registers(rows, cached, kept)


def test_refuses_what_has_no_such_cache() -> None:
    network = random_network(LLAMA, SEED)
    pooled = compile_network(network, BASE, rows=8, tokens=True, pool=300)
    with pytest.raises(CompileError, match="rows are chosen of the cache of one text"):
        compile_selection(network, pooled, rows=8, first=4, last=4, base_address=1 << 24)
    plain = compile_network(network, BASE, rows=8, tokens=True)
    with pytest.raises(CompileError, match="must be from 0 to 255, not 256 and 4"):
        compile_selection(network, plain, rows=8, first=256, last=4, base_address=1 << 24)


def test_by_shape() -> None:
    """Of equal layers two are compiled and stand for all: byte for byte what all of them give."""
    graph = architecture("llama-68m").resized("hidden", 128).resized("layers", 5).resized("positions", 128).graph()
    shape, images = by_shape(graph), []
    for network in (shape, replace(shape, alike=False)):
        program = compile_network(network, EDGE, rows=1, tokens=True)
        made = compile_selection(network, program, rows=4, first=FIRST, last=LAST,
                                 base_address=round_up(program.size, 1 << 12))
        images.append((made.select.image, made.select.symbols, made.copy.image, made.gather.image))
    assert images[0] == images[1]
