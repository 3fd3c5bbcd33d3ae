"""One processing element against a statement of its next state, random inputs every cycle."""

from __future__ import annotations

import random

import pytest
from amaranth.hdl import Module, Signal, signed

from gemmule.hw.matrix.pe import PE, PEInputs

from ..bench import run_bench

SHAPES = {
    "a": signed(9), "psum": signed(32), "outputs": 1, "dataflow": 1, "swap": 1, "end": 1, "take": 1, "west": None,
    "north": None, "capture_row": 1, "capture_column": 1, "moving": 1, "swapping": 1,
}


def wrap(value, bits):
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@pytest.mark.parametrize(("row", "column", "preload", "bits"), [
    (0, 0, 1, 16), (3, 2, 2, 18), (5, 6, 4, 19), (4, 7, 1, 19)])
def test_random_inputs(row, column, preload, bits):
    """Weight-stationary sums count in their lower ``bits``: row + 1 products of at most 255 * 128."""
    print("seed", seed := 17 + row)
    rng = random.Random(seed)
    m = Module()
    pins = {name: Signal(8 * preload if shape is None else shape, name=name)
            for name, shape in SHAPES.items()}
    pe = PE(row=row, column=column, dim=8, preload=preload)
    pe.build(m, PEInputs(**pins | {"psum": pins["psum"][:bits]}))
    last_item = max(row, column) // preload == 8 // preload - 1
    swapped_while_captured = taken_while_ended = 0

    async def bench(ctx):
        nonlocal swapped_while_captured, taken_while_ended
        shadow = active = running = held = outputs = result = 0
        for cycle in range(900):
            begins = cycle % 30 == 0
            if begins:
                outputs = rng.getrandbits(1)
            now = {
                "a": rng.choice([-128, 255, rng.randint(-128, 255)]),
                "psum": rng.choice([-32640, 32640, rng.randint(-32640, 32640)]) * row, "outputs": outputs,
                "swap": not outputs and rng.random() < 0.3, "end": outputs and (begins or rng.random() < 0.3),
                "take": outputs and rng.random() < 0.3,
                "west": rng.getrandbits(8 * preload), "north": rng.getrandbits(8 * preload),
            }
            capture = rng.choice(["capture_row", "capture_column", "", ""]) if not outputs else ""
            if now["swap"] and not last_item:
                capture = ""
            for name in ("capture_row", "capture_column"):
                now[name] = name == capture
            now["dataflow"] = rng.getrandbits(1) if begins else outputs
            now["moving"] = outputs or bool(capture) or rng.random() < 0.5
            now["swapping"] = now["swap"] or rng.random() < 0.5
            for name, value in now.items():
                ctx.set(pins[name], int(value))
            # The next state, from the docstrings.
            weight = wrap(now["north"] & 255, 8) if now["dataflow"] else active
            if outputs:
                result = held if now["take"] else 0
                total = wrap(running + now["a"] * weight, 32)
                taken_while_ended += bool(now["take"] and now["end"])
                held = total if now["end"] else held
                running = 0 if now["end"] else total
            else:
                low = now["psum"] + now["a"] * weight
                assert -(1 << bits - 1) <= low < 1 << bits - 1
                running = wrap(running >> bits << bits | low % (1 << bits), 32)  # the upper bits rest
            swapped_while_captured += bool(now["swap"] and capture)
            if capture:
                at = 8 * ((row if capture == "capture_row" else column) % preload)
                shadow = wrap(now["north" if capture == "capture_row" else "west"] >> at & 255, 8)
            if now["swap"]:
                active = shadow
            await ctx.tick()
            assert ctx.get(pe.a) == now["a"]
            assert wrap(ctx.get(pe.upper) << bits | ctx.get(pe.running), 32) == running
            assert wrap(ctx.get(pe.result), 32) == result
            assert wrap(ctx.get(pe.active), 8) == active

    run_bench(m, bench)
    assert (swapped_while_captured > 10) == last_item
    assert taken_while_ended > 10
