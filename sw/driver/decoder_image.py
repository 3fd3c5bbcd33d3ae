"""A compiled decoder as an image for the driver in C: programs, weights, and the registers of a launch as rules.

The registers of a launch are affine in its new rows, the cached rows and whether an answer is wanted. The rules are
measured from the program's own registers and checked on many launches, so that the C side knows nothing about regions.

Everything is a little-endian 32-bit word unless said otherwise; addresses are two words, the low one first. In order:
the head (:class:`Head`), the tokens that end a text, a prompt, segments (:class:`Segment`) of DRAM content, programs
(:class:`Part`), each with its rules (:class:`Rule`), texts of tokens if there are any (offsets of all tokens and one
more, then bytes), and the content of all segments.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gemmule.compiler.errors import CompileError
from gemmule.compiler.kernels.attention.shared import CACHE, MASKS
from gemmule.compiler.kernels.embed import POSITIONS, TOKENS
from gemmule.compiler.kernels.head.ids import PLANE, planes_in
from gemmule.compiler.kernels.head.logits import ANSWERS
from gemmule.compiler.programs.chosen.pages_program import PagesProgram
from gemmule.compiler.programs.halves.packed_program import PackedProgram
from gemmule.compiler.programs.model_program import ModelProgram
from gemmule.compiler.programs.prefill import PrefillProgram
from gemmule.isa import COMMAND_BYTES, NUM_BASES
from gemmule.sw.models.placed import Placed

__all__ = ["MAGIC", "Head", "Part", "Rule", "Segment", "decoder_image"]

MAGIC = 0x31444D47
NOWHERE = (1 << 64) - 1
"""The address of what a program does not have."""
PROMPT_PROGRAM = 1
"""Kind of a program that answers nothing; the others are 0."""
BASE, LIMIT, LENGTH = range(3)
"""Kinds of registers."""
CHECKED = 64
"""Launches on which the rules of a program are checked."""


class Head(NamedTuple):
    """The first words of an image; sizes count entries, or bytes where they say so."""

    magic: int
    configuration: int
    size: int  # bytes of the image
    vocab: int
    positions: int  # of a text, constant rows included
    constant: int  # rows with which the cache begins
    dim: int
    logits: int  # 1: programs answer with logits, 0: with greedy tokens
    plane: int  # bytes from the lower halves of ids to the upper ones
    ends: int
    prompt: int
    segments: int
    programs: int
    texts: int  # 1: there are some


class Segment(NamedTuple):
    """Content of DRAM; ``offset`` counts bytes of the image."""

    address_low: int
    address_high: int
    offset: int
    size: int


class Part(NamedTuple):
    """A program; programs that take few rows come first, the one for prompts last."""

    kind: int
    rows: int  # at most, of a launch
    positions: int  # at most, cached and new
    share: int  # heads with the same masks
    commands: int  # of a launch with an answer
    silent: int  # of a launch without one
    token_planes: int
    position_planes: int
    answer_planes: int  # of greedy tokens
    rules: int
    program: int  # addresses, two words each
    tokens: int
    where: int  # positions of the new rows
    masks: int
    answers: int


class Rule(NamedTuple):
    """A register of a launch: ``constant + rows * by_row + cached * by_cached + answered * by_answer``.

    Constant and factors are signed.
    """

    kind: int
    number: int
    constant: int
    by_row: int
    by_cached: int
    by_answer: int


def _address(program: ModelProgram, name: str) -> int:
    return program.symbols[name][0] if name in program.symbols else NOWHERE


def _registers(program: ModelProgram, rows: int, cached: int, answered: int) -> np.ndarray:
    """All registers of a launch, by kind and number  # int64 [80]."""
    made = program.registers(rows, cached, answered)
    if made.first:
        raise CompileError("a decoder image takes programs whose commands are the same in every launch")
    return np.concatenate([made.bases, made.limits, made.lengths])


def _rules(program: ModelProgram) -> Iterator[Rule]:
    """The registers of a program's launches that are not always 0.

    Raises:
        CompileError: they do not follow such rules.
    """
    answers = 0 if isinstance(program, PrefillProgram) else 1
    one = _registers(program, 1, 0, 0)
    zero = np.zeros_like(one)
    by_row = _registers(program, 2, 0, 0) - one if program.max_rows > 1 else zero
    by_cached = _registers(program, 1, 1, 0) - one if program.max_positions > 1 else zero
    by_answer = _registers(program, 1, 0, 1) - one if answers else zero
    constant = one - by_row
    draw = random.Random(program.max_rows)
    for _ in range(CHECKED):
        rows, answered = draw.randint(1, program.max_rows), draw.randint(0, answers)
        cached = draw.choice([0, program.max_positions - rows, draw.randint(0, program.max_positions - rows)])
        expected = constant + rows * by_row + cached * by_cached + answered * by_answer
        if not np.array_equal(_registers(program, rows, cached, answered), expected):
            raise CompileError("a decoder image takes programs whose registers grow evenly with rows and cached rows")
    for at in np.flatnonzero(constant | by_row | by_cached | by_answer).tolist():
        kind, number = (at // NUM_BASES, at % NUM_BASES) if at < 2 * NUM_BASES else (LENGTH, at - 2 * NUM_BASES)
        if (kind, number) != (LENGTH, 0):  # which reads 65535 whatever is written
            yield Rule(kind, number, int(constant[at]), int(by_row[at]), int(by_cached[at]), int(by_answer[at]))


def _part(program: ModelProgram, rules: int) -> Part:
    commands = [len(program.image_of(program.registers(1, 0, wanted))) // COMMAND_BYTES
                for wanted in (0, 0 if isinstance(program, PrefillProgram) else 1)]
    planes = {name: planes_in(program.symbols[name][1]) if name in program.symbols else 0
              for name in (TOKENS, POSITIONS, ANSWERS)}
    return Part(
        kind=PROMPT_PROGRAM if isinstance(program, PrefillProgram) else 0, rows=program.max_rows,
        positions=program.max_positions, share=program.share, commands=commands[1], silent=commands[0],
        token_planes=planes[TOKENS], position_planes=planes[POSITIONS], answer_planes=planes[ANSWERS], rules=rules,
        program=program.program_address, tokens=_address(program, TOKENS), where=_address(program, POSITIONS),
        masks=_address(program, MASKS), answers=_address(program, ANSWERS))


def _segments(placed: Placed) -> Iterator[tuple[int, bytes]]:
    """(address, content) of DRAM, but for rows of the cache that the device writes."""
    base, dram = placed.program.base_address, placed.dram
    first, size = placed.program.symbols[CACHE]
    first -= base
    used = np.flatnonzero(dram[first:first + size])  # rows with which every cache begins
    last = first + (int(used[-1]) + 1 if len(used) else 0)
    for begin, end in ((0, last), (first + size, len(dram))):
        if end > begin:
            yield base + begin, dram[begin:end].tobytes()


def _refuse(placed: Placed) -> None:
    """Raises: CompileError: the programs are of a kind that needs more of its host than an image says."""
    program = placed.program
    if program.batch > 1 or program.pool or program.lends or program.borrows or isinstance(
            program, (PackedProgram, PagesProgram)):
        raise CompileError("a decoder image takes a decoder of one text with its whole cache in order")


def decoder_image(placed: Placed, *, prompt: Sequence[int], ends: Sequence[int] = (),
                  texts: Sequence[bytes] = ()) -> bytes:
    """The image of a placed decoder. ``texts``: of every token, to be printed.

    Raises:
        CompileError: its programs need more of their host than an image says.
        ValueError: there are other texts than tokens.
    """
    _refuse(placed)
    if texts and len(texts) != placed.program.graph.vocab:
        raise ValueError(f"texts must be those of all {placed.program.graph.vocab} tokens, not {len(texts)}")
    program, config = placed.program, placed.program.config
    programs = [*placed.narrow, program, *([placed.prefill] if placed.prefill else [])]
    rules = [{rule[:2]: rule for rule in _rules(each)} for each in programs]
    every = sorted({place for found in rules for place in found})  # what one program sets, the others clear
    described = [(each, [found.get(place, Rule(*place, 0, 0, 0, 0)) for place in every])
                 for each, found in zip(programs, rules)]
    content = list(_segments(placed))
    words = struct.Struct("<I")
    body = b"".join(map(words.pack, [*sorted(ends), *prompt]))
    parts = b"".join(
        struct.pack("<10I5Q", *_part(each, len(listed))) + b"".join(struct.pack("<2Iq3i", *rule) for rule in listed)
        for each, listed in described)
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]) if len(texts) else np.zeros(0)
    told = offsets.astype("<u4").tobytes() + b"".join(texts)
    told += bytes(-len(told) % 4)
    at = 4 * len(Head._fields) + len(body) + 16 * len(content) + len(parts) + len(told)
    table, data = b"", b""
    for address, piece in content:
        table += struct.pack("<4I", address & 0xFFFFFFFF, address >> 32, at + len(data), len(piece))
        data += piece + bytes(-len(piece) % 4)
    head = Head(
        magic=MAGIC, configuration=config.identity, size=at + len(data), vocab=program.graph.vocab,
        positions=program.text_positions, constant=program.graph.prefix, dim=config.dim, logits=int(not program.tokens),
        plane=PLANE, ends=len(ends), prompt=len(prompt), segments=len(content), programs=len(programs),
        texts=int(len(texts) > 0))
    return struct.pack(f"<{len(head)}I", *head) + body + table + parts + told + data
