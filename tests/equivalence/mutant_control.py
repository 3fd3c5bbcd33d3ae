"""Programs with control commands, for the mutants: what SET and REPEAT give, told by how often a body comes, and when
bodies of every size are fetched and taken.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from gemmule.config import Config
from gemmule.control import params, repeat, set_displacement, set_length
from gemmule.isa import CONTROL, Command, Dyn, Length, Source, Unit
from gemmule.sim.launch import Launch

from ..nests import Nests, interpret
from .mutant_programs import case_of

__all__ = ["bodies"]

make = Command.make
NOTHING = make(Unit.SELECT)
LINE = {"row_stride": 1, "block_stride": 1, "rows": 1, "bytes": 4}
LOAD = make(Unit.LOAD, offset=64, **LINE)
SLOW = make(Unit.LOAD, offset=256, row=8, row_stride=4, block_stride=1, rows=9, bytes=13, stride=1100)
LAST = 65535
"""LEN of register 0."""


def probe(register: int, value: int) -> list[Command]:
    """A body that comes once where the register holds the value, not at all below and twice above."""
    if value == 0:
        return [repeat(1, Length(2, register)), LOAD]
    return [repeat(1, Length(2, register, value - 1)), LOAD]


def _values(config: Config) -> list[Command]:
    """SETs of every kind at their edges; LEN[i] is 3 i to begin with."""
    half, word, words = Source.HALF, Source.WORD, config.parameter_words
    space = 1 << config.address_bits
    some = [params(0, 0xFEDC8765 - (1 << 32), -1 << 31, (1 << 31) - 1, -1, 300), params(words - 5, 1, 2, 3, 4, 5)]
    lengths = [
        (set_length(1, amount=70000), LAST), (set_length(1, amount=-1), 0), (set_length(1, amount=64, modulus=64), 0),
        (set_length(1, amount=63, modulus=64), 63), (set_length(1, amount=200, modulus=64), 136),
        (set_length(1, amount=-1, modulus=64), 63), (set_length(1, amount=-65, modulus=64), 0),
        (set_length(1, amount=5, modulus=64), 5),
        (set_length(1, Source.LENGTH), LAST), (set_length(1, Source.LENGTH, 2, amount=5), 11),
        (set_length(2, Source.LENGTH, 2, amount=1), 7), (set_length(15, amount=3), 3),
        (set_length(1, word, index=0), 0), (set_length(1, word, index=4), 300), (set_length(1, word, index=3), 0),
        (set_length(1, word, index=2), LAST), (set_length(1, word, index=1, amount=(1 << 31) + 7), 7),
        (set_length(1, word, 4, index=words - 13), 5), (set_length(1, word, index=words - 1), 5),
        (set_length(1, half, index=0), 0x8765), (set_length(1, half, index=1), 0xFEDC),
        (set_length(1, half, index=8), 300), (set_length(1, half, index=9), 0), (set_length(1, half, index=6), LAST),
        (set_length(1, half, 3, index=0), 0), (set_length(1, half, 3, index=2 * words - 11), 4),
        (set_length(1, Source.DISPLACEMENT, 7), 0),
    ]
    bytes_ = [
        (set_displacement(7, amount=64), 64), (set_displacement(7, Source.DISPLACEMENT, 7, amount=-65), space - 1),
        (set_displacement(9, Source.DISPLACEMENT, 7, amount=6), 5), (set_displacement(7, amount=space + 9), 9),
        (set_displacement(8, half, 3, index=0), 0), (set_displacement(8, Source.LENGTH, 3), 9),
    ]
    out = [*some, *probe(11, 33)]
    for command, value in lengths:
        out += [command, *probe(command.fields["target_reg"], value)]
    for command, value in bytes_:
        seen = set_length(1, Source.DISPLACEMENT, command.fields["target_reg"])
        out += [command, seen, *probe(1, min(value, LAST))]
    times = [(0, 0, 0, 3), (0, 1, 4, 9), (15, 14, 15, 9), (15, 15, 0, 9), (15, 16, 0, 9), (15, 0, 1, 9), (15, 0, 2, 2),
             (15, 0, 3, 9), (15, 20, 2, 9)]
    out += [set_length(15, amount=15)]
    for length, offset, shift, cap in times:
        out += [repeat(1, Length(cap, 15 if length else 0, offset if length else LAST - offset), shift=shift), LOAD]
    # Counts change after they were read; registers of commands that follow at once.
    return [*out, repeat(2, Length(9, 4)), set_length(4, amount=1), LOAD, set_length(3, amount=2),
            replace(LOAD, fields=LOAD.fields | {"rows_reg": 3, "rows_cap": 9, "stride": 8}),
            set_displacement(0, amount=128), LOAD,
            make(Unit.STORE, waits={Unit.LOAD: 1}, offset=512, **LINE)]


def _legal(config: Config) -> dict[str, list[Command]]:
    """A program for each rule that makes a control command fault, and what comes closest to it without one."""
    words, good = config.parameter_words, repeat(1, 2)
    nest = [NOTHING]
    for i in range(4):
        nest = [repeat(len(nest) + (i > 0), 2), *nest, *([NOTHING] if i else [])]
    deeper = [*(replace(c, fields=c.fields | {"body": c.fields["body"] + 2}) for c in nest[:4]), repeat(1, 1),
              *nest[4:]]
    return {
        "edges": [params(words - 5), good, NOTHING, set_displacement(31, Source.DISPLACEMENT, 31), *nest,
                  repeat(1, 1), NOTHING, repeat(3, 1), repeat(1, 1), NOTHING, NOTHING, repeat(2, 3), NOTHING, NOTHING],
        **{f"header {i}": [command, NOTHING, LOAD] for i, command in enumerate((
            replace(good, waits={Unit.LOAD: 1}), replace(good, flags=frozenset({7})), replace(good, predicate=1),
            replace(good, dyn=(Dyn.NONE, 0, 1)), replace(set_length(1), dyn=(Dyn.SRC0, 0, 0)),
            replace(params(0), predicate=3)))},
        **{f"fields {i}": [command, NOTHING, LOAD] for i, command in enumerate((
            set_length(0), set_length(16), set_length(1, Source.LENGTH, 16), Command(CONTROL, {}, 3),
            replace(set_length(1), fields={"target_reg": 1, "source": 5}),
            replace(set_length(1), fields={"target": 1, "modulus": 1}), set_length(1, Source.WORD, index=words),
            set_length(1, Source.HALF, index=2 * words), params(words - 4), repeat(0, 1), repeat(3, 1)))},
        "too deep": [*deeper, NOTHING], "two ends": [repeat(2, 2), repeat(1, 2), NOTHING, NOTHING],
        "last of a body": [repeat(2, 2), LOAD, repeat(1, 1), NOTHING],
        "behind a body": [repeat(2, 2), LOAD, NOTHING, repeat(1, 2), NOTHING],
        "beyond the limit": [set_displacement(1, amount=65532), make(Unit.LOAD, base=1, **LINE),
                             set_displacement(1, amount=65533), make(Unit.LOAD, base=1, **LINE)],
        "below the base": [set_displacement(1, amount=-64), make(Unit.LOAD, base=1, offset=64, **LINE)],
        "beyond the limit, in a turn": [repeat(2, 5), make(Unit.LOAD, base=1, **LINE), set_displacement(
            1, Source.DISPLACEMENT, 1, amount=16384)],
        "behind a fault": [*[SLOW] * 3, make(Unit.SELECT, op=31), set_length(1), repeat(2, 0), *[NOTHING] * 60],
        "stopped": [set_length(0), *[NOTHING] * 50],
    }


def _sizes(config: Config) -> dict[str, list[Command]]:
    """Bodies about as long as the window, in it and fetched again; bodies that do not come."""
    window = config.fetch_queue

    def nothing(count: int) -> list[Command]:
        return [NOTHING] * count

    def spread(count: int) -> list[Command]:
        """Nothing, on all units in turn: one a cycle."""
        return [make(Unit(i % len(Unit))) for i in range(count)]

    full = [SLOW] * (config.unit_queue + config.load_commands + 12)  # resolve is full, and stays so for long
    return {
        **{f"body of {n}": [repeat(n, 3), *nothing(n), LOAD] for n in (1, 2, window - 1, window, window + 1)},
        "one after the other": [command for n in (window, window, window - 3, 5, window) for command in (
            repeat(n, 2), *nothing(n - 1), LOAD)],
        "long around short": [repeat(window + 9, 3), repeat(7, 3), *nothing(7), LOAD, repeat(window - 2, 2),
                              *nothing(window), LOAD],
        "short around short": [repeat(20, 3), repeat(7, 2), *nothing(7), repeat(3, 4), LOAD, *nothing(2), *nothing(8),
                               LOAD],
        "long around long": [repeat(2 * window + 9, 2), LOAD, repeat(window + 3, 2), *nothing(window + 3),
                             *nothing(window + 4), LOAD],
        "dropped": [LOAD, repeat(9, 0), *nothing(9), LOAD, repeat(window + 9, 0), *nothing(window + 9), LOAD],
        "dropped in a body": [repeat(24, 3), repeat(9, 0), *nothing(9), LOAD, repeat(4, Length(2, 9)), *nothing(4),
                              set_length(9), *nothing(7), *nothing(window)],
        "dropped while resolve is full": [*full, repeat(20, 0), *nothing(20), *nothing(window)],
        "dropped at the end": [LOAD, repeat(45, 0), *nothing(45)],
        "control at the end": [LOAD, set_length(1), set_length(2), params(0)],
        "control alone": [set_length(1), set_length(2)],
        # Fetch fills what a body has left, in which it would request in the cycle before the effect of the REPEAT
        # behind it; the launch ends before it is done.
        **{f"quiet {i}": [repeat(window - 4, 2), *spread(window - 4), *behind, make(Unit.SELECT, op=31), *nothing(60)]
           for i, behind in enumerate(([repeat(1, 2), NOTHING], [repeat(1, 0), NOTHING], [repeat(0, 1)]))},
        **{f"bodies that fetch does not know, {i}": [
            *nothing(i), repeat(window - 4, 2), *spread(window - 4), repeat(window - 1, 2), repeat(window - 7, 2),
            *spread(window - 7), *spread(5), *nothing(9)] for i in range(2)},
        "ends of bursts": [command for n in (3, 5, 9, 15, 21, 27) for command in (repeat(n, 2), *nothing(n))],
        "frees at once": [*nothing(3), repeat(window, 3), *nothing(window), *nothing(2 * window), LOAD],
    }


def _chance(config: Config) -> dict[str, list[Command]]:
    out = {}
    for seed in range(8):
        rng = random.Random(seed)
        nests = Nests(rng, config, lambda rng=rng: rng.choice((NOTHING, NOTHING, LOAD, SLOW)), bytes=4)
        while True:
            program = nests.commands(rng.choice((40, 90)))
            run = interpret(program, config, [3 * i for i in range(16)], most=400)
            if run.whole and len(run.steps) > 60:
                break
        out[f"nest {seed}"] = program
    return out


def bodies(config: Config) -> list[Launch]:
    """All of them, in an order in which parameters of one launch are there in the next."""
    programs: dict[str, Sequence[Command]] = {
        "values": _values(config), "values of the launch before": [
            set_length(1, Source.WORD, index=4), *probe(1, 300), params(4, 7), set_length(1, Source.WORD, index=4),
            *probe(1, 7), set_length(2, Source.DISPLACEMENT, 9), *probe(2, 0), LOAD],
        **_legal(config), **_sizes(config), **_chance(config)}
    return [case_of(f"bodies: {name}", [*program]) for name, program in programs.items()]
