"""What a launch did, as counts of events that take energy: exact, from its commands and its counters.

Rows come from the table of operands (:mod:`gemmule.operands`), so they are those that commands claim. What a
command with a predicate of 0 or a length of zero does not do is not counted. The host is no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gemmule.config import Config
from gemmule.isa import TABLE_FIELDS, MatrixFlag, MoveFlag, RequantFlag, SOp, Unit, VOp
from gemmule.operands import CLASS_OF, CLASSES, Class, Memory
from gemmule.resolve import OUT
from gemmule.sim.compiled import compiled, kept
from gemmule.sim.energy.table import EVENTS
from gemmule.terms import Term, fill_terms

__all__ = ["count_events"]

_E = {name: place for place, name in enumerate(EVENTS)}
_KINDS = {VOp.REQUANT: "scale", VOp.RESCALE: "scale", VOp.PRODUCT: "add", VOp.ADD: "add", VOp.ROPE: "rope",
          VOp.NORM_STAT: "norm_stat", VOp.NORM_APPLY: "norm_apply", VOp.SOFTMAX_MAX: "maximum", VOp.ABSMAX: "maximum",
          VOp.SOFTMAX_EXP: "exponential", VOp.SOFTMAX_NORM: "normalise", VOp.TABLE: "table", VOp.WORD_TABLE: "table",
          VOp.I_GELU: "lookup"}
_KIND = np.array([_E[_KINDS[op]] for op in VOp])
"""Event of a vector operation; REQUANT with LOOKUP is a lookup."""
_SCANS = (SOp.ARGMAX, SOp.IMPORTANCE, SOp.COMPARE)
_SEARCH = np.array([_E["key" if op is SOp.TOP_K else "scan" if op in _SCANS else "entry"] for op in SOp])
"""Event of a select operation."""
_LOOKUP, _MAC8, _MAC4, _WEIGHT, _SUM, _LOAD_BYTE, _STORE_BYTE = (_E[name] for name in (
    "lookup", "mac_int8", "mac_int4", "weight", "sum", "load_byte", "store_byte"))
_READ, _WRITE = (np.array([_E[f"{memory}_{what}"] for memory in ("spm", "acc")]) for what in ("read", "write"))
_UNIT, _OP, _FLAGS, _ZERO, _M, _N, _K = (OUT[name] for name in ("unit", "op", "flags", "zero", "m", "n", "k"))
_BYTES = TABLE_FIELDS.index("bytes")
_LOAD, _STORE, _MATRIX, _VECTOR, _SELECT = map(int, Unit)
_FILL = int(MoveFlag.ZERO)
_STATIONARY, _INT4, _REUSE = map(int, (MatrixFlag.OUTPUT_STATIONARY, MatrixFlag.B_INT4, MatrixFlag.REUSE))
_REQUANT, _REQUANT_LOOKUP, _ROPE = int(VOp.REQUANT), int(RequantFlag.LOOKUP), int(VOp.ROPE)
_C_MEMORY, _C_WRITE, _C_CLAIM, _C_RUN, _C_TIMES, _C_COUNT, _C_PLANES = map(int, (
    Class.MEMORY, Class.WRITE, Class.CLAIM, Class.RUN, Class.TIMES, Class.COUNT, Class.PLANES))
_SPM, _ACC = int(Memory.SPM), int(Memory.ACC)
_T_ROWS, _T_COLUMNS, _T_DEPTH, _T_ANGLES = map(int, (
    Term.ROW_GROUPS, Term.COLUMN_GROUPS, Term.DEPTH_GROUPS, Term.ANGLE_ROWS))
_TERMS = len(Term)
_CLASSES, _CLASS_OF = CLASSES, CLASS_OF
_fill_terms = compiled(fill_terms)


@kept("the count of events")
def _count(table, places, resolved, skipped, dim, bus, counts):  # type: ignore[no-untyped-def]
    """Add the commands at ``places`` of a decoded program to ``counts``, int64[EVENTS].

    A load writes a row in pieces where it takes several beats of the bus.
    """
    terms = np.zeros(_TERMS, dtype=np.int64)
    for i in range(len(places)):
        out, row = resolved[i], table[places[i]]
        unit, op, flags = out[_UNIT], out[_OP], out[_FLAGS]
        if unit > _SELECT or out[_ZERO] or skipped[i]:
            continue
        _fill_terms(row, out, dim, terms)
        m, n, k = out[_M], out[_N], out[_K]
        a_times = b_times = c_times = 1
        sums_less = 0
        if unit == _LOAD:
            if flags >> _FILL & 1 == 0:
                counts[_LOAD_BYTE] += m * row[_BYTES]
        elif unit == _STORE:
            counts[_STORE_BYTE] += m * row[_BYTES]
        elif unit == _MATRIX:
            rows, columns, depth = terms[_T_ROWS], terms[_T_COLUMNS], terms[_T_DEPTH]
            counts[_MAC4 if flags >> _INT4 & 1 else _MAC8] += m * n * k
            a_times = columns
            if flags >> _STATIONARY & 1:
                b_times = rows
                counts[_WEIGHT] += rows * columns * depth * dim * dim
                counts[_SUM] += m * columns * dim
            else:
                c_times, sums_less = depth, m * columns * (depth - 1)
                if flags >> _REUSE & 1 == 0:
                    counts[_WEIGHT] += columns * depth * dim * dim
                counts[_SUM] += m * columns * depth * dim
            counts[_READ[1]] += sums_less  # between the tiles of one column group
        elif unit == _VECTOR:
            lookup = op == _REQUANT and flags >> _REQUANT_LOOKUP & 1
            counts[_LOOKUP if lookup else _KIND[op]] += m * terms[_T_COLUMNS] * dim
        else:
            counts[_SEARCH[op]] += max(m, 1) * n
        operands = _CLASSES[_CLASS_OF[unit, op, flags]]
        for j in range(len(operands)):
            memory = operands[j, _C_MEMORY]
            if memory < 0:
                break
            if memory != _SPM and memory != _ACC:
                continue
            write, claim = operands[j, _C_WRITE], operands[j, _C_CLAIM]
            size = (terms[operands[j, _C_RUN]] * operands[j, _C_TIMES] * terms[operands[j, _C_COUNT]]
                    * terms[operands[j, _C_PLANES]])
            if unit == _LOAD and flags >> _FILL & 1 == 0:
                size = m * max(terms[operands[j, _C_PLANES]], (row[_BYTES] + bus - 1) // bus)
            if unit == _VECTOR and op == _ROPE and operands[j, _C_RUN] == _T_ANGLES:
                size = 4 * m * terms[_T_COLUMNS]  # those of a period again for every column group
            if unit == _MATRIX:
                size *= a_times if claim == 0 else b_times if claim == 1 else c_times if write else 1
            counts[(_WRITE if write else _READ)[memory]] += size


def count_events(table: np.ndarray, places: np.ndarray, resolved: np.ndarray, skipped: np.ndarray, config: Config,
                 cycles: int, dram_bytes: Mapping[str, int]) -> dict[str, int]:
    """Events of a launch by name, in the order of :data:`gemmule.sim.energy.table.EVENTS`.

    Parameters
    ----------
    table, places, resolved: the stream of a launch (:mod:`gemmule.sim.stream`), up to a command that faults.
    skipped: bool[commands], of which the predicate was 0.
    cycles, dram_bytes: what the device's counters say.
    """
    counts = np.zeros(len(EVENTS), dtype=np.int64)
    _count(table, places, resolved, skipped, config.dim, config.bus_bytes, counts)
    counts[_E["cycle"]] = cycles
    counts[_E["fetch_byte"]] = dram_bytes["program"]
    counts[_E["command"]] = len(places)
    counts[_E["dram_read_bit"]] = 8 * (dram_bytes["program"] + dram_bytes["load"])
    counts[_E["dram_write_bit"]] = 8 * dram_bytes["store"]
    return dict(zip(EVENTS, counts.tolist(), strict=True))
