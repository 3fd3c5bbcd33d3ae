"""Byte-level byte-pair encoding with 1024 tokens, trained on the train split only.

The alphabet holds all 256 bytes, so every text round-trips exactly and no unknown token exists.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gemmule.io.files import write_atomically
from gemmule.sw.text.byte_level import EOS_ID, EOS_TOKEN, PAD_TOKEN, as_plain_text
from gemmule.sw.text.corpus import Document

VOCAB_SIZE = 1024
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


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write tokenizer.json atomically."""
    write_atomically(path, tokenizer.to_str(pretty=True))


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
