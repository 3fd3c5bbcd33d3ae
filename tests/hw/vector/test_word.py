# amaranth: UnusedElaboratable=no
"""Vector unit: the interpolated table of 513 words, filled and looked up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gemmule.isa import RequantFlag as R
from gemmule.isa import VOp
from gemmule.numerics.table import word_table

from ...thinned import some
from .bench import make, play, scale, shape, small
from .reference import Device
from .trace import Command

MODES = [[], [R.RELU], [R.COLUMN, R.BIAS], [R.ROW]]


def fill(device: Device, entries: np.ndarray) -> Command:
    """A WORD_TABLE command whose rows hold these entries, and noise beyond them."""
    c = make(device, VOp.WORD_TABLE, m=1, n=1) | {"m": 2, "n": 513}
    plane = -(-513 // device.dim)
    padded = np.concatenate([entries, device.rng.integers(0, 65536, plane * device.dim - 513)]).astype(np.int64)
    for i in range(2):
        device.spm[c["src0"] + i * plane:c["src0"] + (i + 1) * plane] = (padded >> 8 * i & 255).reshape(plane, -1)
    return c


def lookups(device: Device, n: int) -> Command:
    """Accumulators that are the table's operands themselves: multiplier 1, both ends and every kind of weight."""
    c = make(device, VOp.REQUANT, [R.WIDE, R.LOOKUP], m=5, n=n) | {"mult": 1, "shift": 0}
    rows = device.acc[c["src0"]:c["src0"] + -(-n // device.dim) * c["src0_stride"]]
    rows[:] = device.rng.integers(-32768, 32768, rows.shape)
    edge = device.rng.random(rows.shape) < 0.4
    rows[edge] = device.rng.choice([-32768, 32767, -40000, 40000, 32640, 32639, -1, 0, 127, 128, -128], edge.sum())
    return c


@pytest.mark.parametrize("dim", some([2, 16, 4], 2))
def test_tables(dim: int) -> None:
    """Empty at first; random, steepest and flat tables; a byte table beside it; the byte table stays as it is."""
    def commands(device: Device) -> Iterator[Command]:
        rng = device.rng
        yield lookups(device, dim + 1)
        steep = np.where(np.arange(513) % 2, 32767, -32768)
        tables = [rng.integers(-32768, 32768, 513), steep, -1 - steep,
                  word_table(lambda x: 1 / (1 + np.exp(-x)), 8 / 32768, 1 / 32768)]
        for i, table in enumerate(tables[:1] if dim == 16 else tables):
            yield fill(device, table)
            assert device.words.tolist() == table.tolist()
            for _ in range(1 if dim >= 16 else 6):
                yield lookups(device, 3 * dim - 1 if dim < 16 else dim + 3)
            yield make(device, VOp.TABLE, m=1, n=1)
            yield scale(device, make(device, VOp.REQUANT, [R.LOOKUP], m=2, n=dim + 1))
            yield lookups(device, i + 1)

    play(small(dim, 1), 151, commands)


def test_modes() -> None:
    """Every kind of multiplier, bias and ReLU before the table; a residual leaves the table out."""
    def commands(device: Device) -> Iterator[Command]:
        yield fill(device, device.rng.integers(-32768, 32768, 513))
        for i in range(3):
            for flags in MODES:
                m, n = shape(device.rng, device.dim)
                if R.ROW in flags:
                    yield scale(device, make(device, VOp.SOFTMAX_EXP, m=m, n=n)) | {"context": 0}
                c = scale(device, make(device, VOp.REQUANT, [R.WIDE, R.LOOKUP, *flags], m=m, n=n)) | {"context": 0}
                yield c
                if i == 0:
                    yield c | {"flags": c["flags"] | 1 << R.RESIDUAL}

    play(small(4, 1), 157, commands)
