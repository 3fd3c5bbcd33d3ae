"""Equal layers as one body: the stream is the unrolled program's, a stack of encoder layers gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler.encoder_reference import EncoderLayer, EncoderShape, encode, random_layer
from gemmule.compiler.encoder_stack import compile_encoder_stack
from gemmule.compiler.errors import CompileError
from gemmule.compiler.program import Registers
from gemmule.compiler.roll import ScalingRegisters, roll_layers
from gemmule.compiler.turns import place_turn_waits
from gemmule.config import load_config
from gemmule.isa import CONTROL, Command, RequantFlag, Unit, VOp, encode_program
from gemmule.sim.rtl.cosim import cosim
from gemmule.sim.rtl.device import RtlDevice
from gemmule.sim.simulator import Simulator
from gemmule.sim.stream import stream_of
from gemmule.sim.verify.verify import verify
from gemmule.terms import OUT

TINY, BASE = load_config("tiny"), load_config("base")
REGISTERS = ScalingRegisters(pointer=1, first=2, count=7)
NOTHING = Registers(np.zeros(32, np.int64), np.full(32, 1 << 16), np.zeros(16, np.int64))


def layer(index: int, *, mult: int | None = None, stride: int = 64, m: int = 2) -> list[Command]:
    """A load, vector commands with other scalings in every layer, a store."""
    move = {"bytes": 8, "rows": 2, "stride": 8, "row_stride": 1, "block_stride": 2}
    scaling = {"mult": 100 + index if mult is None else mult, "shift": index % 40, "shift2": 3}
    rows = {"m": m, "n": 4, "src0_stride": 2, "dst_stride": 2}
    return [
        Command.make(Unit.LOAD, base=1, offset=16 + stride * index, row=8, **move),
        Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, dst=16, **rows, **scaling),
        Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, dst=24, **rows, **(scaling | {"mult": 7})),
        Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, dst=32, **rows, **scaling),
        Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, dst=40, aux=300 * index, **(rows | {"dst_stride": 4}),
                     **scaling, flags=[RequantFlag.RESIDUAL, RequantFlag.RESCALE]),
        Command.make(Unit.VECTOR, op=VOp.REQUANT, src0=0, dst=60, mult=5, shift=1, **rows),
        Command.make(Unit.STORE, base=2, offset=stride * index, row=16, **move),
    ]


def resolved(commands: Sequence[Command]) -> np.ndarray:
    """What units see of a program, command by command."""
    stream = stream_of(encode_program(commands), TINY, *NOTHING)
    assert stream.good == stream.count
    found = stream.resolved[stream.units != CONTROL]
    # A scaling that has no meaning for its command is not compared.
    return np.delete(found, [OUT["aux"]], axis=1) if not (found[:, OUT["unit"]] == Unit.VECTOR).any() else found


@pytest.mark.parametrize("count", [1, 2, 5, 24])
def test_the_stream_is_the_unrolled_program(count: int) -> None:
    """Registers for three scalings of three halves are not enough for all: some are brought again."""
    layers = [layer(i) for i in range(count)]
    rolled = roll_layers(layers, TINY, REGISTERS)
    unrolled = [command for each in layers for command in each]
    assert np.array_equal(resolved(rolled), resolved(unrolled))


def test_turns_wait_for_each_other() -> None:
    """Without waits the verifier refuses the body, with them it does not; its turns race with each other."""
    rolled = roll_layers([layer(i) for i in range(6)], TINY, REGISTERS)
    with pytest.raises(Exception, match="may run before"):
        verify(rolled, TINY, *NOTHING)
    waited = place_turn_waits(rolled, TINY, [NOTHING])
    verify(waited, TINY, *NOTHING)
    single = place_turn_waits(roll_layers([layer(0)], TINY, REGISTERS), TINY, [NOTHING])
    first, only = (next(c for c in program if c.unit is Unit.VECTOR) for program in (waited, single))
    assert first.waits == {Unit.STORE: 1}
    assert only.waits == {}
    assert place_turn_waits(rolled, TINY, [NOTHING], turns=2) == waited


@pytest.mark.parametrize(("layers", "said"), [
    ([layer(0), layer(1)[1:]], "equally many commands"),
    ([layer(0), layer(1, m=3)], "m_cap of command 1"),
    ([layer(0), layer(1), layer(3)], "base register 1 must move by the same bytes"),
    ([layer(0), [*layer(1)[:-1], layer(1, stride=8)[-1]], layer(2)], "base register 2 must move"),
    ([layer(0), [replace(layer(1)[0], flags=frozenset([0])), *layer(1)[1:]]], "command 0 .* is another"),
    ([layer(i) for i in range(400)], "must fit 510 parameter words"),
])
def test_layers_that_differ_otherwise(layers: list[list[Command]], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        roll_layers(layers, TINY, REGISTERS)


def stack(count: int, shape: EncoderShape) -> tuple[list[EncoderLayer], np.ndarray, np.ndarray]:
    """Random layers, whose norms differ too, and an input."""
    made = [random_layer(shape, seed) for seed in range(count)]
    layers = [replace(one, attention_norm=replace(one.attention_norm, eps_mult=17 + i, eps_shift=i % 3 + 2))
              for i, (one, _, _) in enumerate(made)]
    return layers, made[0][1], made[0][2]


@pytest.mark.parametrize(("config", "count", "shape"), [
    (BASE, 24, EncoderShape(sequence=64, heads=4, head_dim=32, inner=512)),
    (TINY, 3, EncoderShape(sequence=8, heads=2, head_dim=4, inner=12)),
])
def test_a_stack_is_its_layers(config, count, shape) -> None:
    """Bytes of the unrolled program and of the golden, an image 20 times smaller, at most 0.1 % more cycles."""
    config = config.model_copy(update={"parameter_words": 1024})
    layers, x8, x16 = stack(count, shape)
    want8, want16 = x8, x16
    for each in layers:
        want8, want16 = encode(each, want8, want16)
    images, cycles = [], []
    for rolled in (True, False):
        program = compile_encoder_stack(layers, config, rolled=rolled)
        device = Simulator(config, dram_bytes=program.size)
        device.load(program.launch("stack", program.fill(x8, x16), program.registers()))
        result = device.run()
        assert result.fault == 0
        got8, got16 = program.read_output(device.read_dram)
        assert np.array_equal(got8, want8)
        assert np.array_equal(got16, want16)
        images.append(len(program.image))
        cycles.append(result.cycles)
    if count == 24:  # fewer layers hide less
        assert cycles[0] <= 1.001 * cycles[1]
        assert images[1] >= 20 * images[0]


@pytest.mark.rtl
@pytest.mark.slow
def test_a_stack_on_the_rtl() -> None:
    """Bytes, cycles and counters of layers as one body."""
    layers, x8, x16 = stack(3, EncoderShape(sequence=8, heads=2, head_dim=4, inner=12))
    program = compile_encoder_stack(layers, TINY)
    with RtlDevice(TINY, watchdog=1_000_000) as rtl:
        report = cosim(program.launch("stack", program.fill(x8, x16), program.registers()),
                       Simulator(TINY, dram_bytes=program.size), rtl)
    assert report.ok, report.text
    assert report.counter_differences == 0


def test_layers_of_two_shapes() -> None:
    one, other = (random_layer(EncoderShape(sequence=8, heads=heads, head_dim=4, inner=12), 1)[0] for heads in (1, 2))
    with pytest.raises(CompileError, match="layers of one shape, not 2"):
        compile_encoder_stack([one, other], TINY)
