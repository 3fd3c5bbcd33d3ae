"""Roll: equal layers become one body; what differs between them comes from displacements and from registers.

Layers are equal when their commands differ only in DRAM offsets, which move by the same bytes from layer to layer in
each region, and in the scalings of vector commands. The body is the first layer's. Behind each turn displacements move
on; scalings stand in the parameter memory, layer by layer, and come to length registers before they are used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.virtual import At, Buffer, Item, LengthReg, Loop, SetDisplacement, VirtualCommand, leaves
from gemmule.config import Config
from gemmule.control import params, set_length
from gemmule.isa import MAX_LENGTH, PARAMS_WORDS, Command, COp, Length, Source, Target, Unit

__all__ = ["LAYER_REGION", "LayerStrides", "in_line", "roll", "roll_ranges"]

SCALING = ("mult", "shift", "shift2")
"""Fields that a register pair takes the place of."""
LAYER_REGION = " of the layer"
"""Behind a region's name: a base register that only holds the displacement of a layer's part of it."""
Halves = tuple[tuple[int, int], ...]
"""Scalings of a command by layer: what the two registers hold."""


@dataclass(frozen=True, kw_only=True)
class LayerStrides:
    """What a launch of some of the layers begins with."""

    layers: int
    strides: Mapping[str, int]
    """Bytes from a layer's part of a region to the next layer's, in the order of the words that displace them."""
    scalings: int
    """Halves of the parameter memory that a layer's scalings take."""


class _UnequalError(Exception):
    """Layers that cannot be one body."""


def roll(layers: Sequence[Sequence[Item]], config: Config, reserved: int = 0, copies: int = 0,
         lent: Sequence[Sequence[Item]] = (), every: int = 0) -> list[Item]:
    """Items that do what the layers do one after another: a body if they are equal, else as they stand.

    ``reserved``: words at the end of the parameter memory that others have. ``copies``: further layers that go on like
    the last one. ``lent``: items behind each ``every`` layers, which differ in DRAM offsets alone: turns of a body
    around that of the layers.

    Raises:
        CompileError: with ``copies``, the layers are not equal.
    """
    if len(layers) > 1:
        try:
            return _Roller(layers, config.parameter_words - reserved, copies).run(lent=lent, every=every)
        except _UnequalError:
            if copies:
                raise CompileError("layers of a network by shape must be equal, and these are not") from None
    return in_line(layers, lent, every)


def in_line(layers: Sequence[Sequence[Item]], lent: Sequence[Sequence[Item]], every: int) -> list[Item]:
    """Layers one behind the other, with what stands behind each ``every`` of them."""
    found: list[Item] = []
    for number, layer in enumerate(layers, 1):
        found += layer
        if lent and number % every == 0:
            found += lent[number // every - 1]
    return found


def roll_ranges(layers: Sequence[Sequence[Item]], config: Config, reserved: int,
                word: int) -> tuple[list[Item], LayerStrides]:
    """Items that do what some of the layers do: registers say which is the first and how many there are.

    ``word``: first of the words of the parameter memory that displace regions at the first layer.

    Raises:
        CompileError: the layers are not equal.
    """
    try:
        roller = _Roller(layers, config.parameter_words - reserved)
        return roller.run(word), roller.ranges
    except _UnequalError:
        raise CompileError("ranges of layers need equal layers, whose scalings fit the parameter memory "
                           f"({config.parameter_words} words): compile without general=True, or raise "
                           "parameter_words") from None


def _walk(items: Sequence[Item]) -> Iterator[Item]:
    """Every item, loops before their bodies."""
    for item in items:
        yield item
        if isinstance(item, Loop):
            yield from _walk(item.body)


def _further(lent: Sequence[Sequence[Item]]) -> dict[str, int]:
    """Bytes from the rows that are lent at a depth to those at the next, by region."""
    first, second = ([(str(item.region), int(item.fields["offset"])) for item in items  # type: ignore[arg-type]
                      if isinstance(item, VirtualCommand)] for items in lent[:2])
    return {region: later - at for (region, at), (_, later) in zip(first, second, strict=True)}


@dataclass
class _Numbers:
    """Buffers of a layer by the order in which they come."""

    found: dict[Buffer, int] = field(default_factory=dict)

    def of(self, at: At) -> tuple[int, int, int]:
        return self.found.setdefault(at.buffer, len(self.found)), at.buffer.rows, at.row


class _Roller:
    def __init__(self, layers: Sequence[Sequence[Item]], words: int, copies: int = 0) -> None:
        """``words`` of the parameter memory may be taken."""
        self.layers, self.words, self.count = layers, words, len(layers) + copies
        walked = [list(_walk(layer)) for layer in layers]
        if len({len(items) for items in walked}) != 1:
            raise _UnequalError
        self.strides: dict[str, int] = {}
        self.scalings: dict[int, tuple[Halves, ...]] = {}
        """Of the steps (by identity) whose scalings differ; of a rescaled residual its multiplier in a pair behind."""
        numbers = [_Numbers() for _ in layers]
        for same in zip(*walked, strict=True):
            self._compare(same, numbers)
        self.reset = {item.region for item in walked[0] if isinstance(item, SetDisplacement)}
        """Regions whose displacement the body sets itself."""
        own = {item.fields["target_reg"] for item in walked[0] if isinstance(item, Command) and item.op == COp.SET
               and item.fields["target"] == Target.LENGTH}
        self.pairs = tuple(pair for pair in LengthReg.SCALINGS if not own & {pair, pair + 1})
        """First registers of pairs for scalings: those that the body does not set itself."""
        self.places: dict[Halves, int] = {}
        self.slots: OrderedDict[Halves, int] = OrderedDict()

    def _compare(self, same: Sequence[Item], numbers: Sequence[_Numbers]) -> None:
        first = same[0]
        if not isinstance(first, VirtualCommand):
            plain = [replace(item, body=(), note="") if isinstance(item, Loop) else item for item in same]
            if any(item != plain[0] for item in plain):
                raise _UnequalError
            return
        steps = [item for item in same if isinstance(item, VirtualCommand)]
        scaled = [tuple(step.fields.get(name, 0) for name in SCALING) for step in steps]
        differ = first.unit is Unit.VECTOR and len(set(scaled)) > 1
        left_out = {"offset"} | (set(SCALING) if differ else set())
        kept = [(step.unit, step.op, step.flags, step.dyn, step.region, step.predicate, {
            name: number.of(value) if isinstance(value, At) else value
            for name, value in step.fields.items() if name not in left_out})
            for step, number in zip(steps, numbers, strict=False)]
        if len(steps) != len(same) or any(part != kept[0] for part in kept):
            raise _UnequalError
        if differ:
            pairs = tuple(
                (int(mult), int(shift) | int(shift2) << 6) for mult, shift, shift2 in scaled)  # type: ignore[arg-type]
            behind = first.residual_mult
            self.scalings[id(first)] = (pairs,) if behind is None else (pairs, ((behind, 0),) * len(pairs))
        if first.region is not None:
            offsets = [int(step.fields.get("offset", 0)) for step in steps]  # type: ignore[arg-type]
            moved = {b - a for a, b in zip(offsets, offsets[1:])} or {0}
            if len(moved) != 1 or self.strides.setdefault(first.region, min(moved)) != min(moved):
                raise _UnequalError

    def run(self, word: int | None = None, lent: Sequence[Sequence[Item]] = (), every: int = 0) -> list[Item]:
        """Parameters, the loop, and displacements back at 0.

        ``word``: the launch says which layers, and words from this one on where they begin. ``lent``: as of
        :func:`roll`.
        """
        body = list(self._body(self.layers[0], inside=False))
        count, used = self.count, 2 * len(self.places)
        halves = [0] * (used * count)
        for scalings, at in self.places.items():
            for i, pair in enumerate(scalings):
                halves[i * used + at:i * used + at + 2] = pair
        words = [low | high << 16 for low, high in zip(halves[::2], halves[1::2])]
        room = self.words // PARAMS_WORDS * PARAMS_WORDS
        if len(words) > room or len(halves) > MAX_LENGTH:
            raise _UnequalError
        begin: list[Item] = [params(at, *(word - (word >> 31 << 32) for word in words[at:at + PARAMS_WORDS]))
                             for at in range(0, len(words), PARAMS_WORDS)]
        if used:
            if word is None:
                begin.append(set_length(LengthReg.POINTER, note="scalings of the first layer"))
            body.append(set_length(LengthReg.POINTER, Source.LENGTH, LengthReg.POINTER, amount=used))
        moved = [(region, stride) for region, stride in self.strides.items() if stride]
        body += [SetDisplacement(self._holder(region), stride, further=True) for region, stride in moved]
        times = Length(count)
        if word is not None:
            begin += [SetDisplacement(self._holder(region), 0, word=word + i) for i, (region, _) in enumerate(moved)]
            times = Length(count, LengthReg.LAYERS)
            self.ranges = LayerStrides(layers=count, strides=dict(moved), scalings=used)
        loop = Loop(body=tuple(body), times=times, note="layers", local=True)
        behind = [SetDisplacement(self._holder(region), 0) for region, _ in moved]
        if len(lent) == 1:
            return [*begin, loop, *lent[0], *behind]
        if lent:
            further = _further(lent)
            loop = Loop(body=(replace(loop, times=Length(every)), *lent[0], *(
                SetDisplacement(region, stride, further=True) for region, stride in further.items())),
                times=Length(len(lent)), note="layers between lent rows", local=True)
            behind += [SetDisplacement(region, 0) for region in further]
        return [*begin, loop, *behind]

    def _holder(self, region: str) -> str:
        """The region whose displacement a layer moves: one aside where the body sets the region's own."""
        return region + LAYER_REGION if region in self.reset else region

    def _body(self, items: Iterable[Item], inside: bool) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Loop) and item.times.cap == 1 and not inside:  # its registers are its own
                before = list(self.slots.items())
                yield replace(item, body=tuple(self._body(item.body, False)))
                self.slots = OrderedDict(slot for slot in before if self.slots.get(slot[0]) == slot[1])
            elif isinstance(item, Loop):
                wanted = {self.scalings[id(step)]: None for step in leaves(item.body) if id(step) in self.scalings}
                for scaling in wanted:
                    yield from self._bring(scaling)
                yield replace(item, body=tuple(self._body(item.body, True)))
            elif isinstance(item, VirtualCommand) and id(item) in self.scalings:
                if not inside:
                    yield from self._bring(self.scalings[id(item)])
                fields = {name: value for name, value in item.fields.items() if name not in SCALING}
                yield replace(item, fields={**fields, "scale_reg": self.slots[self.scalings[id(item)][0]]})
            elif isinstance(item, SetDisplacement) and not item.further and self.strides.get(item.region):
                yield replace(item, origin=item.region + LAYER_REGION)
            else:
                yield item

    def _bring(self, scalings: tuple[Halves, ...]) -> Iterator[Command]:
        """SET the registers of a scaling, and of one that must stand behind it, if they do not hold them yet."""
        places = [self.slots.get(scaling) for scaling in scalings]
        first = places[0]
        if first is not None and places == [first + 2 * i for i in range(len(scalings))]:
            for scaling in scalings:
                self.slots.move_to_end(scaling)
            return
        for scaling, register in zip(scalings, self._freed(len(scalings)), strict=True):
            self.slots.pop(scaling, None)
            self.slots[scaling] = register
            at = self.places.setdefault(scaling, 2 * len(self.places))
            for i in range(2):
                yield set_length(register + i, Source.HALF, LengthReg.POINTER, index=at + i)

    def _freed(self, count: int) -> tuple[int, ...]:
        """First registers of ``count`` neighbouring pairs: free ones, else those that were used longest ago."""
        pairs, used = self.pairs, {register: age for age, register in enumerate(self.slots.values())}
        groups = [pairs[at:at + count] for at in range(0, len(pairs) - count + 1, count)]
        chosen = min(groups, key=lambda group: max(used.get(register, -1) for register in group))
        for scaling in [scaling for scaling, register in self.slots.items() if register in chosen]:
            del self.slots[scaling]
        return chosen
