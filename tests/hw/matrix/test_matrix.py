# amaranth: UnusedElaboratable=no
"""The matrix unit against numpy and, cycle by cycle, against docs/timing.md written once more."""

from __future__ import annotations

import numpy as np
import pytest

import gemmule.hw.matrix.matrix as matrix_module
import gemmule.hw.matrix.mesh as mesh_module
import gemmule.hw.matrix.unpack as unpack_module
from gemmule.hw.matrix.matrix import Matrix
from gemmule.timing import Timing

from ...thinned import some, thinned
from . import matrix_bench
from .matrix_bench import (
    A_T,
    ACCUMULATE,
    B_T,
    INT4,
    LEGAL,
    OS,
    REGION,
    REUSE,
    SCALES,
    UNSIGNED,
    Work,
    fixed,
    play,
    random_work,
    random_works,
    small,
)


def test_flags_that_are_legal():
    """Both dataflows with every transposition; what the random tests draw from."""
    assert len(LEGAL) == 4 * (4 * 2 + 2 + 1) + 16
    assert {0, B_T | A_T, OS | A_T | B_T, INT4 | SCALES | A_T, INT4 | B_T, REUSE | ACCUMULATE} <= set(LEGAL)


@pytest.mark.parametrize(("dim", "preload", "count"), some([
    (2, 1, 60), (4, 4, 50), (8, 2, 8), (4, 2, 50), (8, 1, 8), (2, 2, 60), (4, 1, 50), (8, 4, 8), (16, 4, 3)], 3))
def test_random_commands(dim, preload, count):
    print("seed", seed := 1000 * dim + preload)
    works = random_works(np.random.default_rng(seed), dim, preload, count)
    play(small(dim, preload), works, seed)


@pytest.mark.parametrize("part", some(range(10), 3))
def test_every_combination_of_flags(part):
    """Three commands in a row on DIM 4: ragged, whole tiles, one row; then weights of the last again."""
    print("seed", seed := 100 + part)
    rng, works = np.random.default_rng(seed), []
    for flags in LEGAL[part::10]:
        three = [random_work(rng, 4, 2, flags, gap=0) for _ in range(3)]
        for work, shape in zip(three, ((7, 6, 11), (8, 8, 8), (1, 9, 5)), strict=True):
            limit = 4 if flags & REUSE else 99
            work.fields |= {name: min(size, limit) for name, size in zip("mnk", shape, strict=True)}
        works += [random_work(rng, 4, 2, 0, gap=0), *three, random_work(rng, 4, 2, REUSE, gap=0)]
    play(small(4, 2), works, seed)


def test_long_rows():
    """M of 40 on DIM 4: ten blocks of rows, plain and transposed, in both dataflows."""
    works = [Work(fixed(4, flags, m=40 - i, n=5 + i % 3, k=9 - i % 4))
             for i, flags in enumerate((0, A_T, A_T | INT4 | SCALES, B_T, OS, OS | A_T, OS | A_T | B_T))]
    play(small(4, 2), works, 5)


def test_base_mesh():
    """DIM 16 with preload 2, ragged, every kind of stream; the finish by hand."""
    works = [
        Work(fixed(16, UNSIGNED, m=17, n=19, k=30)),
        Work(fixed(16, B_T | ACCUMULATE, m=1, n=16, k=33)),
        Work(fixed(16, A_T | INT4 | SCALES, m=18, n=16, k=20)),
        Work(fixed(16, REUSE, m=5)),
        Work(fixed(16, OS, m=18, n=9, k=20)),
        Work(fixed(16, OS | A_T | B_T, m=5, n=16, k=20)),
        Work(fixed(16, REUSE | ACCUMULATE, m=3)),
    ]
    plan = play(small(16, 2), works, 16)
    # Issue in 0, stream from 1 + 8, four tiles of 17 rows, drain 2 * 16 + 3.
    assert plan.finish[0] == 9 + 4 * 17 + 35
    # Three tiles of 8 cycles, one for the first scales, two tiles of 32, one of 5.
    assert plan.finish[3] == plan.finish[0] + 3 * 8 + 1 + 2 * 32 + 5
    # Issue in finish + 1, stream from + 2, four tiles of 16 cycles, a drain of 3 * 16 + 3; two tiles more.
    assert plan.finish[4] == plan.finish[3] + 1 + 2 + 4 * 16 + 51
    assert plan.finish[5] == plan.finish[4] + 2 * 16


@pytest.mark.parametrize("flags", [0, OS])
def test_many_tiles_at_full_rate(flags):
    """32 x 32 x 32 on DIM 4: rows of A in 2048 cycles without a gap, also from one command to the next."""
    works = [Work(fixed(4, flags, m=32, n=12, k=32)), Work(fixed(4, flags, m=32, n=12, k=32))]
    plan = play(small(4, 1), works, 6)
    busy = sorted(plan.reads_a)
    assert busy == list(range(busy[0], busy[0] + 2 * 32 // 4 * 3 * 32))


@pytest.mark.parametrize("flags", [0, B_T, INT4 | SCALES, OS, OS | A_T | B_T])
def test_mixed_commands_at_full_rate(flags):
    """Blocks of DIM rows or more, every operand mode of a dataflow: a row of A in every cycle."""
    kinds = [0, A_T, UNSIGNED, B_T, ACCUMULATE] + ([] if flags & OS else [INT4, INT4 | A_T, REUSE])
    works = [Work(fixed(4, kind | flags & OS, m=8, n=4, k=4 if kind == REUSE else 8)) for kind in [flags, *kinds]]
    plan = play(small(4, 2), works, 6)
    tiles = sum(1 if work.fields["flags"] & REUSE else 2 for work in works)
    busy = sorted(plan.reads_a)
    assert busy == list(range(busy[0], busy[0] + 8 * tiles))


@pytest.mark.parametrize(("dim", "preload", "step"), some([
    (4, 1, 4), (4, 2, 2), (4, 4, 2), (2, 1, 2), (8, 2, 4)], 4))
def test_single_rows_are_bound_by_preload(dim, preload, step):
    """M = 1: one tile per DIM / preload cycles (at least 2), across commands of one tile too."""
    works = [Work(fixed(dim, B_T, m=1, c_row=i)) for i in range(10)]
    plan = play(small(dim, preload), works, 7)
    if dim > preload:
        assert set(np.diff(plan.finish).tolist()) == {step}
    assert set(np.diff(play(small(dim, preload), [Work(fixed(dim, m=1, k=9 * dim))], 7).streams[0])) == {9 * step}


@pytest.mark.parametrize("dim", some([2, 4, 8], 2))
def test_small_commands_of_one_tile(dim):
    """Output-stationary blocks every DIM cycles; two rows on standing weights every 2 cycles."""
    blocks = play(small(dim, 1), [Work(fixed(dim, OS, c_row=i % 2 * REGION)) for i in range(8)], 8)
    assert set(np.diff(blocks.finish).tolist()) == {dim}
    chain = play(small(dim, 1), [Work(fixed(dim)), *(Work(fixed(dim, REUSE, m=2)) for _ in range(8))], 8)
    assert set(np.diff(chain.finish).tolist()) == {2}


def test_weights_are_zero_at_first():
    works = [Work(fixed(4, REUSE, m=6)), Work(fixed(4, OS)), Work(fixed(4, REUSE, c_row=REGION))]
    play(small(4, 2), works, 9)


@pytest.mark.parametrize(("shape", "scales"), thinned([(4, 1), (4, 2), (4, 4), (8, 2)], [0, SCALES]))
def test_one_bank(shape, scales):
    """A and B apart: (tiles - 1) * (M + load) + M cycles, and never two reads in one cycle."""
    (dim, preload), flags = shape, (INT4 | scales) if scales else 0
    plan = play(small(dim, preload), [Work(fixed(dim, flags, m=5, n=2 * dim, k=3 * dim, apart=1))], 10)
    load = dim // preload + (1 if scales else 0)
    assert plan.streams == [(1 + load, 1 + load + 5 * (5 + load) + 5)]


@pytest.mark.parametrize(("flags", "cycle"), thinned([OS, OS | B_T | A_T, 0, A_T | B_T, INT4 | SCALES], [3, 9, 13, 17]))
def test_reset_in_the_middle(flags, cycle):
    """Sums, tiles and pulses of before the reset leave no trace."""
    works = [Work(fixed(4, kind, m=6, n=6, k=6)) for kind in (OS, OS | B_T | A_T)]
    works += [Work(fixed(4, REUSE)), *(Work(fixed(4, kind, m=6, n=6, k=6)) for kind in (A_T, INT4 | SCALES))]
    play(small(4, 2), works if cycle % 4 == 1 else works[2:], 11, before=(fixed(4, flags, m=8, n=8, k=8), cycle))


def mutant(monkeypatch, module, name, changed, works=None):
    monkeypatch.setattr(module, name, changed)
    monkeypatch.setattr(matrix_bench, "simulated", matrix_bench.simulated.__wrapped__)  # elaborated with it
    with pytest.raises(AssertionError):
        play(small(4, 2), works or [Work(fixed(4, flags)) for flags in (0, B_T, INT4 | SCALES, OS, OS)], 8)


@pytest.mark.parametrize(("was", "now"), [
    ([0, 1, 3, 4], [0, 1, 3, 5]),  # captures
    ([0, 1, 2, 3], [0, 1, 2, 4]),  # swaps, ends of sums
])
def test_bench_finds_late_pulses(monkeypatch, was, now):
    class Late(matrix_module.Stairs):
        def __init__(self, *, delays):
            super().__init__(delays=now if list(delays) == was else delays)

    mutant(monkeypatch, matrix_module, "Stairs", Late)


def test_bench_finds_early_sums(monkeypatch):
    real = mesh_module._joined

    def later(*arguments):
        parts, cycles = real(*arguments)
        return parts, cycles + 1

    mutant(monkeypatch, mesh_module, "_joined", later)


def test_bench_finds_scales_that_are_not_used(monkeypatch):
    real = unpack_module.Mux
    mutant(monkeypatch, unpack_module, "Mux",
           lambda bit, one, zero: zero if _is_shifted(zero) else real(bit, one, zero))


def test_bench_finds_nibbles_that_are_not_shifted(monkeypatch):
    real = unpack_module.Mux
    mutant(monkeypatch, unpack_module, "Mux",
           lambda bit, one, zero: real(bit, one, 1 if _is_shifted(zero) else zero),
           [Work(fixed(4, INT4, group=4)), Work(fixed(4, INT4 | B_T, group=4))])


def _is_shifted(value):
    return getattr(value, "operator", "") == "<<"


def test_rejects_other_timing():
    config = small(4, 1)
    with pytest.raises(ValueError, match="not 9"):
        Matrix(config=config, timing=Timing(matrix_drain=9))
    with pytest.raises(ValueError, match="matrix_rmw >= 2"):
        Matrix(config=config, timing=Timing(matrix_drain=11, matrix_rmw=1))
