"""Names of the forms in which control commands come, and which of them a launch has run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemmule.config import Config
from gemmule.control import MAX_DEPTH, Local, Loop, Sequence, begin, execute, new_local, take
from gemmule.isa import CONTROL, MAX_LENGTH, PARAMS_WORDS, TABLE_FIELDS, COp, Source, Target, control_columns
from gemmule.resolve import config_vector
from gemmule.sim.launch import Launch
from gemmule.sim.stream import Stream

__all__ = ["FORMS", "RARE", "forms_of"]

_BODIES = ("none", "once", "several", "one_command", "below_window", "window", "above_window", "short", "long",
           "short_in_long", "long_in_long", "register", "shifted", "offset", "changing", "begins", "ends")
FORMS: dict[str, tuple[str, ...]] = {
    "set": (*(f"{target.name.lower()}_{source.name.lower()}" for target in Target for source in Source),
            "register_0", "odd_half", "indexed", "below_0", "above_65535", "wraps_down", "wraps_up", "within_modulus",
            "space_wraps", "length_0"),
    "params": ("first", "last"),
    "repeat": (*(f"depth_{depth}" for depth in range(1, MAX_DEPTH + 1)), *_BODIES),
}
"""By control command; of REPEAT all but ``none``, ``begins`` and ``ends`` are of bodies that come. ``changing``: not as
often as when the same REPEAT came before. ``begins``, ``ends``: with the program."""
RARE = frozenset(f"repeat+{name}" for name in (
    "below_window", "window", "above_window", "long_in_long", "changing", "begins", "ends"))
"""Forms of which a program has room for few."""
_OP = TABLE_FIELDS.index("op")
_SET, _REPEAT = control_columns(COp.SET), control_columns(COp.REPEAT)
_FIRST = control_columns(COp.PARAMS)["first"]


def forms_of(case: Launch, stream: Stream, config: Config) -> Iterator[str]:
    """``set+length_half`` and so on, one by one, of the control commands of a launch; each also by its bare name.

    The contract's own functions say what registers held.
    """
    local, cfg = new_local(config), config_vector(config)
    begin(local, case.bases, case.limits, case.lengths, len(stream.table))
    turns: dict[int, int] = {}
    for place, unit in zip(stream.places[:stream.good].tolist(), stream.units.tolist()):
        assert place == local.sequence[Sequence.PLACE], "the stream is that of the contract"
        take(local)
        if unit != CONTROL:
            continue
        row = stream.table[place]
        kind = COp(int(row[_OP])).name.lower()
        yield kind
        before = Local(*(part.copy() for part in local)) if row[_OP] == COp.SET else local
        at = local.sequence[Sequence.DEPTH]
        execute(row, local, cfg)
        if row[_OP] == COp.SET:
            found = _set_forms(row, before, local, config)
        elif row[_OP] == COp.PARAMS:
            ends = {0: "first", config.parameter_words - PARAMS_WORDS: "last"}
            found = [ends[int(row[_FIRST])]] if int(row[_FIRST]) in ends else []
        else:
            times = int(local.loops[at, Loop.TURNS]) if local.sequence[Sequence.DEPTH] > at else 0
            found = _repeat_forms(row, local, times, int(at), config)
            if times and turns.setdefault(place, times) != times:
                found.append("changing")
            if place == 0:
                found.append("begins")
            if place + 1 + row[_REPEAT["body"]] == len(stream.table):
                found.append("ends")
        yield from (f"{kind}+{form}" for form in found)


def _set_forms(row: np.ndarray, before: Local, after: Local, config: Config) -> list[str]:
    target, number, source, register, index, amount, modulus = (int(row[_SET[name]]) for name in (
        "target", "target_reg", "source", "source_reg", "index", "amount", "modulus"))
    found = [f"{Target(target).name.lower()}_{Source(source).name.lower()}"]
    value = amount
    if source == Source.LENGTH:
        value += int(before.lengths[register]) if register else MAX_LENGTH
        found += [] if register else ["register_0"]
    elif source == Source.DISPLACEMENT:
        value += int(before.displacements[register])
    elif source != Source.ZERO:
        at = index + (int(before.lengths[register]) if register else 0)
        word = int(before.words[at // 2 if source == Source.HALF else at])
        value += word >> 16 * (at & 1) & MAX_LENGTH if source == Source.HALF else word
        found += ["indexed"] if register else []
        found += ["odd_half"] if source == Source.HALF and at & 1 else []
    if target == Target.DISPLACEMENT:
        return found + (["space_wraps"] if not 0 <= value < 1 << config.address_bits else [])
    if modulus:
        way = "wraps_down" if value >= modulus else "wraps_up" if value < 0 else "within_modulus"
        found.append(way)
        value += {"wraps_down": -modulus, "wraps_up": modulus, "within_modulus": 0}[way]
    found += ["below_0"] if value < 0 else ["above_65535"] if value > MAX_LENGTH else []
    found += [] if after.lengths[number] else ["length_0"]
    return found


def _repeat_forms(row: np.ndarray, local: Local, times: int, depth: int, config: Config) -> list[str]:
    body, register, offset, shift = (int(row[_REPEAT[name]]) for name in (
        "body", "times_reg", "times_offset", "times_shift"))
    if times == 0:
        return ["none"]
    long = body > config.fetch_queue
    window = {-1: "below_window", 0: "window", 1: "above_window"}.get(body - config.fetch_queue, "")
    within = any(local.loops[at, Loop.COMMANDS] > config.fetch_queue for at in range(depth))
    return [name for name, there in (
        (f"depth_{depth + 1}", True), ("once", times == 1), ("several", times > 1), ("one_command", body == 1),
        (window, window), ("long", long), ("short", not long), ("long_in_long", long and within),
        ("short_in_long", not long and within), ("register", register), ("shifted", shift), ("offset", offset),
    ) if there]
