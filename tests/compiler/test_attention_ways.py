"""Other ways of attention of decoders: scores through DRAM, and online by blocks of keys, both the interpreter's."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, Softmax
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.search.greedy import compile_greedy
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.general_bench import GeneralBench
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.compiler.test_greedy import compare, filled
from tests.thinned import thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
LLAMA = Sizes(family="llama", hidden=48, inner=100, heads=6, kv_heads=3, head_dim=24, layers=2, vocab=61, positions=96)
GPT2 = replace(LLAMA, family="gpt2", heads=3)
SEED = 20261125
KINDS = {"llama, shared heads": LLAMA, "gpt2": GPT2,
         "opt, 80 columns a head": replace(GPT2, family="opt", head_dim=80, layers=1)}
WAYS = {"standard": {"standard": True}, "online": {}}


def _network(sizes: Sizes, way: str, config: Config, softmax: Softmax | None = None) -> Network:
    """Online by blocks of 4 keys on ``tiny``, else of two column groups."""
    block = config.dim if config is TINY else 2 * config.dim
    return random_network(sizes, SEED).with_softmax(softmax, block if way == "online" else None)


def _compiled(network: Network, config: Config, way: str, **options: Any) -> Bench:
    return Bench(compile_network(network, config, **WAYS[way], **options), network)


def _walk(bench: Bench, rows: int, last: int) -> None:
    """Passes of all sizes, so that new rows begin and end everywhere in a block."""
    random, vocab = np.random.default_rng(SEED), bench.network.graph.vocab
    while (left := last - bench.cache.length()) > 0:
        count = min(left, int(random.integers(1, rows + 1)))
        bench.chain(random.integers(0, vocab, count).tolist(), wanted=int(random.integers(0, count + 1)))


@pytest.mark.parametrize(("device", "network"), thinned([(TINY, 2), (EDGE, 3), (BASE, 4)], product(KINDS, WAYS)))
def test_equals_the_interpreter(device: tuple[Config, int], network: tuple[str, str]) -> None:
    """Contexts of no block, whole and begun ones, and several rows across their ends."""
    (config, rows), (kind, way) = device, network
    made = _network(KINDS[kind], way, config)
    bench = _compiled(made, config, way, rows=rows)
    assert bench.program.scores == {"standard": "through DRAM", "online": "seen once"}[way]
    _walk(bench, rows, 5 * config.dim + 3)


@pytest.mark.parametrize("way", WAYS)
def test_other_exponentials_and_long_blocks(way: str) -> None:
    """Softermax's; of a tree a row sees its ancestors alone, in a block that is longer than the context."""
    network = random_network(GPT2, SEED).with_softmax(Softmax.SOFTERMAX, 128 if way == "online" else None)
    bench = _compiled(network, BASE, way, rows=7, context=60)
    bench.chain([5, 6, 7])
    bench.forward(Rows.tree([1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 1, 1, 2, 5], 3))
    bench.cache.truncate(4)
    _walk(bench, 7, 40)


@pytest.mark.parametrize("way", WAYS)
def test_sequences_of_a_batch(way: str) -> None:
    """Each behind a cache of its own, with as many rows as the pass has or fewer."""
    bench = _compiled(_network(LLAMA, way, EDGE), EDGE, way, rows=2, batch=3)
    for tokens in ([[1], [2, 3], [4]], [[5, 6], [7], [8, 9]]):
        bench.ragged(tokens)
    for i in range(9):
        bench.ragged([[i, 1], [i], [2, i]])


@pytest.mark.parametrize("way", WAYS)
def test_the_general_program(way: str) -> None:
    network = _network(LLAMA, way, BASE)
    bench = GeneralBench(compile_network(network, BASE, rows=4, general=True, **WAYS[way]), network)
    for first in (1, 5, 9):
        bench.chain([first, 2, 3, 4], (0, 2), Answers(rows=2, logits=True, top=True, hidden=0))
    bench.chain([3, 4], (0, 1), Answers(rows=0, hidden=2))


def test_a_greedy_loop_with_online_attention() -> None:
    network = _network(LLAMA, "online", EDGE)
    loop = compile_greedy(network, EDGE, effort=1)
    for position, steps in ((0, 20), (15, 3), (loop.max_positions - 1, 1)):
        compare(loop, filled(loop, network, 1), 9, position, steps)


def test_online_numbers_do_not_depend_on_how_a_chain_is_cut() -> None:
    """Not the exact way's numbers, but one row at a time they are those of all rows together."""
    plain, network = random_network(GPT2, SEED), _network(GPT2, "online", EDGE)
    tokens = np.random.default_rng(SEED).integers(0, GPT2.vocab, 40).tolist()
    together, exact = (IntegerInterpreter(one).forward(Rows.chain(tokens, 0), Cache(one.graph))
                       for one in (network, plain))
    cache, one = Cache(network.graph), IntegerInterpreter(network)
    alone = np.concatenate([one.forward(Rows.chain([token], i), cache) for i, token in enumerate(tokens)])
    assert np.array_equal(alone, together)
    assert not np.array_equal(exact, together)


def test_the_standard_way_moves_what_it_says() -> None:
    """Scores and probabilities of whole blocks once out and once back, beside what the device's way moves."""
    sizes = replace(GPT2, layers=1, positions=4096, head_dim=16)  # so long that the exact way goes by blocks too
    network, moved = random_network(sizes, SEED), []
    for standard in (False, True):
        bench = Bench(compile_network(network, EDGE, rows=2, standard=standard), network)
        bench.fill_cache(100, SEED)
        bench.chain([1, 2], wanted=0)
        moved.append((bench.stored, bench.loaded))
    out, back = np.subtract(moved[1], moved[0])
    columns = 8 + -(-100 // 64) * 64  # a group of new rows, and blocks of 64
    assert out == 3 * 2 * columns * 5  # heads, rows, four bytes and one
    assert back - out in (0, -100 * 3 * 16)  # where the exact way loads keys twice, this one does not


@pytest.mark.parametrize(("config", "way"), thinned([TINY, EDGE, BASE], WAYS))
def test_no_context_races(config: Config, way: str) -> None:
    """Bodies of no turn change distances of waits, so every number of cached rows is verified, also of a batch."""
    network = _network(replace(LLAMA, positions=9 * config.dim, layers=1, head_dim=8), way, config)
    most = network.graph.positions
    program = compile_network(network, config, rows=2, **WAYS[way])
    program.verified(*(program.registers(rows, cached) for rows in (1, 2) for cached in range(most - rows)))
    several = compile_network(network, config, rows=2, batch=2, **WAYS[way])
    several.verified(*(several.registers_of_batch([1, 2], [cached, most - 2 - cached], True)
                       for cached in range(most - 2)))


@pytest.mark.rtl
@pytest.mark.parametrize(("config", "way"), thinned([TINY, EDGE], WAYS))
def test_rtl_gives_the_same_bytes_in_the_same_cycles(config: Config, way: str) -> None:
    """Rows shared and not, behind no block, one and several."""
    with RtlDevice(config) as rtl:
        for sizes in (replace(LLAMA, head_dim=8), replace(GPT2, head_dim=8)):
            network = _network(sizes, way, config)
            bench = Bench(compile_network(network, config, rows=2, **WAYS[way]), network, rtl)
            for tokens in ([1, 2], [3], [4, 5]):
                bench.chain(tokens)
            bench.cache = Cache(network.graph)
            bench.fill_cache(5 * config.dim, SEED)
            for tokens in ([6, 7], [8]):
                bench.chain(tokens)


@pytest.mark.parametrize(("block", "options", "rule"), [
    (12, {}, "a power of two and a multiple of 16 up to 1024, and no standard way, not 12"),
    (8, {}, "a multiple of 16 up to 1024, and no standard way, not 8"),
    (2048, {}, "up to 1024, and no standard way, not 2048"),
    (1024, {}, "2 rows with a block of 1024 keys and values must fit 5/8 of the scratchpad and the acc.* of base"),
    (32, {"standard": True}, "and no standard way, not 32"),
    (32, {"pool": 90}, r"online attention takes a cache in order, not by list \(pages\): use exact"),
    (None, {"pool": 90, "standard": True}, r"standard attention takes a cache in order, not by list \(pages\)"),
])
def test_refused(block: int | None, options: dict[str, Any], rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        compile_network(random_network(replace(GPT2, head_dim=80), SEED).with_softmax(None, block), BASE, rows=2,
                        **options)
