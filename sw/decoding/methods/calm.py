"""A token leaves behind an early layer that is sure of the next one (CALM).

Schuster et al. 2022, sections 3.3 to 3.5. At each exit a measure tells how sure the layer is: the gap between the two
largest probabilities (``softmax``), how little the residual stream turned since the exit before (``hidden``), or a
trained linear head (``classifier``). Where it reaches a threshold, which may fall from token to token, the last norm
and the head read the stream there, and the token's row runs no further layers. What these layers get of it in the cache
is ``--state-propagation``: keys and values of the row with which it left (``hidden``, the paper's), or the exact ones,
which it brings later beside a token that goes deeper (``kv``). A prompt runs all layers. Lossy: the text is not that of
`ar`. It is checked against a plain reading of the same policy (:mod:`gemmule.sw.decoding.exits.reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.methods.skipdecode import SPAN
from gemmule.sw.errors import InputError
from gemmule.sw.limits import Decimals, Range

if TYPE_CHECKING:
    from gemmule.sw.decoding.exits.confidence import Confidence
    from gemmule.sw.decoding.exits.leaving import Leaving
    from gemmule.sw.decoding.exits.reference import Plain
    from gemmule.sw.models.drafting.exit_heads import ExitHeads

__all__ = ["METHOD"]

SOFTMAX, HIDDEN, CLASSIFIER = MEASURES = ("softmax", "hidden", "classifier")
PROPAGATIONS = ("hidden", "kv")
THRESHOLDS = {SOFTMAX: 0.8, HIDDEN: 0.977, CLASSIFIER: 0.92}


def _exits(layers: int, options: Mapping[str, Any]) -> list[int]:
    """Depths at which a token may leave, then the number of layers.

    Raises:
        InputError: the first is none.
    """
    first = options["first_exit"] or max(1, layers // 4)
    if not 1 <= first < layers:
        raise InputError(f"--first-exit must be from 1 to {layers - 1} for a target of {layers} layers, not {first}")
    return [*range(first, layers, options["exit_interval"] or max(1, layers // 4)), layers]


def _threshold(options: Mapping[str, Any]) -> Callable[[int], float]:
    """By the number of the new token."""
    from gemmule.sw.decoding.exits.confidence import decayed

    given = options["exit_threshold"]
    threshold = THRESHOLDS[options["exit_measure"]] if given is None else given
    return lambda token: decayed(threshold, token, options["exit_decay"], options["exit_span"])


def _confidence(options: Mapping[str, Any], heads: ExitHeads | None) -> Confidence:
    """The measure.

    Raises:
        InputError: there are no trained heads for it.
    """
    from gemmule.sw.decoding.exits.confidence import Classified, Saturation, SoftmaxGap

    measure = options["exit_measure"]
    if measure != CLASSIFIER:
        return SoftmaxGap() if measure == SOFTMAX else Saturation()
    if heads is None:
        raise InputError("--exit-measure classifier needs heads that were trained for the target, which the default "
                         "pair has: take --model default, or another measure")
    return Classified(heads)


def _make(request: Request) -> Leaving:
    from gemmule.sw.decoding.exits.leaving import Leaving

    options = request.options
    return Leaving(_exits(request.target.program.graph.layers, options), _confidence(options, request.exit_heads),
                   _threshold(options), exact=options["state_propagation"] == "kv")


def _policy(plain: Plain) -> list[int]:
    from gemmule.sw.decoding.exits.reference import leaving

    options = plain.options
    return leaving(plain, _exits(plain.network.graph.layers, options), options["exit_measure"], _threshold(options),
                   exact=options["state_propagation"] == "kv")


METHOD = Method(
    name="calm",
    cuts="layers, for good: those behind a sure exit; the text is another one",
    source="Schuster et al. 2022 (arXiv 2207.07061)",
    says="a token leaves behind a layer that is sure of the next one; lossy", make=_make,
    needs_general=True, lossless=False, policy=_policy,
    options=(
        Option(name="--exit-measure", limits=MEASURES, default=SOFTMAX, help="What tells how sure an exit is."),
        Option(name="--exit-threshold", limits=Decimals(0, 1), help="How sure it must be.",
               otherwise="0.8 of softmax, 0.977 of hidden, 0.92 of classifier"),
        Option(name="--exit-decay", limits=Decimals(0, 1000), default=0.0,
               help="How fast the threshold falls from token to token (tau of the paper, 4 there); 0: not at all."),
        SPAN,
        Option(name="--first-exit", limits=Range(1, 1 << 10, "layers"), otherwise="a quarter of the target's",
               help="Layers before the first exit."),
        Option(name="--exit-interval", limits=Range(1, 1 << 10, "layers"), otherwise="a quarter of the target's",
               help="Layers from one exit to the next."),
        Option(name="--state-propagation", limits=PROPAGATIONS, default="hidden",
               help="What later layers cache of a token that left: keys and values of the row with which it left, or "
                    "the exact ones.")))
