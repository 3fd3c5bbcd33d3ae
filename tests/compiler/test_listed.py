"""Batches whose caches share a pool of rows by list, and prompts beside them: values, cycles, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Cache, IntegerInterpreter, Rows
from gemmule.compiler.kernels.attention.cache_list import CACHE_ROWS, NEW_ROWS
from gemmule.compiler.place import round_up
from gemmule.compiler.program import NO_DRAM, Step
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import ListedPrefill, compile_prefill
from gemmule.compiler.programs.texts.listed import ListedProgram
from gemmule.config import load_config
from gemmule.sim.simulator import Simulator
from tests.compiler.integer_networks import Sizes, random_network

SEED, BATCH, EACH, POOL = 20261127, 4, 4, 400
SIZES = Sizes(family="llama", hidden=24, inner=40, heads=4, kv_heads=2, head_dim=24, layers=2, vocab=61, positions=200)
NETWORK, CONFIG = random_network(SIZES, SEED), load_config("base")
KINDS = {"plain": SIZES, "prefix": replace(SIZES, prefix=2), "gpt2": replace(SIZES, family="gpt2"),
         "one KV head": replace(SIZES, kv_heads=1, prefix=1, layers=3)}


class Device:
    """The programs on a device, a timer beside it, and texts with rows drawn at random."""

    def __init__(self, seed: int, sizes: Sizes = SIZES) -> None:
        self.random, network = np.random.default_rng(seed), random_network(sizes, SEED)
        self.first = network.graph.prefix
        self.program = compile_network(network, CONFIG, rows=EACH, batch=BATCH, tokens=True, pool=POOL)
        assert isinstance(self.program, ListedProgram)
        behind = round_up(self.program.size, CONFIG.dram.banks * CONFIG.dram.row_bytes)
        self.prefill = compile_prefill(network, self.program, rows=16, base_address=behind)
        self.device, self.timer = (Simulator(CONFIG, dram_bytes=size) for size in (behind + self.prefill.size, 1))
        self.device.write_dram(0, self.program.fill(network))
        self.free = self.random.permutation(np.arange(8, POOL)).tolist()
        self.texts, self.places = ([list[int]() for _ in range(BATCH)] for _ in range(2))
        self.interpreter, self.cache = IntegerInterpreter(network), Cache(network.graph)

    def run(self, program: ModelProgram, rows: Rows, step: Step) -> None:
        """A launch with data, and the same one timed with the row numbers that the step tells."""
        for address, content in step.inputs:
            self.device.write_dram(address, content)
        self.device.load(program.launch("pass", NO_DRAM, step.registers))
        result = self.device.run()
        assert not result.fault
        self.timer.load(program.launch("pass", NO_DRAM, step.registers))
        timed = self.timer.run(timing_only=True, indices=program.gathered_by(rows, step))
        assert timed.cycles == result.cycles
        assert np.array_equal(timed.finish, result.finish)

    def take(self, count: int) -> list[int]:
        return [self.free.pop() for _ in range(count)]

    def prompt(self, sequence: int, count: int) -> None:
        """A prompt of a sequence, 16 rows a launch."""
        tokens = self.random.integers(0, SIZES.vocab, count).tolist()
        for at in range(0, count, 16):
            part = tokens[at:at + 16]
            rows, new = Rows.chain(part, self.first + at), self.take(len(part))
            self.run(self.prefill, rows, self.prefill.step(
                rows, 0, [self.first + at], self._all(self.places[sequence] + new)))
            self.places[sequence] += new
        chain = Rows.chain(tokens, self.first)
        self.interpreter.forward(replace(chain, sequences=np.full(count, sequence)), self.cache)
        self.texts[sequence] += tokens

    def _all(self, rows: list[int]) -> np.ndarray:
        """Rows of a text, with the constant ones."""
        return np.array([*range(self.first), *rows], dtype=np.int64)

    def turn(self, wrong: bool = False) -> tuple[list[int], list[int]]:
        """A pass over 1 to 4 rows of each sequence: the device's tokens, and the interpreter's.

        ``wrong``: a sequence's list names another row.
        """
        counts = self.random.integers(1, EACH + 1, BATCH).tolist()
        tokens = [self.random.integers(0, SIZES.vocab, count).tolist() for count in counts]
        cached, new = [self.first + len(text) for text in self.texts], [self.take(count) for count in counts]
        rows = Rows.ragged(tokens, cached)
        places = [self._all(own + more) for own, more in zip(self.places, new)]
        step = self.program.step(rows, len(rows), cached, places)
        if wrong:
            address = self.program.symbols[CACHE_ROWS][0]
            lists = next(content for at, content in step.inputs if at == address).view("<u2")
            lists.reshape(BATCH, -1)[1, 0:cached[1]] = self.places[0][:cached[1]]
        self.run(self.program, rows, step)
        found = self.program.tokens_of(self.device.read_dram, rows, len(rows))
        wanted = self.interpreter.forward(rows, self.cache).argmax(axis=1).tolist()
        for sequence in range(BATCH):
            self.texts[sequence] += tokens[sequence]
            self.places[sequence] += new[sequence]
        return found, wanted


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_cycles(kind: str) -> None:
    device = Device(SEED, KINDS[kind])
    assert isinstance(device.prefill, ListedPrefill)
    device.prompt(1, 70)
    device.prompt(3, 16)
    for _ in range(10):
        found, wanted = device.turn()
        assert found == wanted


def test_a_wrong_list_is_caught() -> None:
    device = Device(SEED)
    device.prompt(0, 40)
    device.prompt(1, 40)
    found, wanted = device.turn(wrong=True)
    assert found != wanted


def test_rows_that_nobody_has_touch_no_text() -> None:
    """Sequences without a text have a row each, which goes to the pool's own row."""
    device = Device(SEED)
    device.prompt(1, 30)
    step = device.program.step(Rows.ragged([[1], [2], [3], [4]], [0, 30, 0, 0]), 4, [0, 30, 0, 0], [
        np.array([0]), np.array([*device.places[1], *device.take(1)]), np.array([0]), np.array([0])])
    new = dict(step.inputs)[device.program.symbols[NEW_ROWS][0]].view("<u2").reshape(BATCH, EACH)
    assert set(new[[0, 2, 3]].reshape(-1).tolist()) == {0}
    assert set(new[1, 1:].tolist()) == {0}


def test_32_sequences() -> None:
    """More than there are base registers for."""
    program = compile_network(NETWORK, CONFIG, rows=1, batch=32, tokens=True, pool=POOL, context=96)
    assert program.batch == 32
    with pytest.raises(CompileError, match="from 1 to 32, not 33"):
        compile_network(NETWORK, CONFIG, rows=1, batch=33, tokens=True, pool=POOL, context=96)
    with pytest.raises(CompileError, match="from 1 to 16, not 32"):
        compile_network(NETWORK, CONFIG, rows=1, batch=32, tokens=True, context=96)


def test_refused() -> None:
    with pytest.raises(CompileError, match="compile without general=True"):
        compile_network(NETWORK, CONFIG, rows=1, batch=2, tokens=True, general=True, pool=POOL)
    few = CONFIG.model_copy(update={"list_entries": 256})
    with pytest.raises(CompileError, match="the index list must hold .* not 256: use a shorter context"):
        compile_network(NETWORK, few, rows=1, batch=2, tokens=True, pool=POOL)
    program = compile_network(NETWORK, CONFIG, rows=1, batch=2, tokens=True, pool=POOL)
    rows = Rows.ragged([[1], [2]], [0, 0])
    with pytest.raises(CompileError, match="cache rows of sequence 1 must be 1 from 0 to 399, not 1 from 400 to 400"):
        program.step(rows, 2, [0, 0], [np.array([3]), np.array([400])])
