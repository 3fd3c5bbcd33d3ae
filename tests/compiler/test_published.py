"""What published networks need of a program: 16 bits within the MLP, a prefix in the cache, a residual step a layer."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Rows
from gemmule.compiler.programs.general_program import Answers
from gemmule.config import Config, load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.general_bench import GeneralBench
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
LLAMA = Sizes(family="llama", hidden=48, inner=100, heads=6, kv_heads=3, head_dim=24, layers=3, vocab=61, positions=96)
SEED = 20261126
KINDS = {
    "wide": replace(LLAMA, wide=True), "prefix": replace(LLAMA, prefix=2), "steps": replace(LLAMA, steps=True),
    "all": replace(LLAMA, wide=True, prefix=1, steps=True),
    "all, gpt2": replace(LLAMA, family="gpt2", heads=3, wide=True, prefix=1, steps=True),
    "all, phi": replace(LLAMA, family="phi", heads=3, wide=True, prefix=1, steps=True),
    "all, int4": replace(LLAMA, wide=True, prefix=1, steps=True, bits=4, group=8),
    "all, many layers": replace(LLAMA, wide=True, prefix=1, steps=True, layers=18, vocab=40),
}


@pytest.mark.parametrize(("kind", "config"), [
    *thinned(KINDS, [EDGE, BASE]), *some(product(KINDS, [TINY]))])
def test_equals_the_interpreter(kind: str, config: Config) -> None:
    """Chains of every size, and a tree, behind the prefix."""
    random, sizes, rows = np.random.default_rng(SEED), KINDS[kind], {"tiny": 2, "edge": 5, "base": 16}[config.name]
    if sizes.group:
        sizes = replace(sizes, group=config.dim, head_dim=max(config.dim, 24) // config.dim * config.dim)
    network = random_network(sizes, SEED)
    bench = Bench(compile_network(network, config, rows=rows), network)
    assert bench.cache.length() == sizes.prefix
    for count in (rows, 1, rows - 1 or 1, rows):
        bench.chain(random.integers(0, sizes.vocab, count).tolist())
    first = bench.cache.length()
    bench.forward(Rows.tree([1, 2], [-1, -1], first))
    bench.cache.truncate(first)
    bench.chain([3])


WAYS: dict[str, tuple[Sizes, str, dict[str, Any]]] = {
    "whole": (replace(LLAMA, prefix=3), "kept", {}), "pages": (replace(LLAMA, prefix=3), "kept", {"pool": 128}),
    "blocks": (replace(LLAMA, prefix=3, positions=4000), "kept in part", {}),
    "standard": (replace(LLAMA, prefix=3), "through DRAM", {"standard": True}),
    "online": (replace(LLAMA, prefix=3), "seen once", {})}
"""Of attention: a network, where its scores are, options of the compiler."""


@pytest.mark.parametrize(("way", "device"), thinned(WAYS, [(EDGE, 5), (BASE, 8)]))
def test_ways_of_attention(way: str, device: tuple[Config, int]) -> None:
    """The prefix comes last, whatever the scores do; online, blocks have it as any other row."""
    (sizes, scores, options), (config, rows) = WAYS[way], device
    random, network = np.random.default_rng(SEED), random_network(sizes, SEED)
    if scores == "seen once":
        network = network.with_softmax(None, 2 * config.dim)
    bench = Bench(compile_network(network, config, rows=rows, **options), network)
    assert bench.program.scores == scores
    for count in (1, rows, *[rows] * 9, 1, rows - 1):
        bench.chain(random.integers(0, sizes.vocab, count).tolist())


def test_sequences_of_a_batch() -> None:
    """Each has the prefix in a cache of its own."""
    network = random_network(KINDS["all"], SEED)
    bench = Bench(compile_network(network, EDGE, rows=2, batch=3), network)
    for tokens in ([[1], [2, 3], [4]], [[5, 6], [7], [8, 9]], [[1], [1], [1]]):
        bench.ragged(tokens)


@pytest.mark.rtl
@pytest.mark.parametrize(("config", "rows"), some([(EDGE, 3), (TINY, 2)]), ids=["edge", "tiny"])
def test_rtl_gives_the_same_bytes_in_the_same_cycles(config: Config, rows: int) -> None:
    """All three at once: a gate and GELU alone, groups of int4; the plain program and the general one."""
    small = Sizes(family="llama", inner=52, heads=4, head_dim=16, wide=True, prefix=1, steps=True)
    with RtlDevice(config) as rtl:
        for sizes in (small, replace(small, family="gpt2", kv_heads=4, prefix=2), replace(small, bits=4, group=4)):
            if sizes.group % config.dim:
                sizes = replace(sizes, group=config.dim)
            network = random_network(sizes, SEED)
            program = compile_network(network, config, rows=rows, general=sizes is small)
            bench = Bench(program, network, rtl)
            for tokens in ([1, 2], [3], [4, 5], [6] * rows):
                bench.chain(tokens)
            bench.cache.truncate(sizes.prefix)
            bench.chain([7, 8])
            if sizes is small:
                general = GeneralBench(program, network, rtl)
                general.chain([1, 2], (0, 2), Answers(rows=2, logits=True, hidden=0))
                general.chain([3], (1, 1), Answers(rows=1, top=True))
