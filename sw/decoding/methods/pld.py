"""Prompt lookup: what followed the last tokens where they stood before (Saxena 2023, prompt-lookup-decoding)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    import numpy as np

    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths

__all__ = ["FORMS", "METHOD", "PromptLookup", "lookup", "lookup_original"]

MOST_NGRAM = 3
"""Tokens that are looked for first, unless said."""


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
    import numpy as np

    if len(text) < len(ngram):
        return np.zeros(0, dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(text), len(ngram))
    return np.flatnonzero((windows == np.asarray(ngram)).all(axis=1))


FORMS: dict[str, Callable[[list[int], int, int, frozenset[int]], list[int]]] = {
    "huggingface": lookup, "original": lookup_original}
"""Ways to look a continuation up, by name."""


class PromptLookup(Paced):
    """Drafts from the text itself; no model runs for it."""

    def __init__(self, lengths: Lengths | int, ends: frozenset[int], host: Host | None = None, *,
                 form: str = "huggingface", most_ngram: int = MOST_NGRAM) -> None:
        """``lengths``: as of :class:`Paced`; ``form``: of :data:`FORMS`.

        ``most_ngram``: tokens that are looked for first; then fewer.
        """
        super().__init__(lengths, host)
        self.ends, self.find, self.most_ngram = ends, FORMS[form], most_ngram

    def propose(self, ids: list[int], budget: int) -> Tree:
        found = self.find(ids, self.most_ngram, self.lengths.most(), self.ends)[:budget]
        self.drafted = len(found)
        return Tree.chain(ids[-1], found)


def _make(request: Request) -> PromptLookup:
    options = request.options
    return PromptLookup(request.lengths, request.ends, request.host, form=options["prompt_lookup_form"],
                        most_ngram=options["prompt_lookup_max"])


METHOD = Method(
    name="pld",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="Saxena 2023, prompt-lookup-decoding",
    says="prompt lookup, which proposes what followed an earlier occurrence of the last tokens", make=_make,
    drafts=Option(name="--prompt-lookup-num-tokens", limits=DRAFTS, default=10, help="Tokens drafted per step.",
                  otherwise="10, or as many as a pass verifies"),
    options=(
        Option(name="--prompt-lookup-form", limits=tuple(FORMS), default="huggingface",
               help="Which earlier occurrences count: huggingface (all with a continuation) or original (only those "
                    "followed by as many tokens as are drafted)."),
        Option(name="--prompt-lookup-max", limits=Range(1, 16, "tokens"), default=MOST_NGRAM,
               help="Longest n-gram to look up; shorter ones follow.")))
