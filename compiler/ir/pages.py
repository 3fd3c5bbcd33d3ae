"""Pages of a cache: every row of a pass chooses, in every layer, which pages of cached rows it attends to.

Quest (Tang et al. 2024, arXiv 2406.10774), with the mean of a page's keys as its representative (as retrieval chunks of
TriForce, Sun et al. 2024) in the place of bounds by minimum and maximum. A row's choice depends on its query and on the
keys before it alone, so passes may be cut anywhere and every lossless method decodes the same text.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from gemmule import numerics
from gemmule.compiler.ir.nodes import Attention
from gemmule.timing import ceil_div

__all__ = ["Pages", "chosen_pages", "page_means", "page_scores", "score_shift"]


@dataclass(frozen=True, kw_only=True)
class Pages:
    """How many pages a row attends to. Rows are counted behind a constant prefix, which every row sees."""

    page: int
    """Rows of a page, a power of two."""
    keep: float | int
    """Of the rows that a row sees: a share (float), or a number of rows."""
    first: int
    """The oldest rows are always seen, in whole pages."""
    last: int
    """So are so many of the newest, the row itself among them; pages wholly before them are chosen from."""
    whole: int
    """A row that sees up to so many rows sees them all."""

    @property
    def shift(self) -> int:
        """Of a page's sum of keys, as a power of two: its mean."""
        return self.page.bit_length() - 1

    @property
    def sinks(self) -> int:
        """Pages of the first rows."""
        return ceil_div(self.first, self.page)

    def settled(self, seen: int) -> int:
        """Pages wholly before the newest rows of a row that sees ``seen`` rows, itself among them."""
        return max(0, seen - self.last) // self.page

    def candidates(self, seen: int) -> int:
        """Pages among which such a row chooses: those settled, but for the first ones."""
        return max(0, self.settled(seen) - self.sinks)

    def chosen(self, seen: int) -> int:
        """Of these, how many it attends to: as many as the wanted number of rows has room for beside those always
        seen."""
        most = self.candidates(seen)
        if seen <= self.whole:
            return most
        wanted = ceil(self.keep * seen) if isinstance(self.keep, float) else self.keep
        return min(most, max(0, wanted - (seen - most * self.page)) // self.page)

    def rows(self, seen: int) -> int:
        """Rows that it attends to, itself among them."""
        return seen - (self.candidates(seen) - self.chosen(seen)) * self.page


def page_means(keys: np.ndarray, pages: Pages) -> np.ndarray:
    """Representatives of whole pages: the mean of their keys, half up  # int64 [heads, pages, head_dim].

    ``keys``: int8 [heads, rows, head_dim], from a page's begin on.
    """
    heads, rows, size = keys.shape
    count = rows // pages.page
    sums = keys[:, :count * pages.page].astype(np.int64).reshape(heads, count, pages.page, size).sum(axis=2)
    return numerics.saturate(numerics.requant(sums, 1, pages.shift), 8)


def score_shift(node: Attention) -> int:
    """By which sums of products are shifted so that the largest is 16 bits."""
    most = node.heads // node.kv_heads * node.head_dim << 14
    return max(0, most.bit_length() - 15)


def page_scores(node: Attention, query: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Scores of pages  # int64 [KV heads, rows, pages], of 16 bits: the heads that share a KV head are added up.

    ``query``: int8 [heads, rows, head_dim].
    """
    shared = query.astype(np.int64).reshape(node.kv_heads, -1, *query.shape[1:]).sum(axis=1)
    products = (shared.astype(np.float64) @ means.transpose(0, 2, 1).astype(np.float64)).astype(np.int64)  # exact
    return numerics.saturate(numerics.requant(products, 1, score_shift(node)), 16)


def chosen_pages(scores: np.ndarray, pages: Pages, seen: int) -> np.ndarray:
    """Numbers of the pages that a row attends to beside those always seen, rising; of equal ones the first.

    ``scores``: of all pages, int64 [pages].
    """
    first = pages.sinks
    keys = scores[first:first + pages.candidates(seen)] + (1 << 15)
    return first + numerics.top_k(keys, pages.chosen(seen))
