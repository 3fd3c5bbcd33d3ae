"""Prompt lookup: what followed the last tokens where they stood before (Saxena 2023, prompt-lookup-decoding)."""

from __future__ import annotations

import numpy as np

from gemmule.config import Host
from gemmule.sw.decoding.lengths import Constant, Costs, Lengths
from gemmule.sw.decoding.methods.method import Method, Request
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.runtime import Forward

__all__ = ["METHOD", "PromptLookup", "lookup"]

MOST_NGRAM = 3
"""Tokens that are looked for first; then fewer."""


def lookup(ids: list[int], most_ngram: int, num_tokens: int, ends: frozenset[int] = frozenset()) -> list[int]:
    """Up to ``num_tokens`` tokens that followed an earlier place of the last ``most_ngram`` or fewer tokens of ``ids``.

    The longest n-gram that stands somewhere before wins, at its leftmost place, as in Hugging Face's
    ``prompt_lookup_num_tokens``; the continuation may reach into the n-gram itself and ends before a token of ``ends``.
    """
    text = np.asarray(ids)
    for size in range(min(most_ngram, len(text) - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)  # all that have a continuation
        places = np.flatnonzero((windows == text[-size:]).all(axis=1))
        if len(places):
            found = ids[places[0] + size:places[0] + size + num_tokens]
            return found[:next((i for i, token in enumerate(found) if token in ends), len(found))]
    return []


class PromptLookup:
    """Drafts from the text itself; no model runs for it."""

    def __init__(self, lengths: Lengths | int, ends: frozenset[int], host: Host | None = None) -> None:
        """``lengths``: how many tokens are drafted; a number: always as many."""
        self.lengths = Constant(lengths) if isinstance(lengths, int) else lengths
        self.ends, self.host = ends, host or Host()
        self.costs, self.drafted = Costs(step=self.host.step_cycles), 0

    def begin(self, ids: list[int]) -> None:
        pass

    def propose(self, ids: list[int], budget: int) -> Tree:
        found = lookup(ids, MOST_NGRAM, min(self.lengths.most(), budget), self.ends)
        self.drafted = len(found)
        return Tree.chain(ids[-1], found)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.costs.verify[self.drafted + 1] = out.cycles + self.host.launch_cycles
        self.lengths.observe(self.drafted, len(path) - 1, self.costs)


def _make(request: Request) -> PromptLookup:
    return PromptLookup(request.lengths, request.ends, request.host)


METHOD = Method(name="pld", make=_make, option="--prompt-lookup-num-tokens", num_tokens=10)
