"""The meaning of every field of a command, in one clause each; ``docs/isa.md`` is generated from it.

Layouts and widths are in :mod:`gemmule.isa`. The names that listings use for fields whose meaning depends on the
operation are in :mod:`gemmule.operations`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .operations import COp, Unit

__all__ = ["BODY_CLAUSES", "CONTROL_CLAUSES", "HEADER_CLAUSES"]

HEADER_CLAUSES: Mapping[str, str] = {
    "unit": "the unit that takes the command, or 5: a control command; other numbers fault (`illegal`)",
    "op": "the operation or control command; an unknown number faults (`illegal`)",
    "wait_load": "a distance d: the command issues only when the d-th last load before it has finished; 0: no wait",
    "wait_store": "the same for stores",
    "wait_matrix": "the same for matrix commands",
    "wait_vector": "the same for vector commands",
    "wait_select": "the same for select commands",
    "flags": "bits that change what the operation does, see its table",
    "dyn_which": "which row or entry is dynamic",
    "dyn_reg": "the length register that moves it",
    "dyn_stride": "rows or entries to move per unit of the register",
    "predicate": "the command runs only if this predicate is 1; number 0 always is",
}


def _length(name: str, what: str) -> dict[str, str]:
    return {f"{name}_reg": f"length register for the number of {what}; register 0 reads 65535",
            f"{name}_offset": f"subtracted from the register of {what}", f"{name}_cap": f"maximum number of {what}"}


def _move(into: str) -> dict[str, str]:
    return {
        "base": "base and limit register of the DRAM addresses",
        "offset": "bytes from the base to the first DRAM row",
        "stride": "bytes from one DRAM row to the next; rows without a gap (`stride` = `bytes`) that consist of whole "
                  "beats move in bursts that may span several rows",
        "bytes": f"bytes of each DRAM row; for int32 a multiple of 4 (`align`); block b holds the DIM elements {into}",
        "row": "row of the memory where DRAM row 0 begins",
        "row_stride": "rows of the memory from one DRAM row to the next",
        "block_stride": "rows of the memory from one block of a DRAM row to the next",
        **_length("rows", "DRAM rows"),
        "list": "entry of the list that holds the number of DRAM row 0 (INDEXED)",
        "last_index": "largest DRAM row number (INDEXED); larger numbers are replaced by it; a value of more than "
                      "`index_bits` bits faults (`illegal`)",
    }


_M, _N = _length("m", "rows"), _length("n", "columns")
BODY_CLAUSES: Mapping[Unit, Mapping[str, str]] = {
    Unit.LOAD: _move("that go to row + r · row_stride + b · block_stride"),
    Unit.STORE: _move("that come from row + r · row_stride + b · block_stride"),
    Unit.MATRIX: {
        "a_row": "scratchpad row where A begins",
        "a_stride": "rows from one column group of A to the next (A_TRANSPOSED: group of rows)",
        "b_row": "scratchpad row where B begins; a multiple of `preload` (`rows`)",
        "b_stride": "rows from one column group of B to the next (B_TRANSPOSED: group of K); a multiple of `preload`",
        "c_row": "accumulator row where C begins",
        "c_stride": "rows from one column group of C to the next",
        **_length("m", "rows of A and C"), **_length("n", "columns of B and C"),
        **_length("k", "columns of A and rows of B"),
        "group": "tiles of K that share a scale, as a power of two (GROUP_SCALES); without it, bits by which "
                 "nibbles (B_INT4) are shifted to the left, at most 4",
    },
    Unit.VECTOR: {
        "src0": "row where the first source begins",
        "src0_stride": "rows from one column group of the first source to the next",
        "src1": "row where the second source, the parameters or the tree's bitmaps begin",
        "aux": "depends on the operation: stride of src1 (PRODUCT; with WIDE its planes are half the stride apart), "
               "second multiplier (ADD, RESIDUAL with RESCALE), limits (CLAMP), row of the angles (ROPE), number of "
               "columns after this piece (SOFTMAX)",
        "dst": "row where the result begins",
        "dst_stride": "rows from one column group of the result to the next",
        **_M, **_N,
        "mult": "multiplier (NORM_STAT: epsilon, with ROUND 1 / n)",
        "shift": "right shift after the multiplication (NORM_STAT: left shift of epsilon)",
        "shift2": "second right shift: ROPE, I_GELU, RESIDUAL with RESCALE",
        "context": "statistics context that is read or written (ABSMAX: also the next one)",
        "period": "number of column groups of the angles, as a power of two (ROPE); exponential (SOFTMAX_EXP, "
                  "SOFTMAX_NORM)",
        "scale_reg": "if not 0, length registers replace the scaling fields: this register replaces `mult`, the next "
                     "one `shift` + 64 · `shift2`, and the one after that `aux` (ADD, and RESIDUAL with RESCALE); "
                     "register 0 follows register 15",
    },
    Unit.SELECT: {
        "src0": "scratchpad row where the source begins",
        "src0_stride": "rows from one column group of the source to the next (PACK: of the result too)",
        "dst": "where the result begins: list entry, key (KEYS), scratchpad row (LIST_STORE, PACK)",
        "first": "id of the first column (ARGMAX, KEYS), first position (KEYS FROM_IMPORTANCE, IMPORTANCE, COMMIT) or "
                 "list entry (LIST_STORE): bits 15:0",
        "aux": "threshold (COMPARE); guarded first and last positions (KEYS FROM_IMPORTANCE)",
        **_M, **_length("n", "columns, keys, positions or entries"),
        **_length("k", "keys that survive (TOP_K; NONZERO: all do, but none if it is 0)"),
        "shift": "right shift of importance (KEYS FROM_IMPORTANCE)",
        "number": "predicate to set (COMPARE), from 1 to 3",
        "first_high": "bits 17:16 of `first`",
    },
}
CONTROL_CLAUSES: Mapping[COp, Mapping[str, str]] = {
    COp.SET: {
        "target": "what is written: 0 a length register, 1 the displacement of a base register",
        "target_reg": "its number: length registers 1 to 15, base registers 0 to 31; others fault (`illegal`)",
        "source": "the value to start from, see below; numbers from 5 on fault (`illegal`)",
        "source_reg": "register of the source: a length register (register 0 reads 65535), or a base register for its "
                      "displacement; with WORD and HALF, the length register that is added to `index` (0: none). "
                      "Length registers from 16 on fault (`illegal`), even with source ZERO",
        "index": "number of the word or half in the parameter memory; a number beyond the memory faults (`rows`)",
        "amount": "added to the source; two's complement",
        "modulus": "for a length: if not 0, wraps the sum once, see above; for a displacement: must be 0 (`illegal`)",
    },
    COp.PARAMS: {
        "first": "number of the first of five words; all five must be in the parameter memory (`rows`)",
        **{f"word{i}": f"word `first` + {i}, two's complement" for i in range(5)},
    },
    COp.REPEAT: {
        "body": "number of commands to repeat, starting with the next one; at least 1",
        "times_reg": "length register for the number of turns; register 0 reads 65535",
        "times_offset": "subtracted from that register",
        "times_shift": "right shift of the difference, rounding up",
        "times_cap": "maximum number of turns",
    },
}
