"""Compiled programs on the simulator, bit by bit against the integer interpreter."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gemmule.compiler import CompileError, Interpreter, KvCache, compile_decoder, listing
from gemmule.compiler.decoder_plan import plan_decoder
from gemmule.compiler.decoder_program import DecoderProgram
from gemmule.compiler.program import NO_DRAM
from gemmule.config import Config, load_config
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import verify

GOLDEN = Path(__file__).parent / "golden"
EDGE = Config(name="dim8", dim=8, bus_bytes=8, spm_kib=64, spm_banks=8, acc_kib=16, acc_banks=4, dividers=2)
SMALL = Config(name="dim4", dim=4, bus_bytes=4, spm_kib=64, spm_banks=4, acc_kib=16, acc_banks=4, preload=1,
               burst_bytes=64, read_bursts=8, write_bursts=2, unit_queue=4, stat_rows=16, dividers=1)
LEAN = Config(name="lean", dim=8, bus_bytes=4, spm_kib=64, spm_banks=8, acc_kib=2, acc_banks=1, preload=4,
              stat_contexts=1, burst_bytes=64, unit_queue=4, load_commands=1)
BASE16 = Config(address_bits=16)


class _Device:
    """A program on the simulator, with its cache; every launch is verified and must not fault."""

    def __init__(self, program: DecoderProgram) -> None:
        self.program = program
        self.simulator = Simulator(program.config, dram_bytes=1 << 20)
        self.simulator.write_dram(program.base_address, program.dram)
        self.cycles = 0

    def launch(self, tokens: list[int], position: int, logit_rows: int | None = None) -> None:
        program, simulator = self.program, self.simulator
        registers = program.registers(tokens, position, logit_rows)
        verify(program.commands, program.config, *registers)
        simulator.load(program.launch("test", NO_DRAM, registers))
        result = simulator.run()
        assert result.fault == 0, program.commands[result.fault_index]
        self.cycles = result.cycles

    def forward(self, tokens: list[int], position: int, logit_rows: int | None = None) -> np.ndarray:
        self.launch(tokens, position, logit_rows)
        rows = len(tokens) if logit_rows is None else logit_rows
        return self.program.read_logits(self.simulator.memory.read, rows)


CASES = {
    "base": (load_config("base"), {}),
    "base gated untied": (load_config("base"), {"gated": True, "activation": "silu", "tied": False}),
    "ragged": (load_config("base"), {"hidden": 40, "inner": 100, "vocab": 90, "heads": 3}),
    "long chunks": (load_config("base"), {"inner": 2100, "layers": 1}),
    "dim 8": (EDGE, {"vocab": 75}),
    "dim 4": (SMALL, {"head_dim": 8, "heads": 3, "gated": True}),
    "lean": (LEAN, {"head_dim": 8, "layers": 3, "max_positions": 28}),
}


@pytest.mark.parametrize("name", CASES)
def test_program_equals_interpreter(make_model, name: str) -> None:
    """Many numbers of rows at many positions, from position 0 to the last; the same program throughout."""
    config, changes = CASES[name]
    model = make_model(seed=21, **changes)
    program = compile_decoder(model, config, base_address=4096)
    device, interpreter, cache = _Device(program), Interpreter(model), KvCache(model)
    tokens = np.random.default_rng(22).integers(0, model.shape.vocab, model.shape.max_positions).tolist()
    end, position = model.shape.max_positions, 0
    sizes = [1, 3, program.max_rows, 2, 1] + [5] * end
    for rows in sizes:
        rows = min(rows, program.max_rows, end - position)
        if not rows:
            break
        part = tokens[position:position + rows]
        if position > 4:  # rows that are then rejected leave no trace
            device.forward(part[::-1], position)
        assert np.array_equal(device.forward(part, position), interpreter.forward(part, position, cache)), (
            f"{rows} rows at {position}")
        position += rows
    assert position == end


@pytest.mark.parametrize("rows", [2, 7, 8, 15, 16])
def test_rows_at_once_equal_rows_one_by_one(make_model, rows: int) -> None:
    program = compile_decoder(make_model(seed=23), load_config("base"))
    together, alone = _Device(program), _Device(program)
    tokens = np.random.default_rng(rows).integers(0, 72, rows + 9).tolist()
    for device in (together, alone):
        device.forward(tokens[:9], 0)
    wanted = together.forward(tokens[9:], 9)
    assert np.array_equal(wanted, [alone.forward([t], 9 + i)[0] for i, t in enumerate(tokens[9:])])
    assert np.array_equal(*(d.simulator.memory.read(*program.symbols["kv"]) for d in (together, alone)))


def test_logit_rows(make_model) -> None:
    """The last rows only, or none: then the head's weights are not loaded either."""
    model = make_model(seed=24, vocab=300)
    program = compile_decoder(model, load_config("base"))
    tokens = list(range(10, 21))
    wanted = Interpreter(model).forward(tokens, 0, KvCache(model))
    device = _Device(program)
    assert device.forward(tokens, 0, 0).shape == (0, 300)
    short = device.cycles
    for rows in (1, 4, 11):
        assert np.array_equal(device.forward(tokens, 0, rows), wanted[11 - rows:])
    assert short < device.cycles - model.head.weight.size // 16


@pytest.mark.parametrize("name", ["base", "dim 8", "dim 4", "lean"])
def test_device_picks_the_greedy_tokens(make_model, name: str) -> None:
    """The same network with argmax on the device: tokens, not logits, come back; none when none are wanted."""
    config, changes = CASES[name]
    model = make_model(seed=26, **changes)
    program = compile_decoder(model, config, tokens=True)
    device, interpreter, cache = _Device(program), Interpreter(model), KvCache(model)
    tokens = np.random.default_rng(27).integers(0, model.shape.vocab, model.shape.max_positions).tolist()
    position = 0
    for rows in (1, 3, program.max_rows, 2):
        part = tokens[position:position + min(rows, program.max_rows)]
        device.launch(part, position)
        wanted = np.argmax(interpreter.forward(part, position, cache), axis=1).tolist()
        assert program.read_tokens(device.simulator.memory.read, len(part)) == wanted
        position += len(part)
    device.launch(tokens[position:position + 1], position, 0)
    with pytest.raises(CompileError, match="stores tokens, not logits"):
        program.read_logits(device.simulator.memory.read, 1)


def test_decode_is_bound_by_dram(make_model) -> None:
    """A wide layer on ``base``: most of the roofline, and eight rows cost about as much as one."""
    model = make_model(seed=25, hidden=128, inner=512, heads=4, head_dim=32, vocab=512)
    program = compile_decoder(model, load_config("base"))
    device = _Device(program)
    device.forward(list(range(16)), 0)
    device.forward([1], 16)
    one = device.cycles
    device.forward([1] * 8, 16)
    assert device.cycles <= 1.08 * one
    share = 1 - program.config.dram.refresh_share
    assert program.roofline_bytes(1, 16) / 16 / share > 0.93 * one


def test_golden_listing(make_model) -> None:
    model = make_model(seed=26, hidden=16, inner=32, heads=1, layers=1, vocab=40, max_positions=16)
    text = listing(compile_decoder(model, load_config("base"), max_rows=2).commands)
    path = GOLDEN / "decoder.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "the listing changed: read the difference, then set UPDATE_GOLDEN=1"


def test_equal_inputs_give_equal_programs(make_model) -> None:
    a, b = (compile_decoder(make_model(seed=27), load_config("base")) for _ in range(2))
    assert a.image == b.image
    assert np.array_equal(a.dram, b.dram)


@pytest.mark.parametrize(("config", "changes", "message"), [
    (load_config("tiny"), {}, "does not fit config 'tiny'"),
    (load_config("base"), {"head_dim": 24}, "head_dim must be dim = 16 times a power of two"),
    (load_config("base"), {"max_positions": 33}, "max_position_embeddings must be a multiple of preload"),
    (load_config("base"), {"inner": 140000}, "depth must stay below 131072"),
])
def test_errors_name_value_rule_and_fix(make_checkpoint, config, changes, message) -> None:
    shape = make_checkpoint(**({"inner": 16} | changes)).shape
    with pytest.raises(CompileError, match=message) as error:
        plan_decoder(shape, config)
    assert "\n" not in str(error.value)


def test_launch_errors(make_model) -> None:
    program = compile_decoder(make_model(), load_config("base"))
    for tokens, position, rows, message in (
        ([], 0, None, "1 to 16 tokens"), ([1] * 17, 0, None, "1 to 16 tokens"), ([1], 32, None, "position"),
        ([1], -1, None, "position"), ([72], 0, None, "tokens must be"), ([1], 0, 2, "logit_rows"),
    ):
        with pytest.raises(CompileError, match=message):
            program.registers(tokens, position, rows)
    with pytest.raises(CompileError, match="base_address must be a multiple"):
        compile_decoder(make_model(), load_config("base"), base_address=32)
    with pytest.raises(CompileError, match="max_rows must be"):
        compile_decoder(make_model(), load_config("base"), max_rows=17)
    with pytest.raises(CompileError, match="raise address_bits"):
        compile_decoder(make_model(), BASE16, base_address=1 << 16)
