"""How heads leave an encoder's layer: which are there, and what is added up of them."""

from __future__ import annotations

from dataclasses import dataclass

from gemmule.compiler.ir import Attention
from gemmule.compiler.ir.head_pruning import HeadSchedule
from gemmule.compiler.kernels.attention.heads.gates import HeadGates
from gemmule.compiler.kernels.attention.heads.sums import HeadSums
from gemmule.compiler.kernels.virtual import Builder

__all__ = ["ALL_STAY", "LeavingHeads"]


@dataclass(frozen=True, kw_only=True)
class LeavingHeads:
    """How heads leave a layer."""

    gates: HeadGates | None = None
    """Some have left before."""
    sums: HeadSums | None = None
    """Some leave behind it, or a later layer."""

    @staticmethod
    def of(b: Builder, node: Attention, schedule: HeadSchedule | None) -> LeavingHeads:
        """Of a layer, whose attention is about to begin."""
        adds = schedule and node.layer is not None and schedule.adds(node.layer)
        return LeavingHeads(gates=LeavingHeads.gates_of(b, node, schedule),
                            sums=HeadSums(b, node, schedule) if schedule and adds else None)

    @staticmethod
    def gates_of(b: Builder, node: Attention, schedule: HeadSchedule | None) -> HeadGates | None:
        """Of a phase of a layer, which is about to begin."""
        choices = 0 if not schedule or node.layer is None else schedule.choices(node.layer)
        return HeadGates(b, node, choices - 1) if choices else None


ALL_STAY = LeavingHeads()
