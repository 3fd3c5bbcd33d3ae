"""Self-drafting without training: the target drafts with some of its layers left out (Draft & Verify).

Zhang et al. 2023. The layers that stay run one behind the other, each range of neighbours in a launch, in the target's
own KV cache; the pass that verifies runs all of them and overwrites what drafting left. ``--skip-layers`` says which
layers are left out. By default they are found once for a model and a device, and kept in the cache: starting from all
layers, the one goes whose absence changes the fewest of the target's tokens on calibration text, then the next one. Of
all these sets the one is taken with the most expected tokens per cycle. The search takes at most 64 passes over the
texts (of more than 32 layers twice as many as those); with many layers it tries all of them once, and then only those
whose absence alone changed the least. (The paper searches by Bayesian optimisation.)

A network that was not trained to be left early loses much of its agreement with each layer: the report says whether it
pays. ``layerskip`` drafts with the first layers alone.
"""

from __future__ import annotations

from gemmule.sw.decoding.candidates.chains import SelfDraft
from gemmule.sw.decoding.methods.method import DRAFT, Method, Option, Request
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Listed

__all__ = ["METHOD"]

LAYERS = Listed(1023, "layers")


def _make(request: Request) -> SelfDraft:
    from gemmule.sw.models.drafting.skipping import ranges_without

    layers, wanted = request.target.program.graph.layers, request.options["skip_layers"]
    if not request.kept:
        raise InputError("--kv-cache none keeps no rows to draft behind: drop it, or take another --method")
    if wanted is None and request.skipping is None:
        raise InputError("--method self needs to be told which layers to skip: give --skip-layers")
    skipped = LAYERS.numbers("--skip-layers", wanted) if wanted is not None else (request.skipping or tuple)()
    if not 1 <= len(skipped) < layers or skipped[-1] >= layers:
        raise InputError(f"--skip-layers must name 1 to {layers - 1} of the layers 0 to {layers - 1}, not "
                         f"{','.join(map(str, skipped))}")
    return SelfDraft(request.target, request.cache, request.lengths, request.rule, request.host,
                     layers=ranges_without(skipped, layers))


METHOD = Method(
    name="self",
    cuts="fewer layers: some are left out",
    source="Zhang et al. 2023, Draft & Verify (arXiv 2309.08168)",
    says="self-drafting, where the target drafts with some of its layers left out", make=_make,
    needs_general=True, confident=True, verify="rejection", labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=1, help="Tokens drafted per step."),
    options=(Option(name="--skip-layers", limits=LAYERS, help="Layers that do not draft, counted from 0.",
                    otherwise="those that calibration finds"),))
