"""Integer arithmetic of the device: pure numpy functions, no float on any data path.

One definition each; RTL, model and quantiser are tested against these. ``docs/numerics.md`` lists
widths, error bounds and sources.
"""

from .exponential import EXP2_TABLE, exp2
from .fixed import MAX_SHIFT, requant, requant_row, row_multiplier, rshr, saturate
from .halves import (
    FLAT,
    HALF_BITS,
    LEAST_HALF,
    MOST_HALF,
    flat_rows,
    flat_scaling,
    halved,
    lower_half,
    pack_halves,
    pack_rows,
    upper_half,
    whole_planes,
)
from .norm import norm_fraction, norm_statistic, normalize
from .rope import rope
from .select import (
    HEAVY_SHIFT,
    IMPORTANCE_MAX,
    KEY_BITS,
    KEY_MAX,
    MAX_IMPORTANCE_SHIFT,
    MOST_COUNTED,
    MOST_GUARDED,
    accumulate_importance,
    argmax_rows,
    counted,
    heavy_keys,
    importance_keys,
    nonzero_first,
    top_k,
)
from .softmax import (
    KEPT_BITS,
    KEPT_UNIT,
    at_least,
    kept_sum,
    octave_max,
    own_scale,
    row_absmax,
    row_max,
    row_normalized,
    row_probabilities,
    scores,
    softmax_reciprocal,
    tree_mask,
    visible,
)
from .table import BYTE_TABLE_ENTRIES, WORD_TABLE_ENTRIES, interpolate
from .vector import (
    add,
    join_planes,
    lookup,
    product,
    requant_store,
    split_planes,
)

__all__ = [
    "BYTE_TABLE_ENTRIES", "EXP2_TABLE", "FLAT", "HALF_BITS", "HEAVY_SHIFT", "IMPORTANCE_MAX", "KEPT_BITS", "KEPT_UNIT",
    "KEY_BITS", "KEY_MAX", "LEAST_HALF", "MAX_IMPORTANCE_SHIFT", "MAX_SHIFT", "MOST_COUNTED", "MOST_GUARDED",
    "MOST_HALF", "WORD_TABLE_ENTRIES", "accumulate_importance", "add", "argmax_rows", "at_least", "counted", "exp2",
    "flat_rows", "flat_scaling", "halved", "heavy_keys", "importance_keys", "interpolate", "join_planes", "kept_sum",
    "lookup", "lower_half", "nonzero_first", "norm_fraction", "norm_statistic", "normalize", "octave_max", "own_scale",
    "pack_halves", "pack_rows", "product", "requant", "requant_row", "requant_store", "rope", "row_absmax", "row_max",
    "row_multiplier", "row_normalized", "row_probabilities", "rshr", "saturate", "scores", "softmax_reciprocal",
    "split_planes", "top_k", "tree_mask", "upper_half", "visible", "whole_planes",
]
