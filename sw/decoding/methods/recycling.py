"""Token Recycling: of every token the likeliest ones behind it, as the target said the last time (Luo et al. 2024).

A table has of each token the ``--recycling-top`` largest logits of the last row that stood for it: of prompts, of
accepted candidates and of rejected ones alike, for each of which a pass paid. The device finds them by its own top-K.
Read from the last token on, the table gives a tree; its shape is fixed, here by how often a place in the table was
right (:data:`CHANCES`), and as large as what a pass verifies; or, with ``--recycling-shape cost``, as large as gives
the most tokens a cycle, by the exact cost of rows; or, with ``--tree``, as it is given. No model but the target runs.
With ``--recycling-keep on`` later requests begin with the table, so that results depend on the requests before.

The device's top-K takes cycles for every row. With ``--recycling-top 1`` none runs: a token's entries are then the last
answers behind it, the newest first, each of which the pass gives anyway (:data:`ANSWERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from gemmule.sw.decoding.adaptive.shapes import Place, cost_shape
from gemmule.sw.decoding.candidates.branches import fill, grow
from gemmule.sw.decoding.methods.method import TREE, Method, Option, Request
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.sw.device.costs.cost_curve import CostCurve
    from gemmule.sw.step import Asking, Forward, Want

__all__ = ["ANSWERS", "CHANCES", "METHOD", "OPTIONS", "WARM", "Recycling", "Table", "table_of"]

CHANCES = (0.5, 0.12, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01)
"""How often the entries of a token's row were what followed."""
ANSWERS = (0.4, 0.12, 0.06, 0.04)
"""The same of the last answers behind a token."""


class Table:
    """Of each token the likeliest ones behind it."""

    def __init__(self, top: int) -> None:
        self.top, self.chances = top, CHANCES if top > 1 else ANSWERS
        self.behind: dict[int, list[int]] = {}

    def take(self, tokens: Iterable[int], out: Forward, rows: Sequence[int] | None = None) -> None:
        """The answers behind each of the tokens, which these rows gave, by default the first ones; of equal tokens the
        last one's count.
        """
        for token, row in zip(tokens, range(len(out.argmax)) if rows is None else rows):
            found = self.likeliest(out, row)
            before = [] if self.top > 1 else [other for other in self.behind.get(token, ()) if other != found[0]]
            self.behind[token] = [*found, *before][:len(self.chances)]

    def likeliest(self, out: Forward, row: int) -> list[int]:
        """What the target said behind a row, the likeliest first."""
        if self.top == 1:
            return [out.argmax[row]]
        assert out.top is not None
        found: list[int] = out.top.tokens[row].tolist()
        return found

    def follow(self, token: int) -> list[tuple[int, float, int]]:
        """Candidates behind a token, as :func:`gemmule.sw.decoding.candidates.branches.grow` takes them."""
        return [(found, chance, found) for found, chance in zip(self.behind.get(token, ()), self.chances)]


class Recycling(Drafter):
    """Drafts a tree from the table, which every pass fills."""

    def __init__(self, most: int, table: Table, *, prompts: bool = True,
                 paying: Callable[[int], int] | None = None, shape: tuple[Place, ...] | None = None) -> None:
        """``most``: candidates of a step; ``prompts``: rows of prompts fill the table, too; ``paying``: candidates that
        pay behind so many tokens, None: all; ``shape``: of each tree, None: that of the largest chances.
        """
        self.table, self.most, self.prompts, self.paying, self.shape = table, most, prompts, paying, shape
        self.tree = Tree.chain(0, [])

    def want(self) -> Want | None:
        from gemmule.sw.step import Want

        return Want(top=self.table.top) if self.table.top > 1 else None

    def prompt_want(self) -> Want | None:
        from gemmule.sw.step import Want

        return (self.want() or Want()) if self.prompts else None

    def read(self, tokens: list[int], out: Forward) -> None:
        self.table.take(tokens, out)

    def propose(self, ids: list[int], budget: int) -> Asking[Tree] | Tree:
        most = min(self.most, budget)
        if self.paying is not None:
            most = min(most, self.paying(len(ids) // 64 * 64))
        self.tree = (grow(ids[-1], most, ids[-1], self.table.follow).tree if self.shape is None else
                     fill(ids[-1], self.shape[:most], ids[-1], self.table.follow))
        return self.tree

    def trimmed(self, tree: Tree) -> None:
        self.tree = tree

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.table.take(self.tree.tokens, out)
        accepted = path[:len(new)]  # of a token that stood in several branches, what is in the text counts
        self.table.take([self.tree.tokens[node] for node in accepted], out, accepted)


def table_of(request: Request) -> Table:
    """By the options of a request: an empty one, or that of the session's texts that were decoded the same way."""
    table = Table(request.options["recycling_top"])
    return request.memory.setdefault("table", table) if request.options["recycling_keep"] == "on" else table


def _make(request: Request) -> Recycling:
    options, most, curve = request.options, request.lengths.most(), request.curve
    paying, table = None, table_of(request)
    shape = request.shape(most=most, behind=table.top if table.top > 1 else len(ANSWERS), levels=most)
    if options["recycling_shape"] == "cost" and shape is None:
        if curve is None:
            raise InputError("--recycling-shape cost takes one text with its whole cache, not --batch or --prune: take "
                             "full")
        paying = cache(partial(_paying, curve, options["recycling_top"], most, request.host.step_cycles))
    return Recycling(most, table, prompts=options["recycling_prompts"] == "on", paying=paying, shape=shape)


def _paying(curve: CostCurve, top: int, most: int, step: int, tokens: int) -> int:
    """Candidates of the shape with the most tokens a cycle behind so many tokens."""
    from gemmule.sw.step import Want

    return len(cost_shape(curve, CHANCES[:top], most, tokens, Want(top=top), step).places)


OPTIONS = (
    Option(name="--recycling-top", limits=Range(1, len(CHANCES), "tokens"), default=8,
           help="Entries of a token: the device's largest logits; 1: its last answers, without top-K."),
    Option(name="--recycling-prompts", limits=("on", "off"), default="on",
           help="Whether rows of the prompt fill the table, too, which makes the head run for them."),
    Option(name="--recycling-keep", limits=("off", "on"), default="off",
           help="Whether the next request begins with the table."))
"""Of the table."""
WARM = {"recycling_keep": "on"}
"""Values with which the table is kept."""

METHOD = Method(
    name="recycling",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="Luo et al. 2024 (arXiv 2408.08696)",
    make=_make, needs_general=True, scheduled=False, warm=WARM,
    says="Token Recycling, which proposes a tree of what the target last found likely behind each token",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *OPTIONS, Option(name="--recycling-shape", limits=("full", "cost"), default="full",
                         help="Whether a tree has as many candidates as a pass verifies, or as give the most tokens a "
                              "cycle."), TREE))
