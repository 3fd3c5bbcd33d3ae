"""Rows of the cache to another place, in all layers: consecutive ones, or those of a list for each layer and KV head.

Blocks of rows go through the scratchpad. A row never goes to a place behind its own of the same cache, so blocks from
the first one on overwrite nothing that a later block reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmule.compiler.kernels.attention.kv_layout import KvLayout
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
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Length, MoveFlag, SOp, Source, Unit
from gemmule.timing import ceil_div

__all__ = ["FROM", "LISTS", "PART", "TO", "copied_rows", "gathered_rows", "list_count", "list_pitch",
           "rows_loop"]

FROM, TO = "from", "to"
"""The caches as loads and as stores see them, each from the first moved row on."""
LISTS = "lists"
"""Region of the launch's input: for each layer and KV head the kept rows, uint16."""
PART = " of the part"
"""Behind a region's name: a base register that only holds the displacement of the part of it that a loop takes."""
BLOCK = 64
"""Rows that are moved together, at most; twice so many come in a turn of a copy."""


def _block(config: Config, size: int) -> int:
    """Rows of ``size`` bytes, a power of two of which four blocks take a quarter of the scratchpad at most."""
    most = max(1, config.spm_rows // 16 // ceil_div(size, config.dim))
    return 1 << min(BLOCK, most).bit_length() - 1


def list_count(layout: KvLayout) -> int:
    """Lists of a gather: KV heads of all layers."""
    return layout.runs * layout.joined if layout.joined else layout.runs // 2


def list_pitch(config: Config, context: int) -> int:
    """Bytes from the list of a layer's KV head to the next one's: of all rows, and whole blocks."""
    return ceil_div(2 * context, 2 * BLOCK) * 2 * BLOCK


def rows_loop(regions: dict[str, int], turn: int, body: list[Item], note: str) -> Iterator[Item]:
    """A loop over all rows; ``regions``: bytes by which a row moves on in each, from where its part begins."""
    yield set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.ROWS)
    for region in regions:
        yield SetDisplacement(region, 0, origin=region + PART)
    yield Loop(body=(*body, set_length(LengthReg.LEFT, Source.LENGTH, LengthReg.LEFT, amount=-turn),
                     *(SetDisplacement(region, turn * size, further=True) for region, size in regions.items())),
               times=Length(MAX_LENGTH, LengthReg.ROWS), shift=turn.bit_length() - 1, note=note)


def copied_rows(config: Config, layout: KvLayout) -> Iterator[Item]:
    """Consecutive rows from one place to another, run by run."""
    size, block = layout.row, _block(config, layout.row)
    body: list[Item] = []
    buffers = [At(Buffer(f"rows {i}", ceil_div(size, config.dim) * block, Bank.OPERAND)) for i in range(2)]
    for unit, region in ((Unit.LOAD, FROM), (Unit.STORE, TO)):
        for i, at in enumerate(buffers):
            move: dict[str, Value] = {
                "offset": i * block * size, "stride": size, "bytes": size, "row": at, "row_stride": 1,
                "block_stride": block, "rows": Length(block, LengthReg.LEFT, i * block)}
            body.append(VirtualCommand(unit=unit, note=f"rows {i}", region=region, fields=move))
    yield Loop(body=(*rows_loop({FROM: size, TO: size}, 2 * block, body, "rows"),
                     *(SetDisplacement(region + PART, layout.pitch, further=True) for region in (FROM, TO))),
               times=Length(layout.runs), note="every run of the cache")


def gathered_rows(config: Config, layout: KvLayout, context: int) -> Iterator[Item]:
    """The rows of each list to the first places, KV head by KV head."""
    heads, block = max(1, layout.joined), _block(config, layout.head)
    body: list[Item] = []
    for head in range(heads):
        body += _gathered_head(config, layout, context, head, block)
    further = {LISTS + PART: heads * list_pitch(config, context)}
    further |= dict.fromkeys((FROM, TO + PART), layout.pitch if layout.joined else 2 * layout.pitch)
    yield Loop(body=(*body, *(SetDisplacement(region, amount, further=True) for region, amount in further.items())),
               times=Length(list_count(layout) // heads), note="keys and values of every head")


def _gathered_head(config: Config, layout: KvLayout, context: int, head: int, block: int) -> Iterator[Item]:
    """Of one head of a run, or of the two runs of a head."""
    size = layout.head
    places = [layout.offset(0, head, part) for part in range(2)]
    listed = At(Buffer("list", ceil_div(2 * block, config.dim), Bank.STATE))
    parts = [At(Buffer(f"{name} of a head", ceil_div(size, config.dim) * block, Bank.OPERAND))
             for name in ("keys", "values")]
    body: list[Item] = [
        VirtualCommand(unit=Unit.LOAD, note="kept rows", region=LISTS,
             fields={"offset": head * list_pitch(config, context), "row": listed, "block_stride": 1, "rows": 1,
                     "bytes": ceil_div(2 * block, config.dim) * config.dim}),
        VirtualCommand(unit=Unit.SELECT, op=SOp.LIST_LOAD, note="to the list",
             fields={"src0": listed, "dst": 0, "n": Length(block, LengthReg.LEFT)})]
    move: dict[str, Value] = {"stride": layout.row, "bytes": size, "row_stride": 1, "block_stride": block,
                              "rows": Length(block, LengthReg.LEFT)}
    by_list = frozenset({int(MoveFlag.INDEXED)})
    body += [VirtualCommand(unit=Unit.LOAD, note=f"rows {i}", region=FROM, flags=by_list, fields={
        **move, "offset": place, "row": at, "list": 0, "last_index": context - 1})
        for i, (place, at) in enumerate(zip(places, parts))]
    body += [VirtualCommand(unit=Unit.STORE, note=f"rows {i}", region=TO, fields={**move, "offset": place, "row": at})
             for i, (place, at) in enumerate(zip(places, parts))]
    yield from rows_loop({LISTS: 2, TO: layout.row}, block, body, "rows")
