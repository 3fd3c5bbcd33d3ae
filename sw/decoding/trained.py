"""Drafters that were trained on the target's hidden rows: on a device, and what their methods have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gemmule.sw.decoding.adaptive.worth import Worth
from gemmule.sw.decoding.tree import Drafter
from gemmule.sw.errors import InputError
from gemmule.sw.limits import TRAINED_FOR

if TYPE_CHECKING:
    import numpy as np

    from gemmule.config import Host
    from gemmule.sw.decoding.methods.method import Request
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.step import Asking, Forward

__all__ = ["WIDEST", "TrainedDrafter", "TrainedModel", "trained_model"]

WIDEST = 16
"""Logits of a position that its chances are of: beyond these there is little."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Such a drafter on a device.

    Attributes:
        model: reads the rows that the target's passes leave.
        tokens: the target's token of each number that it answers with, int64.
        masks: its ids for positions behind the first.
        digest: of its numbers.
        shares: of paths of ranks, head by head, how often all their tokens are right on held-out text.
        costs: of the target's passes, as of :class:`gemmule.sw.decoding.adaptive.worth.Worth`.
    """

    model: LoadedModel
    tokens: np.ndarray
    masks: tuple[int, ...]
    digest: str
    shares: Mapping[tuple[int, ...], float] = field(default_factory=dict)
    costs: Callable[[int], Sequence[int]] | None = None


def trained_model(request: Request, kind: str, name: str) -> TrainedModel:
    """The drafter of a request, for the method of this name.

    Raises:
        InputError: the target has none, or no program for what the rule wants.
    """
    if kind not in request.trained:
        raise InputError(f"--method {name} needs a drafter that was trained on the target's hidden rows: take --model "
                         f"{TRAINED_FOR[kind]}, or another --method")
    if not request.rule.want(1).plain and request.target.sampled is None:
        raise InputError(f"--method {name} needs a session with general=True for drawn tokens, whose passes leave "
                         "hidden rows and logits: make one, or use --temperature 0")
    return request.trained[kind]


class TrainedDrafter(Drafter):
    """Its cache has a row for each token that the target has read: the token that follows, beside the target's rows."""

    keeps = True
    """Whether its passes read rows of the text that earlier ones left."""
    foreseeing = False
    """Whether candidates are weighed against what passes will cost, not against what they were seen to cost: not by
    chances that say too much, which would have too many verified (SmolLM2, 8 requests: 1 % slower)."""

    def __init__(self, drafter: TrainedModel, most: int, *, kept: bool = True, host: Host | None = None) -> None:
        """``most``: candidates of a step; ``kept``: its KV cache keeps rows."""
        from gemmule.config import Host

        self.host = host or Host()
        self.drafter, self.most = drafter, most
        self.cache = drafter.model.kv(kept=kept)
        self.worth = Worth(self.host.launch_cycles, self.host.step_cycles,
                           drafter.costs if self.foreseeing else None)
        self.spent = 0
        """Cycles of the step's own passes."""
        self.pending = 0
        """Position of the last token, whose row the target has not read."""
        self.elsewhere: dict[int, int] = {}
        """By position, where the target's pass has left hidden rows of accepted candidates, if not in their place."""

    def drafting(self, count: int) -> int:
        return self.drafter.model.program.graph.parameters

    def prompt_weights(self) -> int:
        return self.drafting(1) if self.keeps else 0

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None]:
        self.worth.begin(len(ids))
        self.elsewhere = {}  # the target may have passed other rows since: what stands in their place costs no token
        if self.keeps and self.cache.kept and len(ids) > 1:
            yield from self.cache.begin(ids[1:])

    def spend(self, out: Forward) -> int:
        """Cycles of one of the step's own passes, host included, which are added to :attr:`spent`."""
        cycles = out.cycles + self.host.launch_cycles * len(out.results)
        self.spent += cycles
        return cycles

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.worth.take(len(out.argmax), out.cycles)
        if self.cache.kept:
            self.elsewhere = {self.pending + depth: self.pending + node for depth, node in enumerate(path)
                              if node != depth}
