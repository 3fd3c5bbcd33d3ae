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
from gemmule.compiler.passes.entry import Lowered, Scheduled
from gemmule.compiler.passes.hoist import hoist
from gemmule.compiler.passes.join import join
from gemmule.compiler.passes.roll import LayerStrides, in_line, roll, roll_ranges
from gemmule.config import Config
from gemmule.isa import CONTROL, MAX_LENGTH, PARAMS_WORDS, Command, COp, Length, MoveFlag, Unit

__all__ = ["schedule", "schedule_encoder", "schedule_general", "schedule_greedy", "schedule_phase"]


def schedule(lowered: Lowered, config: Config) -> Scheduled:
    """A decoder's pass in the order in which it is dispatched."""
    batch, (before,), (answers,) = lowered.batch, lowered.before, lowered.behind
    joined = [join(layer, config) for (layer,) in lowered.layers]
    behind = join(answers, config)
    if lowered.rolled:
        layers = roll([hoist(layer, config) for layer in joined], config,
                      batch_words(batch) + len(lowered.launch) * PARAMS_WORDS, lowered.copies, lowered.lent,
                      lowered.every)
    else:
        layers = in_line(joined, lowered.lent, lowered.every)
    items = [*contexts(config, [0] * batch), *lowered.launch, *hoist([*before, *layers, *behind], config)]
    head = next((item for item in behind if isinstance(item, VirtualCommand) and item.unit is not Unit.LOAD), None)
    return Scheduled(items, [items], silent=next((i for i, item in enumerate(items) if item is head), None))


def schedule_greedy(lowered: Lowered, config: Config) -> Iterator[list[Item]]:
    """The same of a greedy loop, in several orders: its turns are a body, behind what they have in common.

    A turn's gather waits for the last turn's token, and its cached rows for the last turn's last product: orders differ
    in how many of the other loads, up to the first command of another unit, stand before each of these, and in whether
    registers move on behind the layers or at the end.
    """
    (before,), (answers,) = lowered.before, lowered.behind
    joined = [join(layer, config) for (layer,) in lowered.layers]
    layers = [item for layer in joined for item in layer]
    begin: list[Item] = []
    if lowered.rolled:
        layers = roll([hoist(layer, config) for layer in joined], config)
        begin = [item for item in layers
                 if isinstance(item, Command) and item.unit == CONTROL and item.op == COp.PARAMS]
        layers = layers[len(begin):]
    behind = join(answers, config)
    moves = [item for item in behind if isinstance(item, SetDisplacement | Command)]
    for last in (behind, [*(item for item in behind if item not in moves), *moves]):
        for turn in _turns(hoist([*before, *layers, *last], config)):
            yield [*begin, *lowered.once, Loop(
                body=tuple(turn), times=Length(MAX_LENGTH, LengthReg.STEPS), note="tokens", local=True)]


def schedule_general(lowered: Lowered, config: Config) -> tuple[Scheduled, LayerStrides]:
    """The same of the general program, whose head is a body, and what a launch of some layers begins with.

    Its layers are one body however the plain program's are.
    """
    batch, (before,), (answers,) = lowered.batch, lowered.before, lowered.behind
    joined = [join(layer, config) for (layer,) in lowered.layers]
    layers, ranges = roll_ranges([hoist(layer, config) for layer in joined], config,
                                 batch_words(batch) + launch_words(batch), first_move(config, batch))
    behind = [_body(item, config) for item in answers]
    items = [*contexts(config, [0] * batch), *launch_commands(config, batch, [], []),
             *hoist([*before, *layers, *behind], config)]
    return Scheduled(items, [items]), ranges


def schedule_phase(items: Sequence[Item], config: Config) -> list[Item]:
    """A phase of an encoder, in the order in which it is dispatched; so its bodies."""
    return hoist(join([_body(item, config) for item in items], config), config)


def schedule_encoder(lowered: Lowered, config: Config) -> Scheduled:
    """An encoder's phases, each in an order of its own, its layers as one body where they are equal."""
    before, *layers, behind = ([schedule_phase(part, config) for part in group]
                               for group in (lowered.before, *lowered.layers, lowered.behind))
    straight = [[item for phase in layer for item in phase] for layer in layers]
    body = roll(straight, config, len(lowered.launch) * PARAMS_WORDS)
    rolled = len(layers) == 1 or len(body) < sum(map(len, straight))
    once = layers[:1] if rolled else layers
    items = [*lowered.launch, *(item for phase in before for item in phase), *body,
             *(item for phase in behind for item in phase)]
    return Scheduled(items, [*before, *(phase for layer in once for phase in layer), *behind],
                     again=len(layers[0]) if rolled else 0)


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
