"""What a user compares in a network: ways of attention, exponentials of softmax, forms of activation functions."""

from __future__ import annotations

from gemmule.compiler.errors import CompileError
from gemmule.compiler.ir import Network, form_of, softmax_of
from gemmule.compiler.quantize.activation import activation_form, with_activation
from gemmule.sw.errors import InputError

__all__ = ["ONLINE_BLOCK", "activation_name", "attention_of", "choose", "softmax_name"]

ONLINE_BLOCK = 128
"""Keys of a block of online attention. It changes numbers, so it is one for all devices."""


def choose(network: Network, attention: str | None, softmax: str | None, activation: str | None = None) -> Network:
    """The network with another attention (``exact``, ``standard`` and ``online``), softmax or activation.

    None: as it is.

    Raises:
        InputError: the network has no such activation.
    """
    if activation is not None:
        try:
            network = with_activation(network, form_of(activation))
        except CompileError as error:
            raise InputError(f"--{error}") from None
    now = network.graph.attentions[0]
    block = now.block if attention is None else ONLINE_BLOCK if attention == "online" else None
    chosen = now.softmax if softmax is None else softmax_of(softmax)
    return network if (block, chosen) == (now.block, now.softmax) else network.with_softmax(chosen, block)


def attention_of(network: Network, standard: bool) -> str:
    """Its way, for reports; all layers have the same."""
    return "standard" if standard else "online" if network.graph.attentions[0].block else "exact"


def softmax_name(network: Network) -> str:
    """Its exponential, for reports."""
    return str(network.graph.attentions[0].softmax or "exact")


def activation_name(network: Network) -> str:
    """The form of its activation functions, for reports."""
    return str(activation_form(network.graph) or "table")
