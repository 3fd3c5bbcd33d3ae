"""Tokenizers of checkpoints, and their text as windows of tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from gemmule.io.reading import ReadError, brief, named, read_regular
from gemmule.sw.errors import InputError
from gemmule.sw.text.detokenize import Detokenizer

__all__ = [
    "detokenizer", "encode_behind", "load_tokenizer", "parse_tokenizer", "sentence_windows", "token_windows",
]

LINE_END = "\n"
"""Behind which text is encoded as in the middle of a text."""

MOST_BYTES = 1 << 27
"""Of a tokenizer.json; those of the largest vocabularies have 35 million."""


def parse_tokenizer(text: str, source: str, vocab: int) -> Tokenizer:
    """A tokenizer from the text of its ``tokenizer.json``.

    Raises:
        InputError: it is none, or has ids that the model lacks.
    """
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises plain Exception for whatever is wrong
        raise InputError(f"{source} is not a tokenizer: {brief(str(error), 120)}") from None
    if (size := tokenizer.get_vocab_size()) > vocab:
        raise InputError(f"{source} must have at most the model's {vocab:,} tokens, not {size:,}: it belongs to "
                         "another model")
    # Those of sentence encoders cut and pad every text to one length, where nothing else is said.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def load_tokenizer(folder: Path, vocab: int) -> tuple[Tokenizer, str]:
    """The tokenizer of a checkpoint, and its text.

    Raises:
        InputError: there is none, it cannot be read, or it is another model's.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{named(folder)} must hold a tokenizer.json: save the tokenizer of the model there "
                         "(`save_pretrained` of a fast tokenizer writes it)")
    try:
        text = read_regular(path, MOST_BYTES).decode()
    except ReadError as error:
        raise InputError(f"{named(path)} {error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{named(path)} is not UTF-8 text at byte {error.start}") from None
    return parse_tokenizer(text, named(path), vocab), text


def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    """What makes text of the tokenizer's ids."""
    added = tokenizer.get_added_tokens_decoder()
    return Detokenizer(lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True)),
                       {number: token.content for number, token in added.items() if token.special})


def encode_behind(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of text that comes behind other text: without a token or a space that begins a text.

    SentencePiece-like tokenizers put a space before whatever they are given; behind a line end they do not.
    """
    def ids(words: str) -> list[int]:
        return list(tokenizer.encode(words, add_special_tokens=False).ids)

    def behind(words: str) -> list[int]:
        """Without the line end; as if alone where it became one token with what follows."""
        ahead, both = ids(LINE_END), ids(LINE_END + words)
        return both[len(ahead):] if both[:len(ahead)] == ahead else ids(words)

    begins_otherwise = behind("a") != ids("a")
    return behind(text) if begins_otherwise else ids(text)


def sentence_windows(tokenizer: Tokenizer, text: str, length: int, option: str) -> np.ndarray:
    """The text as sequences of an encoder, int64 [windows, length], each within the tokenizer's special tokens.

    Raises:
        InputError: there is not one window of text.
    """
    special = tokenizer.num_special_tokens_to_add(is_pair=False)
    if length <= special:
        raise InputError(f"--window must be more than the {special} special tokens of a sequence, not {length}")
    tokenizer.enable_truncation(length)
    found = tokenizer.encode(text)
    tokenizer.no_truncation()
    ids = [part.ids for part in (found, *found.overflowing) if len(part.ids) == length]
    if not ids:
        raise InputError(f"{option} must hold at least {length} tokens, not {len(found.ids)}: give more text or a "
                         "smaller --window")
    return np.array(ids, dtype=np.int64)


def token_windows(tokenizer: Tokenizer, text: str, length: int, option: str) -> np.ndarray:
    """The text as windows of tokens, int64 [windows, length]; what does not fill one is left out.

    Raises:
        InputError: there is not one window of text.
    """
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
    if len(ids) < length:
        raise InputError(f"{option} must hold at least {length} tokens, not {len(ids)}: give more text or a smaller "
                         "--window")
    return ids[:len(ids) // length * length].reshape(-1, length)
