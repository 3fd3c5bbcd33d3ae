"""Passes whose rows choose pages: answers, caches and representatives are the integer interpreter's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import IntegerInterpreter, Network, Pages, Rows
from gemmule.compiler.ir.pages import page_means
from gemmule.compiler.kernels.attention.chosen.pages import MEANS
from gemmule.compiler.programs.chosen.pages_program import PagesProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.search.pages import longest_pages
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261127
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61, positions=150)
KINDS = {"shared heads": LLAMA, "prefix": replace(LLAMA, prefix=2), "gpt2": replace(LLAMA, family="gpt2"),
         "a head each": replace(LLAMA, kv_heads=6), "one head": replace(LLAMA, heads=3, kv_heads=1, prefix=1)}
HALF = Pages(page=8, keep=0.5, first=3, last=8, whole=20)


class Choosing(Bench):
    """A program whose rows choose pages, and the interpreter."""

    program: PagesProgram

    def __init__(self, network: Network, config: Config, rows: int, pages: Pages, *others: Any) -> None:
        super().__init__(compile_network(network, config, rows=rows, pages=pages), network, *others)
        self.interpreter = IntegerInterpreter(network, pages)
        self.pages = pages

    def check_means(self) -> None:
        """Representatives of the pages that were candidates are those of the cached keys."""
        layout, (address, _) = self.program.layout, self.program.symbols[MEANS]
        every, prefix = self.program.mapping.every, self.network.graph.prefix
        settled = self.pages.settled(self.cache.length() - prefix)
        for number, node in enumerate(self.network.graph.attentions):
            keys, _ = self.cache.contents(node.name)
            heads = keys[prefix:].reshape(-1, node.kv_heads, node.head_dim).transpose(1, 0, 2)
            for kv, means in enumerate(page_means(heads, self.pages)[:, :settled]):
                for device in self.devices:
                    raw = device.read_dram(address + (number * node.kv_heads + kv) * every * layout.row,
                                           settled * layout.row)
                    np.testing.assert_array_equal(
                        np.frombuffer(raw, dtype=np.int8).reshape(settled, -1)[:, :node.head_dim], means)


def _walk(bench: Choosing, random: np.random.Generator, until: int) -> None:
    """Passes of random length, some of whose rows are rejected."""
    most = bench.program.max_rows
    while bench.cache.length() < until - most:
        bench.chain(random.integers(0, 61, int(random.integers(1, most + 1))).tolist())
        if random.random() < 0.3:
            prefix = bench.network.graph.prefix
            bench.cache.truncate(max(prefix, bench.cache.length() - int(random.integers(0, 2 * most))))
    bench.check_means()


@pytest.mark.parametrize(("kind", "config"), thinned(KINDS, [EDGE, BASE]))
def test_equals_the_interpreter(config: Config, kind: str) -> None:
    print(f"seed {SEED}")
    bench = Choosing(random_network(KINDS[kind], SEED), config, 4, HALF)
    _walk(bench, np.random.default_rng(SEED), 150)


@pytest.mark.parametrize("seed", some(range(6)))
def test_random_schedules(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.choice([1, 2, 4]))
    pages = Pages(page=int(random.choice([4, 8, 16])), keep=random.choice([0.2, 0.5, 1.0]).item(),
                  first=int(random.integers(0, 12)), last=int(random.integers(rows, 24)), whole=40)
    sizes = replace(LLAMA, positions=120, layers=2, prefix=int(random.integers(0, 3)))
    _walk(Choosing(random_network(sizes, seed), EDGE, rows, pages), random, 120)


def test_keeping_everything_is_the_dense_program() -> None:
    """Bit for bit, logits of both programs."""
    network = random_network(LLAMA, SEED)
    bench = Choosing(network, BASE, 4, replace(HALF, keep=1.0))
    bench.interpreter = IntegerInterpreter(network)
    _walk(bench, np.random.default_rng(1), 150)


def test_trees() -> None:
    """Rows of a tree choose as those of their branch; the accepted path is moved, and the next pass goes on from it."""
    bench = Choosing(random_network(LLAMA, SEED), BASE, 8, HALF)
    _walk(bench, np.random.default_rng(3), 100)
    cached = bench.cache.length()
    rows = Rows.chain([1, 2, 3, 4, 5, 6], cached)
    positions, mask = rows.positions.copy(), np.eye(6, dtype=bool)
    positions[:] = cached + np.array([0, 1, 1, 2, 2, 3])
    for row, parent in ((1, 0), (2, 0), (3, 1), (4, 2), (5, 4)):
        mask[row] |= mask[parent]
    bench.forward(replace(rows, positions=positions, mask=mask))
    bench.keep(0, cached, [0, 2, 4, 5])
    _walk(bench, np.random.default_rng(4), 150)


def _one_less(pages: Pages) -> Pages:
    return replace(pages, keep=0.4)


def _later(pages: Pages) -> Pages:
    return replace(pages, last=pages.last + 1)


@pytest.mark.parametrize("fault", [_one_less, _later])
def test_planted_faults_are_seen(fault: Any) -> None:
    """A schedule that is a little off gives other logits than the device."""
    bench = Choosing(random_network(LLAMA, SEED), EDGE, 4, HALF)
    bench.interpreter = IntegerInterpreter(bench.network, fault(HALF))
    with pytest.raises(AssertionError):
        _walk(bench, np.random.default_rng(SEED), 150)


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    sizes = Sizes(family="llama", hidden=16, inner=16, heads=2, kv_heads=1, head_dim=8, layers=2, vocab=61,
                  positions=56, prefix=1)
    with RtlDevice(TINY) as rtl:
        bench = Choosing(random_network(sizes, SEED), TINY, 2, replace(HALF, page=4, first=2, last=5), rtl)
        _walk(bench, np.random.default_rng(SEED), 56)


def test_the_longest_context_that_fits() -> None:
    """Halved as often as it takes; a number of rows fits where a share does not."""
    network = random_network(replace(LLAMA, positions=4000), SEED)

    def made(pages: Pages, tried: list[int]) -> PagesProgram:
        def make(context: int) -> ModelProgram:
            tried.append(context)
            return compile_network(network, EDGE, rows=2, context=context, pages=pages, checked=False)

        found = longest_pages(network.graph, EDGE, 2, pages, make)
        assert isinstance(found, PagesProgram)
        return found

    share, number = list[int](), list[int]()
    assert made(HALF, share).max_positions == share[-1] == 2000
    assert made(replace(HALF, keep=60), number).max_positions == 4000
    assert number == [4000]
    with pytest.raises(CompileError, match="a page must be"):
        made(replace(HALF, page=2), [])


@pytest.mark.parametrize(("config", "pages", "options", "message"), [
    (BASE, replace(HALF, page=4), {}, "a page must be a multiple of 8 rows, half of the device's 16 lanes, not 4"),
    (BASE, replace(HALF, last=3), {}, r"the newest rows \(last\) must be at least the 4 of a pass, not 3"),
    (TINY, replace(HALF, page=2), {}, "must fit 7/12 of the scratchpad"),
    (BASE, HALF, {"general": True}, "are for a sequence alone"), (BASE, HALF, {"batch": 2}, "are for a sequence alone"),
    (Config.model_validate(BASE.model_dump() | {"name": "short-lists", "list_entries": 128}), HALF, {},
     "list_entries must be at least")])
def test_refuses(config: Config, pages: Pages, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_network(random_network(LLAMA, SEED), config, rows=4, pages=pages, **options)
