"""Cache rows by list: wherever in the pool they stand, answers are the interpreter's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Rows
from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import thinned

LLAMA = Sizes(family="llama", hidden=24, inner=40, heads=4, kv_heads=2, head_dim=24, layers=2, vocab=61, positions=60)
CASES = {"llama": LLAMA, "gpt2": replace(LLAMA, family="gpt2", heads=2, kv_heads=2),
         "many heads": replace(LLAMA, heads=12, kv_heads=12, head_dim=16, hidden=64)}
POOL, SEED = 90, 20261124


def _walk(bench: Bench, rows: int, positions: int) -> None:
    """Chains and single tokens up to the last position, each position's row drawn from the pool."""
    random = np.random.default_rng(SEED)
    places, vocab = random.permutation(POOL), bench.network.graph.vocab
    while (at := bench.cache.length()) < positions:
        count = min(int(random.integers(1, rows + 1)), positions - at)
        tokens = random.integers(0, vocab, count).tolist()
        bench.forward(Rows.chain(tokens, at), places=places[:at + count])


@pytest.mark.parametrize(("name", "preset"), thinned(CASES, ["edge", "base"]))
def test_equals_interpreter(name: str, preset: str) -> None:
    network = random_network(CASES[name], SEED)
    print(f"seed {SEED}")
    _walk(Bench(compile_network(network, load_config(preset), rows=4 if preset == "base" else 2, pool=POOL), network),
          2, LLAMA.positions)


def test_a_path_is_kept_by_the_list_alone() -> None:
    """Of a tree the accepted rows stay where they are; the list names them, others are drawn for what follows."""
    network = random_network(LLAMA, SEED)
    bench = Bench(compile_network(network, load_config("base"), rows=4, pool=POOL), network)
    places = np.arange(40, 50)
    bench.forward(Rows.chain([1, 2, 3]), places=places[:3])
    bench.forward(Rows.tree([4, 5, 6, 7], [-1, 0, 0, 2], 3), places=places[:7])
    bench.cache.keep([0, 1, 2, 3, 5, 6], 0)
    kept = places[[0, 1, 2, 3, 5, 6]]
    bench.forward(Rows.chain([8, 9], 6), places=np.concatenate([kept, [4, 80]]))


@pytest.mark.rtl
def test_rtl_equals_interpreter() -> None:
    network, config = random_network(replace(LLAMA, head_dim=8, positions=24), SEED), load_config("tiny")
    with RtlDevice(config) as rtl:
        _walk(Bench(compile_network(network, config, rows=2, pool=POOL), network, rtl), 2, 24)


@pytest.mark.parametrize(("change", "rule"), [
    ({"general": True}, "for the plain program"), ({"values": 4}, "a sequence alone, a cache in order"),
])
def test_refused(change: dict[str, int], rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        compile_network(random_network(LLAMA, SEED), load_config("base"), rows=2, pool=POOL, **change)


@pytest.mark.parametrize(("places", "rule"), [
    ([0, 1, 2], "2 different ones from 0 to 89, not 3"), ([0, 90], "from 0 to 89, not 2 from 0 to 90"),
    ([5, 5], "2 different ones"),
])
def test_refuses_rows_that_are_not_there(places: list[int], rule: str) -> None:
    program = compile_network(random_network(LLAMA, SEED), load_config("base"), rows=2, pool=POOL)
    with pytest.raises(CompileError, match=rule):
        program.step(Rows.chain([1, 2]), 2, places=np.array(places))


def test_refuses_contexts_beyond_the_list() -> None:
    network = random_network(replace(LLAMA, heads=1, kv_heads=1, head_dim=16, positions=2048), SEED)
    with pytest.raises(CompileError, match="must hold 2052 entries, tokens, positions and 2048 cache rows, not 2048"):
        compile_network(network, load_config("base"), rows=2, pool=4096)
