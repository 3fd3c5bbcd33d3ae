"""What a user compares in a network's attention: which way it goes, and which exponential its softmax takes."""

from __future__ import annotations

from gemmule.compiler.ir import Network, softmax_of
from gemmule.sw.errors import InputError

__all__ = ["ONLINE_BLOCK", "attention_of", "choose", "softmax_name"]

ONLINE_BLOCK = 128
"""Keys of a block of online attention. It changes numbers, so it is one for all devices."""


def choose(network: Network, attention: str | None, softmax: str | None) -> Network:
    """The network with another attention (``exact``, ``standard`` and ``online``) or softmax; None: as it is.

    Raises:
        InputError: a decoder's attention shall be another than exact.
    """
    graph = network.graph
    if attention not in (None, "exact") and not graph.encoder:
        raise InputError(f"--attention must be exact for a decoder, not {attention}: only encoders have another way")
    now = graph.attentions[0]
    block = now.block if attention is None else ONLINE_BLOCK if attention == "online" else None
    chosen = now.softmax if softmax is None else softmax_of(softmax)
    return network if (block, chosen) == (now.block, now.softmax) else network.with_softmax(chosen, block)


def attention_of(network: Network, standard: bool) -> str:
    """Its way, for reports; all layers have the same."""
    return "standard" if standard else "online" if network.graph.attentions[0].block else "exact"


def softmax_name(network: Network) -> str:
    """Its exponential, for reports."""
    return str(network.graph.attentions[0].softmax or "exact")
