"""The encoder's task: which package of the standard library is a window of 128 tokens from; and naive Bayes on it.

Folds are of whole files. Files of the calibration and held-out splits take no part.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gemmule.sw.text.byte_level import EOS_ID
from gemmule.sw.text.corpus import Document
from gemmule.sw.training.yardstick import Tokens

__all__ = ["CLASSES", "Labelled", "class_of", "label", "naive_bayes", "windows_of"]

CLASSES = ("asyncio", "email", "importlib", "multiprocessing", "tkinter", "unittest", "xml")


@dataclass(frozen=True)
class Labelled:
    """A file of one of the classes: its path, its tokens, the index of its class, its fold."""

    path: str
    tokens: Tokens
    label: int
    fold: int


def class_of(path: str) -> int | None:
    """The index of a file's class, by the folder that it lies in."""
    top = path.partition("/")[0]
    return CLASSES.index(top) if top in CLASSES and "/" in path else None


def label(tokenizer: Tokenizer, documents: list[Document], folds: int, window: int) -> list[Labelled]:
    """The files of the classes that hold a window of text, which is a token less than ``window``.

    Folds take turns over a class's files in the order of the SHA-256 of their paths, so that each has every class.
    """
    found: list[Labelled] = []
    for index in range(len(CLASSES)):
        mine = [document for document in documents if class_of(document[0]) == index]
        mine.sort(key=lambda document: hashlib.sha256(document[0].encode()).hexdigest())
        encoded = [(path, np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64))
                   for path, text in mine]
        long = [(path, tokens) for path, tokens in encoded if len(tokens) >= window - 1]
        found += [Labelled(path, tokens, index, turn % folds) for turn, (path, tokens) in enumerate(long)]
    return found


def windows_of(files: list[Labelled], window: int) -> tuple[Tokens, Tokens]:
    """Windows that do not overlap, ``<eos>`` before each: (tokens [windows, window], labels [windows])."""
    rows, labels = [], []
    for file in files:
        for start in range(0, len(file.tokens) - window + 2, window - 1):
            rows.append(np.concatenate(([EOS_ID], file.tokens[start:start + window - 1])))
            labels.append(file.label)
    return np.stack(rows), np.array(labels)


def naive_bayes(train: tuple[Tokens, Tokens], judged: Tokens, vocab: int, *,
                smoothing: float = 1.0) -> NDArray[np.int64]:
    """Classes of windows by multinomial naive Bayes on token counts, with Laplace smoothing  # [windows]."""
    tokens, labels = train
    counts = np.full((len(CLASSES), vocab), smoothing)
    for index in range(len(CLASSES)):
        counts[index] += np.bincount(tokens[labels == index].ravel(), minlength=vocab)
    prior = np.log(np.bincount(labels, minlength=len(CLASSES)) + smoothing)
    likelihood = np.log(counts / counts.sum(1, keepdims=True))  # [classes, vocab]
    seen = np.stack([np.bincount(row, minlength=vocab) for row in judged])  # [windows, vocab]
    return np.asarray((seen @ likelihood.T + prior).argmax(1))
