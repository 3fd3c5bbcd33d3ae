"""Schedule: equal layers as one body, and loads of what is fixed up to where their buffer is free."""

from __future__ import annotations

from collections.abc import Sequence

from gemmule.compiler.kernels.batch import batch_words, contexts
from gemmule.compiler.kernels.virtual import Buffer, Item, Loop, SetDisplacement, Step, leaves
from gemmule.compiler.passes.lower import Lowered
from gemmule.compiler.passes.roll import roll
from gemmule.config import Config
from gemmule.isa import Unit

__all__ = ["hoist", "schedule"]


def schedule(lowered: Lowered, config: Config) -> list[Item]:
    """All items in the order in which they are dispatched."""
    batch = lowered.builder.batch
    layers = roll([hoist(layer) for layer in lowered.layers], config, batch_words(batch))
    return [*contexts(config, [0] * batch),
            *hoist([*lowered.before, *layers, *lowered.behind])]


def hoist(items: Sequence[Item]) -> list[Item]:
    """The items with every load of a constant right behind the last item that touches its buffer.

    Loads keep their order among themselves, so none waits for one behind it; loops move as one item, and nothing moves
    into them.
    """
    touched: dict[Buffer, int] = {}
    displaced: dict[str, int] = {}
    keys: list[tuple[int, int, int]] = []
    latest = -1
    for i, item in enumerate(items):
        if isinstance(item, Step) and _moves(item):
            latest = max(latest, displaced.get(item.region or "", -1),
                         *(touched.get(buffer, -1) for buffer in item.buffers))
            keys.append((latest, 1, i))
        else:
            keys.append((i, 0, i))
            if isinstance(item, Step) and item.unit is Unit.LOAD:
                latest = max(latest, i)
        for buffer in item.buffers if isinstance(item, Step | Loop) else ():
            touched[buffer] = i
        for part in leaves([item]):
            if isinstance(part, SetDisplacement):
                displaced[part.region] = i
    loops = [i for i, item in enumerate(items) if isinstance(item, Loop)]
    return [items[key[2]] for key in sorted(_spread(keys, loops))]


def _spread(keys: list[tuple[int, int, int]], loops: Sequence[int]) -> list[tuple[int, int, int]]:
    """Loads that could go before all loops and are needed behind them: some behind each loop.

    Before them they would only stand in the way of the loops' own loads, and the bus would idle later.
    """
    if not loops:
        return keys
    early = [key for key in keys if key[1] and key[0] < loops[0] and key[2] > loops[-1]]
    places = {key[2]: loops[j * len(loops) // len(early)] for j, key in enumerate(early)}
    return [(places.get(key[2], key[0]), key[1], key[2]) for key in keys]


def _moves(step: Step) -> bool:
    """Whether a load reads what no launch changes."""
    return step.unit is Unit.LOAD and step.region in ("weights", "static")
