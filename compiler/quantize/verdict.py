"""Whether a quantised network can be used at all, by what a comparison with the float one found."""

from __future__ import annotations

import math

from gemmule.compiler.quantize.accuracy import Comparison

__all__ = ["MOST_DIVERGENCE", "MOST_ERROR", "MOST_RATIO", "verdict"]

MOST_RATIO = 1.25
"""Of perplexity in integers to that in float, of any kind of text."""
MOST_DIVERGENCE = 0.5
"""Mean divergence from the float predictions, in nats, of any kind of text."""
MOST_ERROR = 0.5
"""Relative error of an encoder's output; of the median row behind a layer from which that layer is blamed."""


def verdict(found: Comparison) -> str | None:
    """Why the network is not usable, and since where; None: it is.

    Layers tell where it begins.
    """
    why = None
    for kind, text in found.kinds.items():
        if not math.isfinite(text.perplexity_int) or text.ratio > MOST_RATIO:
            why = (f"perplexity of {kind} is {text.perplexity_int:,.4g} in integers and "
                   f"{text.perplexity_float:,.4g} in float, more than {MOST_RATIO} times")
        elif text.kl_mean > MOST_DIVERGENCE:
            why = (f"its predictions of {kind} are {text.kl_mean:.2f} nats from the float ones, more than "
                   f"{MOST_DIVERGENCE}")
        if why:
            break
    errors = found.errors
    if not found.kinds and not errors.output <= MOST_ERROR:
        why = f"its output is {errors.output:.0%} off, more than {MOST_ERROR:.0%}"
    if why is None or not any(errors.nodes.values()):  # measured without errors of operations
        return why
    lost = next((layer for layer, error in enumerate(errors.drift) if not error <= MOST_ERROR), None)
    if lost is None:
        return f"{why}, because of what is behind the layers: the worst operation is {_worst(errors.nodes)}"
    return (f"{why}, because half of its rows are {errors.drift[lost]:.0%} off or more behind layer {lost}: the worst "
            f"operation is {_worst(errors.nodes)}")


def _worst(nodes: dict[str, float]) -> str:
    name = max(nodes, key=lambda at: nodes[at])
    return f"{name}, {nodes[name]:.0%} off"
