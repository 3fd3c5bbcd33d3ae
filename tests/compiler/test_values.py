"""Values that no probability meets are not loaded, and the device's answers are the integer interpreter's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows
from gemmule.compiler.kernels.attention.values import ValuesMapping
from gemmule.compiler.kernels.listed import NonzeroColumns
from gemmule.compiler.program import NO_DRAM
from gemmule.compiler.programs.general_program import Answers
from gemmule.compiler.search.narrow import chosen_program, narrow_programs
from gemmule.compiler.search.prefill import best_prefill
from gemmule.config import Config, load_config
from gemmule.isa import Length, SOp, Unit
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sw.device.values_skipped import values_skipped
from tests.compiler.integer_networks import Sizes, random_network
from tests.compiler.passes_bench import Bench
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261127
LLAMA = Sizes(family="llama", hidden=48, inner=64, heads=6, kv_heads=2, head_dim=16, layers=3, vocab=61, positions=700)
KINDS = {"shared heads": LLAMA, "prefix": replace(LLAMA, prefix=2), "gpt2": replace(LLAMA, family="gpt2"),
         "a head each": replace(LLAMA, kv_heads=6), "one head": replace(LLAMA, heads=3, kv_heads=1, prefix=1)}
SHORT = Config.model_validate(BASE.model_dump() | {"name": "short-lists", "select_keys": 256})
"""A list has fewer entries than the cache rows."""


class Listing(Bench):
    """A program that loads values by list, and the interpreter."""

    def __init__(self, network: Network, config: Config, rows: int, least: int, *others: Any, **options: Any) -> None:
        super().__init__(compile_network(network, config, rows=rows, values=least, **options), network, *others)
        self.interpreter = IntegerInterpreter(network, values=least)

    @property
    def mapping(self) -> ValuesMapping:
        found = self.program.choice.mappings[0].attention
        assert isinstance(found, ValuesMapping)
        return found


def _walk(bench: Bench, until: int, seed: int = SEED) -> None:
    """Passes of random length, some of whose rows are rejected, behind caches of random lengths."""
    random, prefix, most = np.random.default_rng(seed), bench.network.graph.prefix, bench.program.max_rows
    while bench.cache.length() < until - most:
        bench.chain(random.integers(0, 61, int(random.integers(1, most + 1))).tolist())
        if random.random() < 0.3:
            bench.cache.truncate(max(prefix, bench.cache.length() - int(random.integers(0, 2 * most))))
        if not prefix and random.random() < 0.5 and bench.cache.length() < until - 20 * most:
            bench.cache = Cache(bench.network.graph)
            bench.fill_cache(int(random.integers(1, until - most)), int(random.integers(1 << 30)))


@pytest.mark.parametrize(("kind", "config"), thinned(KINDS, [EDGE, BASE, SHORT]))
def test_equals_the_interpreter(config: Config, kind: str) -> None:
    print(f"seed {SEED}")
    rows, least = (4, 1) if config is BASE else (2, 6)
    bench = Listing(random_network(KINDS[kind], SEED), config, rows, least)
    assert bench.mapping.parts == (3 if config is SHORT else 1)
    _walk(bench, 60 if KINDS[kind].prefix else 700)


@pytest.mark.parametrize("seed", some(range(8)))
def test_random_thresholds(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, least = int(random.choice([1, 2, 4])), int(random.choice([1, 2, 3, 17, 128, 255]))
    sizes = replace(LLAMA, positions=int(random.integers(40, 400)), layers=2, kv_heads=int(random.choice([2, 3, 6])))
    print(f"seed {seed}: {rows} rows, least probability {least}, {sizes.positions} positions")
    _walk(Listing(random_network(sizes, seed), EDGE, rows, least), sizes.positions, seed)


def test_zeros_alone_change_nothing() -> None:
    """Least probability 1: logits of the dense program, with fewer bytes."""
    network, loaded = random_network(LLAMA, SEED), []
    for bench in (Listing(network, BASE, 4, 1), Bench(compile_network(network, BASE, rows=4), network)):
        bench.interpreter = IntegerInterpreter(network)
        bench.fill_cache(600, SEED)
        for tokens in ([5], [1, 2, 3, 4], [7, 8]):
            bench.chain(tokens)
            loaded.append(bench.loaded)
    mine, dense = np.array(loaded[:3]), np.array(loaded[3:])
    values = LLAMA.layers * LLAMA.kv_heads * 600 * LLAMA.head_dim
    print(f"not loaded of the values: {(dense - mine) / values}")
    assert (dense - mine)[0] > 0.3 * values  # one row meets fewest
    assert (mine < dense).all()


def _columns(network: Network, interpreter: IntegerInterpreter, rows: Rows, cache: Cache) -> list[np.ndarray]:
    """For each layer and KV head which cached rows have a probability that counts, by a copy of the pass."""
    found: list[np.ndarray] = []
    met = interpreter._met

    def noted(probabilities: np.ndarray) -> np.ndarray:
        kept = met(probabilities)
        found.append(kept != 0)
        return kept

    before, share = cache.length(), network.graph.attentions[0].heads // network.graph.attentions[0].kv_heads
    interpreter._met = noted  # type: ignore[method-assign]
    interpreter.forward(rows, cache)
    interpreter._met = met  # type: ignore[method-assign]
    cache.truncate(before)
    heads = np.concatenate([part.reshape(-1, len(rows), part.shape[-1]) for part in found])[:, :, :before]
    return list(heads.reshape(-1, share * len(rows), before).any(axis=1))


@pytest.mark.parametrize(("config", "rows", "least"), [(BASE, 4, 1), (BASE, 1, 4), (SHORT, 2, 2)])
def test_only_what_is_met_is_loaded(config: Config, rows: int, least: int) -> None:
    """Rows of values that were loaded: as many pieces of each list as hold what is met. Rows that the pass lacks do not
    count.
    """
    network = random_network(LLAMA, SEED)
    bench = Listing(network, config, rows, least)
    bench.fill_cache(613, SEED)
    mapping = bench.mapping
    for tokens in ([9], list(range(rows))):
        cached, chain = bench.cache.length(), Rows.chain(tokens, bench.cache.length())
        columns = _columns(network, bench.interpreter, chain, bench.cache)
        assert len(columns) == LLAMA.layers * LLAMA.kv_heads
        expected = 0
        for used in columns:
            for first in range(0, cached, mapping.part):
                part = used[first:first + mapping.part]
                expected += sum(min(len(piece), len(part) - turn - piece.start)
                                for turn in range(0, len(part), mapping.turn) for piece in mapping.pieces(config.dim)
                                if turn + piece.start < part.sum())
        step, device = bench.program.step(chain, len(chain)), bench.devices[0]
        for address, content in step.inputs:
            device.write_dram(address, content)
        device.load(bench.program.launch("pass", NO_DRAM, step.registers))
        result = device.run()
        skipped = values_skipped(mapping, bench.program.commands, bench.program.registers_of, result, cached)
        assert len(columns) * cached - skipped == expected
        bench.forward(chain)


def test_rows_beyond_the_mesh_load_all() -> None:
    """Products are what takes time then; small probabilities count as 0 all the same."""
    network = random_network(LLAMA, SEED)
    bench = Listing(network, EDGE, 4, 30)  # 12 rows of a product, 8 of the mesh
    assert not isinstance(bench.program.choice.mappings[0].attention, ValuesMapping)
    _walk(bench, 300)


def test_trees() -> None:
    bench = Listing(random_network(LLAMA, SEED), BASE, 4, 5)
    bench.fill_cache(300, SEED)
    rows = Rows.chain([1, 2, 3, 4], 300)
    mask = np.eye(4, dtype=bool)
    mask[1, 0] = mask[2, 0] = mask[3, 0] = mask[3, 1] = True
    bench.forward(replace(rows, positions=np.array([300, 301, 301, 302]), mask=mask))
    bench.keep(0, 300, [0, 1, 3])
    bench.chain([7])


def test_programs_beside() -> None:
    """A row alone, a prompt and the general program, on the cache and the weights of a program of many rows."""
    network = random_network(replace(LLAMA, positions=1000), SEED)
    bench = Listing(network, EDGE, 4, 12, tokens=True, general=True)
    bench.fill_cache(500, SEED)
    program = bench.program
    behind = -(-program.size // (1 << 16)) * (1 << 16)
    single = chosen_program(narrow_programs(network, program, base_address=behind, values=12), 1, 505)
    prefill = best_prefill(network, program, effort=1, base_address=3 * behind, rows=5, values=12)
    assert single
    assert prefill
    assert program.general
    assert isinstance(single.choice.mappings[0].attention, ValuesMapping)
    device = type(bench.devices[0])(EDGE, dram_bytes=4 * behind)
    device.write_dram(0, program.fill(network).tobytes())
    device.write_dram(program.symbols["cache"][0], bench.devices[0].read_dram(*program.symbols["cache"]))
    for made in (single, prefill):
        device.write_dram(made.symbols["program"][0], made.image)

    def run(made: Any, step: Any, image: Any = None) -> None:
        for address, content in step.inputs:
            device.write_dram(address, content.tobytes())
        device.load(made.launch("pass", NO_DRAM, step.registers))
        assert device.run().fault == 0

    chain = Rows.chain([3, 1, 4, 1, 5], 500)
    run(prefill, prefill.step(chain, 0))
    bench.interpreter.forward(chain, bench.cache)
    one = Rows.chain([9], 505)
    run(single, single.step(one, 1))
    expected = bench.interpreter.forward(one, bench.cache)
    assert single.tokens_of(device.read_dram, one, 1) == np.argmax(expected, axis=1).tolist()
    several = Rows.chain([2, 6, 5], 506)
    run(program.general, program.general_step(several, [506], (0, LLAMA.layers), Answers(rows=3, logits=True)))
    np.testing.assert_array_equal(program.general.read_logits(device.read_dram, 3),
                                  bench.interpreter.forward(several, bench.cache))


def _one_more(monkeypatch: pytest.MonkeyPatch, bench: Listing) -> None:
    """The interpreter drops what is the least to keep."""
    bench.interpreter = IntegerInterpreter(bench.network, values=bench.interpreter.values + 1)


def _late_comparison(monkeypatch: pytest.MonkeyPatch, bench: Listing) -> None:
    """The kernel looks for probabilities from the second group of a piece on."""
    select = NonzeroColumns._select

    def off(self: NonzeroColumns, op: int, note: str, *flags: int, **fields: Any) -> None:
        if op == SOp.COMPARE:
            fields["src0"] += self.stride
        select(self, op, note, *flags, **fields)

    monkeypatch.setattr(NonzeroColumns, "_select", off)


def _shifted_part(monkeypatch: pytest.MonkeyPatch, bench: Listing) -> None:
    """Lists count from one row further on."""
    multiply = NonzeroColumns.multiply

    def off(self: NonzeroColumns, at: int, rows: Length, number: int, slot: Any, pitch: int, what: str,
            load: dict[str, Any], *rest: Any) -> None:
        multiply(self, at, rows, number, slot, pitch, what, {**load, "offset": load["offset"] + load["stride"]}, *rest)

    monkeypatch.setattr(NonzeroColumns, "multiply", off)


@pytest.mark.parametrize("fault", [_one_more, _late_comparison, _shifted_part])
def test_planted_faults_are_seen(fault: Callable[[pytest.MonkeyPatch, Listing], None],
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Listing(random_network(LLAMA, SEED), BASE, 2, 3)
    fault(monkeypatch, bench)
    if fault is not _one_more:
        bench = Listing(bench.network, BASE, 2, 3)
    with pytest.raises(AssertionError):
        _walk(bench, 700)


@pytest.mark.rtl
def test_rtl_equals_the_interpreter() -> None:
    """The same bytes in the same cycles, which depend on what the rows are."""
    sizes = Sizes(family="llama", hidden=16, inner=16, heads=4, kv_heads=2, head_dim=8, layers=2, vocab=61,
                  positions=120)
    with RtlDevice(TINY) as rtl:
        bench = Listing(random_network(sizes, SEED), TINY, 2, 3, rtl)
        assert len(bench.mapping.pieces(TINY.dim)) == 3
        for length in (7, 70, 116):
            bench.cache = Cache(bench.network.graph)
            bench.fill_cache(length, SEED)
            bench.chain([5, 9])
            bench.chain([4])


def test_refused() -> None:
    network = random_network(LLAMA, SEED)
    for options in ({"batch": 2}, {"pool": 700}, {"standard": True}, {"fused": False}):
        with pytest.raises(CompileError, match="values by list are for a sequence alone"):
            compile_network(network, BASE, rows=2, values=1, **options)


def test_what_is_predicated() -> None:
    """Gathers of values and their products, in turns of all predicates."""
    program = compile_network(random_network(LLAMA, SEED), BASE, rows=2, values=1)
    for unit in (Unit.LOAD, Unit.MATRIX):
        assert {c.predicate for c in program.commands if c.unit is unit and c.predicate} == {1, 2, 3}
