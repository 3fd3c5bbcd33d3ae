"""Programs: registers, launches, regions; a compilation that ends with the verifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.compile import compile_network
from gemmule.compiler.layout import Regions
from gemmule.compiler.passes import pipeline
from gemmule.compiler.program import NO_DRAM, Program
from gemmule.compiler.programs.encoder import compile_encoder
from gemmule.compiler.programs.product import compile_product
from gemmule.config import Config, load_config
from gemmule.isa import MAX_LENGTH, Command
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import ProgramError
from tests.compiler.integer_encoders import EncoderSizes, random_encoder
from tests.compiler.integer_networks import Sizes, random_network

TINY, BASE = load_config("tiny"), load_config("base")
SCALE = np.array([[1, 0]])


COMPILERS: dict[str, Callable[[Config], Program]] = {
    "product": lambda config: compile_product(config, 40, 40, 40),
    "online attention": lambda config: compile_encoder(
        random_encoder(EncoderSizes(layers=1), 0).with_softmax(None, 4), config, sequence=9),
    "encoder": lambda config: compile_encoder(random_encoder(EncoderSizes(layers=1), 0), config, sequence=9),
}


def _no_waits(commands: list[Command], *_: object, **__: object) -> list[Command]:
    return [replace(command, waits={}) for command in commands]


@pytest.mark.parametrize("name", COMPILERS)
def test_a_race_ends_a_compilation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that forgets its waits is caught by the verifier, whatever it compiles."""
    COMPILERS[name](TINY)
    monkeypatch.setattr(pipeline, "place_straight_waits", _no_waits)
    monkeypatch.setattr(pipeline, "place_turn_waits", _no_waits)
    with pytest.raises(ProgramError, match="may run before"):
        COMPILERS[name](TINY)


def test_extremes_of_a_decoder() -> None:
    network = random_network(Sizes(family="llama", positions=32), 1)
    program = compile_network(network, BASE, rows=16)
    seen = {tuple(registers.lengths[1:6].tolist()) for registers in program.extremes()}
    # rows, positions before them, rows with logits, the first of these, all positions
    assert seen == {
        (16, 0, 16, 0, 16), (16, 0, 0, 15, 16), (16, 1, 16, 0, 17), (16, 1, 0, 15, 17), (16, 16, 16, 0, 32),
        (16, 16, 0, 15, 32), (1, 0, 1, 0, 1), (1, 0, 0, 0, 1), (1, 1, 1, 0, 2), (1, 1, 0, 0, 2), (1, 31, 1, 0, 32),
        (1, 31, 0, 0, 32)}


def test_registers_and_launch() -> None:
    program = compile_product(TINY, 3, 5, 7, base_address=256)
    registers = program.registers()
    assert [(int(a), int(n)) for a, n in zip(*registers[:2])][:5] == [
        *(program.symbols[name] for name in ("parameters", "a", "b", "c")), (0, 0)]
    assert registers.lengths.tolist() == [MAX_LENGTH, *[0] * 15]
    moved = program.place(lengths={3: 9}, windows={0: (512, 8), 30: (64, 4)})
    assert (moved.bases[[0, 30]].tolist(), moved.limits[[0, 30]].tolist(), moved.lengths[3]) == ([512, 64], [8, 4], 9)

    dram = np.arange(program.size).astype(np.uint8)
    launch = program.launch("product", dram, registers, seed=4)
    assert (launch.name, launch.seed, launch.image, launch.program) == ("product", 4, program.image, 256)
    assert not launch.dram[:256].any()
    assert np.array_equal(launch.dram[256:], dram)
    assert program.launch("timed", NO_DRAM, registers).dram.size == 0


def test_a_launch_without_dram_keeps_what_the_device_has() -> None:
    program = compile_product(TINY, 2, 2, 2, base_address=64)
    a, b = np.array([[1, 2], [3, 4]], np.int8), np.array([[5, 6], [7, 8]], np.int8)
    dram = program.fill(a, b, np.full(2, 1), np.zeros(2))
    simulator = Simulator(TINY)
    simulator.write_dram(0, b"\x07" * 64)
    simulator.write_dram(program.base_address, dram)
    simulator.load(program.launch("product", NO_DRAM, program.registers()))
    assert simulator.run().fault == 0
    assert np.array_equal(program.read_output(simulator.read_dram), a @ b)
    assert simulator.read_dram(0, 64) == b"\x07" * 64


def test_put_and_read_a_region() -> None:
    program = compile_product(TINY, 2, 2, 2, base_address=64)
    dram = np.zeros(program.size, dtype=np.uint8)
    program.put(dram, "b", np.arange(1, 5, dtype=np.uint8).reshape(2, 2))

    def read(address: int, size: int) -> bytes:
        return dram[address - 64:address - 64 + size].tobytes()

    assert program.read(read, "b")[:5].tolist() == [1, 2, 3, 4, 0]
    assert program.read(read, "b", 1, 2).tolist() == [2, 3]
    assert len(program.read(read, "b", 1)) == program.symbols["b"][1] - 1


def test_addresses_are_checked_once_for_all() -> None:
    regions = Regions(BASE)
    regions.reserve("a", 100)
    regions.reserve("b", 8)
    assert regions.symbols(1024) == {"a": (1024, 100), "b": (1024 + regions.align, 8)}
    assert regions.size == 2 * regions.align
    with pytest.raises(CompileError, match="base_address must be a multiple of 512, not 8: align it"):
        regions.symbols(8)
    with pytest.raises(CompileError, match=r"must stay below 2\*\*address_bits = 4294967296, not reach 4294967808"):
        regions.symbols((1 << 32) - regions.align)
