"""Texts that a model writes by itself: request, template, answer, and where they end."""

from __future__ import annotations

from safetensors.numpy import load

from gemmule.sw.training.writings import ANSWERED, ASKED, Text, packed

END, TAIL = 2, [2, 7, 1]


def begun() -> Text:
    return Text(given=[1, 5], tail=TAIL)


def test_a_text_is_a_drawn_request_and_a_greedy_answer() -> None:
    text = begun()
    for drawn, likeliest, over in ((9, 9, False), (9, 9, False), (20, 30, False), (21, 31, False), (END, 32, False),
                                   (8, 8, False), (8, 8, False), (22, 33, False), (END, 34, False), (23, END, True)):
        assert text.add(drawn, likeliest, END) == over
    assert text.written == [1, 5, 20, 21, *TAIL, 33, 34, END]
    assert text.answered == 3


def test_long_texts_end() -> None:
    text, steps = begun(), 1
    while not text.add(20, 30, END):
        steps += 1
    assert text.written == [1, 5, *[20] * ASKED, *TAIL, *[30] * ANSWERED]
    assert steps == len(text.written)


def test_the_file_has_each_text_once() -> None:
    assert load(packed([[1, 2], [3], [1, 2]], 9))["tokens"].tolist() == [1, 2, 9, 3, 9]
