"""The queues of commands: order, no loss, no overflow, the count, and what is told a cycle earlier."""

from __future__ import annotations

from amaranth.hdl import Mux, Signal

from gemmule.hw.formal.bench import Bench
from gemmule.hw.queue import HeadQueue, Queue

__all__ = ["BITS", "head_queue", "queue"]

BITS = 4


def queue(bench: Bench, depth: int) -> None:
    """One entry, any one, is watched from its push to its pop: how many stand before it, and what it is."""
    m, q = bench.m, bench.dut(Queue(shape=BITS, depth=depth))
    bench.assume("room", "nothing is pushed into a full queue", ~(q.push & (q.level == depth)))
    bench.assume("entry", "nothing is popped from an empty one", ~(q.pop & ~q.valid))

    pushed, popped = Signal(range(64)), Signal(range(64))  # modulo 64
    m.d.sync += [pushed.eq(pushed + q.push), popped.eq(popped + q.pop)]
    watched, before, value = Signal(), Signal(range(depth + 1)), Signal(BITS)
    with m.If(watched & q.pop):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += watched.eq(0)
    with m.If(q.push & ~watched & bench.choice(1, "watch")):
        m.d.sync += [watched.eq(1), before.eq(q.level - q.pop), value.eq(q.push_data)]
    with m.If(q.clear):
        m.d.sync += [watched.eq(0), pushed.eq(0), popped.eq(0)]

    head, tail = bench.register("read__addr"), bench.register("write__addr")
    place, slot = Signal(range(2 * depth)), Signal.like(head)
    m.d.comb += [place.eq(head + before), slot.eq(Mux(place < depth, place, place - depth))]
    bench.lemma("pointers", "head and tail are places, level apart", head < depth, tail < depth,
                (head + q.level == tail) | (head + q.level == tail + depth))
    bench.lemma("watched entry", "it stands where it was written",
                ~watched | (before < q.level) & (bench.word("memory", slot) == value))
    bench.always("count", "level is what was pushed and not popped, at most the depth; valid tells that it is not 0, "
                          "room that it is less than the depth",
                 q.level <= depth, (pushed - popped)[:6] == q.level, q.valid == (q.level != 0),
                 q.room == (q.level < depth))
    bench.always("order", "entries leave as they came, all of them, each once",
                 ~(watched & (before == 0)) | q.valid & (q.head == value))
    bench.cover("full", "it is full", q.level == depth)
    bench.cover("watched leaves", "a watched entry leaves behind another", watched & q.pop & (before == 0)
                & (tail == head))


def head_queue(bench: Bench, depth: int) -> None:
    """One entry, any one, is watched from its push to its pop; ``depth`` - 1 is a power of two."""
    m, q, behind = bench.m, bench.dut(HeadQueue(shape=BITS, depth=depth)), bench.part("behind")
    level = Signal(range(depth + 2))
    m.d.sync += level.eq(Mux(q.clear, 0, level + q.push - q.pop))
    bench.assume("room", "nothing is pushed into a full queue", ~(q.push & (level == depth)))
    bench.assume("entry", "nothing is popped from an empty one", ~(q.pop & ~q.valid))

    watched, before, value = Signal(), Signal(range(depth + 1)), Signal(BITS)
    with m.If(watched & q.pop):
        m.d.sync += [before.eq(before - 1), watched.eq(before != 0)]
    with m.If(q.push & ~watched & bench.choice(1, "watch")):
        m.d.sync += [watched.eq(1), before.eq(level - q.pop), value.eq(q.push_data)]
    with m.If(q.clear):
        m.d.sync += watched.eq(0)

    head, tail = bench.register("behind.read__addr"), bench.register("behind.write__addr")
    bench.lemma("pointers", "head and tail of what is behind the head are level apart", level <= depth,
                behind.level == Mux(level == 0, 0, level - 1), (head + behind.level)[:len(head)] == tail)
    bench.lemma("watched entry", "it stands where it was written", ~watched | (before < level), *(
        ~(watched & (before == i)) | (bench.word("behind.memory", (head + i - 1)[:len(head)]) == value)
        for i in range(1, depth)))
    bench.always("order", "entries leave as they came, all of them, each once; valid tells whether there is one",
                 ~(watched & (before == 0)) | (q.head == value), q.valid == (level != 0))
    told, fresh = bench.before(q.following, "following"), bench.before(~q.valid | q.pop, "moves")
    bench.always("following", "a new head was told a cycle earlier; the second entry is told whenever there is one",
                 ~(watched & (before == 0) & fresh) | (told == value),
                 ~(watched & (before == 1)) | (q.following == value))
    bench.cover("full", "it is full", level == depth)
    bench.cover("watched leaves", "a watched entry leaves behind another",
                watched & q.pop & (before == 0) & behind.valid)
