"""Copies and gathers of cached rows: every byte of the caches is what numpy makes of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.program import NO_DRAM, Program, Step
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.moves import Moves
from gemmule.config import load_config
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify
from tests.compiler.integer_networks import Sizes, random_network

SEED = 20261128
SIZES = Sizes(family="llama", hidden=24, inner=40, heads=4, kv_heads=2, head_dim=24, layers=3, vocab=61, positions=200)


def _program(preset: str, batch: int = 3, **change: int) -> ModelProgram:
    rows, batch = (1, 1) if preset == "tiny" else (2, batch)
    network = random_network(replace(SIZES, **change), SEED)  # type: ignore[arg-type]
    return compile_network(network, load_config(preset), rows=rows, batch=batch, general=True)


class Caches:
    """Random bytes in the caches of devices and of numpy."""

    def __init__(self, program: ModelProgram, *others: object) -> None:
        assert program.moves
        self.program, self.moves, layout = program, program.moves, program.layout
        size = program.symbols[CACHE][1]
        self.bytes = np.random.default_rng(SEED).integers(0, 256, size, dtype=np.uint8)
        self.devices = [Simulator(program.config, dram_bytes=program.size), *others]
        for device in self.devices:
            device.write_dram(0, np.zeros(program.size, dtype=np.uint8).tobytes())
            device.write_dram(program.symbols[CACHE][0], self.bytes.tobytes())
        runs = self.bytes[:program.batch * layout.size].reshape(program.batch, layout.runs, layout.pitch)
        rows = program.max_positions
        self.rows = runs[:, :, :rows * layout.row].reshape(program.batch, layout.runs, rows, layout.row).copy()
        """[sequence, run, position, byte]: a copy, :meth:`check` puts it back."""

    def run(self, program: Program, step: Step) -> int:
        """A launch on all devices; its cycles."""
        launch, cycles = step.registers, set()
        verify(program.image, program.config, launch.bases, launch.limits, launch.lengths, program.program_address)
        for device in self.devices:
            for address, content in step.inputs:
                device.write_dram(address, content.tobytes())
            device.load(program.launch("move", NO_DRAM, step.registers))
            result = device.run()
            assert result.fault == 0
            cycles.add(int(result.cycles))
        assert len(cycles) == 1
        return cycles.pop()

    def copy(self, source: tuple[int, int], target: tuple[int, int], rows: int) -> int:
        cycles = self.run(self.moves.copy, self.moves.copy.step(source, target, rows))
        moved = self.rows[source[0], :, source[1]:source[1] + rows].copy()
        self.rows[target[0], :, target[1]:target[1] + rows] = moved
        self.check()
        return cycles

    def gather(self, sequence: int, slots: np.ndarray) -> int:
        cycles = self.run(self.moves.gather, self.moves.gather.step(sequence, slots))
        layout = self.program.layout
        for layer, head, part in product(range(SIZES.layers), range(layout.heads), range(2)):
            run, at = divmod(layout.offset(layer, head, part), layout.pitch)
            if run < layout.runs:
                index = slots if slots.ndim == 1 else slots[layer, head]
                found = self.rows[sequence, run, :, at:at + layout.head]
                found[:len(index)] = found[index]
        self.check()
        return cycles

    def check(self) -> None:
        """Rows of all sequences, and what stands between them."""
        layout, batch = self.program.layout, self.program.batch
        runs = self.bytes[:batch * layout.size].reshape(batch, layout.runs, layout.pitch)
        runs[:, :, :self.rows.shape[2] * layout.row] = self.rows.reshape(batch, layout.runs, -1)
        for device in self.devices:
            found = np.frombuffer(bytes(device.read_dram(self.program.symbols[CACHE][0], self.bytes.size)), np.uint8)
            np.testing.assert_array_equal(found, self.bytes)


def _lists(random: np.random.Generator, caches: Caches, kept: int, most: int) -> np.ndarray:
    graph = caches.program.graph
    return np.stack([[np.sort(random.permutation(most)[:kept]) for _ in range(caches.program.layout.heads)]
                     for _ in graph.attentions])


@pytest.mark.parametrize("preset", ["tiny", "edge", "base"])
def test_rows_move_up(preset: str) -> None:
    caches, most = Caches(_program(preset)), SIZES.positions
    for first, by, rows in ((0, 1, 1), (0, 1, most - 1), (3, 64, 100), (5, 130, 63), (7, 128, 65), (0, 199, 1),
                            (10, 1, 128), (0, 0, most)):
        caches.copy((0, first + by), (0, first), rows)


@pytest.mark.parametrize("preset", ["edge", "base"])
def test_a_sequence_begins_with_another_one(preset: str) -> None:
    caches = Caches(_program(preset))
    for source, target, rows in ((0, 1, 1), (0, 2, 65), (2, 0, 64), (1, 2, SIZES.positions)):
        caches.copy((source, 0), (target, 0), rows)


@pytest.mark.parametrize("preset", ["tiny", "edge", "base"])
def test_gather_by_layer_and_head(preset: str) -> None:
    caches, random = Caches(_program(preset)), np.random.default_rng(SEED)
    for kept, most in ((1, 200), (1, 1), (63, 64), (64, 200), (65, 70), (130, 200), (200, 200)):
        caches.gather(0, _lists(random, caches, kept, most))
        caches.gather(caches.program.batch - 1, np.sort(random.permutation(most)[:kept]))


@pytest.mark.parametrize("kv_heads", [2, 4])
@pytest.mark.parametrize("preset", ["edge", "base"])
def test_rows_of_several_heads(preset: str, kv_heads: int) -> None:
    """A sequence alone: a row of the cache holds keys and values of all heads."""
    program = _program(preset, 1, kv_heads=kv_heads, positions=100)
    assert program.layout.joined
    caches, random = Caches(program), np.random.default_rng(SEED)
    caches.copy((0, 3), (0, 1), 97)
    for kept, most in ((1, 100), (64, 90), (65, 70), (100, 100)):
        caches.gather(0, _lists(random, caches, kept, most))
        caches.gather(0, np.sort(random.permutation(most)[:kept]))


def test_a_longer_head() -> None:
    caches = Caches(_program("edge", head_dim=80, layers=1))
    caches.copy((0, 70), (0, 1), 130)
    caches.gather(1, np.arange(0, 200, 3))


@pytest.mark.rtl
def test_rtl_moves_the_same_rows_in_the_same_cycles() -> None:
    program, random = _program("tiny", layers=2, positions=80), np.random.default_rng(SEED)
    with RtlDevice(program.config, dram_bytes=64 << 20) as rtl:
        caches = Caches(program, rtl)
        caches.copy((0, 3), (0, 0), 77)
        caches.gather(0, _lists(random, caches, 40, 80))


@pytest.mark.parametrize(("source", "target", "rows", "rule"), [
    ((0, 0), (0, 1), 5, "must move up, not from 0 to 1"), ((0, 100), (0, 0), 101, "within 0 to 200, not 100 to 201"),
    ((0, 0), (3, 0), 1, "sequences are 0 to 2, not 3"), ((-1, 0), (0, 0), 1, "sequences are 0 to 2, not -1"),
])
def test_copies_that_cannot_be(moves: Moves, source: tuple[int, int], target: tuple[int, int], rows: int,
                               rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        moves.copy.step(source, target, rows)


@pytest.mark.parametrize(("slots", "rule"), [
    (np.array([3, 2]), "must rise within 0 to 199"), (np.array([200]), "must rise within 0 to 199"),
    (np.array([], dtype=np.int64), "must rise"), (np.zeros((2, 2, 1), np.int64), "each of 3 layers and 2 KV heads"),
])
def test_gathers_that_cannot_be(moves: Moves, slots: np.ndarray, rule: str) -> None:
    with pytest.raises(CompileError, match=rule):
        moves.gather.step(0, slots)


@pytest.fixture(scope="module")
def moves() -> Moves:
    found = _program("edge").moves
    assert found
    return found
