"""Cache rows by list: each position's row in a pool, so that a sequence's rows may stand anywhere (pages)."""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg
from gemmule.isa import Length, SOp, Unit
from gemmule.timing import ceil_div

__all__ = ["CACHE_ROWS", "list_cache_rows"]

CACHE_ROWS = "cache_rows"
"""Region of the launch's input: the pool's row of each position, cached and new, uint16."""


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
