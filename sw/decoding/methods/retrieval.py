"""Retrieval: what followed the longest run of last tokens in a datastore of texts (He et al. 2024, REST).

The datastore is made once of a corpus in the target's tokens: a suffix array, read from the disk. Of the text's last
tokens the longest run of at most ``--retrieval-max-match`` is looked up that stands there, down to one of
``--retrieval-min-match``. What follows it at all its places is a tree, each candidate as likely as it is frequent; the
most likely ones are verified, as many as a pass takes. The paper cuts 5,000 sampled continuations to 64 candidates;
here counts come from the suffix array itself, whose places of a run and one token more are a part of those of the run.

``--retrieval-corpus`` chooses the texts: modules of Python's standard library (``code``), the documentation in them and
the language reference (``prose``), or both (``all``), all without the files from which held-out prompts are cut; or a
text of the user's (``own``), which ``gemmule datastore --text FILE`` takes in. No model but the target runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmule.sw.decoding.candidates.branches import grow
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.tree import Drafter, Tree
from gemmule.sw.errors import InputError
from gemmule.sw.limits import CORPORA, DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.sw.datastore.datastore import Datastore, Places

__all__ = ["METHOD", "Retrieval"]

WIDEST = 8
"""Candidates behind one that are looked at."""
MATCH = Range(1, 16, "tokens")


class Retrieval(Drafter):
    """Drafts a tree from a datastore."""

    def __init__(self, datastore: Datastore, most: int, *, longest: int = 16, least: int = 2) -> None:
        """``most``: candidates of a step; ``longest``, ``least``: tokens of a run that is looked up."""
        self.datastore, self.most, self.longest, self.least = datastore, most, longest, least

    def propose(self, ids: list[int], budget: int) -> Tree:
        places = self.datastore.longest(ids[-self.longest:], self.longest, self.least)
        if places is None:
            return Tree.chain(ids[-1], [])
        return grow(ids[-1], min(self.most, budget), places, self._follow).tree

    def _follow(self, places: Places) -> list[tuple[int, float, Places]]:
        return self.datastore.behind(places, WIDEST)


def _make(request: Request) -> Retrieval:
    options = request.options
    longest, least = options["retrieval_max_match"], options["retrieval_min_match"]
    if least > longest:
        raise InputError(f"--retrieval-min-match must be at most --retrieval-max-match, {longest}, not {least}")
    if request.datastore is None:
        raise InputError("--method retrieval needs a datastore of texts in the target's tokens: take another --method")
    return Retrieval(request.datastore(options["retrieval_corpus"]), request.lengths.most(), longest=longest,
                     least=least)


METHOD = Method(
    name="retrieval",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="He et al. 2024, REST (arXiv 2311.08252)",
    make=_make, scheduled=False,
    says="retrieval from a datastore, which proposes a tree of what followed the longest run of last tokens in a "
         "corpus",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--retrieval-corpus", limits=CORPORA, default=CORPORA[0],
               help="Texts that are looked up: Python's library and its documentation, or a text of yours."),
        Option(name="--retrieval-max-match", limits=MATCH, default=16, help="Longest run of tokens that is looked up."),
        Option(name="--retrieval-min-match", limits=MATCH, default=2, help="Shortest run of tokens that decides.")))
