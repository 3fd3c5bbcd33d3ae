"""Cache rows by list: each position's row in a pool, so that a sequence's rows may stand anywhere (pages)."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.config import Config
from gemmule.isa import Command, Length, SOp, Unit
from gemmule.timing import ceil_div

__all__ = ["CACHE_ROWS", "NEW_ROWS", "CacheLists", "brings_list", "list_cache_rows", "lists_of", "nobody"]

CACHE_ROWS = "cache_rows"
"""Region of the launch's input: the pool's row of each position, cached and new, uint16; of attention by blocks the
cached ones, sequence by sequence."""
NEW_ROWS = "new_rows"
"""The same of each new row, where attention goes by blocks."""


def brings_list(command: Command, first: int) -> bool:
    """Whether a command brings cached rows of a sequence into the index list, from entry ``first`` on."""
    return command.unit is Unit.SELECT and command.op == SOp.LIST_LOAD and command.fields["dst"] >= first


def nobody(prefix: int) -> int:
    """The pool's row that takes what nobody sees: behind the constant ones, with which every text begins."""
    return prefix


@dataclass(frozen=True, kw_only=True)
class CacheLists:
    """Lists of cached rows of the sequences of a pass: all in the scratchpad, those of two in the index list."""

    lists: At
    rows: int
    """Scratchpad rows of a sequence's."""
    first: int
    """Entry of the index list from which even sequences have theirs."""
    pitch: int
    """Entries to that of odd ones."""
    context: int

    def entry(self, sequence: int) -> int:
        """First entry of a sequence's list."""
        return self.first + sequence % 2 * self.pitch

    def bring(self, b: Builder, sequence: int, name: str) -> None:
        """A sequence's list to the index list; the register holds how many rows it has cached."""
        b.add(Unit.SELECT, f"{name}: cached rows of sequence {sequence}", op=SOp.LIST_LOAD,
              src0=self.lists + sequence * self.rows, dst=self.entry(sequence),
              n=Length(self.context, LengthReg.CONTEXT))

    @staticmethod
    def of(b: Builder, context: int, most: int) -> CacheLists:
        """Of a pass behind up to ``context`` cached rows, of which a load takes ``most``.

        Bring the places of new rows to the index list, behind tokens and positions, and all lists to the scratchpad.

        Raises:
            CompileError: the index list is too short.
        """
        new, pitch = 2 * b.rows, context + most
        first = new + b.rows
        if first + 2 * pitch > b.config.list_entries:
            raise CompileError(f"the index list must hold {first + 2 * pitch} entries, tokens, positions and places of "
                               f"{b.rows} rows and twice {pitch} cached ones, not {b.config.list_entries}: use a "
                               "shorter context, or raise list_entries")
        half = b.config.dim // 2
        places, rows = ceil_div(b.rows, half), ceil_div(context, half)
        for region, count in ((NEW_ROWS, places), (CACHE_ROWS, b.batch * rows)):
            size = count * b.config.dim
            b.reserve(region, size)
            buffer = At(Buffer(region, count, Bank.STATE))
            b.add(Unit.LOAD, region, region=region, bytes=size, row=buffer, block_stride=1, rows=1)
            if region == NEW_ROWS:
                b.add(Unit.SELECT, "places of new rows to the list", op=SOp.LIST_LOAD, src0=buffer, dst=new,
                      n=Length(b.rows))
        return CacheLists(lists=buffer, rows=rows, first=first, pitch=pitch, context=context)


def lists_of(config: Config, batch: int, context: int) -> int:
    """Entries of a sequence's list in :data:`CACHE_ROWS`."""
    return ceil_div(context, config.dim // 2) * (config.dim // 2)


def list_cache_rows(b: Builder, context: int) -> int:
    """Bring the rows of up to ``context`` positions to the index list, behind tokens and positions; the first entry.

    Raises:
        CompileError: the list is too short.
    """
    first = 2 * b.rows
    if first + context > b.config.list_entries:
        raise CompileError(f"the index list must hold {first + context} entries, tokens, positions and {context} cache "
                           f"rows, not {b.config.list_entries}: use a shorter context, or raise list_entries")
    rows = ceil_div(2 * context, b.config.dim)
    size = rows * b.config.dim
    b.reserve(CACHE_ROWS, size)
    buffer = At(Buffer("cache rows", rows, Bank.STATE))
    b.add(Unit.LOAD, "cache rows", region=CACHE_ROWS, bytes=size, row=buffer, block_stride=1, rows=1)
    b.add(Unit.SELECT, "cache rows to the list", op=SOp.LIST_LOAD, src0=buffer, dst=first,
          n=Length(context, LengthReg.TOTAL))
    return first
