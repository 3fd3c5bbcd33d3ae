"""One processing element against a statement of its next state, random inputs every cycle."""

from __future__ import annotations

import random

import pytest
from amaranth.hdl import Module, Signal, signed

from gemmule.hw.pe import PE, PEInputs, psum_bits
from gemmule.hw.testing import run_bench

SHAPES = {
    "a": signed(9), "psum": signed(20), "swap": 1, "west": None, "north": None, "transposed": 1,
    "capture_row": 1, "capture_column": 1,
}


def test_psum_bits_hold_the_extremes():
    for rows in (1, 2, 3, 4, 16, 64):
        limit = 1 << (psum_bits(rows) - 1)
        assert rows * 255 * 127 < limit
        assert rows * 255 * -128 >= -limit


@pytest.mark.parametrize(("row", "column", "preload"), [(0, 0, 1), (3, 2, 2), (5, 6, 4)])
def test_random_inputs(row, column, preload):
    print("seed", seed := 17 + row)
    rng = random.Random(seed)
    m = Module()
    pins = {name: Signal(8 * preload if shape is None else shape, name=name)
            for name, shape in SHAPES.items()}
    pe = PE(row=row, column=column, preload=preload)
    pe.build(m, PEInputs(**pins))
    swapped_while_captured = 0

    async def bench(ctx):
        nonlocal swapped_while_captured
        shadow = active = 0
        width = len(pe.psum)
        for _ in range(400):
            now = {
                "a": rng.randint(-256, 255), "psum": rng.randint(-(1 << 19), (1 << 19) - 1),
                "swap": rng.random() < 0.3, "west": rng.getrandbits(8 * preload),
                "north": rng.getrandbits(8 * preload), "transposed": rng.getrandbits(1),
            }
            capture = rng.choice(["capture_row", "capture_column", "", ""])
            for name in ("capture_row", "capture_column"):
                now[name] = name == capture
            for name, value in now.items():
                ctx.set(pins[name], int(value))
            # The next state, from the docstrings.
            group = now["west"] if now["transposed"] else now["north"]
            weight = shadow if now["swap"] else active
            total = (now["psum"] + now["a"] * weight + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
            swapped_while_captured += bool(now["swap"] and capture)
            if capture:
                place = (row if capture == "capture_row" else column) % preload
                shadow = int.from_bytes([group >> (8 * place) & 255], "little", signed=True)
            active = weight
            await ctx.tick()
            assert ctx.get(pe.a) == now["a"]
            assert ctx.get(pe.psum) == total
            assert ctx.get(pe.passing) == group

    run_bench(m, bench)
    assert swapped_while_captured > 10
