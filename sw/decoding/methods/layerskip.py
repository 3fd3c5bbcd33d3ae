"""Self-speculative decoding by an early exit: the target's first layers draft, all of them verify (LayerSkip).

Elhoushi et al. 2024, section 3.3.

The last norm and the head read the residual stream behind ``--exit-layer`` layers. Drafts and verification share the KV
cache: what the early layers cache of a drafted token is what a pass through all layers caches there, byte for byte, so
the pass that verifies has nothing to copy or undo. The paper also takes up the early layers' hidden rows; here the pass
over all drafts costs those layers their weights once either way, since the last draft has not been through them yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.chains import draft_chain
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.decoding.tree import Tree
    from gemmule.sw.decoding.verify import Rule
    from gemmule.sw.device.runtime import LoadedModel
    from gemmule.sw.kv.text import TextKV
    from gemmule.sw.step import Asking

__all__ = ["METHOD", "EarlyExit"]


class EarlyExit(Paced):
    """Drafts a chain with the target's first layers, in the target's own cache."""

    def __init__(self, model: LoadedModel, cache: TextKV, exit_layer: int, lengths: Lengths | int, rule: Rule,
                 host: Host | None = None) -> None:
        """``model``: the target, charged as a draft; ``cache``: the target's, of this text; ``lengths``: as of
        :class:`Paced`.
        """
        super().__init__(lengths, host)
        self.model, self.cache, self.exit_layer, self.rule = model, cache, exit_layer, rule
        self._dropped = 0

    def drafting(self, count: int) -> int:
        graph = self.model.program.graph
        return count * graph.parameters * self.exit_layer // graph.layers

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self._dropped = dropped

    def propose(self, ids: list[int], budget: int) -> Asking[Tree]:
        from gemmule.sw.step import LayerRange

        early = [LayerRange(first=0, count=self.exit_layer)]
        tree, outs = yield from draft_chain(
            self.cache.borrow(self.model), ids, min(self.lengths.most(), budget), self.rule, self.lengths,
            dropped=self._dropped, layers=early)
        self.drafted = len(outs)
        if outs:
            self.costs.draft = outs[-1].cycles + self.host.launch_cycles
        return tree


def _make(request: Request) -> EarlyExit:
    layers = request.target.program.graph.layers
    wanted = request.options["exit_layer"]
    exit_layer = max(1, layers // 4) if wanted is None else wanted
    if not 1 <= exit_layer < layers:
        raise InputError(f"--exit-layer must be from 1 to {layers - 1} for a target of {layers} layers, not "
                         f"{exit_layer}")
    return EarlyExit(request.target, request.cache, exit_layer, request.lengths, request.rule, request.host)


METHOD = Method(
    name="layerskip", says="self-drafting, where the target's first layers draft and all layers verify", make=_make,
    needs_general=True, verify="rejection", labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=3, help="Tokens drafted per step."),
    options=(Option(name="--exit-layer", limits=Range(1, 1 << 10, "layers"), help="Number of layers that draft.",
                    otherwise="a quarter of the target's"),))
