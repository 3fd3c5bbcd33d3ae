"""Networks of every family through all passes: the device's answers are the integer interpreter's."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, Form, IntegerInterpreter, Rows, Softmax
from gemmule.compiler.kernels.attention.block import BlockMapping
from gemmule.compiler.passes.map import Choice, choices, default_rows
from gemmule.compiler.quantize.activation import with_activation
from gemmule.config import load_config
from gemmule.isa import CONTROL, Unit, VOp
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sw.workloads.passes import Passes
from tests.compiler.integer_networks import Sizes, random_network, scaled
from tests.compiler.passes_bench import Bench
from tests.thinned import some, thinned

LLAMA = Sizes(family="llama", hidden=48, inner=100, heads=6, kv_heads=3, head_dim=24, layers=5, vocab=1003)
GPT2 = replace(LLAMA, family="gpt2")
CASES = {
    "llama, 24 columns a head": LLAMA,
    "llama, 80 columns a head": replace(LLAMA, head_dim=80, layers=2),
    "gpt2, 24 columns a head": GPT2,
    "gpt2, 80 columns a head": replace(GPT2, head_dim=80, layers=2),
    "opt, a KV head for each head": replace(GPT2, family="opt", kv_heads=6),
    "phi, half of a head rotated": replace(GPT2, family="phi", layers=3),
    "gpt-neox, two norms of one input": replace(GPT2, family="gpt_neox", kv_heads=6, layers=3),
    "qwen2, biases of q, k and v": replace(LLAMA, family="qwen2", layers=2),
    "qwen3, norms of heads": replace(LLAMA, family="qwen3", layers=2),
    "qwen3, 80 columns a head": replace(LLAMA, family="qwen3", head_dim=80, layers=1),
    "one head, one layer, odd sizes": Sizes(family="llama", hidden=17, inner=19, heads=1, kv_heads=1, head_dim=2,
                                            layers=1, vocab=5),
    "int4": replace(LLAMA, bits=4, kv_heads=6),
    "int4 in groups": replace(GPT2, bits=4, group=32, hidden=64, head_dim=32, heads=2, kv_heads=2, inner=128),
    "int4 in groups, padded and shared heads": replace(LLAMA, bits=4, group=16, head_dim=16, hidden=40),
}
SEED = 20261123


def _walk(bench: Bench, rows: int, last: int, seed: int) -> None:
    """Prefill in pieces, then single tokens around every end of a block, to the last position."""
    random = np.random.default_rng(seed)
    vocab = bench.network.graph.vocab

    def tokens(count: int) -> list[int]:
        return [int(token) for token in random.integers(0, vocab, count)]

    while bench.cache.length() + rows <= last:
        at = bench.cache.length()
        near = (at + 1) % 8 < 3
        bench.chain(tokens(1 if near else rows), wanted=None if near else int(random.integers(0, rows + 1)))
    while bench.cache.length() < last:
        bench.chain(tokens(1))


@pytest.mark.parametrize(("name", "preset"), [
    *thinned(CASES, ["base", "edge"]),
    *(pytest.param(name, "tiny", id=f"{name}-tiny", marks=() if name == "int4 in groups" else pytest.mark.long)
      for name in CASES)])
def test_equals_interpreter(preset: str, name: str) -> None:
    config, sizes = load_config(preset), CASES[name]
    share, tiny = sizes.heads // sizes.kv_heads, preset == "tiny"
    rows = 1 if tiny else min(4, config.stat_rows // share)
    sizes = replace(sizes, layers=min(sizes.layers, 2)) if tiny else sizes  # the mapping is long sought
    network = random_network(sizes, SEED)
    program = compile_network(network, config, rows=rows)
    print(f"seed {SEED}, {len(program.commands)} commands")
    _walk(Bench(program, network), rows, sizes.positions, SEED)


@pytest.mark.parametrize("positions", [1, 6, 8])
def test_no_more_rows_than_positions(positions: int) -> None:
    """Where nobody asks for a number, a network of few positions compiles too."""
    config, network = load_config("base"), random_network(replace(LLAMA, layers=1, positions=positions), SEED)
    rows = default_rows(network.graph, config)
    assert rows <= positions < 2 * rows
    _walk(Bench(compile_network(network, config, rows=rows), network), rows, positions, SEED)


@pytest.mark.parametrize("softmax", Softmax)
def test_other_exponentials_equal_the_interpreter(softmax: Softmax) -> None:
    name = next(iter(CASES))
    network = random_network(replace(CASES[name], layers=1), SEED).with_softmax(softmax)
    config = load_config("base")
    _walk(Bench(compile_network(network, config, rows=2), network), 2, 24, SEED)
    with pytest.raises(CompileError, match=f"softmax {softmax} needs a device with comparison_modes, not edge"):
        compile_network(network, load_config("edge"), rows=2)


@pytest.mark.parametrize(("name", "preset"), some([
    *product(["llama, 24 columns a head", "gpt2, 24 columns a head", "phi, half of a head rotated",
              "gpt-neox, two norms of one input", "qwen3, norms of heads"], ["base"]),
    ("int4 in groups, padded and shared heads", "tiny"),
    *product(["llama, 24 columns a head", "gpt2, 24 columns a head", "phi, half of a head rotated",
              "gpt-neox, two norms of one input", "qwen3, norms of heads"], ["tiny"]),
    ("int4 in groups, padded and shared heads", "base")], 6))
def test_without_fusion_the_same_bytes(name: str, preset: str) -> None:
    """Every result goes out and comes back, whatever the layers' form; the device gives what it gave."""
    network, config = random_network(replace(CASES[name], layers=2), SEED), load_config(preset)
    rows = 1 if preset == "tiny" else 4
    fused, apart = (compile_network(network, config, rows=rows, context=40, fused=fused) for fused in (True, False))
    assert len(apart.commands) > len(fused.commands)
    _walk(Bench(apart, network), rows, 40, SEED)


def test_a_batch_without_fusion() -> None:
    config, network = load_config("base"), random_network(replace(LLAMA, layers=2), SEED)
    bench = Bench(compile_network(network, config, rows=3, batch=2, fused=False), network)
    for count in (1, 3):
        bench.ragged([[1, 2, 3], [4]], count)


@pytest.mark.parametrize("name", ["gpt2, 24 columns a head", "llama, 24 columns a head"])
def test_what_moves_without_fusion(name: str) -> None:
    """To the byte: sums of every product, norms, contexts, activations, products, residuals, out and back."""
    sizes, config = replace(CASES[name], layers=2), load_config("base")
    network, dim = random_network(sizes, SEED), config.dim

    def wide(columns: int) -> int:
        return -(-columns // dim) * dim

    moved = []
    for fused in (True, False):
        program = compile_network(network, config, rows=1, context=40, fused=fused)
        with Passes(program, network, "model", SEED, True) as passes:
            passes.run(1, 1)
        moved.append(passes.moved)
    gated = sizes.family == "llama"
    heads = (sizes.heads + 2 * sizes.kv_heads) * wide(sizes.head_dim)
    hidden, inner = wide(sizes.hidden), wide(sizes.inner)
    sums = heads + hidden + (1 + gated) * inner + hidden
    bytes_ = 2 * hidden + sizes.heads * wide(sizes.head_dim) + (1 + gated) * inner + 2 * 2 * hidden
    wanted = sizes.layers * (4 * sums + bytes_) + 2 * hidden + hidden + 4 * wide(sizes.vocab)
    assert moved[1]["store"] - moved[0]["store"] == wanted
    assert moved[1]["load"] - moved[0]["load"] == wanted


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(("family", "preset"), some([
    ("gpt2", "base"), ("llama", "base"), ("gpt2", "tiny"), ("llama", "tiny")], 2))
def test_other_activations_equal_the_interpreter(family: str, preset: str, form: Form) -> None:
    """Also as one body of layers whose results have other steps, gated and not; not the table's numbers."""
    plain = scaled(random_network(Sizes(family=family, layers=3), SEED))
    network, config = with_activation(plain, form), load_config(preset)
    if form is Form.IBERT:
        shifts = {int(tensor[0]) for name, tensor in network.weights.items() if name.endswith("activation.shift")}
        assert len(shifts) == 3
    program = compile_network(network, config, rows=2, context=24)
    bench = Bench(program, network)
    _walk(bench, 2, 24, SEED)
    rows = Rows.chain([5, 6, 7])
    table, other = (IntegerInterpreter(one).forward(rows, Cache(one.graph)) for one in (plain, network))
    assert not np.array_equal(table, other)


def test_other_activations_as_one_body() -> None:
    """The shifts of layers come from registers."""
    network = with_activation(scaled(random_network(Sizes(family="gpt2", layers=3), SEED)), Form.IBERT)
    config = load_config("base")
    every = choices(network.graph, config, rows=2, batch=1, context=24, tokens=False)
    rolled = [Choice(tuple(replace(one, rolled=True) for one in choice.mappings), choice.apart) for choice in every]
    program = compile_network(network, config, rows=2, context=24, among=rolled)
    gelus = [command for command in program.commands if command.unit is Unit.VECTOR and command.op == VOp.I_GELU]
    assert gelus
    assert all(command.fields["scale_reg"] for command in gelus)
    _walk(Bench(program, network), 2, 24, SEED)


@pytest.mark.parametrize(("lacking", "bits", "message"), [
    ("transposition", 8, "attention, which multiplies by transposed keys, needs a device with transposition, not edge: "
                         "use a configuration that has transposition"),
    ("int4", 4, "a network with int4 weights needs a device with int4, not edge: use int8, or a configuration that "
                "has int4")])
def test_a_device_that_lacks_a_feature_is_refused_by_name(lacking: str, bits: Literal[4, 8], message: str) -> None:
    network = random_network(replace(LLAMA, layers=1, bits=bits), SEED)
    with pytest.raises(CompileError, match=re.escape(message)):
        compile_network(network, load_config("edge").model_copy(update={lacking: False}), rows=2)


def test_products_of_a_network_do_without_the_second_dataflow() -> None:
    config = load_config("edge").model_copy(update={"name": "one-dataflow", "output_stationary": False})
    network = random_network(replace(LLAMA, layers=1), SEED)
    _walk(Bench(compile_network(network, config, rows=2), network), 2, 24, SEED)


def test_a_device_without_the_polynomial_refuses_it() -> None:
    network = with_activation(scaled(random_network(Sizes(family="gpt2"), SEED)), Form.IBERT)
    with pytest.raises(CompileError, match="activation ibert needs a device with comparison_modes, not edge: use tab"):
        compile_network(network, load_config("edge"), rows=2)


@pytest.mark.parametrize(("name", "shape"), thinned(CASES, product(["edge", "base"], [(1, 8), (3, 2), (2, 3)])))
def test_batch(name: str, shape: tuple[str, tuple[int, int]]) -> None:
    """Sequences of all lengths in one pass, each with 1 to ``rows`` new rows; one of them is full at the end."""
    preset, (rows, batch) = shape
    config, sizes = load_config(preset), replace(CASES[name], layers=1)
    rows = min(rows, config.stat_rows * sizes.kv_heads // sizes.heads)
    network, random = random_network(sizes, SEED), np.random.default_rng(SEED)
    bench = Bench(compile_network(network, config, rows=rows, batch=batch), network)
    for sequence in range(batch - 1):
        bench.fill_cache(int(random.integers(1, sizes.positions - 3 * rows)), SEED + sequence, sequence)
    bench.fill_cache(sizes.positions - 3, SEED - 1, batch - 1)
    for count in (0, 1, 3):
        counts = [*random.integers(1, rows + 1, batch - 1).tolist(), 1]
        tokens = [random.integers(0, sizes.vocab, n).tolist() for n in counts]
        bench.ragged(tokens, min(count, sum(counts)))
    with pytest.raises(CompileError, match=f"at most {sizes.positions}, not {sizes.positions}"):
        bench.ragged(tokens)


def test_batch_of_trees() -> None:
    """Branches of several sequences in one pass; each one's path is kept where it was accepted."""
    config, network = load_config("base"), random_network(replace(LLAMA, layers=2), SEED)
    program = compile_network(network, config, rows=4, batch=3, tokens=True)
    bench = Bench(program, network)
    bench.ragged([[1, 2, 3], [4], [5, 6, 7, 8]])
    chain, tree = Rows.chain([9], 3), Rows.tree([1, 2, 3, 4], [-1, -1, 1, 1], 1)
    parts = [chain, tree, Rows.tree([5, 6], [-1, -1], 4)]
    counts = [len(part) for part in parts]
    mask = np.zeros((sum(counts), sum(counts)), dtype=bool)
    for part, end in zip(parts, np.cumsum(counts)):
        mask[end - len(part):end, end - len(part):end] = part.mask
    bench.forward(Rows(tokens=np.concatenate([part.tokens for part in parts]),
                       positions=np.concatenate([part.positions for part in parts]),
                       sequences=np.repeat(np.arange(3), counts), mask=mask))
    bench.keep(1, 1, [1, 3])
    bench.keep(2, 4, [1])
    bench.ragged([[1, 2], [3, 4, 5, 6], [7]])


@pytest.mark.parametrize(("rows", "rule"), [
    (Rows.chain([1]), "each of 2 sequences, one behind the other, not of \\[0\\]"),
    (Rows.ragged([[1], [2], [3]], [0, 0, 0]), "not of \\[0, 1, 2\\]"),
    (Rows.ragged([[1, 2, 3], [2]], [0, 0]), "takes 1 to 2 rows, not 3"),
])
def test_refuses_rows_of_other_batches(rows: Rows, rule: str) -> None:
    network = random_network(replace(LLAMA, layers=1, vocab=61), SEED)
    program = compile_network(network, load_config("base"), rows=2, batch=2)
    with pytest.raises(CompileError, match=rule):
        program.step(rows, 0)


@pytest.mark.parametrize("batch", [0, 17])
def test_refuses_batches(batch: int) -> None:
    network = random_network(replace(LLAMA, layers=1, vocab=61), SEED)
    with pytest.raises(CompileError, match=f"must be from 1 to 16, not {batch}: take fewer"):
        compile_network(network, load_config("base"), rows=1, batch=batch)


@pytest.mark.parametrize("preset", some(["edge", "tiny"]))
@pytest.mark.rtl
def test_rtl_equals_interpreter(preset: str) -> None:
    """The same bytes in the same cycles on the RTL, for each family, and for three ragged sequences."""
    config = load_config(preset)
    with RtlDevice(config) as rtl:
        for sizes in (replace(LLAMA, layers=2), replace(GPT2, layers=2), replace(LLAMA, family="qwen3", layers=1)):
            network = random_network(replace(sizes, vocab=203), SEED)
            bench = Bench(compile_network(network, config, rows=2), network, rtl)
            for tokens in ([1, 2], [3]):
                bench.chain(tokens)
            bench.forward(Rows.tree([7, 8], [-1, -1], bench.cache.length()))
        network = random_network(replace(LLAMA, hidden=24, head_dim=8, layers=2, vocab=61), SEED)
        bench = Bench(compile_network(network, config, rows=2, batch=3), network, rtl)
        for batch in ([[1], [2, 3], [4]], [[5, 6], [7], [8, 9]], [[1], [2], [3]]):
            bench.ragged(batch)


@pytest.mark.parametrize("preset", ["edge", "base"])
def test_norms_of_heads_in_a_batch(preset: str) -> None:
    """Heads of each sequence go to rows of their own."""
    network, config = random_network(replace(LLAMA, family="qwen3", layers=2), SEED), load_config(preset)
    for fused in (True, False):
        bench = Bench(compile_network(network, config, rows=2, batch=3, fused=fused), network)
        for batch in ([[1], [2, 3], [4]], [[5, 6], [7], [8, 9]], [[1], [2], [3]]):
            bench.ragged(batch)


@pytest.mark.rtl
@pytest.mark.long
def test_gpt2_layer_on_rtl() -> None:
    """A layer of GPT-2's size in decode behind 512 cached positions: the same bytes in the same cycles."""
    config = load_config("base")
    network = random_network(Sizes(family="gpt2", hidden=768, inner=3072, layers=1, heads=12, kv_heads=12, head_dim=64,
                                   vocab=64, positions=1024), SEED)
    program = compile_network(network, config, rows=1)
    with RtlDevice(config) as rtl:
        bench = Bench(program, network, rtl)
        bench.fill_cache(512, SEED)
        print(bench.chain([3]), "cycles")


def test_tree() -> None:
    """Branches see their ancestors alone; what follows a committed path is as if only that had been there."""
    config, network = load_config("base"), random_network(replace(LLAMA, layers=2), SEED)
    bench = Bench(compile_network(network, config, rows=8), network)
    bench.chain([5, 6, 7, 8, 9])
    bench.forward(Rows.tree([1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 1, 1, 2, 5], 5))


def test_tokens() -> None:
    """Greedy tokens from the device are the lowest of the largest logits."""
    config, network = load_config("edge"), random_network(replace(GPT2, layers=1), SEED)
    bench = Bench(compile_network(network, config, rows=3, tokens=True), network)
    for tokens, wanted in (([1, 2, 3], 3), ([4, 5], 1), ([6, 7], 0), ([8], 1)):
        bench.chain(tokens, wanted)


@pytest.mark.parametrize("batch", [1, 3])
def test_no_answers_no_head(batch: int) -> None:
    """A launch without answers is shorter by the head, whose weights stay where they are."""
    config, network = load_config("base"), random_network(replace(GPT2, layers=2, vocab=5000), SEED)
    program = compile_network(network, config, rows=2, batch=batch, tokens=True)
    moved = []
    for count in (0, 2):
        bench = Bench(program, network)
        tokens = Rows.ragged([[1, 2]] * batch, [0] * batch)
        bench.forward(tokens, count * batch)
        moved.append(bench.loaded)
    assert moved[1] - moved[0] > 0.8 * 5000 * GPT2.hidden  # but for chunks that came before the last layer ended


def test_scores_computed_twice() -> None:
    """Where the accumulator cannot hold the scores of the longest context, they are computed again: same bytes."""
    config = load_config("tiny")
    sizes = replace(LLAMA, layers=1, positions=256, vocab=61)
    network = random_network(sizes, SEED)
    program = compile_network(network, config, rows=2)
    assert program.scores == "computed twice"
    _walk(Bench(program, network), 2, 160, SEED)


@pytest.mark.parametrize(("batch", "prefix"), thinned([1, 2], [0, 3]))
def test_scores_kept_in_part(batch: int, prefix: int) -> None:
    """Those of the first positions stay, the others are computed again: same bytes on both sides of the border."""
    config = load_config("base")
    network = random_network(replace(LLAMA, layers=2, positions=4000, vocab=61, prefix=prefix), SEED)
    program = compile_network(network, config, rows=8, batch=batch, tokens=True)
    attention = program.choice.mappings[0].attention
    assert isinstance(attention, BlockMapping)
    kept, turn = attention.kept, attention.turn
    assert program.scores == "kept in part"
    assert 0 < kept < attention.context // 2
    for number, cached in enumerate((2, turn - 3, kept - 9, kept - 1, kept, kept + 1, kept + turn + 5, 3 * kept)):
        bench = Bench(program, network)
        for sequence in range(batch):
            bench.fill_cache(cached - sequence, SEED + number, sequence)
        for count in (8, 1, 3):
            bench.ragged([list(range(count))] * batch)


@pytest.mark.rtl
@pytest.mark.long
def test_scores_kept_in_part_on_the_rtl() -> None:
    """Around the border, model and RTL in bytes and cycles."""
    config = load_config("edge")
    network = random_network(replace(LLAMA, layers=1, positions=2048, vocab=61), SEED)
    program = compile_network(network, config, rows=4, tokens=True)
    attention = program.choice.mappings[0].attention
    assert isinstance(attention, BlockMapping)
    assert program.scores == "kept in part"
    with RtlDevice(config) as rtl:
        bench = Bench(program, network, rtl)
        bench.fill_cache(attention.kept - 3, SEED)
        for count in (2, 1, 4):
            bench.chain(list(range(count)))


def test_window_ends_the_context() -> None:
    """A row that a window keeps from seeing the first position is refused, not computed wrong."""
    network = random_network(replace(LLAMA, layers=1, vocab=61), SEED)
    nodes = tuple(node.model_copy(update={"window": 9}) if node.op == "attention" else node
                  for node in network.graph.nodes)
    network = replace(network, graph=network.graph.model_copy(update={"nodes": nodes}))
    bench = Bench(compile_network(network, load_config("base"), rows=2), network)
    for tokens in ([1, 2], [3, 4], [5, 6], [7, 8], [9]):
        bench.chain(tokens)
    with pytest.raises(CompileError, match="at most 9, not 9"):
        bench.chain([1])


def test_layers_are_one_body() -> None:
    """More equal layers add no commands but the parameters of their scalings."""
    config = load_config("base")
    few, many = (compile_network(random_network(replace(GPT2, layers=count, positions=1024), SEED), config, rows=2)
                 for count in (2, 5))
    units = [sum(command.unit != CONTROL for command in program.commands) for program in (few, many)]
    assert units[0] == units[1]


@pytest.mark.parametrize(("change", "rule"), [
    ({"rows": 0}, "rows of a launch must be at least 1, not 0: use more rows"),
    ({"rows": 40}, "must be from 1 to"),
])
def test_refused(change: dict[str, int], rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        compile_network(random_network(LLAMA, SEED), load_config("base"), **change)
