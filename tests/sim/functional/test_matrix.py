"""Every legal matrix command against plain loops over the elements, as docs/numerics.md places them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from gemmule.config import Config, load_config
from gemmule.isa import Command, MatrixFlag, Unit, decode_table, encode_program, legal_flags
from gemmule.resolve import OUT, resolve
from gemmule.sim.functional.execute import execute
from gemmule.sim.functional.memory import Memory

TINY = load_config("tiny")
SMALL = Config(name="small", dim=8, bus_bytes=8, spm_kib=8, spm_banks=4, acc_kib=8, acc_banks=2)
M = MatrixFlag
LEGAL = [flags for flags in range(256) if legal_flags(Unit.MATRIX, 0, flags)]
WEIGHTS = [flags for flags in LEGAL if not flags >> M.REUSE & 1]
A_ROW, B_ROW, C_ROW, A_STRIDE, B_STRIDE, C_STRIDE = 5, 420, 30, 21, 44, 19


def fresh(config: Config, seed: int) -> Memory:
    memory = Memory(config, dram_bytes=64)
    rng = np.random.default_rng(seed)
    memory.spm[:] = rng.integers(0, 256, memory.spm.shape)
    memory.acc[:] = rng.integers(-(1 << 31), 1 << 31, memory.acc.shape)
    return memory


def command(flags: int, m: int, n: int, k: int, group: int = 0, **values: int) -> Command:
    places = {"a_row": A_ROW, "a_stride": A_STRIDE, "b_row": B_ROW, "b_stride": B_STRIDE, "c_row": C_ROW,
              "c_stride": C_STRIDE} | values
    return Command.make(Unit.MATRIX, flags=[f for f in M if flags >> f & 1], m=m, n=n, k=k, group=group, **places)


def run(memory: Memory, config: Config, commands: Sequence[Command]) -> None:
    table = decode_table(encode_program(commands))
    none = np.zeros(32, dtype=np.int64)
    resolved = resolve(table, none, none, none[:16], config)
    assert not resolved[:, OUT["fault"]].any()
    execute(memory, table, np.arange(len(table)), resolved)


def left(spm: np.ndarray, flags: int, m: int, k: int) -> int:
    """A[m, k] by the contract."""
    dim = spm.shape[1]
    row, lane = A_ROW + k // dim * A_STRIDE + m, k % dim
    if flags >> M.A_TRANSPOSED & 1:
        row, lane = A_ROW + m // dim * A_STRIDE + k, m % dim
    byte = int(spm[row, lane])
    return byte if flags >> M.A_UNSIGNED & 1 or byte < 128 else byte - 256


def right(spm: np.ndarray, flags: int, k: int, n: int, depth: int, group: int) -> int:
    """B[k, n] by the contract; ``depth`` is g(K)."""
    dim = spm.shape[1]
    block, line, lane = n // dim, k, n % dim
    if flags >> M.B_TRANSPOSED & 1:
        block, line, lane = k // dim, n, k % dim
    first = B_ROW + block * B_STRIDE
    if not flags >> M.B_INT4 & 1:
        byte = int(spm[first + line, lane])
        return byte - 256 if byte > 127 else byte
    byte = int(spm[first + line // 2, lane])
    weight = byte % 16 if line % 2 == 0 else byte // 16
    weight = weight - 16 if weight > 7 else weight
    if flags >> M.GROUP_SCALES & 1:
        return weight * (int(spm[first + depth * dim // 2 + (k // dim >> group), lane]) % 16)
    return weight * 2 ** min(group, 4)


def wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


SHAPES = [(1, 1, 1), (3, 5, 9), (7, 16, 13), (8, 8, 16), (9, 3, 20)]


@pytest.mark.parametrize("config", [TINY, SMALL], ids=lambda config: config.name)
@pytest.mark.parametrize("flags", WEIGHTS)
def test_product_and_weights_that_stay(config: Config, flags: int) -> None:
    """C, and after a weight-stationary command the last tile in the mesh."""
    dim = config.dim
    for seed, (m, n, k) in enumerate(SHAPES):
        memory, group, depth = fresh(config, seed), (0, 1, 2, 4, 9)[seed], -(-k // dim)
        memory.weights[:] = 77
        spm, expected, stay = memory.spm.copy(), memory.acc.copy(), memory.weights.copy()
        a = [[left(spm, flags, i, j) for j in range(k)] for i in range(m)]
        b = [[right(spm, flags, i, j, depth, group) for j in range(n)] for i in range(k)]
        for i in range(m):
            for j in range(-(-n // dim) * dim):
                at = C_ROW + j // dim * C_STRIDE + i, j % dim
                old = int(expected[at]) if flags >> M.ACCUMULATE & 1 else 0
                expected[at] = wrapped(old + (sum(a[i][t] * b[t][j] for t in range(k)) if j < n else 0))
        if not flags >> M.OUTPUT_STATIONARY & 1:
            k0, n0 = (k - 1) // dim * dim, (n - 1) // dim * dim
            for i in range(dim):
                for j in range(dim):
                    stay[i, j] = b[k0 + i][n0 + j] if k0 + i < k and n0 + j < n else 0
        run(memory, config, [command(flags, m, n, k, group)])
        np.testing.assert_array_equal(memory.acc, expected)
        np.testing.assert_array_equal(memory.weights, stay)
        np.testing.assert_array_equal(memory.spm, spm)


@pytest.mark.parametrize("flags", [f for f in LEGAL if f >> M.REUSE & 1])
def test_reuse_takes_whole_rows_times_the_weights_in_the_mesh(flags: int) -> None:
    memory = fresh(SMALL, 3)
    memory.weights[:] = np.random.default_rng(4).integers(-128, 128, (8, 8))
    expected = memory.acc.copy()
    for i in range(5):
        for j in range(8):
            old = int(expected[C_ROW + i, j]) if flags >> M.ACCUMULATE & 1 else 0
            expected[C_ROW + i, j] = wrapped(old + sum(
                left(memory.spm, flags, i, t) * int(memory.weights[t, j]) for t in range(8)))
    weights = memory.weights.copy()
    run(memory, SMALL, [command(flags, 5, 3, 2)])
    np.testing.assert_array_equal(memory.acc, expected)
    np.testing.assert_array_equal(memory.weights, weights)


def test_reuse_equals_the_product_it_continues() -> None:
    """After a command of one tile REUSE gives its product; OS and empty commands in between change nothing."""
    memory, again = fresh(TINY, 5), 1 << M.REUSE
    run(memory, TINY, [
        command(1 << M.B_INT4 | 1 << M.GROUP_SCALES, 6, 4, 4, c_row=0),
        command(1 << M.OUTPUT_STATIONARY, 6, 9, 9, c_row=100), command(0, 0, 4, 4), command(again, 6, 4, 4, c_row=50)])
    np.testing.assert_array_equal(memory.acc[50:56], memory.acc[0:6])
    assert memory.acc[0:6].any()


def test_reuse_before_any_weights_multiplies_by_zero() -> None:
    memory = fresh(TINY, 6)
    run(memory, TINY, [command(1 << M.REUSE, 6, 4, 4)])
    assert not memory.acc[C_ROW:C_ROW + 6].any()


@pytest.mark.parametrize("flags", [0, 1 << M.A_TRANSPOSED, 1 << M.B_TRANSPOSED])
def test_both_dataflows_give_the_same(flags: int) -> None:
    results = []
    for dataflow in (0, 1 << M.OUTPUT_STATIONARY):
        memory = fresh(SMALL, 8)
        run(memory, SMALL, [command(flags | dataflow, 13, 19, 20)])
        results.append(memory.acc)
    assert all(np.array_equal(one, other) for one, other in pairwise(results))


def test_exact_on_the_largest_sums() -> None:
    """K = 4096 rows of extreme values: beyond what float32 could add exactly."""
    config = load_config("base")
    memory, k = Memory(config, dram_bytes=64), 4096
    memory.spm[0:256] = 255
    memory.spm[4096:4096 + k] = 0x80
    run(memory, config, [command(
        1 << M.A_UNSIGNED, 1, 16, k, a_row=0, a_stride=1, b_row=4096, b_stride=k, c_row=0, c_stride=1)])
    assert (memory.acc[0] == -255 * 128 * k).all()
