"""The target's int4 copy drafts, in the target's own KV cache (as QuantSpec's drafts with narrow weights; gpt-fast's).

The copy is made of the target's int8 weights by rounding alone: scales of activations, keys and values stay, so both
read and write the same cache. A draft's keys and values come from the copy, and the pass that verifies overwrites them.
So the copy never reads a prompt, and drafts behind exactly what the target has computed. Its passes load about half of
the bytes of the target's; the logits layer stays int8.
"""

from __future__ import annotations

from gemmule.sw.decoding.candidates.chains import SelfDraft
from gemmule.sw.decoding.methods.method import DRAFT, VOCABULARY, Method, Option, Request
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS

__all__ = ["METHOD"]


def _make(request: Request) -> SelfDraft:
    if request.int4 is None:
        raise InputError("--method int4-self needs the target's int4 copy beside it: take another --method")
    if not request.kept:
        raise InputError("--kv-cache none keeps no rows for the int4 copy to draft behind: drop it, or take another "
                         "--method")
    request.check_vocabulary()
    return SelfDraft(request.int4, request.cache, request.lengths, request.rule, request.host)


METHOD = Method(
    name="int4-self",
    cuts="less width: half of the bits of each weight",
    source="gpt-fast; QuantSpec (Tiwari et al. 2025, arXiv 2502.10424)",
    says="self-drafting by an int4 copy of the target, in the target's cache", make=_make,
    needs_int4=True, confident=True, verify="rejection", labels=(DRAFT,),
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=2, help="Tokens drafted per step."),
    options=(VOCABULARY,))
