"""Parameters that follow each other come with one load, and whatever used them finds them there."""

from __future__ import annotations

from dataclasses import replace

from gemmule.compiler.kernels.virtual import STATIC, At, Bank, Buffer, Item, Loop, VirtualCommand
from gemmule.compiler.passes.join import join
from gemmule.config import load_config
from gemmule.isa import Length, Unit

BASE, TINY = load_config("base"), load_config("tiny")


def _parameters(sizes: list[int], gap: int = 0) -> list[Item]:
    """A load of each size (rows of 16 bytes), ``gap`` bytes apart, and a command that uses its second row."""
    items: list[Item] = []
    at = 0
    for i, rows in enumerate(sizes):
        buffer = Buffer(f"p{i}", rows, Bank.STATE)
        items += [VirtualCommand(unit=Unit.LOAD, note=f"p{i}", region=STATIC,
                       fields={"offset": at, "bytes": 16 * rows, "row": At(buffer), "block_stride": 1, "rows": 1}),
                  VirtualCommand(unit=Unit.VECTOR, note=f"use {i}", fields={"src1": At(buffer, 1)})]
        at += 16 * rows + gap
    return items


def _steps(items: list[Item]) -> list[VirtualCommand]:
    return [item for item in items if isinstance(item, VirtualCommand)]


def test_groups_and_places() -> None:
    made = _steps(join(_parameters([4, 6, 5, 5]), BASE))
    loads = [step for step in made if step.unit is Unit.LOAD]
    assert [(step.fields["offset"], step.fields["bytes"]) for step in loads] == [(0, 160), (160, 160)]  # two halves
    uses = {step.note: step.fields["src1"] for step in made if step.unit is Unit.VECTOR}
    assert [(at.buffer.name, at.row) for at in uses.values() if isinstance(at, At)] == [
        ("p0 to p1", 1), ("p0 to p1", 5), ("p2 to p3", 1), ("p2 to p3", 6)]
    assert [step.note for step in made] == ["p0 and 1 more", "use 0", "use 1", "p2 and 1 more", "use 2", "use 3"]


def test_most_rows() -> None:
    loads = [step for step in _steps(join(_parameters([16] * 8), TINY)) if step.unit is Unit.LOAD]
    assert [step.fields["bytes"] for step in loads] == [16 * 32] * 4  # a 32nd of its scratchpad


def test_bytes_between_keep_loads_apart() -> None:
    items = _parameters([4, 4, 4, 4], gap=16)
    assert join(items, BASE) == items


def test_loads_that_may_be_skipped_stay_by_themselves() -> None:
    items = [replace(item, predicate=1) if isinstance(item, VirtualCommand) and i in (2, 3) else item
             for i, item in enumerate(_parameters([8, 4, 2, 2]))]
    assert [step.note for step in _steps(join(items, BASE)) if step.unit is Unit.LOAD] == ["p0", "p1", "p2 and 1 more"]


def test_bodies_find_joined_rows() -> None:
    first, inner, *rest = _parameters([4, 4, 4, 4])
    made = join([first, Loop(body=(inner,), times=Length(2)), *rest], BASE)
    loop = next(item for item in made if isinstance(item, Loop))
    used = _steps(list(loop.body))[0].fields["src1"]
    assert isinstance(used, At)
    assert (used.buffer.name, used.row) == ("p0 to p1", 1)


def test_what_must_be_aligned_stays_so() -> None:
    """Keys of a prefix behind parameters begin where the mesh takes them: a load of their own where they would not."""
    for before, kept in ((3, 2), (4, 1)):
        items = _parameters([before, 4, 6, 5])
        load, use = items[2], items[3]
        assert isinstance(load, VirtualCommand)
        assert isinstance(use, VirtualCommand)
        aligned = Buffer("aligned", 4, Bank.STREAM, 2)
        items[2] = replace(load, fields={**load.fields, "row": At(aligned)})
        items[3] = replace(use, fields={"b_row": At(aligned)})
        made = _steps(join(items, BASE))
        assert sum(step.unit is Unit.LOAD and step.fields["offset"] in (0, 16 * before) for step in made) == kept
        at = next(step.fields["b_row"] for step in made if "b_row" in step.fields)
        assert isinstance(at, At)
        assert (at.row % 2, at.buffer.align) == (0, 2)
