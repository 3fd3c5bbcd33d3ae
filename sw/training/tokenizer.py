"""Byte-level byte-pair encoding with 1024 tokens, trained on the train split only.

The alphabet holds all 256 bytes, so every text round-trips exactly and no unknown token exists.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gemmule.sw.training.corpus import Document

VOCAB_SIZE = 1024
PAD_TOKEN, PAD_ID = "<pad>", 0
EOS_TOKEN, EOS_ID = "<eos>", 1


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
    temporary = path.with_name(path.name + ".tmp")
    tokenizer.save(str(temporary))
    os.replace(temporary, path)


def load_tokenizer(path: Path) -> Tokenizer:
    """Read tokenizer.json and check the ids that the models rely on."""
    tokenizer = Tokenizer.from_file(str(path))
    found = (tokenizer.token_to_id(PAD_TOKEN), tokenizer.token_to_id(EOS_TOKEN))
    if found != (PAD_ID, EOS_ID):
        raise ValueError(f"{path} must map {PAD_TOKEN}, {EOS_TOKEN} to {PAD_ID}, {EOS_ID}, not {found}")
    return as_plain_text(tokenizer)


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
    encodings = tokenizer.encode_batch([text for _, text in documents], add_special_tokens=False)
    stream = [EOS_ID]
    for encoding in encodings:
        stream.extend(encoding.ids)
        stream.append(EOS_ID)
    return np.asarray(stream, dtype=np.int64)


def draw_windows(stream: NDArray[np.int64], count: int, length: int, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Random windows of the stream  # [count, length].

    The key alone decides them: a training run keyed by (seed, phase, step) sees the same
    batches whether or not it was interrupted.
    """
    if len(stream) < length:
        raise ValueError(f"a window of {length} tokens does not fit a stream of {len(stream)}")
    starts = np.random.default_rng(key).integers(0, len(stream) - length + 1, count)
    return np.stack([stream[start : start + length] for start in starts])
