"""Keep some of the rows that a pass added to the cache: the accepted path of a tree of candidates."""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.compiler.kernels.attention.kv_layout import KvLayout
from gemmule.compiler.kernels.attention.shared import CACHE, NEW
from gemmule.compiler.kernels.virtual import (
    At,
    Bank,
    Buffer,
    Item,
    LengthReg,
    Loop,
    SetDisplacement,
    Value,
    VirtualCommand,
)
from gemmule.config import Config
from gemmule.isa import Length, MoveFlag, SOp, Unit
from gemmule.timing import ceil_div

__all__ = ["PATH", "commit_rows"]

PATH = "path"
"""Region of the launch's input: the position in the cache of each kept row, uint16."""


def commit_rows(config: Config, layout: KvLayout, rows: int, context: int) -> Iterator[Item]:
    """Up to ``rows`` rows of the cache, by a list of positions, to where the window on it begins.

    For each run: one gather into the scratchpad and one store. ``context``: positions that the cache has room for.
    """
    kept = Length(rows, LengthReg.ROWS)
    listed = At(Buffer(PATH, ceil_div(2 * rows, config.dim), Bank.STATE))
    yield VirtualCommand(unit=Unit.LOAD, note="rows of the path", region=PATH,
               fields={"bytes": listed.buffer.rows * config.dim, "row": listed, "block_stride": 1, "rows": 1})
    yield VirtualCommand(unit=Unit.SELECT, op=SOp.LIST_LOAD, note="path to the list",
               fields={"src0": listed, "dst": 0, "n": kept})
    size, together = layout.row, 2 - layout.runs % 2
    parts = [At(Buffer(f"rows of run {i}", ceil_div(size, config.dim) * rows, Bank.OPERAND)) for i in range(together)]
    move: dict[str, Value] = {"stride": size, "bytes": size, "row_stride": 1, "block_stride": rows, "rows": kept}
    loads = [VirtualCommand(unit=Unit.LOAD, note=f"rows {i}", region=CACHE, flags=frozenset({int(MoveFlag.INDEXED)}),
                  fields={**move, "offset": i * layout.pitch, "row": at, "list": 0, "last_index": context - 1})
             for i, at in enumerate(parts)]
    stores = [VirtualCommand(unit=Unit.STORE, note=f"rows {i}", region=NEW,
                   fields={**move, "offset": i * layout.pitch, "row": at}) for i, at in enumerate(parts)]
    further = (SetDisplacement(region, together * layout.pitch, further=True) for region in (CACHE, NEW))
    yield Loop(body=(*loads, *stores, *further), times=Length(layout.runs // together), note="every run of the cache")
