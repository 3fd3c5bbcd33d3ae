"""Suffix decoding, Token Recycling and a datastore together, without training (after SAM-Decoding, Hu et al. 2024).

With ``--chooser-form both`` one tree has the candidates with the largest products of chances, as many as are worth
their rows (:mod:`gemmule.sw.decoding.adaptive.worth`). Chances come from all that is known. Each source is mixed into
the ones before it, by how much it is worth:

- the text's most frequent tokens;
- what followed the last tokens in a datastore (``--chooser-corpus``);
- the answers behind candidates that were rejected for the last token's place, since what follows another token there
  often follows this one, too;
- the table's entries of the token;
- every run of last tokens that stood before in the text, the shortest first.

By default the table has the target's last answers alone, wrong branches' too, which every pass gives. The largest
logits (``--recycling-top 8``) are better guesses, but the device's top-K for all rows takes more cycles than they save.

With ``either`` a step has the candidates of one source: of texts where a run of ``--chooser-min-match`` tokens or more
stood before, else of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gemmule.sw.decoding.adaptive.worth import Worth
from gemmule.sw.decoding.candidates.branches import Follow, grow
from gemmule.sw.decoding.candidates.stored import Stored
from gemmule.sw.decoding.candidates.suffixes import Node
from gemmule.sw.decoding.methods import recycling, suffix
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.methods.recycling import Recycling, Table, table_of
from gemmule.sw.decoding.methods.suffix import Texts, texts_of
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import CORPORA, DRAFTS, NO_CORPUS, WRITINGS, Range

if TYPE_CHECKING:
    from gemmule.sw.datastore.datastore import Places
    from gemmule.sw.step import Asking, Forward

__all__ = ["CORPUS", "METHOD", "Chooser", "Path", "Place", "stored_of"]

FORMS = ("both", "either")
TRUST = (0.15, 0.5, 0.5, 0.6, 0.9)
"""How often what followed a run of 1, 2, .. tokens followed it again; the last one for all longer ones."""
BESIDE = 0.3
"""How much the answers behind rejected candidates are worth, compared with those of the table."""
COMMON = 0.1
"""The same of a token's share of the text."""
WIDEST = 16
"""Candidates behind one that are looked at."""
Runs = tuple[tuple[int, Node], ...]
"""Runs that end with a token: tokens of each, the shortest first, and what followed."""
Path = tuple[int, ...]
"""Candidates from the first one on."""
NOTHING: Mapping[int, float] = MappingProxyType({})


class Place(NamedTuple):
    """A token of the tree.

    Attributes:
        runs: that end with it and stood before in the text.
        beside: chances by the answers behind rejected candidates for its place.
        stored: runs of a datastore that end with it.
        path: candidates up to it, the first one first.
    """

    token: int
    runs: Runs = ()
    beside: Mapping[int, float] = NOTHING
    stored: tuple[Places, ...] = ()
    path: Path = ()

    @property
    def run(self) -> int:
        """Tokens of the longest run that ends with it."""
        return self.runs[-1][0] if self.runs else 0


class Chooser(Recycling):
    """Drafts from texts where they match, from a datastore and from the table."""

    trust: Sequence[float] = TRUST
    """How much what followed a run of 1, 2, .. tokens counts beside what is :meth:`guessed`."""

    def __init__(self, most: int, texts: Texts, table: Table, *, prompts: bool = True, least_match: int = 2,
                 both: bool = True, stored: Stored | None = None, worth: Worth | None = None) -> None:
        """``most``, ``table``, ``prompts``: as of :class:`Recycling`; ``both``: one tree has the candidates of all;
        ``least_match``: tokens of a run that decides, else; ``stored``: other texts; ``worth``: tells how many
        candidates are worth their rows, None: all.
        """
        super().__init__(most, table, prompts=prompts)
        self.texts, self.least_match, self.both = texts, least_match, both
        self.stored, self.worth = stored, worth
        self.beside: dict[int, float] = {}
        """Of the last token's place: chances of what follows it, by the answers behind rejected candidates."""
        self.common: dict[int, float] = {}
        """The most frequent tokens of the text, with how much they are worth."""

    def begin(self, ids: list[int], dropped: int = 0) -> Asking[None] | None:
        self.texts.begin(ids)
        self.beside = {}
        if self.worth:
            self.worth.begin(len(ids))
        return None

    def propose(self, ids: list[int], budget: int) -> Asking[Tree] | Tree:
        first = self.place(ids)
        follow = self.mixed if self.both else self._of_runs if first.run >= self.least_match else self._of_table
        return self.chosen(ids, budget, first, follow, 0)

    def place(self, ids: list[int]) -> Place:
        """The text's last token."""
        runs: Runs = tuple(reversed(self.texts.places(ids)))
        if self.both:
            self.common = {token: COMMON * share for token, share in self.texts.own.root.likely()[:WIDEST]}
        return Place(ids[-1], runs, self.beside, self.stored.ends(ids) if self.both and self.stored else ())

    def chosen(self, ids: list[int], budget: int, first: Place, follow: Follow[Place], drafting: int) -> Tree:
        """The tree of as many candidates as are worth their rows; ``drafting``: cycles spent on them."""
        most = min(self.most, budget)
        found = self.worth.chosen(lambda count: grow(ids[-1], count, first, follow), most, drafting) \
            if self.worth else grow(ids[-1], most, first, follow)
        self.tree = found.tree
        return self.tree

    def guessed(self, path: Path) -> Mapping[int, float]:
        """What a model says may follow a path, each token with its chance; their sum is how much it is worth. It stands
        in the place of the table's entries.
        """
        return {}

    def _of_table(self, place: Place) -> list[tuple[int, float, Place]]:
        return [(after, chance, Place(after)) for after, chance, _ in self.table.follow(place.token)]

    def _of_runs(self, place: Place) -> list[tuple[int, float, Place]]:
        return self._behind(place, _mix({}, place.runs))

    def mixed(self, place: Place) -> list[tuple[int, float, Place]]:
        """Candidates by all sources."""
        chances = self.common
        for run in place.stored:
            assert self.stored is not None
            trust = self.stored.trust(run)
            chances = _joined(chances, 1 - trust, {
                after: trust * share for after, share, _ in self.stored.behind(run)})
        answers = {after: chance for after, chance, _ in self.table.follow(place.token)}
        guess = self.guessed(place.path)
        for known in (guess,) if guess else (place.beside, answers):
            chances = _joined(chances, 1 - sum(known.values()), known)
        return self._behind(place, _mix(chances, place.runs, self.trust if guess else TRUST))

    def _behind(self, place: Place, chances: dict[int, float]) -> list[tuple[int, float, Place]]:
        """The likeliest candidates, each with the runs that it makes longer."""
        found, shortest = [], ((0, self.texts.own.root),) if self.both else ()
        for after, chance in sorted(chances.items(), key=lambda item: -item[1])[:WIDEST]:
            longer = [(length + 1, node.children[after]) for length, node in (*shortest, *place.runs)
                      if after in node.children and node.children[after].children]
            further = self.stored.longer(after, place.stored) if self.stored and self.both else ()
            found.append((after, chance, Place(after, tuple(longer), stored=further, path=(*place.path, after))))
        return found

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        super().observe(out, path, new)
        self.texts.add(new)
        rejected = self.tree.children(path[len(new) - 1])
        self.beside = {}
        for row in rejected:
            for after, chance in zip(self.table.likeliest(out, row), self.table.chances):
                self.beside[after] = self.beside.get(after, 0.0) + BESIDE * chance / len(rejected)


def _joined(chances: dict[int, float], left: float, known: Mapping[int, float]) -> dict[int, float]:
    """Chances of which so much is left, and those that are known."""
    found = {after: left * chance for after, chance in chances.items()}
    for after, chance in known.items():
        found[after] = found.get(after, 0.0) + chance
    return found


def _mix(chances: dict[int, float], runs: Runs, trusted: Sequence[float] = TRUST) -> dict[int, float]:
    """Chances with those of runs mixed in, the shortest first; ``trusted``: as :data:`TRUST`."""
    for length, node in runs:
        trust, seen = trusted[min(length, len(trusted)) - 1], sum(child.count for child in node.children.values())
        chances = {after: (1 - trust) * chance for after, chance in chances.items()}
        for after, child in node.children.items():
            chances[after] = chances.get(after, 0.0) + trust * child.count / seen
    return chances


def stored_of(request: Request) -> Stored | None:
    """The texts of ``--chooser-corpus``; None: there are none.

    Raises:
        InputError: there is no datastore of them.
    """
    corpus = request.options[CORPUS.key] or (WRITINGS if request.writes else NO_CORPUS)
    if corpus == NO_CORPUS:
        return None
    if request.datastore is None:
        raise InputError(f"{CORPUS.name} {corpus} needs a datastore of texts in the target's tokens: take {NO_CORPUS}")
    return Stored(request.datastore(corpus))


def _make(request: Request) -> Chooser:
    options, both = request.options, request.options["chooser_form"] == "both"
    return Chooser(request.lengths.most(), texts_of(request), table_of(request),
                   prompts=options["recycling_prompts"] == "on", least_match=options["chooser_min_match"],
                   both=both, stored=stored_of(request), worth=Worth(
                       request.host.launch_cycles, request.host.step_cycles, request.curve.row_costs)
                   if both and request.curve else None)


CORPUS = Option(
    name="--chooser-corpus", limits=(NO_CORPUS, *CORPORA),
    otherwise=f"{WRITINGS} where the model brings some, else {NO_CORPUS}",
    help="Texts beside the one that is written: those of a datastore, or none; writings: what the model wrote to "
         "prompts that it made up.")
"""Of methods that look at a datastore, too."""
OWN_DEFAULTS: dict[str, float | str] = {"recycling_prompts": "off", "recycling_top": 1}
"""Of the table's options."""

METHOD = Method(
    name="chooser",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="Hu et al. 2024, SAM-Decoding (arXiv 2411.10666)",
    make=_make, needs_general=True, scheduled=False, wide=True, warm=suffix.WARM | recycling.WARM,
    says="what followed the last tokens in the text and in a datastore, and Token Recycling, in one tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *suffix.OPTIONS, *(replace(option, default=OWN_DEFAULTS.get(option.key, option.default))
                           for option in recycling.OPTIONS),
        CORPUS,
        Option(name="--chooser-form", limits=FORMS, default="both",
               help="Whether one tree has candidates of both, or a step those of either."),
        Option(name="--chooser-min-match", limits=Range(1, 16, "tokens"), default=2,
               help="With either: tokens of a run that decides, at least.")))
