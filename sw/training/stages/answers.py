"""What a teacher says behind every token of many texts, worked out once and kept: a draft learns from it many times.

Of each of its distributions the likeliest tokens and the logarithms of their probabilities stay; what is left over is
their sum's rest. Chunks that are there already are read, so that a killed run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save
from torch import Tensor

from gemmule.io.files import write_atomically
from gemmule.sw.training.networks.model import LanguageModel, generate
from gemmule.sw.training.running import Place, autocast
from gemmule.sw.training.yardstick import Tokens

__all__ = ["Answers", "answered", "kept", "likeliest", "written"]

PASS_TOKENS = 4096
"""Tokens that go through the teacher at a time."""


@dataclass(frozen=True)
class Answers:
    """Texts, and what the teacher says to their last tokens.

    Attributes:
        tokens: the texts, a token more than is read  # [rows, length + 1].
        words: the likeliest next tokens, the best first, of the last positions that are read  # [rows, answers, kept].
        logs: the logarithms of their probabilities  # the same.
    """

    tokens: NDArray[np.uint16]
    words: NDArray[np.uint16]
    logs: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, picked: NDArray[np.int64]) -> Answers:
        """Those of some texts."""
        return Answers(self.tokens[picked], self.words[picked], self.logs[picked])


def likeliest(logits: Tensor, count: int) -> tuple[NDArray[np.uint16], NDArray[np.float16]]:
    """The ``count`` best tokens and the logarithms of their probabilities  # [.., vocab] -> two of [.., count]."""
    best, words = logits.float().topk(count, -1)
    logs = best - logits.float().logsumexp(-1, keepdim=True)
    return words.cpu().numpy().astype(np.uint16), logs.cpu().numpy().astype(np.float16)


@torch.no_grad()
def answered(teacher: LanguageModel, tokens: Tokens, count: int, place: Place) -> Answers:
    """The teacher's answers to texts  # [rows, length + 1]."""
    rows = max(1, PASS_TOKENS // tokens.shape[1])
    parts = []
    for start in range(0, len(tokens), rows):
        with autocast(place):
            logits = teacher(torch.from_numpy(tokens[start:start + rows, :-1]).to(place.device))
        parts.append(likeliest(logits, count))
    words, logs = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Answers(tokens.astype(np.uint16), words, logs)


def written(teacher: LanguageModel, prompts: Tokens, length: int, temperatures: NDArray[np.float32], seed: int,
            count: int, place: Place) -> Answers:
    """Texts that the teacher writes behind prompts, and its answers to the tokens that it wrote."""
    heard: list[tuple[NDArray[np.uint16], NDArray[np.float16]]] = []
    with autocast(place):
        text = generate(teacher, torch.from_numpy(prompts).to(place.device), length,
                        torch.from_numpy(temperatures).to(place.device), seed,
                        lambda logits: heard.append(likeliest(logits, count)))
    words, logs = (np.stack(part, axis=1) for part in zip(*heard, strict=True))
    return Answers(text.cpu().numpy().astype(np.uint16), words, logs)


def kept(folder: Path, name: str, chunks: int, make: Callable[[int], Answers]) -> Answers:
    """Chunks of answers one behind the other: made where ``folder`` lacks them."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for chunk in range(chunks):
        path = folder / f"{name}_{chunk:03}.safetensors"
        if not path.exists():
            began, found = time.monotonic(), make(chunk)
            write_atomically(path, save({"tokens": found.tokens, "words": found.words, "logs": found.logs}))
            print(f"{name}: {chunk + 1} of {chunks}, {time.monotonic() - began:.0f} s", flush=True)
        parts.append(load_file(path))
    return Answers(**{key: np.concatenate([part[key] for part in parts]) for key in ("tokens", "words", "logs")})
