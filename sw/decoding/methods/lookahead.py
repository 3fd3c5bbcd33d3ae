"""Lookahead decoding: Jacobi iterations over a window make n-grams, which the same pass verifies (Fu et al. 2024).

The window has a token for each of W columns at N - 1 levels: what N - 1 iterations in a row guessed. Column i of level
j stands i + j places behind the pending token, which is column 0 of level 0. It sees level 0 up to its own column, and
its own column at the levels below. A pass answers behind the last level, which makes a new one; of each column the
tokens of all levels and the answer are an n-gram, kept by its first token in a pool of the G newest ones. Those that
begin with the pending token are verified beside the window, merged where they begin alike, as all N - 1 tokens of an
n-gram and the one behind them may be accepted. In the first N - 2 passes levels are filled one by one.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.tree import Drafter, Extra, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import Range

if TYPE_CHECKING:
    from gemmule.sw.step import Forward

__all__ = ["METHOD", "Lookahead"]

WINDOW, NGRAM, GUESSES = 7, 5, 7


class Lookahead(Drafter):
    """Drafts from a pool of n-grams, and fills it.

    Attributes:
        levels: of the window; level 0 without the pending token.
        pool: n-grams by their first token, without it, the newest last.
    """

    def __init__(self, window: int, ngram: int, guesses: int, rows: int, *, from_prompt: bool = False) -> None:
        """``window``, ``ngram``, ``guesses``: W, N and G; ``rows``: of a launch; ``from_prompt``: n-grams of the prompt
        are in the pool.
        """
        self.window, self.ngram, self.guesses, self.from_prompt = window, ngram, guesses, from_prompt
        self.launches = -(-(window + guesses) * (ngram - 1) // rows)
        self.levels: list[list[int]] = []
        self.pool: dict[int, list[tuple[int, ...]]] = {}
        self.tree = Tree.chain(0, [])

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        random = Random(0)  # where the iterations begin does not change the text
        self.levels = [[random.choice(ids) for _ in range(self.window + self.ngram - 3)]]
        if self.from_prompt:
            for first in range(len(ids) - self.ngram + 1):
                self._keep(ids[first:first + self.ngram])

    def _keep(self, gram: list[int]) -> None:
        known, found = self.pool.setdefault(gram[0], []), tuple(gram[1:])
        if found in known:
            known.remove(found)
        known.append(found)
        del known[:-self.guesses]

    def extra_rows(self) -> int:
        return self.window * (self.ngram - 1)

    def propose(self, ids: list[int], budget: int) -> Tree:
        tokens, parent = self._guessed(ids[-1], budget)
        extra = self._window(len(tokens))
        self.tree = Tree(tokens, parent, extra=extra if len(tokens) - 1 + len(extra) <= budget else ())
        return self.tree

    def _guessed(self, pending: int, budget: int) -> tuple[list[int], list[int]]:
        """N-grams behind the pending token, the newest first, with a parent for each token."""
        tokens, parent = [pending], [-1]
        known: dict[tuple[int, int], int] = {}
        for gram in reversed(self.pool.get(pending, [])):
            node = 0
            for token in gram:
                if (node, token) not in known:
                    if len(tokens) > budget:
                        break
                    known[node, token] = len(tokens)
                    tokens.append(token)
                    parent.append(node)
                node = known[node, token]
        return tokens, parent

    def _window(self, first: int) -> list[Extra]:
        """The rows of the window behind the pending token; ``first``: the number of the first."""
        ground, *above = self.levels
        rows, columns = [], [0, *range(first, first + len(ground))]
        for column, token in enumerate(ground, 1):
            rows.append(Extra(token, column, tuple(columns[:column])))
        below: list[tuple[int, ...]] = [tuple(columns[:column + 1]) for column in range(len(columns))]
        for level, found in enumerate(above, 1):
            for column, token in enumerate(found):
                number = first + len(rows)
                rows.append(Extra(token, column + level, below[column]))
                below[column] += (number,)
        return rows

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        if not self.tree.extra:
            return
        (pending, *_), (ground, *above) = self.tree.tokens, self.levels
        answers = out.argmax[len(self.tree.tokens):]
        made = answers[-len(above[-1]):] if above else [out.argmax[0], *answers]
        if len(self.levels) < self.ngram - 1:  # the window fills: it moves on with the text, a column a step
            self.levels = [level[1:] for level in (*self.levels, made)]
            return
        for gram in zip([pending, *ground], *above, made):
            self._keep(list(gram))
        self.levels = [(*above, made)[0][1:], *(*above, made)[1:]]


def _make(request: Request) -> Lookahead:
    rows, options = request.target.program.max_rows, request.options
    if rows < 2:
        raise InputError("--method lookahead needs passes of at least 2 rows for each text, not 1: take a smaller "
                         "--batch")
    ngram = options["lookahead_ngram"] or max(2, min(NGRAM, rows))
    window = options["lookahead_window"] or max(2, min(WINDOW, rows - ngram + 2))
    if ngram > rows:
        raise InputError(f"--lookahead-ngram must be at most {rows}, as many rows as a launch verifies, not {ngram}")
    if window > rows - ngram + 2:
        raise InputError(f"--lookahead-window must be at most {rows - ngram + 2} with n-grams of {ngram} tokens, as a "
                         f"launch has {rows} rows, and the window's last one needs {window + ngram - 2}, not {window}")
    return Lookahead(window, ngram, options["lookahead_guesses"], rows,
                     from_prompt=options["lookahead_pool_from_prompt"] == "on")


METHOD = Method(
    name="lookahead",
    cuts="length: a pass goes on with several positions and verifies n-grams; no pass drafts",
    source="Fu et al. 2024 (arXiv 2402.02057)",
    make=_make, scheduled=False,
    says="lookahead decoding, which verifies n-grams that Jacobi iterations over a window made",
    options=(
        Option(name="--lookahead-window", limits=Range(2, 60, "columns"), help="Columns of the window, W.",
               otherwise=f"{WINDOW}, or as many as a launch takes"),
        Option(name="--lookahead-ngram", limits=Range(2, 16, "tokens"), help="Tokens of an n-gram, N.",
               otherwise=f"{NGRAM}, or as many as a launch takes"),
        Option(name="--lookahead-guesses", limits=Range(1, 60, "n-grams"), default=GUESSES,
               help="N-grams of a step that are verified, G."),
        Option(name="--lookahead-pool-from-prompt", limits=("off", "on"), default="off",
               help="Whether n-grams of the prompt are verified, too.")))
