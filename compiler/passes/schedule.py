"""Schedule: parameters together, equal layers as one body, and loads of what is fixed as early as it pays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import TypeGuard

from gemmule.compiler.kernels.attention.batch import batch_words, contexts
from gemmule.compiler.kernels.attention.shared import OLD
from gemmule.compiler.kernels.head.launch_words import first_move, launch_commands, launch_words
from gemmule.compiler.kernels.virtual import Item, LengthReg, Loop, SetDisplacement, VirtualCommand
from gemmule.compiler.passes.hoist import hoist
from gemmule.compiler.passes.join import join
from gemmule.compiler.passes.lower import Lowered
from gemmule.compiler.passes.roll import LayerStrides, roll, roll_ranges
from gemmule.config import Config
from gemmule.isa import CONTROL, MAX_LENGTH, Command, COp, Length, MoveFlag, Unit

__all__ = ["schedule", "schedule_general", "schedule_greedy", "schedule_layers", "schedule_phase"]


def schedule(lowered: Lowered, config: Config) -> list[Item]:
    """All items in the order in which they are dispatched."""
    batch = lowered.builder.batch
    joined = [join(layer, config) for layer in lowered.layers]
    behind = join(lowered.behind, config)
    if lowered.rolled:
        layers = roll([hoist(layer, config) for layer in joined], config, batch_words(batch), lowered.copies)
    else:
        layers = [item for layer in joined for item in layer]
    return [*contexts(config, [0] * batch), *hoist([*lowered.before, *layers, *behind], config)]


def schedule_greedy(lowered: Lowered, config: Config) -> Iterator[list[Item]]:
    """The same of a greedy loop, in several orders: its turns are a body, behind what they have in common.

    A turn's gather waits for the last turn's token, and its cached rows for the last turn's last product: orders differ
    in how many of the other loads, up to the first command of another unit, stand before each of these, and in whether
    registers move on behind the layers or at the end.
    """
    joined = [join(layer, config) for layer in lowered.layers]
    layers = [item for layer in joined for item in layer]
    begin: list[Item] = []
    if lowered.rolled:
        layers = roll([hoist(layer, config) for layer in joined], config)
        begin = [item for item in layers
                 if isinstance(item, Command) and item.unit == CONTROL and item.op == COp.PARAMS]
        layers = layers[len(begin):]
    behind = join(lowered.behind, config)
    moves = [item for item in behind if isinstance(item, SetDisplacement | Command)]
    for last in (behind, [*(item for item in behind if item not in moves), *moves]):
        for turn in _turns(hoist([*lowered.before, *layers, *last], config)):
            yield [*begin, *lowered.once, Loop(
                body=tuple(turn), times=Length(MAX_LENGTH, LengthReg.STEPS), note="tokens", local=True)]


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


def schedule_phase(items: Sequence[Item], config: Config) -> list[Item]:
    """A phase of an encoder, in the order in which it is dispatched; so its bodies."""
    return hoist(join([_body(item, config) for item in items], config), config)


def schedule_layers(layers: Sequence[Sequence[Sequence[Item]]], config: Config) -> tuple[list[Item], bool]:
    """An encoder's layers, of phases that are scheduled, and whether they are one body."""
    straight = [[item for phase in layer for item in phase] for layer in layers]
    found = roll(straight, config)
    return found, len(layers) == 1 or len(found) < len(layers) * len(straight[0])


def _turns(body: Sequence[Item]) -> Iterator[list[Item]]:
    """The body with what waits for the last turn behind more or fewer of its first loads."""
    end = next(i for i, item in enumerate(body) if not _is_load(item))
    late = [i for i in range(end) if _is_late(body[i])]
    others = [i for i in range(end) if i not in late]
    for places in combinations_with_replacement(range(len(others) + 1), len(late)):
        begun, last = list[int](), 0
        for place, load in zip(places, late, strict=True):
            begun += [*others[last:place], load]
            last = place
        yield [*(body[i] for i in [*begun, *others[last:]]), *body[end:]]


def _is_load(item: Item) -> TypeGuard[VirtualCommand]:
    return isinstance(item, VirtualCommand) and item.unit is Unit.LOAD


def _is_late(item: Item) -> bool:
    return isinstance(item, VirtualCommand) and (MoveFlag.INDEXED in item.flags or item.region == OLD)


def _body(item: Item, config: Config) -> Item:
    """An item whose body, if it has one of its own, is joined and hoisted in itself."""
    if not isinstance(item, Loop) or not item.local:
        return item
    return replace(item, body=tuple(hoist(join(item.body, config), config)))
