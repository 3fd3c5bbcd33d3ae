"""Integer arithmetic of the device: pure numpy functions, no float on any data path.

One definition each; RTL, model and quantiser are tested against these. ``docs/numerics.md`` lists
widths, error bounds and sources.
"""

from .fixed import MAX_SHIFT, requant, requant_row, row_multiplier, rshr, saturate
from .rms import rms_apply, rms_statistic
from .rope import rope
from .softmax import EXP2_TABLE, exp2, row_max, row_weights, scores, softmax_reciprocal, visible
from .vector import add, join_planes, lookup, product, requant_store, split_planes

__all__ = [
    "EXP2_TABLE", "MAX_SHIFT", "add", "exp2", "join_planes", "lookup", "product", "requant", "requant_row",
    "requant_store", "rms_apply", "rms_statistic", "rope", "row_max", "row_multiplier",
    "row_weights", "rshr", "saturate", "scores", "softmax_reciprocal", "split_planes", "visible",
]
