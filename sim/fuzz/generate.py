"""Random legal programs: all command kinds and modes, ragged and empty shapes, just enough waits.

A program fills part of the scratchpad and the accumulator with random DRAM bytes, runs random commands
that share banks and rows freely, and brings everything that they can have changed to DRAM at its end
(``frame.py``). Waits come from the verifier's order tracker: for every race one wait, none that
another wait already implies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS, Command, body_of, encode, encode_program
from gemmule.sim.errors import SimulationError
from gemmule.sim.fuzz.brink import PLACES, beyond, ends_of
from gemmule.sim.fuzz.builder import Builder, Candidate, far, skipped
from gemmule.sim.fuzz.commands import draw_command
from gemmule.sim.fuzz.draw import FAR, HOLLOW, SKIPPED, Draw, Note
from gemmule.sim.fuzz.faults import faulty_commands
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.launch import Launch

__all__ = ["generate", "probe"]

PROBE_BYTES = 4096
"""DRAM of a probe."""


def _body(builder: Builder, draw: Draw, commands: int, between: Sequence[Command] = ()) -> None:
    """Random commands, the given ones spread between them.

    Of a few candidates the one that its waits hold up least: units then work side by side.
    """
    strengthen = draw.choice([0.0, 0.0, 0.0, 0.1, 0.3])
    tries = draw.choice([2, 4, 5])
    for i in range(commands):
        for command in between[i * len(between) // commands:(i + 1) * len(between) // commands]:
            builder.must(command)
        best: Candidate | None = None
        notes: Sequence[Note] = ()
        left = 1 if draw.hollow else tries
        while left or best is None:
            command, about = draw_command(draw)
            if not draw.asked and draw.chance(0.03):
                places = [name for name, _ in body_of(command.unit) if name in PLACES]
                command = far(builder, draw, command, places)
            found = builder.plan(replace(command, predicate=draw.predicate()), strengthen)
            if found is None:
                continue
            left -= 1
            if draw.asked:
                best, notes = found, () if found.command.predicate else about
                break
            # Empty commands need no waits; they must not win by that.
            if best is None or found.cost < best.cost and not found.empty:
                best, notes = found, () if found.command.predicate else about
            if not best.command.waits:
                break
        builder.accept(best)
        draw.accept(notes)


def _registers(frame: Frame, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Base 0 sees everything, 15 the last bytes of the DRAM, FAR any; the others start somewhere, odd ones at any byte.

    Few lengths are empty or large.
    """
    bus, source, target = frame.config.bus_bytes, frame.source, frame.target
    bases = np.zeros(NUM_BASES, dtype=np.int64)
    bases[1:] = random.integers(0, source // bus, NUM_BASES - 1) * bus
    bases[16:] = source + random.integers(0, target // 2 // bus, NUM_BASES - 16) * bus
    bases[1::2] += random.integers(0, bus, NUM_BASES // 2)
    limits = np.where(np.arange(NUM_BASES) < 16, source, source + target) - bases
    space = 1 << frame.config.address_bits
    bases[15] = frame.end - random.integers(1, 4096)
    limits[[0, 15]] = min(frame.end, space - 1), frame.end - bases[15]
    for base in FAR:
        bases[base] = random.integers(1, space)
        limits[base] = random.choice([space - 1, int(random.integers(0, space))])
    lengths = random.integers(0, 4 * frame.config.dim, NUM_LENGTHS)
    lengths[random.integers(1, NUM_LENGTHS, 2)] = 0
    lengths[random.integers(1, NUM_LENGTHS, 2)] = random.integers(200, 4000, 2)
    return bases, limits, lengths.astype(np.int64)


def generate(config: Config, seed: int, commands: int = 150, *, faults: float = 0.0, brief: bool = False,
             taste: type[Draw] = Draw) -> Launch:
    """A random program of ``commands`` commands between its fill and its dump.

    Half of the limits end where the program's last access does. With chance ``faults`` one more command, somewhere,
    faults, or a limit register is a byte short. A ``brief`` program has no very long commands; a ``taste`` draws other
    sizes.

    Raises:
        SimulationError: the address space has no room for so many.
    """
    random = np.random.default_rng([seed, config.dim, config.spm_kib])
    frame = Frame(config, commands)
    if commands > frame.most:
        raise SimulationError(
            f"fuzz: {commands} commands a program do not fit address_bits = {config.address_bits} (at most "
            f"{max(frame.most, 0)}): use fewer --commands, more address_bits or smaller memories")
    bases, limits, lengths = _registers(frame, random)
    draw = taste(config, random, bases, lengths)
    builder = Builder(config, bases, limits, lengths, random)
    builder.program = range(frame.program, frame.end)
    if brief:
        draw.long_cycles, draw.wish = 0, None
    if draw.chance(0.3):
        skipped(builder, draw, SKIPPED)
    if draw.chance(0.25):
        draw.hollow = HOLLOW
        _body(builder, draw, HOLLOW)
    for command in frame.fill(draw):
        builder.must(command)
    early, draw.due = commands // 3, draw.taken + commands * 9 // 10
    _body(builder, draw, early)
    draw.sealed = builder.sealed = True
    _body(builder, draw, commands - early, frame.dump_upper())
    builder.sealed = False
    for command in frame.dump_lower(table=draw.table, words=draw.words):
        builder.must(command)
    dram, start = frame.memory(random), frame.program
    image = encode_program(builder.commands)
    faulty = random.random() < faults
    ends = ends_of(builder.order, builder.commands, bases, config)
    limits = np.where((ends > 0) & (random.random(NUM_BASES) < 0.5), ends, limits)
    if faulty and draw.chance(0.2):
        short = draw.choice(np.flatnonzero(ends).tolist())  # some command now ends a byte too late
        limits[short] = ends[short] - 1
    elif faulty:
        at = int(random.integers(1, len(builder.commands))) * COMMAND_BYTES
        image = image[:at] + _broken(builder, draw) + image[at:]
    if draw.chance(0.7):  # anywhere in a burst
        start += COMMAND_BYTES * draw.integer(0, 2 * config.burst_bytes // COMMAND_BYTES - 1)
    elif draw.chance(0.3):  # up to the last byte
        start = frame.end - len(image)
    return Launch(f"fuzz-{seed}", seed, image, start, dram, bases, limits, lengths, faulty)


def _broken(builder: Builder, draw: Draw) -> bytes:
    """A command that faults: one of a list, or one of the program's with something wrong."""
    command = (draw.choice(faulty_commands(draw.config, draw.bases, draw.random)) if draw.chance(0.5) else
               beyond(builder.order, builder.commands, draw.random))
    return encode(command).to_bytes(COMMAND_BYTES, "little")


def probe(config: Config, seed: int) -> Launch:
    """A short program that moves nothing: commands at the brink of a fault, which predicates skip, then a fault."""
    random = np.random.default_rng([seed, config.dim, config.spm_kib, 1])
    bases, limits, lengths = _registers(Frame(config, SKIPPED), random)
    draw, builder = Draw(config, random, bases, lengths), Builder(config, bases, limits, lengths, random)
    skipped(builder, draw, SKIPPED)
    image = encode_program(builder.commands) + _broken(builder, draw)
    return Launch(f"probe-{seed}", seed, image, 0, np.zeros(PROBE_BYTES, dtype=np.uint8), bases, limits, lengths, True)
