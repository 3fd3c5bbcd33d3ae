"""Equal layers become one body; what a body cannot do keeps them apart."""

from __future__ import annotations

from dataclasses import replace

from gemmule.compiler.kernels.virtual import WEIGHTS, At, Bank, Buffer, Item, Loop, VirtualCommand
from gemmule.compiler.passes.roll import roll
from gemmule.config import load_config
from gemmule.isa import Unit

BASE = load_config("base")


def _layer(number: int, predicate: int) -> list[Item]:
    weights = Buffer(f"weights {number}", 8, Bank.STREAM)
    load = VirtualCommand(unit=Unit.LOAD, note="weights", region=WEIGHTS, fields={
        "offset": 128 * number, "bytes": 128, "row": At(weights), "block_stride": 1, "rows": 1})
    return [replace(load, predicate=predicate)]


def test_layers_whose_predicates_differ_stay_apart() -> None:
    assert any(isinstance(item, Loop) for item in roll([_layer(0, 1), _layer(1, 1)], BASE))
    apart = [_layer(0, 1), _layer(1, 2)]
    assert roll(apart, BASE) == [item for layer in apart for item in layer]
