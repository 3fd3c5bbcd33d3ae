"""The general program: hidden rows, some of the layers, every kind of answer are the integer interpreter's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Rows
from gemmule.compiler.programs.general_program import Answers
from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from tests.compiler.general_bench import GeneralBench
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import thinned

LLAMA = Sizes(family="llama", hidden=48, inner=100, heads=6, kv_heads=3, head_dim=24, layers=5, vocab=1003)
CASES = {
    "llama": LLAMA,
    "gpt2": replace(LLAMA, family="gpt2"),
    "opt, one layer": replace(LLAMA, family="opt", layers=1, vocab=61),
    "few tokens": replace(LLAMA, layers=2, vocab=5, hidden=17, inner=19, heads=1, kv_heads=1, head_dim=2),
    "int4": replace(LLAMA, bits=4, kv_heads=6, layers=3, vocab=300),
}
SEED = 20261124
SCALE = (40000, 13)


def _rows(config: str, sizes: Sizes) -> int:
    share = sizes.heads // sizes.kv_heads
    return 1 if config == "tiny" else min(4, load_config(config).stat_rows // share)


@pytest.mark.parametrize(("name", "preset"), thinned(CASES, ["tiny", "edge", "base"]))
def test_every_answer(name: str, preset: str) -> None:
    """Each kind alone and all together, of all rows, of some and of none."""
    sizes = replace(CASES[name], layers=min(CASES[name].layers, 2)) if preset == "tiny" else CASES[name]
    network, rows = random_network(sizes, SEED), _rows(preset, sizes)
    bench = GeneralBench(compile_network(network, load_config(preset), rows=rows, general=True), network)
    random, layers = np.random.default_rng(SEED), (0, sizes.layers)
    for wanted in (Answers(rows=rows), Answers(rows=0), Answers(rows=rows, logits=True), Answers(rows=1, top=True),
                   Answers(rows=1, scale=SCALE), Answers(rows=0, hidden=0),
                   Answers(rows=rows, logits=True, top=True, scale=(65535, 30), hidden=rows),
                   Answers(rows=rows, logits=True, top=True, scale=(3, 0), hidden=3 * rows)):
        bench.chain(random.integers(0, sizes.vocab, rows).tolist(), layers, wanted)


@pytest.mark.parametrize(("name", "preset"), thinned(CASES, ["base", "edge"]))
def test_ranges_of_layers(name: str, preset: str) -> None:
    """Each with a cache of its own length; rows by token, by hidden row, and both in one pass."""
    sizes = CASES[name]
    network, rows = random_network(sizes, SEED), _rows(preset, sizes)
    bench = GeneralBench(compile_network(network, load_config(preset), rows=rows, general=True), network)
    random, count = np.random.default_rng(SEED), sizes.layers

    def tokens(number: int) -> list[int]:
        return [int(token) for token in random.integers(0, sizes.vocab, number)]

    early = (0, (count + 1) // 2)
    late = (early[1], count - early[1])
    for number in (rows, 1, rows, 1):
        bench.chain(tokens(number), early, Answers(rows=1, hidden=rows))
        hidden = np.full(number, -1)
        hidden[-1] = rows + number - 1
        mixed = replace(Rows.chain(tokens(number), bench.cache(late).length()), hidden=hidden)
        bench.forward(mixed, late, Answers(rows=number, logits=True, hidden=3 * rows))
        whole = replace(Rows.chain([0] * number), hidden=np.arange(number) + 3 * rows)
        bench.forward(whole, (count, 0), Answers(rows=number, logits=True, top=True))
    for first in range(count):
        bench.chain(tokens(rows), (first, 1), Answers(rows=1, logits=True))
    bench.chain(tokens(1), (0, 0), Answers(rows=1, logits=True))


@pytest.mark.parametrize(("rows", "batch"), [(2, 3), (1, 16)])
def test_a_batch(rows: int, batch: int) -> None:
    """Ragged sequences, hidden rows of all of them, then the later layers from those."""
    sizes = replace(LLAMA, layers=4)
    network = random_network(sizes, SEED)
    bench = GeneralBench(compile_network(network, load_config("base"), rows=rows, batch=batch, general=True), network)
    random = np.random.default_rng(SEED)
    for _ in range(3):
        counts = random.integers(1, rows + 1, batch).tolist()
        made = [random.integers(0, sizes.vocab, n).tolist() for n in counts]
        first = Rows.ragged(made, [bench.cache((0, 2)).length(i) for i in range(batch)])
        bench.forward(first, (0, 2), Answers(rows=0, hidden=rows))
        later = Rows.ragged(made, [bench.cache((2, 2)).length(i) for i in range(batch)])
        later = replace(later, hidden=rows + bench.program.slots(later))
        bench.forward(later, (2, 2), Answers(rows=len(later), logits=True, top=True, scale=SCALE))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_plain_program_stays(family: str) -> None:
    """Beside the general one it has the same commands and takes the same cycles."""
    network, config = random_network(replace(LLAMA, family=family), SEED), load_config("base")
    plain, both = (compile_network(network, config, rows=4, tokens=True, general=general) for general in (False, True))
    assert plain.image == both.image
    cycles = []
    for program in (plain, both):
        bench = Bench(program, network)
        cycles.append([bench.chain(tokens) for tokens in ([1, 2, 3, 4], [5], [6, 7], [8])])
    assert cycles[0] == cycles[1]


@pytest.mark.parametrize("preset", ["tiny", "edge"])
@pytest.mark.rtl
def test_rtl_gives_the_same_bytes_in_the_same_cycles(preset: str) -> None:
    config, sizes = load_config(preset), replace(LLAMA, hidden=24, head_dim=8, layers=3, vocab=61)
    network = random_network(sizes, SEED)
    with RtlDevice(config) as rtl:
        bench = GeneralBench(compile_network(network, config, rows=2, general=True), network, rtl)
        bench.chain([1, 2], (0, 3), Answers(rows=2, logits=True, top=True, scale=SCALE, hidden=0))
        bench.chain([3, 4], (0, 2), Answers(rows=0, hidden=2))
        hidden = replace(Rows.chain([0, 5]), hidden=np.array([3, -1]))
        bench.forward(hidden, (2, 1), Answers(rows=2, logits=True))
        bench.forward(replace(Rows.chain([0]), hidden=np.array([2])), (3, 0), Answers(rows=1, top=True))


@pytest.mark.parametrize(("layers", "wanted", "rule"), [
    ((0, 3), Answers(rows=1), "must lie within 0 to 2, not 0 to 3"),
    ((-1, 1), Answers(rows=1), "must lie within 0 to 2, not -1 to 0"),
    ((0, 2), Answers(rows=2), "from 0 to 1, not 2"),
    ((0, 2), Answers(rows=0, hidden=8), "must lie in slots 0 to 7, not from 8 on"),
])
def test_refused(layers: tuple[int, int], wanted: Answers, rule: str) -> None:
    network = random_network(replace(LLAMA, layers=2, vocab=61), SEED)
    program = compile_network(network, load_config("base"), rows=2, general=True)
    with pytest.raises(CompileError, match=rule):
        program.general_step(Rows.chain([1]), [0], layers, wanted)


def test_needs_the_general_program() -> None:
    program = compile_network(random_network(replace(LLAMA, layers=2, vocab=61), SEED), load_config("base"), rows=2)
    with pytest.raises(CompileError, match="compile with general=True"):
        program.general_step(Rows.chain([1]), [0], (0, 1), Answers(rows=1))
    with pytest.raises(CompileError, match="compile with general=True"):
        program.step(replace(Rows.chain([1]), hidden=np.array([0])), 1)


def test_kept_scores_that_leave_no_room_in_the_order_of_use() -> None:
    """Shapes of SmolLM2's attention, whose plain program keeps scores of the first positions in the accumulator."""
    sizes = replace(LLAMA, hidden=64, inner=64, heads=9, kv_heads=3, head_dim=64, layers=1, vocab=61, positions=2048)
    network = random_network(sizes, SEED)
    bench = GeneralBench(compile_network(network, load_config("base"), rows=8, general=True), network)
    for _ in range(2):
        bench.chain(list(range(8)), (0, 1), Answers(rows=8, logits=True))
