"""Windows of requests to copy: a function, the signature of its copy under other names, and the body that is wanted.

They are cut as the copy test cuts its own (copies.py): what is given and what is wanted are encoded apart, so that the
wanted text begins with the same tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gemmule.sw.prompts.copies import fitting
from gemmule.sw.prompts.functions import MOST_EDITS, Function, joined, rename, renamings
from gemmule.sw.training.data.alignment import aligned
from gemmule.sw.training.data.packages import Texts
from gemmule.sw.training.data.prepare import SEPARATOR, chosen_functions, encoded, functions_in, read_texts
from gemmule.sw.training.yardstick import Tokens

__all__ = ["Request", "Requests", "Windows", "load_requests", "requests_of"]

FILE = "requests.npz"
SPLITS, PARTS = ("learnt", "judged"), ("given", "wanted")
Request = tuple[Tokens, Tokens]
"""What is given and what is wanted."""


def _asked(function: Function, names: list[str], random: np.random.Generator) -> tuple[str, str]:
    text = function.text
    for old, new in renamings(function, int(random.integers(MOST_EDITS + 1)), names, random):
        text = rename(text, old, new)
    lines = text.splitlines(keepends=True)
    return (joined(function.text, "".join(lines[:function.head])), "".join(lines[function.head:]) + SEPARATOR)


def requests_of(texts: Texts, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is given and what is wanted: to learn from, half of the library's functions, in random order; and to judge
    by, the calibration split's functions that the copy test would take."""
    random = np.random.default_rng((seed, 11))
    chosen, names = chosen_functions(texts, random)
    return ([_asked(function, names, random) for function in chosen],
            [_asked(function, names, random) for function in functions_in(texts.calibration) if fitting(function)])


@dataclass(frozen=True)
class Windows:
    """Rows of requests one behind the other.

    Attributes:
        tokens: windows and the token behind each  # [rows, context + 1].
        wanted: whether a token foretells one of a body that is wanted  # bool [rows, context].
        places: where the token that it foretells stood in the function; -1 for none  # int64 [rows, context].
    """

    tokens: Tokens
    wanted: NDArray[np.bool_]
    places: NDArray[np.int64]


class Requests:
    """Pairs of tokens [given], [wanted]; windows are a function of ``key`` and the step."""

    def __init__(self, pairs: list[Request], context: int, key: tuple[int, ...]) -> None:
        self.pairs = [pair for pair in pairs if len(pair[0]) + len(pair[1]) <= context]
        if not self.pairs:
            raise ValueError(f"no function and its copy fit a window of {context} tokens")
        self.context = context
        self.key = key

    def step(self, step: int, rows: int) -> Windows:
        """So many windows of a step; the last request of a row may be cut."""
        random, length = np.random.default_rng((*self.key, step)), self.context + 1
        tokens = np.zeros((rows, length), dtype=np.int64)
        places = np.full((rows, self.context), -1, dtype=np.int64)
        wanted = np.zeros(places.shape, dtype=np.bool_)
        for row in range(rows):
            start = 0
            while start < length:
                given, body = self.pairs[int(random.integers(len(self.pairs)))]
                text = np.concatenate((given, body))[:length - start]
                tokens[row, start:start + len(text)] = text
                first = start + len(given)
                count = min(len(body), length - first)
                if count > 0:
                    found = aligned(given, body)[:count]
                    wanted[row, first - 1:first - 1 + count] = True
                    places[row, first - 1:first - 1 + count] = np.where(found < 0, -1, found + start)
                start += len(text)
        return Windows(tokens, wanted, places)


def load_requests(out: Path, tokenizer: Tokenizer, seed: int) -> tuple[list[Request], list[Request]]:
    """What :func:`requests_of` finds, in tokens; made once and kept below ``out``."""
    path = out / "corpus" / FILE
    if not path.exists():
        arrays: dict[str, NDArray[Any]] = {}
        for split, found in zip(SPLITS, requests_of(read_texts()[0], seed), strict=True):
            for part, texts in zip(PARTS, zip(*found, strict=True), strict=True):
                arrays[f"{split}_{part}"], arrays[f"{split}_{part}_starts"] = encoded(tokenizer, list(texts))
        with (temporary := path.with_suffix(".tmp")).open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        temporary.replace(path)
    read = np.load(path)

    def split_of(split: str) -> list[Request]:
        given, wanted = (np.split(read[f"{split}_{part}"].astype(np.int64), read[f"{split}_{part}_starts"][1:-1])
                         for part in PARTS)
        return list(zip(given, wanted, strict=True))

    return split_of(SPLITS[0]), split_of(SPLITS[1])
