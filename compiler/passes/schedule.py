"""Schedule: parameters together, equal layers as one body, and loads of what is fixed as early as it pays."""

from __future__ import annotations

from dataclasses import replace

from gemmule.compiler.kernels.batch import batch_words, contexts
from gemmule.compiler.kernels.launch_words import first_move, launch_commands, launch_words
from gemmule.compiler.kernels.virtual import Item, Loop
from gemmule.compiler.passes.hoist import hoist
from gemmule.compiler.passes.join import join
from gemmule.compiler.passes.lower import Lowered
from gemmule.compiler.passes.roll import LayerStrides, roll, roll_ranges
from gemmule.config import Config

__all__ = ["schedule", "schedule_general"]


def schedule(lowered: Lowered, config: Config) -> list[Item]:
    """All items in the order in which they are dispatched."""
    batch = lowered.builder.batch
    joined = [join(layer, config) for layer in lowered.layers]
    behind = join(lowered.behind, config)
    if lowered.rolled:
        layers = roll([hoist(layer, config) for layer in joined], config, batch_words(batch))
    else:
        layers = [item for layer in joined for item in layer]
    return [*contexts(config, [0] * batch), *hoist([*lowered.before, *layers, *behind], config)]


def schedule_general(lowered: Lowered, config: Config) -> tuple[list[Item], LayerStrides]:
    """The same of the general program, whose head is a body, and what a launch of some layers begins with.

    Its layers are one body however the plain program's are.
    """
    batch = lowered.builder.batch
    joined = [join(layer, config) for layer in lowered.layers]
    layers, ranges = roll_ranges([hoist(layer, config) for layer in joined], config,
                                 batch_words(batch) + launch_words(batch), first_move(config, batch))
    behind = [_body(item, config) for item in lowered.behind]
    return [*contexts(config, [0] * batch), *launch_commands(config, batch, [], []),
            *hoist([*lowered.before, *layers, *behind], config)], ranges


def _body(item: Item, config: Config) -> Item:
    """An item whose body, if it has one of its own, is joined and hoisted in itself."""
    if not isinstance(item, Loop) or not item.local:
        return item
    return replace(item, body=tuple(hoist(join(item.body, config), config)))
