"""Prompt lookup: what followed the last tokens where they stood before (Saxena 2023, prompt-lookup-decoding)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmule.config import Host
from gemmule.sw.decoding.lengths import Constant, Costs, Lengths
from gemmule.sw.decoding.methods.method import HUGGING_FACE, Lookup, Method, Request
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.device.runtime import Forward
from gemmule.sw.limits import LOOKUP_DEFAULT

__all__ = ["FORMS", "METHOD", "Lookup", "PromptLookup", "lookup", "lookup_original"]


def lookup(ids: list[int], most_ngram: int, num_tokens: int, ends: frozenset[int] = frozenset()) -> list[int]:
    """Up to ``num_tokens`` tokens that followed an earlier place of the last ``most_ngram`` or fewer tokens of ``ids``.

    The longest n-gram that stands somewhere before wins, at its leftmost place, as in Hugging Face's
    ``prompt_lookup_num_tokens``; the continuation may reach into the n-gram itself and ends before a token of ``ends``.
    """
    for size in range(min(most_ngram, len(ids) - 1), 0, -1):
        if len(places := _places(ids[:-1], ids[-size:])):  # all that have a continuation
            found = ids[places[0] + size:places[0] + size + num_tokens]
            return found[:next((i for i, token in enumerate(found) if token in ends), len(found))]
    return []


def lookup_original(ids: list[int], most_ngram: int, num_tokens: int,
                    ends: frozenset[int] = frozenset()) -> list[int]:
    """The same as its author wrote it: all of ``num_tokens`` tokens follow, or the place does not count.

    Nor does one whose continuation begins within the last n-gram. A longer n-gram without such a place gives way to a
    shorter one with one. ``ends`` play no part: the loop cuts the text behind them.
    """
    for size in range(min(most_ngram, len(ids) - 1), 0, -1):
        for place in _places(ids, ids[-size:]).tolist():
            first = place + size
            if first + num_tokens <= len(ids) and first < len(ids) - size:
                return ids[first:first + num_tokens]
    return []


def _places(text: list[int], ngram: list[int]) -> np.ndarray:
    """Where the n-gram stands in the text, rising  # int64"""
    if len(text) < len(ngram):
        return np.zeros(0, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(text), len(ngram))
    return np.flatnonzero((windows == np.asarray(ngram)).all(axis=1))


FORMS: dict[str, Callable[[list[int], int, int, frozenset[int]], list[int]]] = {
    "huggingface": lookup, "original": lookup_original}
"""Ways to look a continuation up, by name."""


class PromptLookup:
    """Drafts from the text itself; no model runs for it."""

    def __init__(self, lengths: Lengths | int, ends: frozenset[int], host: Host | None = None,
                 by: Lookup = HUGGING_FACE) -> None:
        """``lengths``: how many tokens are drafted; a number: always as many. ``by``: how they are looked up."""
        self.find, self.by = FORMS[by.form], by
        self.lengths = Constant(lengths) if isinstance(lengths, int) else lengths
        self.ends, self.host = ends, host or Host()
        self.costs, self.drafted = Costs(step=self.host.step_cycles), 0

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        pass

    def propose(self, ids: list[int], budget: int) -> Tree:
        found = self.find(ids, self.by.most_ngram, self.lengths.most(), self.ends)[:budget]
        self.drafted = len(found)
        return Tree.chain(ids[-1], found)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.costs.verify[self.drafted + 1] = out.cycles + self.host.launch_cycles
        self.lengths.observe(self.drafted, len(path) - 1, self.costs)


def _make(request: Request) -> PromptLookup:
    return PromptLookup(request.lengths, request.ends, request.host, request.lookup)


METHOD = Method(name="pld", make=_make, option="--prompt-lookup-num-tokens", num_tokens=LOOKUP_DEFAULT)
