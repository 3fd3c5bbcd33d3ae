"""The largest logits of each answered row: chunk by chunk beside the largest ones so far, by the select unit's top-K.

Top-K is exact and stable, so the survivors of all chunks are those of the whole row, of equal ones the lowest.
"""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.head.answers import BACK, FOUND, AnswerLayout
from gemmule.compiler.kernels.head.ids import HALF_BYTES, list_flags
from gemmule.compiler.kernels.virtual import At, Bank, Buffer, Builder, LengthReg, SetDisplacement
from gemmule.control import set_length
from gemmule.isa import MAX_LENGTH, Dyn, Length, SOp, Source, Unit
from gemmule.timing import ceil_div

__all__ = ["largest"]


def largest(b: Builder, layout: AnswerLayout) -> None:
    """Store the tokens of each row's ``layout.top`` largest logits, in rising order, uint16 by plane.

    Raises:
        CompileError: the key memory does not take so many beside a group.
    """
    config, dim, kept, columns = b.config, b.config.dim, layout.top, layout.columns
    room, listed = config.select_keys - kept, 2 * b.rows
    if room < dim or listed + kept > config.list_entries:
        raise CompileError(f"the largest logits of a row must be at most {config.select_keys - dim} (select_keys), not "
                           f"{kept}: take fewer")
    chunk = min(layout.chunk, dim << (room // dim).bit_length() - 1)
    pieces = ceil_div(columns - kept, chunk)
    size, row = 2 * ceil_div(kept, dim) * dim, ceil_div(HALF_BYTES * kept, dim)
    head, part, *planes = (At(Buffer(f"logits of a row: {name}", rows, Bank.STATE)) for name, rows in (
        ("first", size // dim), ("chunk", 2 * chunk // dim), *[("largest", row)] * layout.planes))
    b.control(SetDisplacement(BACK, 0))
    with b.loop(Length(b.rows, LengthReg.TOP_ROWS), 0, "largest logits", local=True):
        b.add(Unit.LOAD, "logits", region=BACK, offset=layout.logits, bytes=size, row=head, block_stride=1, rows=1)
        b.add(Unit.SELECT, "keys", op=SOp.KEYS, src0=head, src0_stride=2, n=kept)
        for at, count in layout.spans(kept, chunk):
            b.control(set_length(LengthReg.LEFT, amount=count), set_length(LengthReg.KEYS, amount=count + kept),
                      set_length(LengthReg.COLUMN, amount=kept))
            with b.loop(Length(MAX_LENGTH, LengthReg.LEFT), chunk.bit_length() - 1, "chunks"):
                b.add(Unit.LOAD, "logits", region=BACK, offset=layout.logits + 2 * kept, bytes=2 * chunk, row=part,
                      block_stride=1, rows=1)
                b.add(Unit.SELECT, "keys", op=SOp.KEYS, src0=part, src0_stride=2, dst=kept, first=at - kept,
                      dyn=(Dyn.SRC1, LengthReg.COLUMN, 1), n=Length(chunk, LengthReg.LEFT))
                b.add(Unit.SELECT, "largest", op=SOp.TOP_K, dst=listed, n=Length(kept + chunk, LengthReg.KEYS),
                      k=Length(kept))
                b.control(*(set_length(register, Source.LENGTH, register, amount=amount) for register, amount in (
                    (LengthReg.LEFT, -chunk), (LengthReg.KEYS, -chunk), (LengthReg.COLUMN, chunk))),
                    SetDisplacement(BACK, 2 * chunk, further=True))
        b.add(Unit.SELECT, "largest of all", op=SOp.TOP_K, dst=listed, n=Length(kept), k=Length(kept))
        for plane, ids in enumerate(planes):
            b.add(Unit.SELECT, "their tokens", op=SOp.LIST_STORE, first=listed, dst=ids, n=Length(kept),
                  flags=list_flags(plane))
            b.add(Unit.STORE, "their tokens", region=FOUND, offset=layout.tops + plane * layout.top_plane,
                  bytes=HALF_BYTES * kept, row=ids, block_stride=1, rows=1)
        b.control(SetDisplacement(BACK, layout.pitch - 2 * chunk * pieces, further=True),
                  SetDisplacement(FOUND, layout.top_pitch, further=True))
