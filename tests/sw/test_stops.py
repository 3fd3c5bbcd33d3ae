"""What ends a text, and text that is shown as it comes: against rules as they are told, on random pieces."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmule.config import load_config
from gemmule.sw.decoding.generate import generate
from gemmule.sw.decoding.methods.ar import Autoregressive
from gemmule.sw.decoding.stops import Cut, Stops
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.text.detokenize import Detokenizer
from gemmule.sw.text.stream import TextStream

from .test_decoding import DRAFTERS, FakeModel, FixedDrafter, TreeDrafter, bushy

EURO = "€".encode()
PIECES = [b"a", b"b", b"ab", b"ba", b"aab", b"\n", b"\nb", b" ", EURO[:1], EURO[1:], EURO, b"abab", b"c", b"",
          b"\na", b"bb"]
"""Of each token, as bytes: characters may be cut."""


def decode(ids: list[int]) -> str:
    return b"".join(PIECES[token] for token in ids).decode("utf-8", errors="replace")


WORDS = Detokenizer(decode)
tokens = st.lists(st.integers(0, len(PIECES) - 1), max_size=24)
strings = st.lists(st.text("ab\n€", min_size=1, max_size=4), min_size=1, max_size=3)


def slow_cut(text: list[int], ends: frozenset[int], stops: list[str]) -> Cut:
    """Token by token, the tokens' own end last: a stop string in the same token counts first."""
    for count in range(1, len(text) + 1):
        words = decode(text[:count])
        places = sorted((words.find(stop), -len(stop)) for stop in stops if stop in words)
        if places:
            end, size = places[0]
            return Cut(text[:count], True, words[end:end - size], end)
        if text[count - 1] in ends:
            return Cut(text[:count], True)
    return Cut(text)


@given(tokens, st.frozensets(st.integers(0, 15), max_size=2), strings, st.lists(st.integers(1, 5), min_size=24))
@settings(max_examples=300, deadline=None)
def test_the_cut_does_not_depend_on_steps(text: list[int], ends: frozenset[int], stops: list[str],
                                          sizes: list[int]) -> None:
    expected, found, at = slow_cut(text, ends, stops), Cut([]), 0
    before: list[int] = []
    watch = Stops(ends, stops, WORDS).behind([])
    for size in sizes:
        if found.stopped or at >= len(text):
            break
        found = watch.cut(text[at:at + size])
        before, at = before + found.new, at + size
    assert before == expected.new
    assert (found.stopped, found.string, found.end) == (expected.stopped, expected.string, expected.end)


@given(tokens, strings, st.lists(st.integers(1, 5), min_size=24))
@settings(max_examples=300, deadline=None)
def test_shown_text_is_the_text(text: list[int], stops: list[str], sizes: list[int]) -> None:
    """Whatever comes in a piece, nothing is taken back; a stop string is never begun."""
    cut, pieces, at = Stops(strings=stops, words=WORDS).behind([]).cut(text), list[str](), 0
    stream = TextStream(WORDS.behind([]), pieces.append, stops)
    whole = decode(cut.new)[:cut.end]
    for size in sizes:
        stream.advance(cut.new[at:at + size])
        at += size
        assert whole.startswith("".join(pieces))
    stream.end(cut.end)
    assert "".join(pieces) == whole
    assert all(pieces)


def test_text_is_shown_as_soon_as_it_is_settled() -> None:
    pieces: list[str] = []
    stream = TextStream(WORDS.behind([]), pieces.append, ["ba"])
    for token in (0, 8, 9, 1, 5):  # a, a euro sign in two tokens, b, which may begin ba, a new line
        stream.advance([token])
    assert pieces == ["a", "€", "b\n"]


def test_of_several_the_first_then_the_longest() -> None:
    watch = Stops(strings=("b", "aab", "ab"), words=WORDS).behind([])
    assert watch.cut([12]) == Cut([12])
    assert watch.cut([4]) == Cut([4], True, "aab", 1)
    assert Stops(strings=("a", "aa"), words=WORDS).behind([]).cut([12, 4]) == Cut([12, 4], True, "aa", 1)
    assert Stops(frozenset({4}), ("zz",), WORDS).behind([]).cut([12, 4, 1]) == Cut([12, 4], True)


@pytest.mark.parametrize("name", [*DRAFTERS, "trees"])
def test_strings_end_every_method_at_the_same_place(name: str) -> None:
    """Each piece of the text that autoregressive decoding gives is declared the stop string in turn."""
    def run(drafter, stops: Stops):
        return generate(FakeModel(), drafter, [3, 1, 4], 30, Ledger(load_config("tiny")), stops)

    whole = decode(run(Autoregressive(), Stops()).tokens)
    random, spanned = np.random.default_rng(4), 0
    for _ in range(40):
        at, size = int(random.integers(len(whole) - 1)), int(random.integers(1, 6))
        stops = Stops(strings=[whole[at:at + size]], words=WORDS)
        expected = run(Autoregressive(), stops)
        drafter = TreeDrafter(bushy) if name == "trees" else FixedDrafter(DRAFTERS[name])
        seen = run(drafter, stops)
        assert seen.finish_reason == expected.finish_reason == "stop"
        assert (seen.tokens, seen.text_end, seen.stop_string) == (
            expected.tokens, expected.text_end, expected.stop_string)
        assert decode(seen.tokens)[:seen.text_end] == whole[:whole.index(whole[at:at + size])]
        spanned += len(PIECES[seen.tokens[-1]].decode(errors="replace")) < size
    assert spanned > 5, "some strings go over several tokens"


def test_what_is_no_stop() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        Stops(strings=("a", ""), words=WORDS)
    with pytest.raises(ValueError, match="detokenizer"):
        Stops(strings=("a",))
