"""Loads move up to where their buffer is free, keep their order, and stay within reach of dispatch."""

from __future__ import annotations

from dataclasses import replace

from gemmule.compiler.kernels.attention.shared import CACHE
from gemmule.compiler.kernels.virtual import WEIGHTS, At, Bank, Buffer, Item, Loop, VirtualCommand
from gemmule.compiler.passes.hoist import hoist
from gemmule.config import load_config
from gemmule.isa import Length, SOp, Unit

CONFIG = load_config("base")
ACC = At(Buffer("sums", 1, Bank.ACCUMULATOR))


def _load(buffer: Buffer, region: str = WEIGHTS) -> VirtualCommand:
    return VirtualCommand(unit=Unit.LOAD, note=f"load {buffer.name}", region=region,
                          fields={"bytes": 4096, "row": At(buffer)})


def _product(buffer: Buffer) -> VirtualCommand:
    return VirtualCommand(unit=Unit.MATRIX, note=f"use {buffer.name}", fields={"b_row": At(buffer), "c_row": ACC})


def _notes(items: list[Item]) -> list[str]:
    return [item.note for item in hoist(items, CONFIG) if isinstance(item, VirtualCommand)]


def _ring(slots: int) -> list[Buffer]:
    return [Buffer(f"w{i}", 8, Bank.STREAM) for i in range(slots)]


def test_a_load_follows_what_last_used_its_buffer() -> None:
    ring = _ring(2)
    items: list[Item] = [part for i in range(4) for part in (_load(ring[i % 2]), _product(ring[i % 2]))]
    assert _notes(items) == ["load w0", "load w1", "use w0", "load w0", "use w1", "load w1", "use w0", "use w1"]


def test_no_product_stands_behind_more_loads_than_the_queue_takes() -> None:
    ring = _ring(4 * CONFIG.unit_queue)
    notes = _notes([part for buffer in ring for part in (_load(buffer), _product(buffer))])
    loads = 0
    for note in notes:
        loads += note.startswith("load")
        if note.startswith("use"):
            assert loads <= int(note.removeprefix("use w")) + 1 + CONFIG.unit_queue + 1, note
    assert [note for note in notes if note.startswith("load")] == [f"load {buffer.name}" for buffer in ring]


def test_a_load_that_may_be_skipped_stays_behind_its_predicate() -> None:
    """And those behind it; in a loop a predicate may be made too."""
    ring, flags = _ring(4), At(Buffer("flags", 1, Bank.STREAM))
    compare = VirtualCommand(unit=Unit.SELECT, op=int(SOp.COMPARE), note="compare", fields={"src0": flags, "number": 2})
    skipped = replace(_load(ring[1]), predicate=2)
    other = replace(_load(ring[1]), predicate=3)
    first, last = [_load(ring[0]), _product(ring[0])], [_product(ring[1]), _load(ring[2]), _product(ring[2])]
    assert _notes([*first, compare, skipped, *last]) == [
        "load w0", "use w0", "compare", "load w1", "load w2", "use w1", "use w2"]
    assert _notes([*first, compare, other, *last])[:2] == ["load w0", "load w1"]
    loop = Loop(body=(compare,), times=Length(2))
    assert _notes([*first, loop, skipped, *last])[:3] == ["load w0", "use w0", "load w1"]


def test_weights_stand_between_cached_rows_most_at_the_end() -> None:
    ring, cached = _ring(4), [Buffer(f"c{i}", 8, Bank.STREAM) for i in range(4)]
    items: list[Item] = [part for buffer in cached for part in (_load(buffer, CACHE), _product(buffer))]
    items += [part for buffer in ring for part in (_load(buffer), _product(buffer))]
    loads = [note for note in _notes(items) if note.startswith("load")]
    first = [loads.index(f"load {buffer.name}") for buffer in ring]
    assert first == sorted(first)
    assert loads.index("load c3") < first[-1]  # something is left to hide the last scores
    assert first[0] < loads.index("load c2")  # and the bus does not wait for one head after another
