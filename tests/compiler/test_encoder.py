"""Attention and the encoder layer against the integer golden, race-free, near the mesh's peak."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule.compiler import CompileError
from gemmule.compiler.attention import compile_attention, plan_attention
from gemmule.compiler.encoder import SPILLED, EncoderProgram, compile_encoder
from gemmule.compiler.encoder_reference import EncoderShape, attention, encode, random_layer
from gemmule.compiler.exposed import exposed_vector
from gemmule.compiler.hoist import hoist_loads
from gemmule.compiler.layout import pack_groups, unpack_groups
from gemmule.compiler.quantize import to_mult_shift
from gemmule.compiler.schedule import place_waits
from gemmule.config import Config, load_config
from gemmule.isa import Command, Unit
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import ProgramError, verify

BASE = load_config("base")


def _config(preset: str, **changes: int) -> Config:
    return Config(**(load_config(preset).model_dump() | {"name": "changed"} | changes))


def _scalings(heads: int, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of uniform random bytes with a deviation of two octaves; contexts 1.5 times as large as the values."""
    score = 2 * 1024 / (74 ** 2 * head_dim ** 0.5) * np.linspace(0.5, 1.5, heads)
    return np.stack(to_mult_shift(score), axis=1), np.stack(to_mult_shift(np.full(heads, 1.5)), axis=1)


def _attention(config: Config, heads: int, queries: int, keys: int, head_dim: int,
               causal: bool) -> tuple[Result, float]:
    """Check one program; its result, and its share of peak from the first product to the last context write."""
    random = np.random.default_rng(queries * 1009 + keys * 31 + head_dim)
    q, k, v = (random.integers(-128, 128, (heads, n, head_dim)).astype(np.int8) for n in (queries, keys, keys))
    score, scale = _scalings(heads, head_dim)
    program = compile_attention(
        config, heads, queries, keys, head_dim, score=score, scale=scale, causal=causal, base_address=1024)
    simulator = Simulator(config, dram_bytes=program.base_address + program.size)
    simulator.load(program.launch("attention", program.fill(q, k, v), program.registers()))
    result = simulator.run()
    assert result.fault == 0
    assert np.array_equal(program.read_output(simulator.read_dram), attention(q, k, v, score, scale, causal=causal))
    first = result.issue[result.units == Unit.MATRIX][0]
    last = result.finish[result.units == Unit.VECTOR][-1]
    return result, program.macs / (config.dim ** 2 * (last - first + 1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("config", "heads", "queries", "keys", "head_dim"), [
    (BASE, 3, 37, 37, 20), (BASE, 2, 5, 40, 32), (BASE, 1, 1, 1, 1), (load_config("edge"), 3, 33, 40, 16),
    (load_config("tiny"), 3, 9, 9, 8), (load_config("tiny"), 2, 6, 13, 5),
    (_config("tiny", stat_contexts=1, acc_banks=1, spm_banks=1), 2, 7, 9, 6),
])
def test_attention(config: Config, heads: int, queries: int, keys: int, head_dim: int, causal: bool) -> None:
    _attention(config, heads, queries, keys, head_dim, causal)


def test_golden_attention_is_softmax() -> None:
    random = np.random.default_rng(11)
    q, k, v = (random.integers(-100, 101, (2, 24, 16)).astype(np.int8) for _ in range(3))
    score, scale = _scalings(2, 16)
    got = attention(q, k, v, score, scale, causal=True)
    step = (score[:, 0] * 2.0 ** -score[:, 1])[:, None, None] / 1024
    octaves = np.where(np.tri(24, dtype=bool), q.astype(float) @ k.transpose(0, 2, 1).astype(float) * step, -np.inf)
    weights = 2.0 ** (octaves - octaves.max(axis=2, keepdims=True))
    exact = weights / weights.sum(axis=2, keepdims=True) @ v.astype(float) * 1.5
    assert np.abs(got - np.clip(exact, -128, 127)).max() < 2.5


def test_attention_speed() -> None:
    result, share = _attention(BASE, 12, 128, 128, 64, False)
    assert plan_attention(BASE, 128, 128, 64).blocks == ((0, 32), (32, 32), (64, 32), (96, 32))
    # 12 heads, 4 blocks, scores and context: 8 * 4 tiles of 32 cycles each.
    assert result.cycles > 12 * 4 * 2 * 1024
    assert share >= 0.99
    # Beside the last softmax and context nothing of the vector work shows.
    assert exposed_vector(result) < 0.005 * result.cycles


def test_causal_blocks_skip_keys_that_they_do_not_see() -> None:
    result, share = _attention(BASE, 12, 128, 128, 64, True)
    # Blocks of 32 queries see 32, 64, 96, 128 keys.
    assert result.cycles < 0.7 * 100_000
    assert share >= 0.9


def _compiled(config: Config, shape: EncoderShape, seed: int = 3) -> tuple[EncoderProgram, Result]:
    layer, x8, x16 = random_layer(shape, seed)
    program = compile_encoder(layer, config, base_address=1024)
    simulator = Simulator(config, dram_bytes=program.base_address + program.size)
    simulator.load(program.launch("layer", program.fill(x8, x16), program.registers()))
    result = simulator.run()
    assert result.fault == 0
    for got, wanted in zip(program.read_output(simulator.read_dram), encode(layer, x8, x16)):
        assert np.array_equal(got, wanted)
    return program, result


@pytest.mark.parametrize(("config", "sizes", "blocks"), [
    (BASE, (37, 2, 16, 50), 1), (BASE, (1, 1, 16, 1), 1), (_config("base", spm_kib=64), (61, 2, 16, 1500), 4),
    (_config("base", spm_kib=32), (37, 1, 16, 1100), 4), (load_config("edge"), (20, 2, 8, 40), 1),
    (load_config("tiny"), (13, 2, 4, 30), 1), (_config("tiny", spm_banks=2, preload=4), (11, 2, 4, 190), 2),
    (_config("tiny", spm_banks=1, acc_banks=1, stat_contexts=1), (13, 2, 4, 280), 3),
])
def test_layer(config: Config, sizes: tuple[int, int, int, int], blocks: int) -> None:
    program, _ = _compiled(config, EncoderShape(**dict(zip(("sequence", "heads", "head_dim", "inner"), sizes))))
    assert len(program.plan.blocks) == blocks


def test_bert_base_layer() -> None:
    shape = EncoderShape(sequence=128, heads=12, head_dim=64, inner=3072)
    # Sequence * (four products of 768 x 768, two of 768 x 3072), and scores and context of 128 x 128 x 768.
    assert shape.macs == 128 * (4 * 768 * 768 + 2 * 768 * 3072) + 2 * 128 * 128 * 768
    program, result = _compiled(BASE, shape)
    assert program.plan.blocks == ((0, 32), (32, 32), (64, 32), (96, 32))
    assert shape.macs / (256 * result.cycles) >= 0.985
    assert exposed_vector(result) <= 0.005 * result.cycles
    # q, k, v stream once, the other weights once a block.
    weights = 3 * 768 * 768 + 4 * (768 * 768 + 2 * 768 * 3072)
    assert weights < result.dram_bytes["load"] < 1.15 * weights


def test_random_layer_uses_its_ranges() -> None:
    layer, x8, x16 = random_layer(EncoderShape(sequence=40, heads=2, head_dim=32, inner=96), 5)
    y8, y16 = encode(layer, x8, x16)
    for value, bits in ((x8, 8), (x16, 16), (y8, 8), (y16, 16)):
        top = (1 << bits - 1) - 1
        assert top / 16 < value.std() < top / 3
        assert np.mean(np.abs(value) >= top) < 0.01
    assert np.abs(y16 / 128 - y8)[np.abs(y8) < 127].max() < 1


def test_spilled_rows_wait_for_their_stores() -> None:
    layer, _, _ = random_layer(EncoderShape(sequence=9, heads=2, head_dim=4, inner=24), 0)
    config = load_config("tiny")
    program = compile_encoder(layer, config)
    unsafe = [
        replace(c, waits={u: d for u, d in c.waits.items() if u is not Unit.STORE})
        if c.unit is Unit.LOAD and c.fields.get("base", 0) in SPILLED else c for c in program.commands]
    verify(program.commands, config, *program.registers())
    with pytest.raises(ProgramError, match="DRAM bytes"):
        verify(unsafe, config, *program.registers())


def test_loads_move_up_to_where_their_rows_are_free() -> None:
    def load(row: int) -> Command:
        return Command.make(Unit.LOAD, base=0, bytes=256, row=row, block_stride=1, rows=1)

    def product(a: int, b: int) -> Command:
        return Command.make(Unit.MATRIX, a_row=a, b_row=b, c_row=0, m=16, n=16, k=16)

    # The third load fills what the first product reads, the fourth what nothing has touched.
    order = [load(0), load(2048), product(0, 2048), product(0, 2048), load(0), load(4096), product(0, 4096)]
    moved = hoist_loads(order, BASE)
    assert [c.fields.get("row", -1) for c in moved] == [0, 2048, -1, -1, 0, 4096, -1]
    order[3] = product(16, 2048)
    moved = hoist_loads(order, BASE)
    assert [c.fields.get("row", -1) for c in moved] == [0, 2048, -1, 0, 4096, -1, -1]
    assert moved == place_waits(moved, BASE, {})


def test_groups_round_trip() -> None:
    values = np.random.default_rng(1).integers(-128, 128, (2, 5, 7)).astype(np.int8)
    packed = pack_groups(values, 4)
    assert packed.shape == (2, 2, 5, 4)
    assert np.array_equal(packed[1, 1, :, :3].view(np.int8), values[1, :, 4:])
    assert not packed[:, 1, :, 3].any()
    assert np.array_equal(unpack_groups(packed.view(np.int8), 7), values)


def test_errors() -> None:
    score, scale = _scalings(2, 16)
    for sizes, causal, message in (
        ((0, 4, 16), False, "queries must be from 1"), ((4, 5000, 16), False, "must fit 256 accumulator rows, not 313"),
        ((4, 3, 16), True, "at most as many queries as keys = 3, not 4"),
        ((2000, 2000, 64), False, "must fit 16384 scratchpad rows"),
    ):
        with pytest.raises(CompileError, match=message):
            compile_attention(BASE, 2, *sizes, score=score, scale=scale, causal=causal)
    with pytest.raises(CompileError, match="score and scale must have shape"):
        compile_attention(BASE, 3, 4, 4, 16, score=score, scale=scale)
    program = compile_attention(BASE, 2, 4, 4, 16, score=score, scale=scale)
    with pytest.raises(CompileError, match=r"k must have shape \(2, 4, 16\)"):
        program.fill(*(np.zeros((2, n, 16), np.int8) for n in (4, 5, 4)))
    with pytest.raises(CompileError, match="base_address must be a multiple of 512, not 8"):
        compile_attention(BASE, 2, 4, 4, 16, score=score, scale=scale, base_address=8)
    for sizes, message in (
        ((4, 1, 20, 8), "head_dim must be a multiple of dim = 16"), ((300, 1, 16, 8), "must fit 256 accumulator rows"),
        ((256, 12, 64, 8), "must fit 16384 scratchpad rows"),
    ):
        shape = EncoderShape(**dict(zip(("sequence", "heads", "head_dim", "inner"), sizes)))
        with pytest.raises(CompileError, match=message):
            compile_encoder(random_layer(shape, 0)[0], BASE)
    with pytest.raises(CompileError, match="sizes of a layer must be positive"):
        random_layer(EncoderShape(sequence=1, heads=0, head_dim=16, inner=1), 0)
    layer, x8, x16 = random_layer(EncoderShape(sequence=3, heads=1, head_dim=16, inner=8), 0)
    with pytest.raises(CompileError, match="x8 must have shape"):
        compile_encoder(layer, BASE).fill(x8[:2], x16)
