"""Fewer layers the further a text goes: a token's place alone says which layers it runs (SkipDecode).

Del Corro et al. 2023, section 3. The first layers always run, then so many of the last ones that the number of layers
falls in a line from ``--most-layers`` to ``--least-layers`` over ``--exit-span`` new tokens; the layers between are
left out. Later tokens run no layer that an earlier one has left out, so all keys and values that they read are there,
and nothing is computed anew. A prompt runs all layers. Lossy: the text is not that of `ar`. It is checked against a
plain reading of the same policy, without caches (:mod:`gemmule.sw.decoding.exits.reference`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.errors import InputError
from gemmule.sw.limits import Range

if TYPE_CHECKING:
    from gemmule.sw.decoding.exits.reference import Plain
    from gemmule.sw.decoding.exits.skipping import Skipping

__all__ = ["METHOD", "SPAN", "layers_of"]

SPAN = Option(name="--exit-span", limits=Range(1, 1 << 20, "tokens"), default=64,
              help="New tokens over which layers, or thresholds of exits, fall.")


def layers_of(token: int, layers: int, options: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Ranges of layers that new token ``token`` runs (first and number of each), of a target with ``layers`` layers.

    Raises:
        InputError: there are not so many layers, or they do not fall.
    """
    most, least = options["most_layers"] or layers, options["least_layers"] or max(1, layers // 2)
    warm, span = options["warm_up_layers"], options["exit_span"]
    if not least <= most <= layers:
        raise InputError(f"--most-layers must be from --least-layers ({least}) to {layers} for this target, not {most}")
    if warm >= least:
        raise InputError(f"--warm-up-layers must be below --least-layers ({least}), since last layers run too, not "
                         f"{warm}")
    count = most - (most - least) * min(token, span) // span
    return [(0, layers)] if count == layers else [(0, warm), (layers - count + warm, count - warm)]


def _make(request: Request) -> Skipping:
    from gemmule.sw.decoding.exits.skipping import Skipping

    layers, options = request.target.program.graph.layers, request.options
    layers_of(0, layers, options)
    return Skipping(lambda token: layers_of(token, layers, options))


def _policy(plain: Plain) -> list[int]:
    from gemmule.sw.decoding.exits.reference import skipping

    return skipping(plain, lambda token: layers_of(token, plain.network.graph.layers, plain.options))


METHOD = Method(
    name="skipdecode",
    cuts="layers, for good: fewer from token to token; the text is another one",
    source="Del Corro et al. 2023 (arXiv 2307.02628)",
    says="fewer layers from token to token, the first and the last ones; lossy", make=_make,
    needs_general=True, lossless=False, policy=_policy,
    options=(
        Option(name="--most-layers", limits=Range(2, 1 << 10, "layers"), otherwise="all",
               help="Layers that the first new token runs."),
        Option(name="--least-layers", limits=Range(2, 1 << 10, "layers"), otherwise="half of the target's",
               help="Layers that tokens run behind the span."),
        Option(name="--warm-up-layers", limits=Range(1, 1 << 10, "layers"), default=1,
               help="First layers that every token runs."),
        SPAN))
