"""Weights that meet nothing but zeros are not loaded, and the device's answers are the integer interpreter's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Activation, Network
from gemmule.compiler.passes.map import Choice, choices
from gemmule.compiler.quantize.listed import listed
from gemmule.config import load_config
from gemmule.isa import Unit
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import some

SEED = 20261127
GPT2 = Sizes(family="gpt2", hidden=32, inner=300, heads=2, kv_heads=2, head_dim=16, layers=3, vocab=203, positions=40)


def sparse(network: Network, share: float) -> Network:
    """The network with so many of the numbers that its activations give set to 0, at random."""
    random, weights = np.random.default_rng(SEED), dict(network.weights)
    for node in network.graph.nodes:
        if isinstance(node, Activation):
            name = node.tensors["table"]
            table = weights[name].copy()
            table[random.random(len(table)) < share] = 0
            weights[name] = table
    return Network(network.graph, weights)


def walk(bench: Bench, rows: int) -> list[int]:
    """Passes of one row and of several; bytes that each loaded."""
    random, loaded = np.random.default_rng(SEED), []
    for count in (1, rows, 1, rows - 1, rows):
        bench.chain(random.integers(0, bench.network.graph.vocab, count).tolist())
        loaded.append(bench.loaded)
    return loaded


@pytest.mark.parametrize("share", [0.0, 0.5, 0.85, 1.0])
@pytest.mark.parametrize(("preset", "rows"), [("base", 4), ("edge", 3)])
def test_equals_interpreter(preset: str, rows: int, share: float) -> None:
    config, network = load_config(preset), sparse(random_network(GPT2, SEED), share)
    plain = walk(Bench(compile_network(network, config, rows=rows), network), rows)
    program = compile_network(listed(network), config, rows=rows)
    found = walk(Bench(program, network), rows)
    weights = GPT2.layers * GPT2.hidden * 304
    saved = (np.array(plain) - found) / weights
    print(f"seed {SEED}: {saved} of the weights not loaded")
    if share == 1:
        assert np.all(saved > 0.85)  # the first block of each layer is always loaded
    elif share:
        assert np.all(saved[[0, 2]] > 0.8 * share - 0.1)
        assert saved[0] > saved[1]  # several rows meet more
    else:
        assert np.all(saved < 0.05)


def test_gated_and_several_parts() -> None:
    """More columns than the select unit takes at once; products behind the activation."""
    config = load_config("base").model_copy(update={"select_keys": 128})
    sizes = replace(GPT2, family="llama", inner=290)
    network = sparse(random_network(sizes, SEED), 0.8)
    walk(Bench(compile_network(listed(network), config, rows=4), network), 4)


def test_as_one_body_and_in_a_batch() -> None:
    config, network = load_config("base"), sparse(random_network(GPT2, SEED), 0.8)
    skipping = listed(network)
    every = choices(skipping.graph, config, rows=2, batch=1, context=24, tokens=False)
    rolled = [Choice(tuple(replace(one, rolled=True) for one in choice.mappings), choice.apart) for choice in every]
    walk(Bench(compile_network(skipping, config, rows=2, context=24, among=rolled), network), 2)
    bench = Bench(compile_network(skipping, config, rows=2, batch=3), network)
    bench.ragged([[1, 2], [3], [4, 5]])
    bench.ragged([[7], [6, 3], [1, 2]])


@pytest.mark.rtl
@pytest.mark.parametrize(("preset", "rows"), some([("tiny", 1), ("base", 4)]))
def test_on_rtl(preset: str, rows: int) -> None:
    """The same bytes in the same cycles, which depend on what the rows are."""
    config = load_config(preset)
    sizes = replace(GPT2, layers=1, inner=60, hidden=16, head_dim=8) if preset == "tiny" else replace(GPT2, layers=2)
    network = sparse(random_network(sizes, SEED), 0.5 if preset == "tiny" else 0.8)
    program = compile_network(listed(network), config, rows=rows)
    with RtlDevice(config, watchdog=200_000) as rtl:
        bench = Bench(program, network, rtl)
        cycles = {bench.chain([token]) for token in (3, 5, 90, 4)}
        if rows > 1:
            bench.chain([1, 2, 3, 4])
    assert len(cycles) > 1


def test_refused() -> None:
    config = load_config("base").model_copy(update={"list_entries": 256, "select_keys": 256})
    with pytest.raises(CompileError, match="the index list must hold 264 entries, tokens, positions and columns that"):
        compile_network(listed(random_network(GPT2, SEED)), config, rows=4)
    with pytest.raises(CompileError, match="int8 rows behind an activation meet int8 weights, which this network does"):
        listed(random_network(replace(GPT2, bits=4, inner=304), SEED))


def test_what_is_predicated() -> None:
    """All but the first block of each list."""
    program = compile_network(listed(sparse(random_network(GPT2, SEED), 0.5)), load_config("base"), rows=1)
    for unit in (Unit.LOAD, Unit.MATRIX):
        numbers = [c.predicate for c in program.commands if c.unit is unit and c.predicate]
        assert set(numbers) == {1, 2, 3}
