"""Measurements that hold for any implementation of the models: code length, agreement, acceptance, repetition.

The functions see a model only as a predictor from token ids to logits in numpy, so the same yardstick serves the float
models and the integer models of the device.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CONTEXT", "Floats", "Predictor", "Tokens", "accepted_runs", "acceptance_by_place", "agreement", "bits_per_byte",
    "by_position", "distinct_share", "matches", "token_nats", "tokens_per_step",
]

Tokens = NDArray[np.int64]
Floats = NDArray[np.float64]
Predictor = Callable[[Tokens], NDArray[np.float32]]
"""Token ids [batch, tokens] to next-token logits [batch, tokens, vocab]."""

CONTEXT = 256
"""Positions of the small pair, and of the windows on which models of any context compare."""


def token_nats(predict: Predictor, stream: Tokens, window: int) -> Floats:
    """The code length of every token but the first, in nats  # [tokens - 1].

    Windows of ``window`` predictions do not overlap: each starts without context.
    """
    found = []
    for start in range(0, len(stream) - 1, window):
        part = stream[start:start + window + 1]
        logits = predict(part[None, :-1])[0].astype(np.float64)  # [length, vocab]
        logits -= logits.max(-1, keepdims=True)
        wanted = np.take_along_axis(logits, part[1:, None], -1)[:, 0]
        found.append(np.log(np.exp(logits).sum(-1)) - wanted)
    return np.concatenate(found)


def bits_per_byte(predict: Predictor, stream: Tokens, byte_count: int, *, window: int = CONTEXT) -> float:
    """Code length of a token stream in bits over its bytes of text."""
    if byte_count < 1 or len(stream) < 2:
        raise ValueError(f"quality needs at least 2 tokens and 1 byte, not {len(stream)} and {byte_count}")
    return float(token_nats(predict, stream, window).sum() / np.log(2) / byte_count)


def by_position(nats: Floats, window: int) -> list[tuple[int, int, float]]:
    """The mean code length of full windows' tokens by position, in bins that double: (first, end, nats)."""
    full = nats[:len(nats) // window * window].reshape(-1, window)  # [windows, positions]
    edges = [0, *(16 << i for i in range(12) if 16 << i < window), window]
    return [(first, end, float(full[:, first:end].mean())) for first, end in zip(edges, edges[1:])]


def matches(draft: Predictor, text: Tokens, given: int) -> NDArray[np.bool_]:
    """Where the draft's best token is the one in the text  # [rows, tokens] -> [rows, tokens - given].

    The first ``given`` tokens of each row are not judged. On text that the target wrote greedily, a match is a draft
    that speculative decoding would accept.
    """
    best = draft(text[:, :-1]).argmax(-1)  # [rows, tokens - 1]
    return np.asarray(best[:, given - 1:] == text[:, given:])


def agreement(draft: Predictor, text: Tokens, given: int) -> float:
    """The share of :func:`matches`."""
    return float(matches(draft, text, given).mean())


def accepted_runs(row: NDArray[np.bool_], drafts: int) -> list[tuple[int, int]]:
    """(drafted, accepted) of each step of greedy speculative decoding over a text with these matches  # [tokens].

    A step drafts up to ``drafts`` tokens; the matching ones at its beginning are accepted, and the target adds one.
    """
    steps, at = [], 0
    while at < len(row):
        drafted = min(drafts, len(row) - at)
        ahead = row[at:at + drafted]
        accepted = drafted if ahead.all() else int(ahead.argmin())
        steps.append((drafted, accepted))
        at += accepted + 1
    return steps


def acceptance_by_place(rows: list[NDArray[np.bool_]], drafts: int) -> list[float]:
    """The share of a step's first, second .. drafts that are accepted, of those whose forerunners were."""
    steps = [step for row in rows for step in accepted_runs(row, drafts)]
    shares = []
    for place in range(drafts):
        reached = [accepted > place for drafted, accepted in steps if accepted >= place and drafted > place]
        shares.append(sum(reached) / max(1, len(reached)))
    return shares


def tokens_per_step(rows: list[NDArray[np.bool_]], drafts: int) -> float:
    """Tokens that a step commits in the mean, the target's own included."""
    return sum(map(len, rows)) / max(1, sum(len(accepted_runs(row, drafts)) for row in rows))


def distinct_share(text: Tokens, length: int = 4) -> float:
    """Distinct n-grams over all n-grams of each row, averaged: low values mean looping text."""
    shares = []
    for row in text:
        grams = np.lib.stride_tricks.sliding_window_view(row, length)
        shares.append(len(np.unique(grams, axis=0)) / len(grams))
    return float(np.mean(shares))
