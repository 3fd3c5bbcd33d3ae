"""Control commands among others in dispatch: what is taken, what acts, what leaves, in every cycle."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gemmule.config import Config
from gemmule.control import (
    MAX_COMMANDS,
    Local,
    Sequence,
    begin,
    execute,
    new_local,
    params,
    repeat,
    set_displacement,
    set_length,
)
from gemmule.hw.command.dispatch import Dispatch
from gemmule.isa import (
    CONTROL,
    Command,
    COp,
    Dyn,
    Length,
    MoveFlag,
    SOp,
    Source,
    Unit,
    VOp,
    decode_table,
    encode,
)
from gemmule.resolve import FAULTS, OUT, OUT_FIELDS, STREAM_UNIT, TERMS, config_vector, resolve_row
from gemmule.timing import Timing

from ...thinned import some
from ..bench import rejection, run_bench
from .registers import launch_registers

CONFIG = Config(dim=4, bus_bytes=4, spm_kib=4, spm_banks=4, acc_kib=4, acc_banks=2, unit_queue=5, parameter_words=16)
LENGTHS = np.array([65535, 3, 0, 7, *range(12)])
SIZE = 1 << CONFIG.address_bits
BASES = np.array([4096 * i for i in range(30)] + [SIZE - 4096, SIZE - 64])
LIMITS = np.array([4096, 64, 0, 4096] * 8)
STAGES, STAY = Timing.resolve, Timing.control
UNITS = ("load", "store", "matrix", "vector", "select")
LEFT = 100


def random_control(rng: random.Random) -> Command:
    kind = rng.randrange(5)
    if kind == 0:
        return params(rng.randrange(12), *(rng.choice((rng.randrange(64), rng.getrandbits(32))) for _ in range(5)))
    if kind == 1:
        return repeat(rng.randrange(1, LEFT), Length(reg=rng.randrange(4), cap=rng.choice((0, 3, 65535))),
                      shift=rng.randrange(4))
    source = rng.choice(list(Source))
    register = rng.randrange(32 if source == Source.DISPLACEMENT else 3)
    if kind == 2:
        return set_displacement(rng.randrange(32), source, register, index=rng.randrange(8),
                                amount=rng.choice((0, 4, -4, 64, 4096, -64, rng.randrange(-8192, 8192))))
    return set_length(rng.randrange(1, 6), source, register, index=rng.randrange(8),
                      amount=rng.choice((0, 1, -1, rng.randrange(-40, 40))), modulus=rng.choice((0, 8, 64)))


def random_command(rng: random.Random) -> Command:
    unit = rng.choice([*Unit, Unit.LOAD, Unit.STORE])
    waits = {u: rng.choice((1, 2, 63)) for u in Unit if rng.random() < 0.2}
    size = Length(cap=rng.randrange(1, 9), reg=rng.choice((0, 1, 2, 3, 4, 5)))
    if unit <= Unit.STORE:
        flags = rng.choice(((), (), (MoveFlag.ZERO,), (MoveFlag.BROADCAST,))) if unit is Unit.LOAD else ()
        return Command.make(unit, waits=waits, flags=flags, base=rng.randrange(32), offset=4 * rng.randrange(64),
                            stride=4 * rng.randrange(8), bytes=rng.randrange(12), row=rng.randrange(512),
                            row_stride=1, block_stride=9, rows=size)
    if unit is Unit.MATRIX:
        return Command.make(unit, waits=waits, a_row=rng.randrange(500), a_stride=8, b_row=512, b_stride=8,
                            c_row=rng.randrange(100), c_stride=8, m=size, n=5, k=6,
                            dyn=(Dyn.SRC0, rng.randrange(1, 6), 1))
    if unit is Unit.SELECT:
        return Command.make(unit, op=SOp.ARGMAX, waits=waits, src0=rng.randrange(900), src0_stride=8, m=size, n=7)
    return Command.make(unit, op=VOp.REQUANT, waits=waits, src0=rng.randrange(100), src0_stride=8,
                        dst=rng.randrange(512), dst_stride=8, m=size, n=7, scale_reg=rng.randrange(4))


@dataclass
class Item:
    """A command of the stream with what it becomes."""

    command: Command
    fault: int
    out: dict[str, int]
    times: int = 0

    @property
    def control(self) -> bool:
        return self.command.unit == CONTROL

    @property
    def repeats(self) -> bool:
        return self.control and self.command.op == COp.REPEAT


class Model:
    """The contract, a command at a time."""

    def __init__(self) -> None:
        self.local, self.cfg = new_local(CONFIG), config_vector(CONFIG)
        begin(self.local, BASES, LIMITS, LENGTHS, LEFT)

    def item(self, command: Command) -> Item:
        row = decode_table(encode(command).to_bytes(32, "little"))[0]
        out = np.zeros(len(OUT_FIELDS), dtype=np.int64)
        local: Local = self.local
        if command.unit != CONTROL:
            resolve_row(row, local.bases, local.limits, local.lengths, self.cfg, out, np.zeros(TERMS, dtype=np.int64))
            return Item(command, int(out[OUT["fault"]]), {name: int(out[i]) for name, i in OUT.items()})
        local.sequence[:] = (0, LEFT, 0, 0)
        fault = int(execute(row, local, self.cfg))
        times = int(local.loops[0, 2]) if local.sequence[Sequence.DEPTH] else 0
        return Item(command, fault, {}, times)


def stream_of(rng: random.Random, count: int, model: Model) -> list[Item]:
    """None of them faults."""
    items: list[Item] = []
    while len(items) < count:
        command = random_control(rng) if rng.random() < 0.4 else random_command(rng)
        before = Local(*(array.copy() for array in model.local))
        item = model.item(command)
        if not item.fault:
            items.append(item)
        for array, old in zip(model.local, before):
            if item.fault:
                array[...] = old
    return items


def play(items: list[Item], rng: random.Random, *, feed: float, drain: float, standing: float = 0.0,
         most: int = MAX_COMMANDS, places: list[int] | None = None) -> list[int]:
    """Play a stream, and 20 quiet cycles; the cycles of takes. No body is repeated: that is for fetch."""
    dut = Dispatch(config=CONFIG, most=most)
    places = places or list(range(len(items)))
    takes: list[int] = []

    async def bench(ctx) -> None:
        await launch_registers(ctx, dut, dut.length, LENGTHS.tolist())
        ctx.set(dut.length, rng.getrandbits(16))
        stages: list[int | None] = [None] * (STAGES - 1)
        judged: list[int] = []  # the queue of two behind them
        age, refused, quiet, t = 0, False, 0, 0
        queues: list[list[int]] = [[] for _ in UNITS]
        dispatched, total = [0] * 5, 0
        while quiet < 20:
            base = ctx.get(dut.base_index)
            ctx.set(dut.base, int(BASES[base]))
            ctx.set(dut.limit, int(LIMITS[base]))
            pop = 0
            for u, queue in enumerate(queues):
                assert (ctx.get(dut.valid) >> u & 1) == bool(queue), (t, u)
                if not queue:
                    continue
                item = items[queue[0]]
                for s in range(STREAM_UNIT.count(u)):
                    assert ctx.get(dut.claims[STREAM_UNIT.index(u) + s]) == item.out[f"claim{s}"], item
                head = getattr(dut, UNITS[u])
                assert ctx.get(head.zero) == item.out["zero"], item
                names = {"rows": "m", "address": "address", "row": "row0"} if u < 2 else {"m": "m"}
                names |= {2: {"a_row": "row0"}, 3: {"mult": "mult", "shift": "shift"}}.get(u, {})
                for name, source in names.items():
                    mask = (1 << len(head[name])) - 1
                    assert ctx.get(head[name]) == item.out[source] & mask, (name, item)
                pop |= (rng.random() < drain) << u
            ctx.set(dut.pop, pop)
            taken = len(takes)
            valid = taken < len(items) and rng.random() < feed
            waits = rng.random() < standing
            ctx.set(dut.command_valid, valid)
            ctx.set(dut.command, encode(items[taken].command) if valid else rng.getrandbits(256))
            ctx.set(dut.command_place, places[taken] if taken < len(items) else 9999)
            ctx.set(dut.repeat.standing, waits)
            # Stages, the last one first: who moves on?
            last = judged[0] if judged else None
            fault = 0
            if last is not None:
                fault = FAULTS.index("illegal") if total == most else items[last].fault
            leaves = last is not None and not fault and (
                items[last].control or len(queues[items[last].command.unit]) < CONFIG.unit_queue)
            first = None if stages[0] is None else items[stages[0]]
            held = first is not None and first.control and age < STAY
            room, moves = len(judged) < 2, [False] * len(stages)  # moves[i]: what is in stage i goes on
            for i in reversed(range(len(stages))):
                moves[i] = stages[i] is not None and room and not (i == 0 and held)
                room = stages[i] is None or moves[i]
            take = valid and room and not refused
            assert ctx.get(dut.command_take) == take, t
            assert ctx.get(dut.fault) == fault, t
            assert ctx.get(dut.total) == total
            assert list(ctx.get(dut.dispatched)) == dispatched
            oldest = next((stage for stage in (*judged, *reversed(stages)) if stage is not None), None)
            assert ctx.get(dut.empty) == (oldest is None)
            assert ctx.get(dut.place) == (9999 if oldest is None and taken == len(items)
                                          else places[taken if oldest is None else oldest])
            # REPEAT.
            pause = first is not None and first.repeats and age == STAY - 1
            assert ctx.get(dut.repeat.pause) == pause, t
            assert ctx.get(dut.repeat.effect) == (pause and not waits and first is not None and not first.fault), t
            if first is not None and first.repeats:
                body = first.command.fields["body"]
                assert ctx.get(dut.repeat.body) == body
                ctx.set(dut.repeat.allows, 0 < body <= LEFT)
                if pause and not first.fault:
                    assert ctx.get(dut.repeat.times) == first.times
            # The next cycle.
            for u, queue in enumerate(queues):
                if pop >> u & 1:
                    queue.pop(0)
            if leaves:
                assert last is not None
                total += 1
                if not items[last].control:
                    queues[items[last].command.unit].append(last)
                    dispatched[items[last].command.unit] += 1
                judged.pop(0)
            if moves[-1]:
                judged.append(stages[-1])
                stages[-1] = None
            for i in reversed(range(len(stages) - 1)):
                if moves[i]:
                    stages[i + 1], stages[i] = stages[i], None
            if first is not None and first.control and age == STAY - 1 and first.fault:
                refused = True
            age = 0 if take else min(age + (not pause or not waits), STAY)
            if take:
                stages[0] = taken
                takes.append(t)
            quiet = 0 if take or leaves or pop else quiet + 1
            await ctx.tick()
            t += 1

    run_bench(dut, bench, cycles=100 * len(items) + 1000)
    return takes


@pytest.mark.parametrize(("seed", "feed", "drain", "standing"), some([
    (1, 1.0, 0.1, 0.3), (2, 1.0, 1.0, 0.0), (0, 0.5, 0.5, 0.0)], 2))
def test_random_streams(seed: int, feed: float, drain: float, standing: float) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    items = stream_of(rng, 300, Model())
    takes = play(items, rng, feed=feed, drain=drain, standing=standing, places=[rng.getrandbits(24) for _ in items])
    assert len(takes) == len(items)
    if feed == drain == 1:
        assert all(b - a == (STAY + 1 if item.control else 1) for a, b, item in zip(takes, takes[1:], items))
    assert sum(item.control for item in items) > 60
    assert sum(not item.control and not item.out["zero"] for item in items) > 40


BAD = {
    "illegal": (repeat(LEFT + 1, 3), Command.make(CONTROL, op=3), replace(params(0), predicate=1),
                Command.make(Unit.LOAD, flags=(7,))),
    "rows": (params(12), set_length(1, Source.HALF, index=32), Command.make(Unit.LOAD, bytes=4, row=1024, rows=1)),
    "limit": (Command.make(Unit.STORE, bytes=8, offset=4092, rows=1),),
}


@pytest.mark.parametrize("seed", some(range(3)))
def test_what_follows_a_fault(seed: int) -> None:
    """Nothing is taken behind a control command that faults; behind another one control commands still act."""
    rng = random.Random(seed)
    print("seed", seed)
    for name, commands in BAD.items():
        for command in commands:
            items: list[Item] = []
            while not items or FAULTS[items[-1].fault] != name:  # a displacement may have moved it
                model = Model()
                items = [*stream_of(rng, 6, model), model.item(command)]
            if items[-1].control:
                items += [model.item(set_length(1, amount=5))] * 3
                takes = play(items, rng, feed=1, drain=1)
                assert len(takes) == len(items) - 3
            else:
                items += [model.item(repeat(3, 2)), model.item(set_length(1, amount=5))]
                assert len(play(items, rng, feed=1, drain=1)) == len(items)


@pytest.mark.parametrize("most", [0, 1, 7])
def test_one_command_too_many(most: int) -> None:
    """Whatever it is."""
    rng = random.Random(most)
    for kind in (True, False):
        items: list[Item] = []
        while not items or items[most].control != kind:
            items = stream_of(rng, most + 4, Model())
        play(items, rng, feed=1, drain=1, most=most)
    assert rejection(lambda: Dispatch(config=CONFIG, most=1 << 24)).endswith(f"not {1 << 24}")


@pytest.mark.parametrize("bits", some([16, 48, 32], 2))
def test_moves_stay_within_limit_and_space(bits: int) -> None:
    """base + displacement + offset + span, at every edge and one beyond; and what leaves does not wrap around."""
    config = CONFIG.model_copy(update={"address_bits": bits})
    size = 1 << bits
    dut = Dispatch(config=config)
    span = 4 * 3 + 8  # of 4 rows of 8 bytes, 4 apart

    def case(base: int, limit: int, displacement: int, offset: int, flags: tuple[MoveFlag, ...] = ()
             ) -> tuple[int, int, Command, Command, bool]:
        end = displacement + offset + (8 if MoveFlag.BROADCAST in flags else span)
        bad = MoveFlag.ZERO not in flags and (end > limit or base + end > size)
        move = Command.make(Unit.LOAD, flags=flags, base=9, offset=offset, stride=4, bytes=8, rows=4, row_stride=1,
                            block_stride=8)
        return base, limit, set_displacement(9, amount=displacement), move, bad

    cases = []
    for low in (-1, 0, 1):
        cases += [
            case(4096, 1000, 1000 - span - 100, 100 + low), case(4096, 1000, 1000 - span - 100 + low, 100),
            case(4096, 1000 + low, 0, 1000 - span), case(0, 1000, 1000 - span + low, 0), case(0, span, max(0, low), 0),
            case(size - 1000, size - 1, 1000 - span - 96 + low, 96), case(size - 1000 + low, size - 1, 1000 - span, 0),
            case(size - 1000, size - 1, 0, 1000 - span + low), case(0, size - 1, size - 1 - span + low, 0),
            case(0, size - 1, size - 1, max(0, low)), case(0, 1000, size - 4, 4 + low),
            case(8, 1000, size - 8, 8 + low), case(4096, 1000, size - 4096, 4096 + low),
            case(size - 1, size - 1, size - 1, 8 + low),
            case(4096, 1000, 1000 - 8, low + 1, (MoveFlag.BROADCAST,)), case(4096, 0, size - 1, 9, (MoveFlag.ZERO,)),
        ]
    assert 10 < sum(bad for *_, bad in cases) < len(cases) - 10

    async def bench(ctx) -> None:
        for base, limit, displace, move, bad in cases:
            await launch_registers(ctx, dut, dut.length, LENGTHS.tolist())
            ctx.set(dut.base, base)
            ctx.set(dut.limit, limit)
            for command in (displace, move):
                ctx.set(dut.command_valid, 1)
                ctx.set(dut.command, encode(command))
                while not ctx.get(dut.command_take):
                    await ctx.tick()
                await ctx.tick()
                ctx.set(dut.command_valid, 0)
            await ctx.tick().repeat(STAGES + 1)
            where = f"{base:x} {limit:x} {displace.fields} {move.fields['offset']:x}"
            address = (base + displace.fields["amount"] + move.fields["offset"]) % size
            unaligned = address % config.bus_bytes and MoveFlag.BROADCAST in move.flags
            assert FAULTS[ctx.get(dut.fault)] == ("limit" if bad else "align" if unaligned else "none"), where
            if not bad and not unaligned:
                assert ctx.get(dut.valid) == 1
                assert ctx.get(dut.load.address) == address, where

    run_bench(dut, bench)
