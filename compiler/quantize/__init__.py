"""From a float network to integers: scales from calibration, weights as codes."""

from gemmule.compiler.quantize.scale import to_mult_shift

__all__ = ["to_mult_shift"]
