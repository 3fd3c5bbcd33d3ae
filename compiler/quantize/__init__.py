"""From a float network to integers: scales from calibration, weights as codes."""

from gemmule.compiler.quantize.decoder import ROPE_EXTRA_BITS, ROPE_SHIFT, quantize
from gemmule.compiler.quantize.scale import to_mult_shift

__all__ = ["ROPE_EXTRA_BITS", "ROPE_SHIFT", "quantize", "to_mult_shift"]
