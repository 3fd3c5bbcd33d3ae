"""Suffix decoding and Token Recycling together, without training (the pairing of SAM-Decoding, Hu et al. 2024).

Where the last tokens stood before, what followed them is the better guess; else the table of Token Recycling is. With
``--chooser-form either`` a step has the candidates of one of the two: of texts where a run of ``--chooser-min-match``
tokens or more stood before, else of the table.

With ``both`` one tree has the candidates with the largest products of chances. Chances come from all that is known.
Each source is mixed into the ones before it, by how much it is worth:

- the text's most frequent tokens;
- the answers behind candidates that were rejected for the last token's place, since what follows another token there
  often follows this one, too;
- the table's entries of the token;
- every run of last tokens that stood before, the shortest first.

The first two matter because the table has nothing of a third of a new text's tokens: no pass had a row for them yet.
They also make up for rows of the prompt. Those fill the table with ``--recycling-prompts on`` only, because passes over
a prompt whose rows are answered take longer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gemmule.sw.decoding.branches import grow
from gemmule.sw.decoding.methods import recycling, suffix
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.methods.recycling import CHANCES, Recycling, Table, table_of
from gemmule.sw.decoding.methods.suffix import Texts, texts_of
from gemmule.sw.decoding.suffixes import Node
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.sw.step import Forward

__all__ = ["METHOD", "Chooser"]

FORMS = ("both", "either")
TRUST = (0.2, 0.5, 0.65, 0.85, 0.9)
"""How often what followed a run of 1, 2, .. tokens followed it again; the last one for all longer ones."""
BESIDE = 0.5
"""How much the answers behind rejected candidates are worth, compared with those of the table."""
COMMON = 0.5
"""The same of a token's share of the text."""
WIDEST = 16
"""Candidates behind one that are looked at."""
Runs = tuple[tuple[int, Node], ...]
"""Runs that end with a token: tokens of each, the shortest first, and what followed."""
Place = tuple[int, Runs, dict[int, float]]
"""A token, the runs that end with it, and chances by the answers behind rejected candidates for its place."""


class Chooser(Recycling):
    """Drafts from texts where they match, and from the table."""

    def __init__(self, most: int, texts: Texts, table: Table, *, prompts: bool = True, least_match: int = 2,
                 both: bool = True) -> None:
        """``most``, ``table``, ``prompts``: as of :class:`Recycling`; ``both``: one tree has the candidates of both;
        ``least_match``: tokens of a run that decides, else.
        """
        super().__init__(most, table, prompts=prompts)
        self.texts, self.least_match, self.both = texts, least_match, both
        self.beside: dict[int, float] = {}
        """Of the last token's place: chances of what follows it, by the answers behind rejected candidates."""
        self.common: dict[int, float] = {}
        """The most frequent tokens of the text, with how much they are worth."""

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.texts.begin(ids)
        self.beside = {}

    def propose(self, ids: list[int], budget: int) -> Tree:
        runs: Runs = tuple(reversed(self.texts.places(ids)))
        if self.both:
            self.common = {token: COMMON * share for token, share in self.texts.own.root.likely()[:WIDEST]}
            follow = self._mixed
        else:
            follow = self._of_runs if runs and runs[-1][0] >= self.least_match else self._of_table
        first = (ids[-1], runs, self.beside)
        self.tree = grow(ids[-1], min(self.most, budget), first, follow).tree
        return self.tree

    def _of_table(self, place: Place) -> list[tuple[int, float, Place]]:
        return [(after, chance, (after, (), {})) for after, chance, _ in self.table.follow(place[0])]

    def _of_runs(self, place: Place) -> list[tuple[int, float, Place]]:
        return self._behind(place[1], _mix({}, place[1]))

    def _mixed(self, place: Place) -> list[tuple[int, float, Place]]:
        token, runs, beside = place
        chances = self.common
        for known in (beside, {after: chance for after, chance, _ in self.table.follow(token)}):
            left = 1 - sum(known.values())
            chances = {after: left * chance for after, chance in chances.items()}
            for after, chance in known.items():
                chances[after] = chances.get(after, 0.0) + chance
        return self._behind(runs, _mix(chances, runs))

    @staticmethod
    def _behind(runs: Runs, chances: dict[int, float]) -> list[tuple[int, float, Place]]:
        """The likeliest candidates, each with the runs that it makes longer."""
        best = sorted(chances.items(), key=lambda item: -item[1])[:WIDEST]
        return [(after, chance, (after, tuple((length + 1, node.children[after]) for length, node in runs
                                              if after in node.children and node.children[after].children), {}))
                for after, chance in best]

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        super().observe(out, path, new)
        self.texts.add(new)
        assert out.top is not None
        rejected = self.tree.children(path[len(new) - 1])
        self.beside = {}
        for row in rejected:
            for after, chance in zip(out.top.tokens[row].tolist(), CHANCES):
                self.beside[after] = self.beside.get(after, 0.0) + BESIDE * chance / len(rejected)


def _mix(chances: dict[int, float], runs: Runs) -> dict[int, float]:
    """Chances with those of runs mixed in, the shortest first."""
    for length, node in runs:
        trust, seen = TRUST[min(length, len(TRUST)) - 1], sum(child.count for child in node.children.values())
        chances = {after: (1 - trust) * chance for after, chance in chances.items()}
        for after, child in node.children.items():
            chances[after] = chances.get(after, 0.0) + trust * child.count / seen
    return chances


def _make(request: Request) -> Chooser:
    options = request.options
    return Chooser(request.lengths.most(), texts_of(request), table_of(request),
                   prompts=options["recycling_prompts"] == "on", least_match=options["chooser_min_match"],
                   both=options["chooser_form"] == "both")


METHOD = Method(
    name="chooser",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="Hu et al. 2024, SAM-Decoding (arXiv 2411.10666)",
    make=_make, needs_general=True, scheduled=False, warm=suffix.WARM | recycling.WARM,
    says="suffix decoding where the last tokens stood before, and Token Recycling, in one tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *suffix.OPTIONS, *(replace(option, default="off") if option.key == "recycling_prompts" else option
                           for option in recycling.OPTIONS),
        Option(name="--chooser-form", limits=FORMS, default="both",
               help="Whether one tree has candidates of both, or a step those of either."),
        Option(name="--chooser-min-match", limits=Range(1, 16, "tokens"), default=2,
               help="With either: tokens of a run that decides, at least.")))
