"""Random launches of random general programs: layers, rows by token and by hidden row, trees, batches, answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.ir import Rows
from gemmule.compiler.programs.general_program import Answers
from gemmule.config import load_config
from tests.compiler.general_bench import GeneralBench
from tests.compiler.integer_networks import Sizes, random_network
from tests.thinned import some


def _sizes(random: np.random.Generator) -> Sizes:
    family, kv_heads = str(random.choice(["llama", "gpt2", "opt", "phi"])), int(random.integers(1, 4))
    share = 1 if family == "opt" else int(random.integers(1, 3))
    return Sizes(family=family, hidden=int(random.integers(8, 60)), inner=int(random.integers(8, 90)),
                 heads=kv_heads * share, kv_heads=kv_heads, head_dim=2 * int(random.integers(1, 20)),
                 layers=int(random.integers(1, 5)), vocab=int(random.choice([5, 16, 61, 300, 1003])),
                 positions=int(random.choice([20, 70, 150])))


def _fill(bench: GeneralBench, layers: tuple[int, int], random: np.random.Generator, most: int) -> None:
    """Random keys and values of some layers, as if up to ``most`` tokens of each sequence had been passed."""
    program, cache = bench.program, bench.cache(layers)
    for sequence in range(program.batch):
        length = int(random.integers(1, most + 1))
        for number, node in enumerate(bench.network.graph.attentions):
            if node.name not in cache.width:
                continue
            parts = random.integers(-128, 128, (2, length, node.kv_heads, node.head_dim)).astype(np.int8)
            cache.extend(node.name, sequence, *(part.reshape(length, -1) for part in parts))
            begin = program.symbols["cache"][0] + sequence * program.layout.size
            for at, content in program.layout.contents(number, *parts):
                bench.devices[0].write_dram(begin + at, content)
        cache.advance(replace(Rows.chain([0] * length), sequences=np.full(length, sequence)))


def _rows(bench: GeneralBench, layers: tuple[int, int], random: np.random.Generator) -> Rows:
    program, lengths = bench.program, [bench.cache(layers).length(i) for i in range(bench.program.batch)]
    counts = random.integers(1, program.max_rows + 1, program.batch)
    made = Rows.ragged([random.integers(0, program.graph.vocab, n).tolist() for n in counts], lengths)
    if program.batch == 1 and random.random() < 0.4:
        made = Rows.tree(made.tokens.tolist(), [int(random.integers(-1, i)) for i in range(len(made))], lengths[0])
    if random.random() < 0.5:
        slots = random.integers(0, bench.general.slots, len(made))
        made = made.entering(np.where(random.random(len(made)) < 0.6, slots, -1))
    return made


def _wanted(bench: GeneralBench, rows: Rows, random: np.random.Generator) -> Answers:
    every = bench.program.batch * bench.program.max_rows if bench.program.batch > 1 else len(rows)
    logits, top, scaled, stored = random.integers(0, 2, 4).astype(bool).tolist()
    return Answers(rows=int(random.choice([0, len(rows), random.integers(0, len(rows) + 1)])), logits=logits, top=top,
                   scale=(int(random.integers(0, 65536)), int(random.integers(0, 48))) if scaled else None,
                   hidden=int(random.integers(0, bench.general.slots - every + 1)) if stored else None)


@pytest.mark.parametrize("seed", some(range(12), 6))
def test_random_launches(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes, batch = _sizes(random), int(random.choice([1, 1, 2, 4]))
    config = load_config(str(random.choice(["edge", "base"])))
    network = random_network(sizes, seed)
    bench = GeneralBench(compile_network(network, config, rows=int(random.integers(1, 5)), batch=batch,
                                         tokens=bool(random.integers(2)), general=True), network)
    for _ in range(12):
        first = int(random.integers(0, sizes.layers + 1))
        layers = (first, int(random.integers(0, sizes.layers - first + 1))) if random.random() < 0.6 else \
            (0, sizes.layers)
        bench.caches.clear()  # of other layers, whose rows stand where these come
        most = sizes.positions - 2 * bench.program.max_rows
        if layers[1] and random.random() < 0.7:
            _fill(bench, layers, random, most)
        for _ in range(2):
            rows = _rows(bench, layers, random)
            wanted = _wanted(bench, rows, random)
            bench.forward(rows, layers, wanted)
            if batch > 1:  # slots of rows that a sequence lacks hold what nobody computes again
                bench.hidden[:] = bench.general.read_hidden(
                    bench.devices[0].read_dram, np.arange(bench.general.slots), bench.hidden.shape[1])
