"""Suffix decoding: what followed the longest runs of last tokens, in the text and in earlier ones (Oliaro et al. 2024,
SuffixDecoding).

A tree of all runs of up to ``--suffix-decoding-max-tree-depth`` tokens counts what followed each. The last tokens of
the text are looked up, from the longest run that stood somewhere before down to the last token alone. Behind each, the
likeliest candidates make a tree, none less likely than ``--suffix-decoding-min-token-prob``; the tree that is expected
to have the most tokens accepted is proposed. Names and defaults are those of vLLM, with two exceptions. Candidates are
not limited to the length of the run times ``--suffix-decoding-max-spec-factor`` (1.0 there) unless it is given, as the
rows that a pass verifies cost next to nothing here. And texts of earlier requests are kept only where
``--suffix-decoding-max-cached-requests`` (10,000 there) says how many: results then depend on the requests before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.branches import Branches, grow
from gemmule.sw.decoding.candidates.suffixes import Node, Suffixes, Writer
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.limits import DRAFTS, Decimals, Range

if TYPE_CHECKING:
    from gemmule.sw.step import Forward

__all__ = ["METHOD", "OPTIONS", "WARM", "Earlier", "Suffix", "Texts", "texts_of"]

Follow = Callable[[Node], list[tuple[int, float, Node]]]


@dataclass
class Earlier:
    """Texts of earlier requests, the newest ones."""

    suffixes: Suffixes
    most: int
    texts: deque[list[int]] = field(default_factory=deque)

    def begin(self) -> list[int]:
        """The tokens of a new one, which its owner appends; the oldest one goes where there are too many."""
        text: list[int] = []
        self.texts.append(text)
        if len(self.texts) > self.most:
            self.suffixes.forget(self.texts.popleft())
        return text


class Texts:
    """The text so far, and earlier ones, as trees of runs."""

    def __init__(self, depth: int, earlier: Earlier | None = None) -> None:
        self.depth, self.earlier = depth, earlier
        self._forget()

    def _forget(self) -> None:
        self.own = Suffixes(self.depth)
        self.writers: list[Writer] = [self.own.writer()]
        self.text: list[int] = []
        if self.earlier:
            self.text = self.earlier.begin()
            self.writers.append(self.earlier.suffixes.writer())

    def begin(self, ids: Sequence[int]) -> None:
        """The text is now this one: it goes on with the one so far, or is another one."""
        if self.text != list(ids[:len(self.text)]):
            self._forget()
        self.add(ids[len(self.text):])

    def add(self, tokens: Sequence[int]) -> None:
        """Tokens behind it."""
        self.text += tokens
        for writer in self.writers:
            writer.add(tokens)

    def places(self, ids: Sequence[int]) -> list[tuple[int, Node]]:
        """Runs that end a text and stood somewhere before, the longest first: tokens of each, and what followed."""
        found = []
        for length in range(min(self.depth - 1, len(ids)), 0, -1):
            last = ids[-length:]
            for suffixes in (self.own, *([self.earlier.suffixes] if self.earlier else [])):
                node = suffixes.match(last)
                if node is not None and node.children:
                    found.append((length, node))
        return found


def likely(node: Node) -> list[tuple[int, float, Node]]:
    """What followed a run, by how often."""
    return [(token, share, node.children[token]) for token, share in node.likely()]


def likeliest(node: Node) -> list[tuple[int, float, Node]]:
    """The most frequent token that followed a run, alone."""
    return likely(node)[:1]


FORMS: dict[str, Follow] = {"tree": likely, "path": likeliest}
"""How a proposal branches, by name."""

LONG = 6
"""Tokens of a run from which on what followed it is right as often."""


class Suffix(Drafter):
    """Drafts from texts; no model runs for it."""

    def __init__(self, texts: Texts, most: int, *, factor: float | None = None, least: float = 0.1,
                 form: str = "tree") -> None:
        """``most``: candidates of a step; ``factor``: of them by token of the run, None: as many whatever its length;
        ``least``: chance of a candidate.
        """
        self.texts, self.most, self.factor, self.least, self.follow = texts, most, factor, least, FORMS[form]

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        self.texts.begin(ids)

    def propose(self, ids: list[int], budget: int) -> Tree:
        best = Branches(Tree.chain(ids[-1], []), 0.0)
        for length, node in self.texts.places(ids):
            count = min(self.most, budget, *([] if self.factor is None else [int(length * self.factor)]))
            found = grow(ids[-1], count, node, self.follow, self.least)
            if found.expected > best.expected:
                best = Branches(replace(found.tree, source=f"run of {min(length, LONG)}"), found.expected)
        return best.tree

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self.texts.add(new)


def texts_of(request: Request) -> Texts:
    """By the options of a request; earlier texts are those of the session that were decoded the same way."""
    depth = request.options["suffix_decoding_max_tree_depth"]
    most = request.options["suffix_decoding_max_cached_requests"]
    if not most:
        return Texts(depth)
    return Texts(depth, request.memory.setdefault("earlier texts", Earlier(Suffixes(depth), most)))


def _make(request: Request) -> Suffix:
    options = request.options
    return Suffix(texts_of(request), request.lengths.most(), factor=options["suffix_decoding_max_spec_factor"],
                  least=options["suffix_decoding_min_token_prob"], form=options["suffix_decoding_form"])


OPTIONS = (
    Option(name="--suffix-decoding-max-tree-depth", limits=Range(2, 256, "tokens"), default=24,
           help="Longest run of tokens that is looked up, with what follows it."),
    Option(name="--suffix-decoding-max-cached-requests", limits=Range(0, 10_000, "texts"), default=0,
           help="Texts of earlier requests that are looked up, too."))
"""Of what is looked up."""
WARM = {"suffix_decoding_max_cached_requests": 10_000}
"""Values with which earlier texts are kept."""

METHOD = Method(
    name="suffix",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="Oliaro et al. 2024, SuffixDecoding (arXiv 2411.04975)",
    make=_make, scheduled=False, warm=WARM,
    says="suffix decoding, which proposes what followed the longest runs of last tokens, as a tree",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        *OPTIONS,
        Option(name="--suffix-decoding-max-spec-factor", limits=Decimals(0.1, 100), otherwise="no limit",
               help="Candidates by token of the run that was found, at most."),
        Option(name="--suffix-decoding-min-token-prob", limits=Decimals(0, 1), default=0.1,
               help="Smallest chance of a candidate, by how often it followed."),
        Option(name="--suffix-decoding-form", limits=tuple(FORMS), default="tree",
               help="Whether a proposal branches (tree) or is the likeliest path.")))
