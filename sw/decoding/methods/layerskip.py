"""Self-speculative decoding by an early exit: the target's first layers draft, all of them verify (LayerSkip).

Elhoushi et al. 2024, section 3.3.

The last norm and the head read the residual stream behind ``--exit-layer`` layers. Drafts and verification share the KV
cache: what the early layers cache of a drafted token is what a pass through all layers caches there, byte for byte, so
the pass that verifies has nothing to copy or undo. The paper also takes up the early layers' hidden rows; here the pass
over all drafts costs those layers their weights once either way, since the last draft has not been through them yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    import numpy as np

    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking, Forward

__all__ = ["METHOD", "EarlyExit"]


class EarlyExit(Drafter):
    """Drafts a chain with the target's first layers, in the target's own cache."""

    def __init__(self, model: LoadedModel, cache: TextKV, exit_layer: int, lengths: Lengths, rule: Rule) -> None:
        """``model``: the target, charged as a draft; ``cache``: the target's, of this text."""
        self.model, self.cache, self.exit_layer = model, cache, exit_layer
        self.lengths, self.rule = lengths, rule
        self.drafted = self._dropped = 0

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self._dropped = dropped

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        from gemmule.sw.step import LayerRange

        early = [LayerRange(first=0, count=self.exit_layer)]
        ahead = self.cache.borrow(self.model)
        drafted: list[int] = []
        weights: list[np.ndarray | None] = []
        for _ in range(min(self.lengths.most(), budget)):
            text = ids + drafted
            out = yield from ahead.chain(text, self.rule.want(1, self.lengths.needs_confidence), early)
            chosen = self.rule.propose(out, self.model.logit_scale, self._dropped + len(text))
            drafted.append(chosen.token)
            weights.append(chosen.weights)
            if not self.lengths.goes_on(chosen.confidence):
                break
        self.drafted = len(drafted)
        return Tree.chain(ids[-1], drafted, weights)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        from gemmule.sw.decoding.lengths import Costs

        self.lengths.observe(self.drafted, len(path) - 1, Costs())


def _make(request: Request) -> EarlyExit:
    layers = request.target.program.graph.layers
    wanted = request.options["exit_layer"]
    exit_layer = max(1, layers // 4) if wanted is None else wanted
    if not 1 <= exit_layer < layers:
        raise InputError(f"--exit-layer must be from 1 to {layers - 1} for a target of {layers} layers, not "
                         f"{exit_layer}")
    return EarlyExit(request.target, request.cache, exit_layer, request.lengths, request.rule)


METHOD = Method(
    name="layerskip", says="self-drafting, where the target's first layers draft and all layers verify", make=_make,
    needs_general=True, verify="rejection",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=3, help="Tokens drafted per step."),
    options=(Option(name="--exit-layer", limits=Range(1, 1 << 10, "layers"), help="Number of layers that draft.",
                    otherwise="a quarter of the target's"),))
