"""Self-speculative decoding by an early exit: the target's first layers draft, all of them verify (LayerSkip).

Elhoushi et al. 2024, section 3.3.

The last norm and the head read the residual stream behind ``--exit-layer`` layers. Drafts and verification share the KV
cache: what the early layers cache of a drafted token is what a pass through all layers caches there, byte for byte, so
the pass that verifies has nothing to copy or undo. The paper also takes up the early layers' hidden rows; here the pass
over all drafts costs those layers their weights once either way, since the last draft has not been through them yet.
"""

from __future__ import annotations

from gemmule.sw.decoding.candidates.chains import SelfDraft
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

__all__ = ["METHOD"]


def _make(request: Request) -> SelfDraft:
    layers = request.target.program.graph.layers
    wanted = request.options["exit_layer"]
    exit_layer = max(1, layers // 4) if wanted is None else wanted
    if not 1 <= exit_layer < layers:
        raise InputError(f"--exit-layer must be from 1 to {layers - 1} for a target of {layers} layers, not "
                         f"{exit_layer}")
    return SelfDraft(request.target, request.cache, request.lengths, request.rule, request.host,
                     layers=[(0, exit_layer)])


METHOD = Method(
    name="layerskip",
    cuts="fewer layers: the first ones draft",
    source="Elhoushi et al. 2024 (arXiv 2404.16710)",
    says="self-drafting, where the target's first layers draft and all layers verify", make=_make,
    needs_general=True, confident=True, verify="rejection", labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=3, help="Tokens drafted per step."),
    options=(Option(name="--exit-layer", limits=Range(1, 1 << 10, "layers"), help="Number of layers that draft.",
                    otherwise="a quarter of the target's"),))
