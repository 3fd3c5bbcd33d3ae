"""What every field of a command means, a clause each; ``docs/isa.md`` is made from this.

Layouts and widths are in :mod:`gemmule.isa`; names that an operation gives a field in listings in
:mod:`gemmule.operations`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .operations import COp, Unit

__all__ = ["BODY_CLAUSES", "CONTROL_CLAUSES", "HEADER_CLAUSES"]

HEADER_CLAUSES: Mapping[str, str] = {
    "unit": "the unit that takes the command, or 5: a control command; other numbers fault (`illegal`)",
    "op": "the operation or control command; one that there is not faults (`illegal`)",
    "wait_load": "issues only when the load so many loads back has finished; 0: no wait",
    "wait_store": "the same for stores",
    "wait_matrix": "the same for matrix commands",
    "wait_vector": "the same for vector commands",
    "wait_select": "the same for select commands",
    "flags": "bits that change what the operation does, see its table",
    "dyn_which": "which row or entry is dynamic",
    "dyn_reg": "the length register that moves it",
    "dyn_stride": "rows or entries that it moves for each unit of the register",
    "predicate": "the command runs only where this predicate is 1; number 0 always is",
}


def _length(name: str, what: str) -> dict[str, str]:
    return {f"{name}_reg": f"register of {what}; 0 reads 65535", f"{name}_offset": f"taken off the register of {what}",
            f"{name}_cap": f"most {what}"}


def _move(into: str) -> dict[str, str]:
    return {
        "base": "base and limit register of the DRAM addresses",
        "offset": "bytes from the base to the first DRAM row",
        "stride": "bytes from one DRAM row to the next; rows without a gap (`stride` = `bytes`), in whole beats, move "
                  "in bursts across their ends",
        "bytes": f"bytes of each DRAM row; int32 ones a multiple of 4 (`align`); block b holds the DIM elements {into}",
        "row": "row of the memory where DRAM row 0 begins",
        "row_stride": "rows of the memory from one DRAM row to the next",
        "block_stride": "rows of the memory from one block of a DRAM row to the next",
        **_length("rows", "DRAM rows"),
        "list": "entry of the list that holds the number of DRAM row 0 (INDEXED)",
        "last_index": "largest number of a DRAM row (INDEXED); larger ones count as this; with more than `index_bits` "
                      "it faults (`illegal`)",
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
        **_length("k", "columns of A, rows of B"),
        "group": "tiles of K that share a scale, as a power of two (GROUP_SCALES)",
    },
    Unit.VECTOR: {
        "src0": "row where the first source begins",
        "src0_stride": "rows from one column group of the first source to the next",
        "src1": "row where the second source, the parameters or the tree's bitmaps begin",
        "aux": "by operation: stride of src1 (PRODUCT; with WIDE its planes are half of it apart), second multiplier "
               "(ADD, RESIDUAL with RESCALE), limits (CLAMP), row of the angles (ROPE), columns behind this piece "
               "(SOFTMAX)",
        "dst": "row where the result begins",
        "dst_stride": "rows from one column group of the result to the next",
        **_M, **_N,
        "mult": "multiplier (NORM_STAT: epsilon, with ROUND 1 / n)",
        "shift": "right shift after the multiplication (NORM_STAT: left shift of epsilon)",
        "shift2": "second right shift: ROPE, I_GELU, RESIDUAL with RESCALE",
        "context": "statistics context that is read or written (ABSMAX: and the one behind it)",
        "period": "column groups of the angles, as a power of two (ROPE); exponential (SOFTMAX_EXP, SOFTMAX_NORM)",
        "scale_reg": "register of the scaling, if not 0: it is `mult`, the next one `shift` + 64 · `shift2`, the one "
                     "behind `aux` of ADD and of RESIDUAL with RESCALE; register 0 follows number 15",
    },
    Unit.SELECT: {
        "src0": "scratchpad row where the source begins",
        "src0_stride": "rows from one column group of the source to the next",
        "dst": "where the result begins: list entry, key (KEYS), scratchpad row (LIST_STORE)",
        "first": "id of the first column (ARGMAX, KEYS), first position (KEYS FROM_IMPORTANCE, IMPORTANCE, COMMIT) or "
                 "list entry (LIST_STORE): bits 15:0",
        "aux": "threshold (COMPARE); guarded first and last positions (KEYS FROM_IMPORTANCE)",
        **_M, **_length("n", "columns, keys, positions or entries"), **_length("k", "keys that survive (TOP_K)"),
        "shift": "right shift of importance (KEYS FROM_IMPORTANCE)",
        "number": "predicate that is set (COMPARE), from 1 to 3",
        "first_high": "bits 17:16 of `first`",
    },
}
CONTROL_CLAUSES: Mapping[COp, Mapping[str, str]] = {
    COp.SET: {
        "target": "what is written: 0 a length register, 1 the displacement of a base register",
        "target_reg": "its number: length registers 1 to 15, base registers 0 to 31; others fault (`illegal`)",
        "source": "what it starts from, see below; a number from 5 on faults (`illegal`)",
        "source_reg": "register of the source: a length register (0 reads 65535), or a base register (displacement); "
                      "of WORD and HALF the length register that is added to `index` (0: none). Length registers from "
                      "16 on fault (`illegal`), with source ZERO too",
        "index": "number of the word or half in the parameter memory; beyond it: fault `rows`",
        "amount": "is added to the source, two's complement",
        "modulus": "of a length, if not 0: wraps the sum once, see above; of a displacement it must be 0 (`illegal`)",
    },
    COp.PARAMS: {
        "first": "number of the first of five words; all five must be in the parameter memory (`rows`)",
        **{f"word{i}": f"word `first` + {i}, two's complement" for i in range(5)},
    },
    COp.REPEAT: {
        "body": "commands that are repeated: those right behind it; from 1 on",
        "times_reg": "length register of the number of turns; 0 reads 65535",
        "times_offset": "taken off that register",
        "times_shift": "right shift of what is left, which rounds up",
        "times_cap": "most turns",
    },
}
