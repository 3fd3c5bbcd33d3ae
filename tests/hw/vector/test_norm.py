# amaranth: UnusedElaboratable=no
"""Vector unit: LayerNorm and RMSNorm, statistics and application, in every mode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gemmule.isa import NormFlag as N
from gemmule.isa import VOp

from ...thinned import some
from .bench import make, play, shape, small
from .reference import Device
from .trace import Command

APPLY = [[N.MEAN, *bias, *wide] for bias in ([], [N.BIAS]) for wide in ([], [N.WIDE])]


def planes(device: Device, c: Command, values: np.ndarray) -> None:
    """Write int16 rows as the command's first operand."""
    for g in range(-(-c["n"] // device.dim)):
        part = values[:, g * device.dim:(g + 1) * device.dim].astype(np.int64)
        for i, at in enumerate((0, c["src0_stride"] // 2)):
            row = c["src0"] + g * c["src0_stride"] + at
            device.spm[row:row + c["m"], :part.shape[1]] = part >> 8 * i & 255


def norm_pair(device: Device, flags: list[N], values: np.ndarray) -> Iterator[Command]:
    """Statistic of int16 rows, then their application."""
    m, n = values.shape
    c = make(device, VOp.NORM_STAT, [f for f in flags if f in (N.MEAN, N.ROUND)], m=m, n=n)
    planes(device, c, values)
    yield c
    use = make(device, VOp.NORM_APPLY, flags, m=m, n=n)
    yield use | {name: c[name] for name in ("src0", "src0_stride", "context")}


def edge_rows(device: Device, kind: int, m: int, n: int) -> np.ndarray:
    """Rows of one kind: random, large mean and small spread, constant, both ends, one outlier, small."""
    rng = device.rng
    if kind == 0:
        return rng.integers(-32768, 32768, (m, n))
    if kind == 1:
        return 32767 - rng.integers(0, 6, (m, n))
    if kind == 2:
        return np.repeat(rng.choice([-32768, 32767, 0, -1], (m, 1)), n, axis=1)
    if kind == 3:
        return rng.choice([-32768, 32767], (m, n))
    if kind == 4:
        return np.where(np.arange(n) == n // 2, -32768, rng.integers(-3, 4, (m, n)))
    return rng.integers(-9, 10, (m, n))


def test_layer_norm() -> None:
    def commands(device: Device) -> Iterator[Command]:
        for kind in range(6):
            for flags in APPLY[kind % 2::2]:
                m, n = shape(device.rng, device.dim) if kind or N.WIDE in flags else (16, 6)
                yield from norm_pair(device, flags, edge_rows(device, kind, m, n))

    play(small(4, 3), 101, commands)


@pytest.mark.parametrize("dim", some([8, 2, 16]))
def test_dims(dim: int) -> None:
    """Every set of flags of NORM_APPLY, a last column group that is cut."""
    def commands(device: Device) -> Iterator[Command]:
        for i, flags in enumerate(APPLY):
            yield from norm_pair(device, flags, edge_rows(device, i % 2, 2, dim + 1))
            yield from norm_pair(device, flags[1:], edge_rows(device, 5, 3, dim - 1))

    play(small(dim, 2), 103, commands)


@pytest.mark.parametrize(("dim", "lengths"), some([(16, (1024, 1025)), (64, (1024, 1025, 4096, 4097))]))
def test_long_rows_have_fewer_fraction_bits(dim: int, lengths: tuple[int, ...]) -> None:
    """An outlier of sqrt(n) deviations, at both sides of the lengths where the format changes."""
    def commands(device: Device) -> Iterator[Command]:
        for n in lengths:
            values = edge_rows(device, 4, 1, n)
            yield from norm_pair(device, [N.MEAN, N.WIDE], values)
            yield from norm_pair(device, [], values)

    play(small(dim, 2), 173, commands)


def test_statistics_of_the_other_kind() -> None:
    """LayerNorm's mean counts as 0 without MEAN; RMSNorm's statistic leaves a mean of 0 behind."""
    def commands(device: Device) -> Iterator[Command]:
        values = edge_rows(device, 1, 3, 7)
        for stat, use in (([N.MEAN], []), ([], [N.MEAN])):
            pair = list(norm_pair(device, stat, values))
            assert pair[1]["flags"] == sum(1 << f for f in stat)
            yield pair[0]
            yield pair[1] | {"flags": sum(1 << f for f in use)}
            yield pair[1] | {"flags": 1 << N.WIDE | sum(1 << f for f in use), "shift": 4}

    play(small(4, 1), 107, commands)


def test_bias_and_saturation() -> None:
    """The largest xh, gamma and beta, of both signs, at small and limited shifts; beta changes with every group."""
    def commands(device: Device) -> Iterator[Command]:
        for i, shift in enumerate((0, 1, 15, 16, 30, 47, 63)):
            flags = [N.MEAN, N.BIAS, *([N.WIDE] if i % 2 == 0 else [])]
            stat, use = norm_pair(device, flags, edge_rows(device, 4 if i % 3 else 3, 5, 4 * device.dim - 1))
            yield stat
            for g in range(4):
                row = use["src1"] + 6 * g
                gamma = device.rng.choice([-32768, 32767, 1, -1, 16384], device.dim)
                beta = device.rng.choice([-(1 << 31), (1 << 31) - 1, 0, -1, 12345], device.dim)
                device.spm[row:row + 2] = [gamma >> 8 * k & 255 for k in range(2)]
                device.spm[row + 2:row + 6] = [beta >> 8 * k & 255 for k in range(4)]
            yield use | {"shift": shift}

    play(small(8, 1), 109, commands)


def test_rounded_mean() -> None:
    """1 / n to 16 bits, as I-BERT needs it; then any multiplier and shift, up to saturation of mean and error."""
    def commands(device: Device) -> Iterator[Command]:
        for kind in range(6):
            for n in (3, 11) if kind % 2 else (1, 4, 12):
                stat, use = norm_pair(device, [N.MEAN, N.ROUND], edge_rows(device, kind, int(1 + n % 5), n))
                use["flags"] = 1 << N.MEAN
                if kind % 2 or n > 4:
                    shift = 15 + (n - 1).bit_length()
                    stat |= {"mult": round((1 << shift) / n), "shift": shift}
                yield stat
                if kind % 2 and n > 4:
                    x = device.int16(stat["src0"], stat["src0_stride"], stat["m"], n).astype(float)
                    exact = np.floor(x.mean(axis=1) + 0.5)
                    assert (np.abs(device.s[stat["context"], :stat["m"]] / n - exact) <= 1).all()
                yield use

    play(small(4, 2), 163, commands)


def test_rounded_mean_row_by_row() -> None:
    """Rows of one column group, every other cycle: no row's mean or variance meets the next one's."""
    def commands(device: Device) -> Iterator[Command]:
        for round_mean in ([N.ROUND], [], [N.ROUND]):
            stat, use = norm_pair(device, [N.MEAN, *round_mean], edge_rows(device, 0, 16, 8))
            yield stat | {"mult": 1 << 15, "shift": 18}
            yield use | {"flags": 1 << N.MEAN}

    play(small(8, 16), 167, commands)
