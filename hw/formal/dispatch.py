"""Dispatch: commands leave in order, into one queue, and every count is right."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Signal

from gemmule.config import Config
from gemmule.hw.command.dispatch import UNIT_LAYOUTS, Dispatch
from gemmule.hw.formal.bench import Bench
from gemmule.hw.interfaces import COUNT_BITS
from gemmule.isa import CONTROL, Unit
from gemmule.timing import Timing

__all__ = ["dispatch"]

MOST = 5
"""Commands of a launch, so that the last one is near."""


def dispatch(bench: Bench, config: Config) -> None:
    """Whatever resolve makes of a command, as long as it holds no more commands than it has stages."""
    m, dut = bench.m, bench.dut(Dispatch(config=config, most=MOST), cut=("resolve",))
    resolve, stages = bench.part("resolve"), Timing.of(config).resolve
    queues, rests = ([bench.part(f"{unit}_{part}") for unit in UNIT_LAYOUTS] for part in ("queue", "commands"))
    behinds = [bench.part(f"{unit}_queue.behind") for unit in UNIT_LAYOUTS]
    pushed = bench.wire(resolve.leave, "pushed")

    inside = Signal(range(stages + 2))
    watched, before, place = Signal(), Signal(range(stages + 1)), Signal(COUNT_BITS, name="watched_place")
    taken = resolve.take & ~dut.clear
    m.d.sync += inside.eq(inside + resolve.take - pushed)
    with m.If(watched & pushed):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += watched.eq(0)
    with m.If(taken & ~watched & bench.choice(1, "watch")):
        m.d.sync += [watched.eq(1), before.eq(inside - pushed), place.eq(dut.command_place)]
    with m.If(dut.clear):
        m.d.sync += [inside.eq(0), watched.eq(0)]
    bench.assume("stages", f"resolve holds up to {stages} commands, and only what it holds comes to its end",
                 ~resolve.take | (inside - pushed < stages), ~resolve.full | (inside != 0))
    bench.assume("goes", "a command without fault goes to its unit, one with a fault nowhere (tests of resolve)",
                 ~resolve.full | (resolve.goes == Cat((resolve.unit == unit) & (resolve.fault == 0)
                                                      for unit in (*Unit, CONTROL))))
    bench.assume("units", "issue pops only what is queued", *(
        ~dut.pop[u] | dut.valid[u] for u in range(len(queues))))

    places = bench.part("places")
    head = bench.register("places.read__addr")
    bench.lemma("places", "one for each command in resolve", places.level == inside, inside <= stages,
                (head + inside)[:len(head)] == bench.register("places.write__addr"))
    bench.lemma("watched", "its place stands where it was written", ~watched | (before < inside)
                & (bench.word("places.memory", (head + before)[:len(head)]) == place))
    counts = [Signal(COUNT_BITS, name=f"{unit}_pushed") for unit in UNIT_LAYOUTS]
    controls = Signal(COUNT_BITS, name="controls")
    for queue, count in zip(queues, counts):
        m.d.sync += count.eq(count + queue.push)
    m.d.sync += controls.eq(controls + (pushed & (resolve.unit == CONTROL)))
    with m.If(dut.clear):
        m.d.sync += [signal.eq(0) for signal in (*counts, controls)]
    all_commands = bench.wire(sum(counts, controls), "all_commands")
    popped = [Signal(COUNT_BITS, name=f"{unit}_popped") for unit in UNIT_LAYOUTS]
    m.d.sync += [count.eq(count + dut.pop[u]) for u, count in enumerate(popped)]
    with m.If(dut.clear):
        m.d.sync += [count.eq(0) for count in popped]

    pushes = Cat(queue.push for queue in queues)
    bench.always("order", "commands leave one by one in the order in which they came, each with its place in the image",
                 ~pushed | resolve.full, ~(watched & (before == 0)) | (dut.place == place))
    bench.always("one queue", "a command goes into the queue of its unit alone, a control command into none",
                 pushes == ((Const(1, 8) << resolve.unit)[:len(queues)] & pushed.replicate(len(queues))),
                 ~pushed | pushes.any() | (resolve.unit == CONTROL))
    bench.always("room", "no queue is pushed when it is full", *(
        ~queue.push | (rest.level < config.unit_queue) for queue, rest in zip(queues, rests)))
    bench.lemma("levels", "a queue holds what was pushed and not popped", *(
        (rest.level == (count - gone)[:COUNT_BITS]) & (rest.level <= config.unit_queue)
        & (rest.room == (rest.level < config.unit_queue))
        & (queue.valid == (rest.level != 0)) & (behind.level == Mux(queue.valid, rest.level - 1, 0))
        for queue, behind, rest, count, gone in zip(queues, behinds, rests, counts, popped)))
    bench.always("counts", "dispatched counts the commands pushed to each unit, total all of them",
                 dut.total == all_commands, *(dut.dispatched[u] == count for u, count in enumerate(counts)))
    bench.lemma("most", "the last command is told by a register", bench.register("spent") == (dut.total == MOST))
    bench.always("end", f"no command is pushed behind the last one that a launch may have (here {MOST})",
                 dut.total <= MOST)
    bench.always("held", "nothing is pushed after a fault or while dispatch is stopped, and a fault stays",
                 ~pushed | ~dut.stop & (dut.fault == 0),
                 ~bench.before(dut.fault.any() & ~dut.clear, "faulty") | ~bench.before(pushed, "pushed"))
    bench.cover("behind", "a watched command leaves behind two others into the queue of select",
                watched & (before == 0) & pushes[-1] & (dut.total == 2))
    bench.cover("most", "all commands of a launch have been pushed, and the next one is refused",
                (dut.total == MOST) & dut.fault.any())
