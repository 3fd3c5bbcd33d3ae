"""Programs with bodies leave the same bytes as the same commands in a row with the registers of their turn in them."""

from dataclasses import replace

import numpy as np
import pytest

from gemmule.control import params, set_displacement, set_length
from gemmule.isa import COMMAND_BYTES, CONTROL, Command, Length, Source, Unit, decode, encode_program
from gemmule.sim.functional.memory import Memory
from gemmule.sim.simulator import Simulator

from ...nests import interpret, unrolled
from ..timing import cases as cases

PROGRAM = 1 << 19
"""Where nothing is read or written."""
SIZE = 1 << 20


def run(program: list[Command], model: Simulator, seed: int) -> tuple[Simulator, int]:
    """A device with random memories that has run a program; the command that faults, or -1."""
    fresh = Simulator(model.config, dram_bytes=SIZE)
    fresh.bases, fresh.limits, fresh.lengths = model.bases, model.limits, model.lengths
    rng = np.random.default_rng(seed)
    fresh.memory.dram[:] = rng.integers(0, 256, SIZE, dtype=np.uint8)
    fresh.memory.spm.view(np.uint8)[:] = rng.integers(0, 256, fresh.memory.spm.view(np.uint8).shape, dtype=np.uint8)
    fresh.load_program(encode_program(program), PROGRAM)
    return fresh, fresh.run().fault_index


def state(memory: Memory) -> dict[str, np.ndarray]:
    found = {name: value for name, value in vars(memory).items() if isinstance(value, np.ndarray)}
    return found | {"dram": memory.dram[:PROGRAM], "predicates": np.array(memory.predicates)}


@pytest.mark.parametrize("name", ["tiny", "odd", "two"])
def test_bodies_are_their_turns(name: str) -> None:
    whole = longest = changed = 0
    for seed in range(40):
        case = cases.random_case(seed, cases.CONFIGS[name], bodies=1)
        program = [decode(int.from_bytes(case.image[at:at + COMMAND_BYTES], "little"))
                   for at in range(0, len(case.image), COMMAND_BYTES)]
        seen, fault = run(program, case.model, seed)
        steps = interpret(program, case.model.config, case.model.lengths.tolist())
        if fault >= 0:
            steps = steps._replace(steps=steps.steps[:fault])
        straight, lengths = unrolled(program, steps)
        assert all(command.unit != CONTROL for command in straight)
        model = Simulator(case.model.config)
        model.bases, model.limits, model.lengths[:] = case.model.bases, case.model.limits, lengths
        if not straight:
            continue
        expected, wrong = run(straight, model, seed)
        assert wrong == -1
        for key, value in state(expected.memory).items():
            np.testing.assert_array_equal(state(seen.memory)[key], value, err_msg=f"{name} {seed} {key}")
        whole += fault < 0
        longest = max(longest, len(straight))
        before = np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)[:PROGRAM]
        changed += bool((seen.memory.dram[:PROGRAM] != before).any())
    assert min(whole, changed) > 10
    assert longest > 60


def test_registers_are_of_the_launch() -> None:
    """Length registers and displacements begin anew; parameters stay."""
    model = Simulator(cases.CONFIGS["tiny"], dram_bytes=SIZE)
    model.limits[:] = SIZE
    move = {"bytes": 4, "stride": 4, "row_stride": 1, "block_stride": 1}
    store = Command.make(Unit.STORE, row=0, rows=Length(9, 1), **move)
    model.memory.spm[:] = 255
    model.load_program(encode_program([params(3, 2), set_displacement(0, amount=64), set_length(1, amount=3), store]),
                       PROGRAM)
    model.run()
    assert model.read_dram(64, 16) == bytes([255] * 12 + [0] * 4)
    assert not any(model.read_dram(0, 64))
    model.lengths[1] = 1
    model.load_program(encode_program([store, set_length(1, Source.WORD, index=3), replace(store, fields={
        **store.fields, "offset": 32})]), PROGRAM)
    model.run()
    assert model.read_dram(0, 48) == bytes([255] * 4 + [0] * 28 + [255] * 8 + [0] * 8)
    assert model.lengths[1] == 1, "the host's"
