"""A host that computes what an accelerator of products alone leaves to it: cycles an element, DRAM traffic.

Values come from DRAM as int8 and go back as int8; what a residual stream carries is float32. An operator takes the
longer of its arithmetic and of its bytes at the DRAM's rate: a host hides the one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmule.config import Config
from gemmule.sim.roofline import roofline_cycles

__all__ = ["IN_ORDER", "KERNELS", "VECTOR", "Host", "Operator"]

KERNELS = ("dequantise", "quantise", "softmax", "layernorm", "gelu", "add")


@dataclass(frozen=True, kw_only=True)
class Host:
    """Cycles an element of each of :data:`KERNELS`, at the device's clock."""

    name: str
    source: str
    cycles: Mapping[str, float]

    def spends(self, operator: Operator, config: Config, *, speed: float = 1.0) -> float:
        """Device cycles of an operator on a host ``speed`` times as fast; its memory is the device's, as fast as ever.
        """
        arithmetic = operator.elements * sum(self.cycles[kernel] for kernel in operator.kernels) / speed
        return max(arithmetic, roofline_cycles(operator.bytes, config))


@dataclass(frozen=True, kw_only=True)
class Operator:
    """What a host does to a value between two products."""

    name: str
    elements: int
    kernels: Sequence[str]
    bytes: int
    """From and to DRAM."""


IN_ORDER = Host(
    name="in-order host",
    source="RV64GC, an instruction a cycle: plain loops and libm (gcc 12 -O3 -ffast-math), counted one by one "
           "(benchmarks/host.py); Rocket issues at most one a cycle, so it takes no less",
    cycles={"dequantise": 8.03, "quantise": 11.03, "softmax": 51.06, "layernorm": 20.06, "gelu": 116.06, "add": 8.02})
VECTOR = Host(
    name="vector host",
    source="an out-of-order core with 512-bit vectors: the same loops, vectorised with libmvec, on an AMD EPYC "
           "(Zen 4), cycles measured (benchmarks/host.py), clocked as the device",
    cycles={"dequantise": 0.15, "quantise": 1.629, "softmax": 1.227, "layernorm": 0.533, "gelu": 1.881, "add": 0.233})
