"""Online attention against the integer golden: ragged blocks, masks, few statistics contexts, any key length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmule import numerics
from gemmule.compiler import CompileError
from gemmule.compiler.exposed import exposed_vector
from gemmule.compiler.online_attention import (
    OnlineProgram,
    compile_online_attention,
    online_attention,
    plan_online_attention,
)
from gemmule.compiler.quantize import to_mult_shift
from gemmule.config import Config, load_config
from gemmule.isa import Command, SoftmaxFlag, Unit, VOp, encode_program
from gemmule.sim.result import Result
from gemmule.sim.simulator import Simulator
from gemmule.sim.verify.verify import ProgramError, verify

TINY, EDGE, BASE = (load_config(name) for name in ("tiny", "edge", "base"))


def _config(preset: str, **changes: int) -> Config:
    return Config(**(load_config(preset).model_dump() | {"name": "changed"} | changes))


def _operands(heads: int, queries: int, keys: int, head_dim: int) -> tuple[np.ndarray, ...]:
    """q, k, v; scores with a deviation of two octaves, and some rows with rises beyond 40; contexts scaled by 1.5."""
    seed = queries * 1009 + keys * 31 + head_dim
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    q, k, v = (random.integers(-128, 128, (heads, n, head_dim)).astype(np.int8) for n in (queries, keys, keys))
    k[:, keys // 2] = q[:, queries // 2]  # one key that a query prefers by far
    score = 2 * 1024 / (74 ** 2 * head_dim ** 0.5) * np.linspace(0.5, 4, heads)
    return q, k, v, np.stack(to_mult_shift(score), axis=1), np.stack(to_mult_shift(np.full(heads, 1.5)), axis=1)


def _two_passes(q: np.ndarray, k: np.ndarray, v: np.ndarray, score: np.ndarray, scale: np.ndarray, *,
                causal: bool) -> np.ndarray:
    """The exact softmax's contexts  # int64 [heads, queries, head_dim]."""
    found = []
    for h in range(len(q)):
        t = numerics.scores(q[h].astype(np.int64) @ k[h].T.astype(np.int64), *map(int, score[h]))
        seen = numerics.visible(len(q[h]), len(k[h]), causal)
        p, total = numerics.row_probabilities(t, numerics.row_max(t, seen), seen)
        found.append(numerics.saturate(numerics.requant_row(
            p @ v[h].astype(np.int64), *numerics.softmax_reciprocal(total), *map(int, scale[h])), 8))
    return np.stack(found)


def _run(program: OnlineProgram, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[Result, np.ndarray]:
    simulator = Simulator(program.config, dram_bytes=program.base_address + program.size)
    simulator.load(program.launch("attention", program.fill(q, k, v), program.registers()))
    result = simulator.run()
    assert result.fault == 0
    return result, program.read_output(simulator.read_dram)


def _check(config: Config, heads: int, queries: int, keys: int, head_dim: int, causal: bool,
           block: int | None = None) -> tuple[OnlineProgram, Result, float]:
    """Check one program; its result, and its share of peak from the first product to the last context write."""
    q, k, v, score, scale = _operands(heads, queries, keys, head_dim)
    program = compile_online_attention(
        config, heads, queries, keys, head_dim, score=score, scale=scale, causal=causal, block=block, base_address=1024)
    result, got = _run(program, q, k, v)
    golden = online_attention(q, k, v, score, scale, causal=causal, block=program.plan.block)
    assert np.array_equal(got, golden)
    # Some LSB of V from the two-pass softmax, scaled by 1.5 as it is.
    assert np.abs(golden - _two_passes(q, k, v, score, scale, causal=causal)).max() <= 6
    first = result.issue[result.units == Unit.MATRIX][0]
    last = result.finish[result.units == Unit.VECTOR][-1]
    return program, result, program.macs / (config.dim ** 2 * (last - first + 1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("config", "heads", "queries", "keys", "head_dim", "block"), [
    (BASE, 3, 37, 37, 20, None), (BASE, 2, 150, 200, 64, None), (BASE, 2, 70, 75, 32, 16), (BASE, 1, 5, 40, 32, 7),
    (BASE, 1, 1, 1, 1, None), (BASE, 2, 1, 90, 16, 33), (EDGE, 3, 70, 75, 16, None), (EDGE, 2, 9, 50, 20, 24),
    (TINY, 3, 9, 9, 8, None), (TINY, 2, 6, 13, 5, 4), (TINY, 2, 40, 61, 8, 9), (TINY, 1, 50, 50, 4, 1),
    (_config("tiny", preload=4), 2, 33, 45, 6, 5),
    (_config("tiny", stat_contexts=1, acc_banks=1, spm_banks=1), 3, 37, 41, 6, 8),
    (_config("tiny", stat_contexts=1), 2, 20, 7, 6, 100),
])
def test_golden(config: Config, heads: int, queries: int, keys: int, head_dim: int, block: int | None,
                causal: bool) -> None:
    if causal and queries > keys:
        queries = keys
    program, _, _ = _check(config, heads, queries, keys, head_dim, causal, block)
    assert program.plan.block == block or block is None


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(3):
        keys, causal = int(random.integers(1, 90)), bool(random.integers(2))
        queries = int(random.integers(1, keys + 1 if causal else 60))
        config = _config("tiny", stat_contexts=int(2 ** random.integers(3)), stat_rows=int(2 ** random.integers(2, 6)))
        block = None if random.integers(2) else int(random.integers(1, 64))
        _check(config, int(random.integers(1, 4)), queries, keys, int(random.integers(1, 13)), causal, block)


@pytest.mark.parametrize(("config", "keys", "head_dim"), [(BASE, 4112, 64), (TINY, 600, 8)])
def test_rows_of_scores_longer_than_the_accumulator(config: Config, keys: int, head_dim: int) -> None:
    program, result, _ = _check(config, 1, 24, keys, head_dim, False)
    assert keys > 4 * program.plan.block
    values = 2 * keys * head_dim
    assert values < result.dram_bytes["load"] < 1.2 * values


def test_rescale_after_the_first_block_only() -> None:
    score = scale = np.array([[1, 0]])
    program = compile_online_attention(BASE, 1, 64, 200, 64, score=score, scale=scale)
    # 64 rows of 64 columns fill a context slot of 256 rows; 200 keys are four blocks of at most 64.
    assert (program.plan.blocks, program.plan.block) == (((0, 64),), 64)
    work = [c for c in program.commands if c.unit is Unit.VECTOR]
    assert [VOp(c.op) for c in work] == [
        VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, *[VOp.SOFTMAX_MAX, VOp.SOFTMAX_EXP, VOp.RESCALE] * 3, VOp.REQUANT]
    assert [c.fields["n_cap"] for c in work if c.op == VOp.SOFTMAX_MAX] == [64, 64, 64, 8]
    exponentials = [c.flags for c in work if c.op == VOp.SOFTMAX_EXP]
    assert [SoftmaxFlag.CONTINUE in flags for flags in exponentials] == [False, True, True, True]
    assert [SoftmaxFlag.MORE in flags for flags in exponentials] == [True, True, True, False]
    assert all(SoftmaxFlag.ONLINE in flags for flags in exponentials)


def test_causal_skips_blocks_and_masks_the_diagonal_alone() -> None:
    score = scale = np.array([[1, 0]])
    program = compile_online_attention(BASE, 1, 256, 256, 64, score=score, scale=scale, causal=True)
    assert program.plan.blocks == ((0, 64), (64, 64), (128, 64), (192, 64))
    maxima = [c for c in program.commands if c.unit is Unit.VECTOR and c.op == VOp.SOFTMAX_MAX]
    # Of four blocks of 64 keys the blocks of queries see 1, 2, 3, 4; the last one of each is masked.
    assert len(maxima) == 10
    assert sum(SoftmaxFlag.CAUSAL in c.flags for c in maxima) == 4


def test_leaving_out_a_rescale_or_a_wait_shows() -> None:
    """Mutants: the golden notices a missing RESCALE, the verifier a missing wait around one."""
    q, k, v, score, scale = _operands(1, 16, 120, 8)
    program = compile_online_attention(TINY, 1, 16, 120, 8, score=score, scale=scale)
    golden = online_attention(q, k, v, score, scale, block=program.plan.block)
    assert np.array_equal(_run(program, q, k, v)[1], golden)

    # A shift of no rows: the same program without it.
    def is_rescale(command: Command) -> bool:
        return command.unit is Unit.VECTOR and command.op == VOp.RESCALE

    bare = tuple(replace(c, fields=c.fields | {"m_cap": 0}) if is_rescale(c) else c for c in program.commands)
    assert not np.array_equal(_run(replace(program, commands=bare, image=encode_program(bare)), q, k, v)[1], golden)
    for i, command in enumerate(program.commands):
        if is_rescale(command) and Unit.MATRIX in command.waits:
            hasty = [*program.commands]
            hasty[i] = replace(command, waits={})
            with pytest.raises(ProgramError, match="accumulator row"):
                verify(hasty, TINY, *program.registers())
            break
    else:
        pytest.fail("no RESCALE waits for the product before it")


@pytest.mark.parametrize(("queries", "keys", "heads", "least"), [(128, 128, 12, 0.98), (256, 512, 2, 0.98)])
def test_speed(queries: int, keys: int, heads: int, least: float) -> None:
    _, result, share = _check(BASE, heads, queries, keys, 64, False)
    assert share >= least
    assert exposed_vector(result) < 0.02 * result.cycles


def test_block_size_changes_bits() -> None:
    q, k, v, score, scale = _operands(1, 20, 60, 16)
    found = [online_attention(q, k, v, score, scale, block=block) for block in (16, 32)]
    assert not np.array_equal(*found)


def test_plan_cuts_keys_evenly_and_shrinks_blocks_to_the_scratchpad() -> None:
    assert plan_online_attention(BASE, 128, 80, 64).block == 48  # two blocks, not 64 and 16
    # 8 rows would leave room for 512 keys a block; two of K and two of V, 8 groups each, have 5 of 8 banks of 2048.
    assert plan_online_attention(BASE, 8, 4096, 128).block == 320
    assert plan_online_attention(BASE, 200, 4096, 64, block=100).blocks == (
        (0, 33), (33, 33), (66, 34), (100, 33), (133, 33), (166, 34))


def test_errors() -> None:
    for sizes, changes, message in (
        ((0, 4, 16), {}, "queries must be from 1 to 65535, not 0"), ((4, 4, 16), {"block": 0}, "block must be from 1"),
        ((4, 3, 16), {"causal": True}, "at most as many queries as keys = 3, not 4"),
        ((4, 4, 5000), {}, "must fit 256 accumulator rows, not 313"),
        ((4, 65535, 16), {"block": 5000}, "must fit 256 accumulator rows, not 313"),
        ((1, 9999, 4000), {}, "must fit 16384 scratchpad rows"),
    ):
        with pytest.raises(CompileError, match=message):
            plan_online_attention(BASE, *sizes, **changes)
    score = np.ones((2, 2), dtype=np.int64)
    with pytest.raises(CompileError, match="score and scale must have shape"):
        compile_online_attention(BASE, 3, 4, 4, 16, score=score, scale=score)
    program = compile_online_attention(BASE, 2, 4, 4, 16, score=score, scale=score)
    with pytest.raises(CompileError, match=r"k must have shape \(2, 4, 16\)"):
        program.fill(*(np.zeros((2, n, 16), np.int8) for n in (4, 5, 4)))
