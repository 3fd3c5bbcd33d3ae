"""Selecting passes by chunks: lists, both caches and passes are the integer interpreter's, in every way of cutting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, Network, Rows
from gemmule.compiler.ir.pages import Pages
from gemmule.compiler.kernels.moves import LISTS, list_pitch
from gemmule.compiler.place import round_up
from gemmule.compiler.programs.chosen.chunks import compile_chunks
from gemmule.compiler.programs.selecting import KEPT
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sw.device.chosen import listed_chunks
from tests.compiler.integer_networks import random_network
from tests.compiler.test_selecting import LLAMA, Selecting
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261128
KINDS = {
    "blocks": LLAMA, "prefix": replace(LLAMA, prefix=2), "gpt2": replace(LLAMA, family="gpt2"),
    "scores twice": replace(LLAMA, positions=900, layers=2),
    "more rows than keys": replace(LLAMA, positions=2048, layers=2, prefix=1),
    "a head each": replace(LLAMA, kv_heads=6),
}
FIRST, LAST = 11, 9


class Chunking(Selecting):
    """A program, what chooses chunks beside it, and the interpreter with a whole and a kept cache."""

    def __init__(self, network: Network, config: Config, rows: int, *others: Any, first: int = FIRST, last: int = LAST,
                 page: int = 8) -> None:
        self.pages, self.listed = Pages(page=page, keep=1.0, first=first, last=last, whole=1), listed_chunks
        program = compile_network(network, config, rows=rows, tokens=True)
        self.begin(network, program, compile_chunks(
            network, program, rows=rows, first=first, last=last, page=page,
            base_address=round_up(program.size, 1 << 12)), *others)

    def retrieve(self, tokens: list[int], count: int) -> None:
        """Rows behind the cached ones choose ``count`` chunks; lists and both caches are the interpreter's."""
        select, prefix, page = self.selection.select, self.network.graph.prefix, self.pages.page
        rows, before = Rows.chain(tokens, self.cache.length()), self.cache.length()
        self.run(select, select.choosing(rows, before, count * page))
        self.run(self.selection.gather, self.selection.gathering(count * page))
        scores = self.interpreter.chunk_scores(rows, self.cache, self.pages)
        lists = {name: self.listed(found, count, self.pages) for name, found in scores.items()}
        pitch, heads = list_pitch(select.config, select.max_positions), self.network.graph.attentions[0].kv_heads
        for device in self.devices:
            raw = np.frombuffer(device.read_dram(*select.symbols[LISTS]), dtype="<u2").reshape(-1, pitch // 2)
            for number, found in enumerate(lists.values()):
                np.testing.assert_array_equal(raw[number * heads:(number + 1) * heads, :count * page], found + prefix)
        self.kept = Cache(self.network.graph)
        self.kept.begin_with(self.cache, 0)
        self.kept.keep_by_head({name: np.concatenate([np.tile(np.arange(prefix), (heads, 1)), found + prefix], axis=1)
                                for name, found in lists.items()})
        self.check(KEPT, self.kept)


def _walk(bench: Chunking, rows: int, counts: list[int]) -> None:
    random, vocab, prefix = np.random.default_rng(SEED), bench.network.graph.vocab, bench.network.graph.prefix
    for count in counts:
        bench.grow(count)
        tokens = random.integers(0, vocab, rows).tolist()
        settled = bench.pages.settled(count + rows - prefix)
        for chosen in {bench.pages.sinks, (bench.pages.sinks + settled) // 2, settled}:
            bench.cache.truncate(count)
            bench.retrieve(tokens, chosen)
            bench.pass_kept(random.integers(0, vocab, rows).tolist())


@pytest.mark.parametrize(("kind", "config"), thinned(KINDS, [EDGE, BASE]))
def test_equals_the_interpreter(config: Config, kind: str) -> None:
    print(f"seed {SEED}")
    rows = 8 if config is BASE else 4
    _walk(Chunking(random_network(KINDS[kind], SEED), config, rows), rows,
          [90, 131, min(KINDS[kind].positions, 1400) - 3 * rows])


@pytest.mark.parametrize("seed", some(range(6)))
def test_random_schedules(seed: int) -> None:
    """Any rows that always stay, any sizes of chunks."""
    random = np.random.default_rng(seed)
    page = int(random.choice([4, 8, 16, 32]))
    bench = Chunking(random_network(replace(LLAMA, positions=250, prefix=int(random.integers(0, 3))), seed), EDGE, 4,
                     first=int(random.integers(0, 40)), last=int(random.integers(4, 30)), page=page)
    for count in sorted(random.integers(110, 230, 3).tolist()):
        bench.grow(count)
        settled = bench.pages.settled(count + 4 - bench.network.graph.prefix)
        bench.retrieve(random.integers(0, 61, 4).tolist(), int(random.integers(max(1, bench.pages.sinks), settled + 1)))


def _next_chunks(scores: np.ndarray, count: int, pages: Pages) -> np.ndarray:
    return listed_chunks(np.roll(scores, 1, axis=1), count, pages)


def _without_the_first(scores: np.ndarray, count: int, pages: Pages) -> np.ndarray:
    return listed_chunks(scores, count, replace(pages, first=0))


def _one_row_on(scores: np.ndarray, count: int, pages: Pages) -> np.ndarray:
    return listed_chunks(scores, count, pages) + 1


@pytest.mark.parametrize("fault", [_next_chunks, _without_the_first, _one_row_on])
def test_planted_faults_are_seen(fault: Any) -> None:
    """A list that is off by one in any way differs from the device's."""
    bench = Chunking(random_network(LLAMA, SEED), EDGE, 4)
    bench.fill_cache(150, SEED)
    bench.retrieve([1, 2, 3, 4], 6)
    bench.cache.truncate(150)
    bench.listed = fault
    with pytest.raises(AssertionError):
        bench.retrieve([1, 2, 3, 4], 6)


def test_equal_scores_take_the_oldest() -> None:
    """And the first chunks stand before any score."""
    pages = Pages(page=4, keep=1.0, first=3, last=4, whole=1)
    scores = np.array([[-5, 7, 7, 9, 7], [1, (1 << 15) - 1, 0, 0, 0]])
    np.testing.assert_array_equal(listed_chunks(scores, 3, pages)[:, ::4] // 4, [[0, 1, 3], [0, 1, 2]])


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    sizes = replace(LLAMA, head_dim=8, hidden=20, inner=24, positions=100, layers=2, prefix=1)
    with RtlDevice(TINY) as rtl:
        bench = Chunking(random_network(sizes, SEED), TINY, 2, rtl, first=3, last=3, page=4)
        bench.grow(60)
        bench.retrieve([1, 2], 6)
        bench.pass_kept([3])


@pytest.mark.parametrize(("kept", "message"), [
    (12, r"multiple of 8 from 16 .* to 72 .*, not 12"), (8, "not 8"), (80, "not 80")])
def test_refuses_numbers(kept: int, message: str) -> None:
    selection = Chunking(random_network(LLAMA, SEED), BASE, 8).selection
    with pytest.raises(CompileError, match=message):
        selection.select.choosing_registers(8, 80, kept)


def test_refuses_chunks() -> None:
    network = random_network(LLAMA, SEED)
    program = compile_network(network, BASE, rows=8, tokens=True)
    with pytest.raises(CompileError, match="at least the 8 of a pass, not 7"):
        compile_chunks(network, program, rows=8, first=0, last=7, page=8, base_address=1 << 24)
    with pytest.raises(CompileError, match="a multiple of 8, not 4"):
        compile_chunks(network, program, rows=8, first=0, last=8, page=4, base_address=1 << 24)
