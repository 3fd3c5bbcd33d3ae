"""One processing element against a statement of its next state, random inputs every cycle."""

from __future__ import annotations

import random

import pytest
from amaranth.hdl import Module, Signal, signed

from gemmule.hw.pe import PE, PEInputs
from gemmule.hw.testing import run_bench

SHAPES = {
    "a": signed(9), "psum": signed(32), "outputs": 1, "swap": 1, "move": 1, "take": 1, "west": None, "north": None,
    "transposed": 1, "capture_row": 1, "capture_column": 1,
}


def wrap(value, bits):
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@pytest.mark.parametrize(("row", "column", "preload"), [(0, 0, 1), (3, 2, 2), (5, 6, 4)])
def test_random_inputs(row, column, preload):
    print("seed", seed := 17 + row)
    rng = random.Random(seed)
    m = Module()
    pins = {name: Signal(8 * preload if shape is None else shape, name=name)
            for name, shape in SHAPES.items()}
    pe = PE(row=row, column=column, preload=preload)
    pe.build(m, PEInputs(**pins))
    swapped_while_captured = taken_while_moved = 0

    async def bench(ctx):
        nonlocal swapped_while_captured, taken_while_moved
        shadow = active = running = held = outputs = 0
        for cycle in range(900):
            if cycle % 30 == 0:
                outputs = rng.getrandbits(1)
            now = {
                "a": rng.randint(-256, 255), "psum": rng.randint(-(1 << 31), (1 << 31) - 1), "outputs": outputs,
                "swap": not outputs and rng.random() < 0.3, "move": outputs and rng.random() < 0.3,
                "take": outputs and rng.random() < 0.3, "transposed": rng.getrandbits(1),
                "west": rng.getrandbits(8 * preload), "north": rng.getrandbits(8 * preload),
            }
            capture = rng.choice(["capture_row", "capture_column", "", ""]) if not outputs else ""
            for name in ("capture_row", "capture_column"):
                now[name] = name == capture
            for name, value in now.items():
                ctx.set(pins[name], int(value))
            # The next state, from the docstrings.
            group = now["west"] if now["transposed"] else now["north"]
            if outputs:
                total = wrap((0 if now["move"] else running) + now["a"] * wrap(group & 255, 8), 32)
                leaves = running if row == 0 else held
                psum = leaves if now["take"] else now["psum"]
                taken_while_moved += bool(now["take"] and now["move"])
                held = running if now["move"] else held
                running = total
            else:
                weight = shadow if now["swap"] else active
                psum = wrap(now["psum"] + now["a"] * weight, 32)
                active = weight
            swapped_while_captured += bool(now["swap"] and capture)
            if capture:
                place = (row if capture == "capture_row" else column) % preload
                shadow = wrap(group >> (8 * place) & 255, 8)
            await ctx.tick()
            assert ctx.get(pe.a) == now["a"]
            assert ctx.get(pe.psum) == psum
            assert ctx.get(pe.passing) == group
            assert ctx.get(pe.active) == active

    run_bench(m, bench)
    assert swapped_while_captured > 10
    assert taken_while_moved > 10
