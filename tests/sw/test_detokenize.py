"""Text of tokens behind others: by real tokenizers of each kind, against what they make of the whole."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gemmule.sw.decoding.stops import Cut, Stops
from gemmule.sw.text.detokenize import Detokenizer
from gemmule.sw.text.stream import TextStream
from gemmule.sw.text.tokens import detokenizer, encode_behind

from .tokenizers_of_each_kind import KINDS, byte_level, metaspace, sentence_piece

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
tokenizers = cache(lambda kind: KINDS[kind]())
numbers = st.lists(st.integers(0, 10_000), max_size=20)


def some(tokenizer: Tokenizer, drawn: list[int]) -> list[int]:
    return [number % tokenizer.get_vocab_size() for number in drawn]


@pytest.mark.parametrize("kind", KINDS)
@given(before=numbers, new=numbers)
@settings(max_examples=200, deadline=None)
def test_pieces_are_the_text_of_the_whole(kind: str, before: list[int], new: list[int]) -> None:
    """Any tokens behind any others, special ones between them; bytes that are no characters apart."""
    tokenizer = tokenizers(kind)
    before, new = some(tokenizer, before), some(tokenizer, new)
    words, pieces = detokenizer(tokenizer), list[str]()
    stream = TextStream(words.behind(before), pieces.append)
    for token in new:
        stream.advance([token])
    stream.end()
    assert "".join(pieces) == words.text(new, before)
    whole, head = (tokenizer.decode(ids, skip_special_tokens=True) for ids in ([*before, *new], before))
    if UNFINISHED not in whole + head:
        assert head + "".join(pieces) == whole


@pytest.mark.parametrize("kind", ["byte-level", "sentence-piece"])
@given(text=st.text(st.sampled_from("a e€🙂é"), max_size=12), before=st.sampled_from(["the", "€", "the <s>"]))
@settings(max_examples=150, deadline=None)
def test_characters_over_several_tokens_come_whole(kind: str, text: str, before: str) -> None:
    tokenizer = tokenizers(kind)
    words, pieces = detokenizer(tokenizer), list[str]()
    stream = TextStream(words.behind(tokenizer.encode(before).ids), pieces.append)
    for token in encode_behind(tokenizer, text):
        stream.advance([token])
        assert UNFINISHED not in "".join(pieces)
    stream.end()
    assert "".join(pieces) == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_space_before_the_first_new_token_stays(kind: str) -> None:
    tokenizer = tokenizers(kind)
    ids = tokenizer.encode("the boat came back").ids
    cut = len(tokenizer.encode("the boat").ids)
    assert detokenizer(tokenizer).text(ids[cut:], ids[:cut]) == " came back"
    alone = tokenizer.decode(ids[cut:])
    assert (alone == " came back") is (kind == "byte-level"), "what decoding new tokens alone gives"


def test_a_valid_character_is_not_taken_back() -> None:
    """Byte fallback gives up a run of bytes as a whole where its end is no character."""
    tokenizer = sentence_piece()
    euro = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "€".encode()]
    a = tokenizer.token_to_id("a")
    assert tokenizer.decode([a, *euro, euro[0], a]) == "a" + UNFINISHED * 4 + "a"
    words, pieces = detokenizer(tokenizer), list[str]()
    stream = TextStream(words.behind([a]), pieces.append)
    for token in (*euro, euro[0], a):
        stream.advance([token])
    assert pieces == ["€", UNFINISHED + "a"]
    assert words.text([*euro, euro[0]], [a]) == "€" + UNFINISHED


def test_a_long_text_before_is_not_decoded_again() -> None:
    tokenizer, sizes = byte_level(), list[int]()
    words = detokenizer(tokenizer)

    def decode(ids: list[int]) -> str:
        sizes.append(len(ids))
        return words.decode(ids)

    ids = tokenizer.encode("the boat came back " * 200).ids
    assert type(words)(decode, words.special).text(ids[600:], ids[:600]) == words.decode(ids)[
        len(words.decode(ids[:600])):]
    assert max(sizes) < 16


PIECES = ["the", " bo", "at", " ", "<|end|>", "<s>", " m", "an"]
SPECIAL = {4: "<|end|>", 5: "<s>"}
LETTERS = Detokenizer(lambda ids: "".join(PIECES[token] for token in ids if token not in SPECIAL), SPECIAL)


@pytest.mark.parametrize(("string", "text", "count"), [
    ("<|end|>", "the boat ", 5), ("at <|end|>", "the bo", 5), ("<|end|><s>", "the boat ", 6), ("<s>", "the boat ", 6),
    ("t  m", "the boa", 7), ("<s> man", "the boat ", 8), ("nd|", "the boat  man", 8), ("boat <s>", "the boat  man", 8),
])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_stop_strings_may_hold_special_tokens(string: str, text: str, count: int, size: int) -> None:
    """They end the text where they begin, whatever a step commits, and nothing of them is shown before."""
    new, pieces, tokens, found = list(range(len(PIECES))), list[str](), list[int](), Cut([])
    watch = Stops(strings=[string], words=LETTERS).behind([])
    stream = TextStream(LETTERS.behind([]), pieces.append, [string])
    for begin in range(0, len(new), size):
        found = watch.cut(new[begin:begin + size])
        tokens += found.new
        stream.advance(found.new)
        assert text.startswith("".join(pieces))
        if found.stopped:
            break
    stream.end(found.end)
    assert (tokens, found.stopped, "".join(pieces)) == (new[:count], text != "the boat  man", text)
    assert LETTERS.text(tokens)[:found.end] == text


def test_text_behind_other_text_gets_no_space() -> None:
    for tokenizer in (sentence_piece(), metaspace()):
        ids = tokenizer.encode("the boat").ids + encode_behind(tokenizer, "s came back")
        assert tokenizer.decode(ids) == "the boats came back"
    tokenizer = byte_level()
    for text in ("s came", " came", "\n came", "\n\n", "<|end|>\n", ""):
        assert encode_behind(tokenizer, text) == tokenizer.encode(text, add_special_tokens=False).ids
