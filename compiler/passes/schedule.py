"""Schedule: parameters together, equal layers as one body, and loads of what is fixed as early as it pays."""

from __future__ import annotations

from gemmule.compiler.kernels.batch import batch_words, contexts
from gemmule.compiler.kernels.virtual import Item
from gemmule.compiler.passes.hoist import hoist
from gemmule.compiler.passes.join import join
from gemmule.compiler.passes.lower import Lowered
from gemmule.compiler.passes.roll import roll
from gemmule.config import Config

__all__ = ["schedule"]


def schedule(lowered: Lowered, config: Config) -> list[Item]:
    """All items in the order in which they are dispatched."""
    batch = lowered.builder.batch
    joined = [join(layer) for layer in lowered.layers]
    behind = join(lowered.behind)
    if lowered.rolled:
        layers = roll([hoist(layer, config) for layer in joined], config, batch_words(batch))
    else:
        layers = [item for layer in joined for item in layer]
    return [*contexts(config, [0] * batch), *hoist([*lowered.before, *layers, *behind], config)]
