"""Rows of 4 bits: lists, packed rows and passes over them are the integer interpreter's, in every way of cutting."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, Network, Rows
from gemmule.compiler.kernels.attention.halves.packing import PAIRS, Halves, Packing
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.programs.halves.packed_program import PackedProgram, standing_rows
from gemmule.compiler.programs.selecting import KEPT
from gemmule.config import Config, load_config
from gemmule.numerics import halved, pack_rows, upper_half
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sw.device.chosen import sorted_rows
from tests.compiler.integer_networks import random_network
from tests.compiler.test_selecting import LLAMA, Selecting
from tests.thinned import some, thinned

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))
SEED = 20261127
BELOW = 0.1
"""Largest probability below which rows of the random networks take all bits of keys, now and then."""
KINDS = {
    "blocks": LLAMA, "prefix": replace(LLAMA, prefix=2), "scores twice": replace(LLAMA, positions=900, layers=2),
    "scores twice, prefix": replace(LLAMA, positions=900, layers=2, prefix=1), "gpt2": replace(LLAMA, family="gpt2"),
    "a head each": replace(LLAMA, kv_heads=6),
}


class Packed(Selecting):
    """A program over rows of 4 bits, what makes them beside it, and the interpreter."""

    program: PackedProgram

    def __init__(self, network: Network, config: Config, rows: int, halves: Halves, *others: Any, **kept: int) -> None:
        super().__init__(network, config, rows, *others, packed=Packing(halves, BELOW), **kept)
        self.halves, self.sorted, self.interpreter.below = halves, sorted_rows, BELOW

    def sort(self, tokens: list[int], kept: int, pairs: int) -> None:
        """Rows behind the cached ones choose; the kept cache is the interpreter's, as it stands on the device."""
        select, prefix = self.selection.select, self.network.graph.prefix
        rows, before = Rows.chain(tokens, self.cache.length()), self.cache.length()
        self.run(select, select.choosing(rows, before, kept, pairs))
        self.run(self.selection.gather, self.selection.gathering(kept - 2 * pairs, pairs))
        if pairs:
            assert self.selection.pack
            self.run(self.selection.pack, self.selection.packing(pairs))
        importance, heads = self.interpreter.importance(rows, self.cache), self.network.graph.attentions[0].kv_heads
        self.pairs, self.kept = pairs, Cache(self.network.graph)
        self.kept.begin_with(self.cache, 0)
        first, rest = np.tile(np.arange(prefix), (heads, 1)), {
            name: np.concatenate(self.sorted(found, kept, pairs, self.pruning), axis=1) + prefix
            for name, found in importance.items()}
        self.kept.keep_by_head({name: np.concatenate([first, index], axis=1) for name, index in rest.items()})
        self.kept.pack(2 * pairs, self.halves.packed, lower=self.halves.lower)
        self.check_packed()

    def check_packed(self) -> None:
        """Keys and values of the kept cache, each as many rows as it takes."""
        layout, prefix = self.program.layout, self.network.graph.prefix
        address, size = self.selection.select.symbols[KEPT]
        for device in self.devices:
            dram = np.frombuffer(device.read_dram(address, size), dtype=np.int8)
            for number, node in enumerate(self.network.graph.attentions):
                for part, whole in enumerate(self.kept.contents(node.name)):
                    by_head = whole.reshape(len(whole), node.kv_heads, -1)
                    for head in range(node.kv_heads):
                        at = layout.offset(number, head, part)
                        for first, rows in standing_rows(by_head[prefix:, head], self.pairs, self.halves, part):
                            begin = at + (prefix + first) * layout.row
                            found = np.lib.stride_tricks.as_strided(
                                dram[begin:], (len(rows), rows.shape[1]), (layout.row, 1))
                            np.testing.assert_array_equal(found, rows)

    def pass_packed(self, tokens: list[int]) -> None:
        """A pass over the kept cache answers as the interpreter with it, on all devices in as many cycles."""
        rows, program = Rows.chain(tokens, self.cache.length()), self.program
        expected = self.interpreter.forward(rows, self.kept).argmax(axis=1).tolist()
        stand = self.kept.length() - len(rows) - 2 * self.pairs + self.halves.stand(self.pairs)
        step = program.step(rows, len(rows), [stand])
        registers = program.packed(step.registers, self.pairs) if self.pairs else step.registers
        self.run(program, step._replace(registers=registers.displaced(
            program.symbols[CACHE], self.selection.displacement)))
        for device in self.devices:
            assert program.read_tokens(device.read_dram, len(rows)) == expected


def _walk(bench: Packed, rows: int, counts: list[int]) -> None:
    """Contexts of so many rows, of which many or all stay, none, some or nearly all of them with 4 bits."""
    random, vocab = np.random.default_rng(SEED), bench.network.graph.vocab
    for count in counts:
        bench.grow(count)
        tokens = random.integers(0, vocab, rows).tolist()
        every = bench.cache.length() + rows - bench.network.graph.prefix
        for kept in {every, every // 2}:
            for pairs in {0, min(PAIRS, kept // 2 // PAIRS * PAIRS), kept // 2 // PAIRS * PAIRS}:
                bench.cache.truncate(count)
                bench.sort(tokens, kept, pairs)
                bench.pass_packed(random.integers(0, vocab, 1).tolist())
                bench.pass_packed(random.integers(0, vocab, rows).tolist())
                bench.check_packed()


PROGRAMS = [*product([EDGE, BASE], sorted(Halves, key=lambda halves: not halves.lower))]


@pytest.mark.parametrize(("kind", "program"), [
    *thinned(KINDS, PROGRAMS[:len(KINDS)]), *some(product(KINDS, PROGRAMS[len(KINDS):]), 0)])
def test_equals_the_interpreter(kind: str, program: tuple[Config, Halves]) -> None:
    config, halves = program
    print(f"seed {SEED}")
    rows = 8 if config is BASE else 4
    if halves.lower and "twice" in kind:
        with pytest.raises(CompileError, match="must stay in the accumulator"):
            Packed(random_network(KINDS[kind], SEED), config, rows, halves)
        return
    _walk(Packed(random_network(KINDS[kind], SEED), config, rows, halves), rows,
          [90, min(KINDS[kind].positions, 400) - 3 * rows])


@pytest.mark.parametrize("seed", some(range(8), 2))
def test_random_schedules(seed: int) -> None:
    """Any numbers of rows, of those that always stay, of those that are kept, and of those of 4 bits."""
    random = np.random.default_rng(seed)
    first, last = (int(random.integers(0, 12)) for _ in range(2))
    bench = Packed(random_network(replace(LLAMA, positions=250, prefix=int(random.integers(0, 3))), seed), EDGE, 4,
                   list(Halves)[seed % 4], first=first, last=last)
    for count in sorted(random.integers(max(first + last, 40), 230, 3).tolist()):
        bench.grow(count)
        every = bench.cache.length() + 4 - bench.network.graph.prefix
        kept = int(random.integers(max(1, first + last), every + 1))
        bench.sort(random.integers(0, 61, 4).tolist(), kept, PAIRS * int(random.integers(0, kept // 2 // PAIRS + 1)))
        bench.pass_packed(random.integers(0, 61, 3).tolist())


def _one_pair_less(importance: np.ndarray, kept: int, pairs: int, pruning: Any) -> tuple[np.ndarray, np.ndarray]:
    halves, whole = sorted_rows(importance, kept, pairs, pruning)
    return np.concatenate([halves[:, 1:], halves[:, :1]], axis=1), whole


def _others_of_8_bits(importance: np.ndarray, kept: int, pairs: int, pruning: Any) -> tuple[np.ndarray, np.ndarray]:
    return sorted_rows(np.roll(importance, 1, axis=1), kept, pairs, pruning)


def _one_more_stays(importance: np.ndarray, kept: int, pairs: int, pruning: Any) -> tuple[np.ndarray, np.ndarray]:
    halves, whole = sorted_rows(importance, kept + 1, pairs, pruning)
    return halves, whole[:, 1:]


FAULTS = {"one pair less": _one_pair_less, "others of 8 bits": _others_of_8_bits, "one more stays": _one_more_stays}


@pytest.mark.parametrize(("halves", "fault"), thinned(Halves, FAULTS))
def test_planted_faults_are_seen(halves: Halves, fault: str) -> None:
    """A list that is off by one in any way differs from the device's."""
    bench = Packed(random_network(LLAMA, SEED), EDGE, 4, halves)
    bench.fill_cache(150, SEED)
    bench.sort([1, 2, 3, 4], 80, 2 * PAIRS)
    bench.cache.truncate(150)
    bench.sorted = FAULTS[fault]
    with pytest.raises(AssertionError):
        bench.sort([1, 2, 3, 4], 80, 2 * PAIRS)


def test_all_of_8_bits_is_the_plain_kept_cache() -> None:
    """With no row of 4 bits answers are those of a program that knows none."""
    network = random_network(LLAMA, SEED)
    bench, plain = Packed(network, EDGE, 4, Halves.BOTH), Selecting(network, EDGE, 4)
    for one in (bench, plain):
        one.fill_cache(150, SEED)
    bench.sort([1, 2, 3, 4], 154, 0)
    plain.choose([1, 2, 3, 4], 154)
    for node in network.graph.attentions:
        for mine, other in zip(bench.kept.contents(node.name), plain.kept.contents(node.name), strict=True):
            np.testing.assert_array_equal(mine, other)
    bench.pass_packed([5, 6, 7])
    plain.pass_kept([5, 6, 7])


@pytest.mark.rtl
@pytest.mark.parametrize("halves", some(reversed(Halves)))  # values and keys of 4 bits, together and apart
def test_rtl_equals_the_interpreter(halves: Halves) -> None:
    sizes = replace(LLAMA, head_dim=8, hidden=20, inner=24, positions=100, layers=2, prefix=1)
    with RtlDevice(TINY) as rtl:
        bench = Packed(random_network(sizes, SEED), TINY, 2, halves, rtl)
        bench.grow(70)
        bench.sort([1, 2], 50, PAIRS)
        bench.pass_packed([3])
        bench.pass_packed([4, 5])


def test_halves_of_every_byte() -> None:
    """The nearest 16th that nibbles have; pairs of rows come back."""
    every = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(upper_half(every), np.minimum((np.arange(-128, 128) + 8) // 16, 7))
    assert np.abs(halved(every)[:248].astype(int) - every[:248]).max() == 8
    rows = np.random.default_rng(SEED).integers(-128, 128, (70, 9)).astype(np.int8)
    packed = pack_rows(np.concatenate([halved(rows[:64]), rows[64:]]), 32)
    nibbles = packed[:32].view(np.uint8)
    low, high = ((part.astype(np.int8) << 4).astype(np.int8) for part in (nibbles & 15, nibbles >> 4))
    np.testing.assert_array_equal(np.concatenate([low, high, packed[32:]]),
                                  np.concatenate([halved(rows[:64]), rows[64:]]))


@pytest.mark.parametrize(("kept", "pairs", "message"), [
    (60, 8, "multiple of 16 from 0 to 30, not 8"), (60, 32, "from 0 to 30, not 32"), (60, -16, "not -16")])
def test_refuses_numbers(kept: int, pairs: int, message: str) -> None:
    selection = Packed(random_network(LLAMA, SEED), BASE, 8, Halves.VALUES).selection
    with pytest.raises(CompileError, match=message):
        selection.select.choosing_registers(8, 80, kept, pairs)


def test_refuses_what_has_no_such_rows() -> None:
    with pytest.raises(CompileError, match="must stay in the accumulator"):
        Packed(random_network(KINDS["scores twice"], SEED), EDGE, 4, Halves.PLANES)
    network = random_network(LLAMA, SEED)
    with pytest.raises(CompileError, match="rows of 4 bits are for a sequence alone"):
        compile_network(network, BASE, rows=8, tokens=True, general=True, packed=Packing(Halves.BOTH))
    program = compile_network(network, BASE, rows=8, tokens=True, packed=Packing(Halves.BOTH))
    assert isinstance(program, PackedProgram)
    with pytest.raises(CompileError, match="from 0 to the 10 rows that are cached, not 16"):
        program.packed(program.registers(1, 10), 16)
    with pytest.raises(CompileError, match="fewer than 300, not 316"):
        program.packed(program.registers(1, 284), 32)
