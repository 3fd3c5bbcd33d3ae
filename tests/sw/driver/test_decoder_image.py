"""Decoder images: their rules give the registers of any launch, and what needs more of its host is refused."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from gemmule.compiler.compile import compile_network
from gemmule.compiler.errors import CompileError
from gemmule.config import load_config
from gemmule.sw.driver.decoder import placed_decoder, token_texts
from gemmule.sw.driver.decoder_image import MAGIC, Head, Part, Rule, Segment, decoder_image
from gemmule.sw.errors import InputError
from gemmule.sw.models.pair import bundled_pair
from gemmule.sw.models.placed import Placed

TINY = load_config("tiny")


def read(image: bytes) -> tuple[Head, list[int], list[int], list[Segment], list[tuple[Part, list[Rule]]], int]:
    """Everything of an image but texts and content, and where texts begin."""
    head = Head(*struct.unpack_from(f"<{len(Head._fields)}I", image))
    at = 4 * len(head)

    def words(count: int) -> list[int]:
        nonlocal at
        found = list(struct.unpack_from(f"<{count}I", image, at))
        at += 4 * count
        return found

    ends, prompt = words(head.ends), words(head.prompt)
    segments, programs = [Segment(*words(4)) for _ in range(head.segments)], []
    for _ in range(head.programs):
        part = Part(*struct.unpack_from("<10I5Q", image, at))
        at += 80
        rules = [Rule(*struct.unpack_from("<2Iq3i", image, at + 28 * i)) for i in range(part.rules)]
        at += 28 * part.rules
        programs.append((part, rules))
    return head, ends, prompt, segments, programs, at


def test_it_holds_what_launches_need() -> None:
    pair = bundled_pair()
    placed = placed_decoder(pair, "draft", TINY, rows=4)
    texts = token_texts(pair.tokenizer, pair.vocab)
    image = decoder_image(placed, prompt=[7, 8, 9], ends=[1, 3], texts=texts)
    head, ends, prompt, segments, programs, at = read(image)
    assert (head.magic, head.configuration, head.size) == (MAGIC, TINY.identity, len(image))
    assert (ends, prompt) == ([1, 3], [7, 8, 9])
    assert struct.pack("<I", MAGIC) == b"GMD1"
    offsets = struct.unpack_from(f"<{pair.vocab + 1}I", image, at)
    begin = at + 4 * (pair.vocab + 1)
    assert [image[begin + a:begin + b] for a, b in zip(offsets, offsets[1:])] == texts
    dram = np.zeros_like(placed.dram)
    for segment in segments:
        address = segment.address_low | segment.address_high << 32
        dram[address:address + segment.size] = np.frombuffer(image, np.uint8, segment.size, segment.offset)
    assert np.array_equal(dram, placed.dram)
    every = [*placed.narrow, placed.program, placed.prefill]
    assert len(placed.narrow) > 0, "programs beside the plain one are what makes this hard"
    assert [part.rows for part, _ in programs] == [program.max_rows for program in every]
    draw = random.Random(1)
    for program, (part, rules) in zip(every, programs, strict=True):
        for _ in range(50):
            rows = draw.randint(1, program.max_rows)
            cached, answered = draw.randint(0, 256 - rows), draw.randint(0, program is not placed.prefill)
            registers = program.registers(rows, cached, answered)
            seen = [np.zeros(32, int), np.zeros(32, int), np.zeros(16, int)]
            for rule in rules:
                seen[rule.kind][rule.number] = (
                    rule.constant + rows * rule.by_row + cached * rule.by_cached + answered * rule.by_answer)
            seen[2][0] = 65535
            assert all(np.array_equal(mine, other) for mine, other in zip(seen, registers, strict=True))
            assert len(program.image_of(registers)) == 32 * (part.commands if answered else part.silent)


def test_it_refuses_programs_whose_host_does_more() -> None:
    pair = bundled_pair()
    placed = placed_decoder(pair, "draft", load_config("edge"))
    batch = compile_network(placed.network, load_config("edge"), rows=2, batch=2, tokens=True)
    with pytest.raises(CompileError, match="a decoder of one text with its whole cache in order"):
        decoder_image(Placed(placed.network, batch, batch.fill(placed.network)), prompt=[5])
    with pytest.raises(ValueError, match="texts must be those of all 1024 tokens, not 1"):
        decoder_image(placed, prompt=[5], texts=[b"a"])


def test_a_pair_without_a_draft_has_none_to_export() -> None:
    from dataclasses import replace

    with pytest.raises(InputError, match="--network draft needs a draft model"):
        placed_decoder(replace(bundled_pair(), draft=None), "draft", TINY)
