"""What always holds in the device, by name; every line is proved on the netlist before a proof builds on it."""

from __future__ import annotations

from gemmule.hw.command.resolve import FAULT_BITS
from gemmule.hw.flow.cells import Bit
from gemmule.hw.flow.induction import Invariant, View
from gemmule.isa import COMMAND_BYTES, HEADER, MoveFlag, Unit
from gemmule.resolve import FAULTS

__all__ = ["INVARIANTS", "WORDS"]

_RESOLVE, _QUEUE, _COMMANDS = "core.dispatch.resolve", "core.dispatch.store_queue", "core.dispatch.store_commands"
_START, _STARTED = "core.store__start", "core.store__command"
_EXECUTE = f"{_RESOLVE}.execute"
_WALKER = "core.units.store.reader.walker.flags"
_DONE = f"{_RESOLVE}.done"
WORDS = (f"{_COMMANDS}.memory", f"{_DONE}.behind.memory")
"""RAMs of which invariants speak word by word."""
_AT = {name: sum(bits for _, bits in HEADER[:i]) for i, (name, _) in enumerate(HEADER)}
_WORD_BITS = 8 * COMMAND_BYTES
CODE_BITS = (len(FAULTS) - 1).bit_length()
IN_QUEUE = 2
"""Place of the flags in a queued load or store."""


def _legal_store(view: View, flags: list[Bit]) -> Bit:
    """A store has no BROADCAST, and NARROW only with ACCUMULATOR."""
    return view.both(view.no(flags[MoveFlag.BROADCAST]),
                     view.if_(flags[MoveFlag.NARROW], then=flags[MoveFlag.ACCUMULATOR]))


def _of_stage(view: View, stage: int, *conditions: Bit) -> Bit:
    word = view[f"{_RESOLVE}.stage{stage}"]
    is_store = view.equal(word[:3], Unit.STORE)
    occupied = view[f"{_RESOLVE}.occupied"][stage - 1]
    return view.if_(occupied, is_store, *conditions, then=_legal_store(view, word[_AT["flags"]:]))


def _known(stage: int) -> Invariant:
    return Invariant(
        f"known store in stage {stage}", "only commands with legal flags are known, and a command moves on as it is",
        lambda view: _of_stage(view, stage, view[f"{_RESOLVE}.stage{stage}"][_WORD_BITS]))


def _judged(view: View, word: list[Bit], present: Bit) -> Bit:
    """Of a command that dispatch may take."""
    goes = word[_WORD_BITS + 1 + FAULT_BITS:][Unit.STORE]  # behind the bit of length zero and the fault
    return view.if_(present, goes, then=_legal_store(view, word[_AT["flags"]:]))


def _last(view: View) -> Bit:
    return _judged(view, view[f"{_DONE}.head"], view[f"{_DONE}.valid"][0])


def _behind(view: View) -> Bit:
    """The queue of one place behind it: pushed only when it is empty, and always at the same place."""
    level, room = view[f"{_DONE}.behind.level"], view[f"{_DONE}.behind.room"]
    return view.both(view.equal(view[f"{_DONE}.behind.read__addr"], 0),
                     view.equal(view[f"{_DONE}.behind.write__addr"], 0),
                     view.some(*(view.both(view.equal(level, count), view.equal(room, 1 - count)) for count in (0, 1))),
                     _judged(view, view[f"{_DONE}.behind.memory[0]"], level[0]))


def _coded(view: View, word: list[Bit], present: Bit) -> Bit:
    """Of a command in the last stage: the code of its fault has no bit more than the codes need."""
    return view.if_(present, then=view.no(view.some(*word[_WORD_BITS + 1:][:FAULT_BITS][CODE_BITS:])))


def _level(view: View) -> Bit:
    """head + level = tail, and level <= 4, in a queue of four, which has room below; what issue examines are as many,
    one the head."""
    level, valid, behind = view[f"{_COMMANDS}.level"], view[f"{_QUEUE}.valid"], view[f"{_QUEUE}.behind.level"]
    head, tail, room = (view[f"{_COMMANDS}.{name}"] for name in ("read__addr", "write__addr", "room"))
    return view.some(*(view.both(view.equal(level, count), view.equal(room, int(count < 4)),
                                 view.equal(valid, int(count != 0)), view.equal(behind, max(0, count - 1)),
                                 view.equal(head, first),
                                 view.equal(tail, (first + count) % 4)) for count in range(5) for first in range(4)))


def _queued(view: View) -> Bit:
    """Of every word from head on, as many as there are."""
    level, head = view[f"{_COMMANDS}.level"], view[f"{_COMMANDS}.read__addr"]
    return view.both(*(
        view.if_(view.some(*(view.both(view.equal(head, first), view.equal(level, count))
                             for first in range(4) for count in range(5) if (i - first) % 4 < count)),
                 then=_legal_store(view, view[f"{_COMMANDS}.memory[{i}]"][IN_QUEUE:])) for i in range(4)))


def _dropping(view: View) -> Bit:
    return view.if_(view["core.fetch.dropping"][0], view[f"{_EXECUTE}.control"][0],
                    then=view.equal(view[f"{_EXECUTE}.age"], 4))


def _allowed(view: View) -> Bit:
    """Of the age at which a REPEAT acts, which it does if it has not been refused."""
    return view.if_(view[f"{_EXECUTE}.at_3"][0], view[f"{_EXECUTE}.is_repeat"][0],
                    *map(view.no, view[f"{_EXECUTE}.refusal"]), then=view.no(view["core.fetch.rest"][-1]))


INVARIANTS = (
    Invariant("one divider", "with one divider its number is always 0",
              lambda view: view.no(view["core.units.vector.stats.divide.turn"][0]),
              (("core.units.vector.stats.divide.turn", 0),)),
    Invariant("nothing comes while a body is dropped", "the REPEAT that drops it has acted", _dropping),
    Invariant("a REPEAT that acts", "a body longer than what is left has been refused", _allowed),
    Invariant("predicate 0", "always 1; where it shares the register of a constant, which a reset clears, that is 1 "
              "before the first command comes",
              lambda view: view.if_(*view["core.dispatch.vector_queue.valid"], then=view["core.predicates"][0])),
    *(_known(stage) for stage in (3, 4, 5)),
    Invariant("store without a fault", "a command that is not known has a fault in the last stage", _last),
    Invariant("store without a fault behind it", "nor has the command behind the last stage", _behind),
    Invariant("code of a fault", "there are fewer than its bits can tell",
              lambda view: _coded(view, view[f"{_DONE}.head"], view[f"{_DONE}.valid"][0])),
    Invariant("code of a fault behind it", "nor has the command behind the last stage another",
              lambda view: _coded(view, view[f"{_DONE}.behind.memory[0]"], view[f"{_DONE}.behind.level"][0])),
    Invariant("level of the store queue", "it is what was pushed and not popped: never pushed when full", _level),
    Invariant("queued stores", "only commands without a fault are pushed", _queued),
    Invariant("a store's start", "what starts is the head of the queue, a cycle later",
              lambda view: view.if_(view[_START][0], then=_legal_store(view, view[_STARTED][IN_QUEUE:]))),
    Invariant("a store's walk", "its flags are those of the head, or 0", lambda view: _legal_store(view, view[_WALKER]),
              ((_WALKER, MoveFlag.BROADCAST),)),
)
