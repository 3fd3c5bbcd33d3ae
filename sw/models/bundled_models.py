"""Text in and out: the bundled tokenizer and models."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer

from gemmule.compiler.errors import CompileError
from gemmule.compiler.files.model_file import ModelFile, load_model
from gemmule.io.reading import shown
from gemmule.sw.errors import InputError
from gemmule.sw.limits import MODELS_FOLDER, SMALL, resolve_pair
from gemmule.sw.models.bundled import FILES, bundled_file
from gemmule.sw.text.byte_level import load_tokenizer
from gemmule.sw.text.detokenize import Detokenizer
from gemmule.sw.text.tokens import detokenizer

__all__ = ["bundled_detokenizer", "bundled_model", "bundled_tokenizer", "check_utf8", "check_vocab", "decode", "encode",
           "token_ids"]

MODELS = MODELS_FOLDER
"""A folder for each pair of target and draft, with their tokenizer."""


@cache
def bundled_tokenizer(pair: str) -> Tokenizer:
    """Of a bundled pair's folder.

    Raises:
        CompileError: it is missing or damaged.
    """
    path = bundled_file(MODELS / pair, "tokenizer")
    try:
        return load_tokenizer(path)
    except ValueError as error:
        raise CompileError(str(error)) from None


def encode(text: str, pair: str = SMALL) -> list[int]:
    """Token ids of a prompt, by the tokenizer of a bundled pair.

    Raises:
        InputError: the prompt is empty.
    """
    return token_ids(bundled_tokenizer(resolve_pair(pair, MODELS)), text, add_special_tokens=False)


def token_ids(tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Token ids of a prompt.

    Raises:
        InputError: the prompt is empty.
    """
    check_utf8("--prompt", text)
    ids = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
    if not ids:
        raise InputError("--prompt must hold at least one character, not ''; give some text")
    return list(ids)


def check_utf8(option: str, text: str) -> str:
    """``text``.

    Raises:
        InputError: it holds bytes that were no text.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{option} must be UTF-8 text, not {shown(text)}") from None
    return text


def bundled_detokenizer(pair: str = SMALL) -> Detokenizer:
    """What makes text of a bundled pair's tokens."""
    return detokenizer(bundled_tokenizer(resolve_pair(pair, MODELS)))


def decode(ids: list[int], pair: str = SMALL) -> str:
    """Text of token ids of a bundled pair; special tokens are left out."""
    return bundled_detokenizer(pair).text(ids)


def bundled_model(name: str, pair: str = SMALL) -> ModelFile:
    """The quantised model ``target`` or ``draft`` of a bundled pair.

    Raises:
        CompileError: a file is missing, damaged, or not for this tokenizer.
    """
    pair = resolve_pair(pair, MODELS)
    model = load_model(bundled_file(MODELS / pair, name))
    check_vocab(model.network.graph.vocab, name, pair)
    return model


def check_vocab(vocab: int, name: str, pair: str) -> None:
    """A bundled model's tokens are those of its pair's tokenizer.

    Raises:
        CompileError: they are not as many.
    """
    if (wanted := bundled_tokenizer(pair).get_vocab_size()) != vocab:
        raise CompileError(f"{FILES[name]} must have the {wanted:,} tokens of {FILES['tokenizer']}, not {vocab:,}: "
                           "quantise a model of this tokenizer")
