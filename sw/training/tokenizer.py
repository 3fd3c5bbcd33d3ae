"""Byte-level byte-pair encoding with 1024 tokens, trained on the train split only.

The alphabet holds all 256 bytes, so every text round-trips exactly and no unknown token exists.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gemmule.io.files import write_atomically
from gemmule.io.reading import ReadError, brief, named, read_json, shown
from gemmule.sw.training.corpus import Document

VOCAB_SIZE = 1024
MOST_VOCAB = 1 << 16
MOST_BYTES = 1 << 23
"""Bytes of a tokenizer.json."""
PAD_TOKEN, PAD_ID = "<pad>", 0
EOS_TOKEN, EOS_ID = "<eos>", 1
BATCH = 256
"""Texts that are encoded at a time."""


def train_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Learn the merges; fewer tokens than `vocab_size` result when the text has too few pairs."""
    smallest = len(pre_tokenizers.ByteLevel.alphabet()) + 2
    if vocab_size < smallest:
        raise ValueError(f"vocab_size must hold 256 bytes and 2 special tokens, not {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    # A prefix space would be decoded as part of the text and break the exact round trip.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        # The order of this list gives the ids 0 and 1.
        special_tokens=[PAD_TOKEN, EOS_TOKEN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return as_plain_text(tokenizer)


def as_plain_text(tokenizer: Tokenizer) -> Tokenizer:
    """Read a literal "<eos>" inside a text as seven ordinary bytes would be, never as the special token.

    The flag is not stored in tokenizer.json, so it is set at both training and loading.
    """
    tokenizer.encode_special_tokens = True
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write tokenizer.json atomically."""
    write_atomically(path, tokenizer.to_str(pretty=True))


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


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Token ids to text; special tokens vanish."""
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True)
    return text


def token_stream(tokenizer: Tokenizer, documents: Iterable[Document]) -> NDArray[np.int64]:
    """All documents as one array: <eos> doc <eos> doc ... <eos>  # [tokens].

    The leading <eos> gives the first byte of the first file a context like any other file's.
    """
    texts = [text for _, text in documents]
    parts = [np.array([EOS_ID])]
    for start in range(0, len(texts), BATCH):  # an encoding takes far more memory than its ids
        for one in tokenizer.encode_batch(texts[start:start + BATCH], add_special_tokens=False):
            parts.append(np.array([*one.ids, EOS_ID]))
    return np.concatenate(parts).astype(np.int64)


def draw_windows(stream: NDArray[np.int64], count: int, length: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Random windows of the stream  # [count, length].

    The key alone decides them: a training run keyed by (seed, phase, step) sees the same
    batches whether or not it was interrupted.
    """
    if len(stream) < length:
        raise ValueError(f"a window of {length} tokens does not fit a stream of {len(stream)}")
    starts = np.random.default_rng(key).integers(0, len(stream) - length + 1, count)
    return np.stack([stream[start : start + length] for start in starts])
