"""The bundled models' tokenizer: byte-level byte-pair encoding, in which every text round-trips exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from gemmule.io.reading import ReadError, brief, named, read_json, shown

__all__ = ["EOS_ID", "EOS_TOKEN", "PAD_ID", "PAD_TOKEN", "as_plain_text", "encode", "load_tokenizer"]

MOST_VOCAB = 1 << 16
MOST_BYTES = 1 << 23
"""Bytes of a tokenizer.json."""
PAD_TOKEN, PAD_ID = "<pad>", 0
EOS_TOKEN, EOS_ID = "<eos>", 1


def as_plain_text(tokenizer: Tokenizer) -> Tokenizer:
    """Read a literal "<eos>" inside a text as seven ordinary bytes would be, never as the special token.

    The flag is not stored in tokenizer.json, so it is set at both training and loading.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """Read tokenizer.json, checked for what the models rely on.

    Raises:
        ValueError: it cannot be read or is another kind of tokenizer; the message begins with its path.
    """
    try:
        data = read_json(path, MOST_BYTES)
    except ReadError as error:
        raise ValueError(f"{named(path, error.line)} {error}") from None
    if problem := _problem(data):
        raise ValueError(f"{named(path)}: {problem}")
    try:
        tokenizer = Tokenizer.from_str(json.dumps(data))
    except Exception as error:  # the library has no type of its own
        raise ValueError(f"{named(path)} is not a tokenizer: {brief(str(error), 120)}") from None
    return as_plain_text(tokenizer)


def _problem(data: dict[str, Any]) -> str | None:
    """What makes a tokenizer.json another than a byte-level BPE in which every text round-trips."""
    for name in ("truncation", "padding", "normalizer", "post_processor"):
        if data.get(name) is not None:
            return f"{name} must be null, not {shown(data[name])}: it would change the text"
    model = data.get("model")
    for name, part, kind in (("model", model, "BPE"), ("pre_tokenizer", data.get("pre_tokenizer"), "ByteLevel"),
                             ("decoder", data.get("decoder"), "ByteLevel")):
        if not isinstance(part, dict) or part.get("type") != kind:
            what = part.get("type") if isinstance(part, dict) else part
            return f"{name} must be of type {kind}, not {shown(what)}"
    assert isinstance(model, dict)
    if model.get("dropout") is not None:
        return f"model.dropout must be null, not {shown(model['dropout'])}: it would make tokens random"
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not 0 < len(vocab) <= MOST_VOCAB:
        return f"model.vocab must map 1 to {MOST_VOCAB:,} tokens to ids, not be {shown(vocab)}"
    ids = {value for value in vocab.values() if type(value) is int}
    if ids != set(range(len(vocab))):
        return f"model.vocab must number its tokens from 0 to {len(vocab) - 1:,}, each once"
    special = [(PAD_ID, PAD_TOKEN, True), (EOS_ID, EOS_TOKEN, True)]
    try:
        added = [(one["id"], one["content"], one["special"]) for one in data["added_tokens"]]
    except (KeyError, TypeError):
        added = []
    if added != special or any(vocab.get(token) != at for at, token, _ in special):
        return f"added_tokens must be {special}, as in model.vocab, not {shown(added)}"
    if lost := sorted(set(pre_tokenizers.ByteLevel.alphabet()) - vocab.keys()):
        return f"model.vocab must hold every byte; it lacks {len(lost)}, the first as {shown(lost[0])}"
    return None


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Text to token ids, without any special token."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
