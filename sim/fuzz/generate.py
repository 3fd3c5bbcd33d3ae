"""Random legal programs: all command kinds and modes, ragged and empty shapes, just enough waits.

A program fills part of the scratchpad and the accumulator with random DRAM bytes, runs random commands
that share banks and rows freely, and brings everything that they can have changed to DRAM at its end
(``frame.py``). Waits come from the verifier's order tracker: for every race one wait, none that
another wait already implies.
"""

from __future__ import annotations

import numpy as np

from gemmule.config import Config
from gemmule.isa import COMMAND_BYTES, NUM_BASES, NUM_LENGTHS, Command, encode_program
from gemmule.sim.errors import SimulationError
from gemmule.sim.fuzz.brink import ends_of
from gemmule.sim.fuzz.broken import draw_broken
from gemmule.sim.fuzz.builder import Builder
from gemmule.sim.fuzz.draw import FAR, HOLLOW, SKIPPED, Draw
from gemmule.sim.fuzz.frame import Frame
from gemmule.sim.fuzz.write import SkippedWriter, Writer
from gemmule.sim.launch import Launch
from gemmule.sim.stream import stream_of

__all__ = ["generate", "probe"]

PROBE_BYTES = 4096
"""DRAM of a probe."""


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
    faulty = random.random() < faults
    short = faulty and draw.chance(0.2)  # some command ends a byte too late
    if faulty and not short:
        builder.mark = draw.integer(1, commands + frame.around)
    _write(builder, draw, frame, commands, brief=brief)
    dram, start = frame.memory(random), frame.program
    program, planted = builder.commands, list[Command]()
    ends = ends_of(stream_of(encode_program(program), config, bases, limits, lengths), config)
    if faulty and not short:
        at, order = builder.marked or (len(program), builder.order)
        planted = draw_broken(builder.branch(order), draw, program, len(program) - at)
        program = program[:at] + planted + program[at:]
        ends = np.maximum(ends, ends_of(stream_of(encode_program(program), config, bases, limits, lengths), config))
    reach = np.where(ends > 0, ends - bases, 0)
    limits = np.where((ends > 0) & (random.random(NUM_BASES) < 0.5), reach, limits)
    if short:
        base = draw.choice(np.flatnonzero(ends).tolist())
        limits[base] = reach[base] - 1
    image = encode_program(program)
    if draw.chance(0.7):  # anywhere in a burst
        start += COMMAND_BYTES * draw.integer(0, 2 * config.burst_bytes // COMMAND_BYTES - 1)
    elif draw.chance(0.3):  # up to the last byte
        start = frame.end - len(image)
    return Launch(f"fuzz-{seed}", seed, image, start, dram, bases, limits, lengths, faulty)


def _write(builder: Builder, draw: Draw, frame: Frame, commands: int, *, brief: bool) -> None:
    """The whole program."""
    draw.follow(builder.order.local)
    writer = Writer(builder, draw, commands)
    if brief:
        draw.long_cycles, draw.wish = 0, None
    first, last = (draw.integer(2, commands // 8) if commands >= 16 and draw.control and draw.chance(0.8) else 0
                   for _ in range(2))
    skips = draw.chance(0.3)  # before anything sets a predicate
    opening = SkippedWriter(builder, draw, SKIPPED) if skips else writer
    if first:
        opening.loop(first)
    first = len(builder.commands)
    if skips:
        opening.write(SKIPPED)
    if draw.chance(0.25):
        draw.hollow = HOLLOW
        writer.write(HOLLOW)
    for command in frame.fill(draw):
        builder.must(command)
    early, draw.due = commands // 3, draw.taken + commands * 9 // 10
    writer.write(early - first)
    draw.sealed = builder.sealed = True
    writer.write(commands - early - last, frame.dump_upper())
    builder.sealed = False
    for command in frame.dump_lower(table=draw.table, words=draw.words):
        builder.must(command)
    if last:
        writer.loop(last)


def probe(config: Config, seed: int) -> Launch:
    """A short program that moves nothing: commands at the brink of a fault, which predicates skip, then a fault."""
    random = np.random.default_rng([seed, config.dim, config.spm_kib, 1])
    bases, limits, lengths = _registers(Frame(config, SKIPPED), random)
    draw, builder = Draw(config, random, bases, lengths), Builder(config, bases, limits, lengths, random)
    draw.follow(builder.order.local)
    SkippedWriter(builder, draw, SKIPPED).write(SKIPPED)
    planted = draw_broken(builder.branch(builder.order), draw, builder.commands, 0, skipped=True)
    image = encode_program(builder.commands + planted)
    return Launch(f"probe-{seed}", seed, image, 0, np.zeros(PROBE_BYTES, dtype=np.uint8), bases, limits, lengths, True)
