"""N-gram lookup: an n-gram model of the text, learned as it is written, drafts a chain (llama.cpp's lookup decoding).

Counts tell which token followed each run of 1 to ``--ngram-max`` tokens. A token is drafted where a run of last tokens
was seen often enough and one token followed in most cases; the longest such run decides. Drafted tokens count as text
for the next one. The thresholds are llama.cpp's: :data:`LAX` ones for the text itself, :data:`STRICT` ones for a second
model, of all texts of the session, which ``--ngram-dynamic on`` keeps: results then depend on the texts before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gemmule.sw.decoding.candidates.suffixes import Suffixes
from gemmule.sw.decoding.methods.method import Method, Option, Request
from gemmule.sw.decoding.paced import Paced
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.limits import DRAFTS, Range

if TYPE_CHECKING:
    from gemmule.config import Host
    from gemmule.sw.decoding.lengths import Lengths
    from gemmule.sw.step import Forward

__all__ = ["LAX", "METHOD", "STRICT", "NGram", "Thresholds", "likeliest"]


class Thresholds(NamedTuple):
    """When a run of 1, 2, .. tokens decides: how often it was seen, and in how many of 100 cases one token followed."""

    seen: tuple[int, ...]
    percent: tuple[int, ...]


LAX = Thresholds((2, 2, 1, 1), (66, 50, 50, 50))
STRICT = Thresholds((4, 3, 2, 2), (75, 66, 66, 66))
MOST = len(LAX.seen)
"""Tokens of a run."""


def likeliest(grams: Suffixes, last: list[int], thresholds: Thresholds) -> int | None:
    """The token that a model of runs expects behind the ``last`` tokens, the longest run that decides first."""
    for length in range(min(grams.depth - 1, len(last)), 0, -1):
        node = grams.match(last[-length:])
        if node is None or not node.children:
            continue
        seen = sum(child.count for child in node.children.values())
        token, most = max(((token, child.count) for token, child in node.children.items()), key=lambda item: item[1])
        if seen >= thresholds.seen[length - 1] and 100 * most >= thresholds.percent[length - 1] * seen:
            return token
    return None


class NGram(Paced):
    """Drafts a chain from counts; no model runs for it."""

    def __init__(self, lengths: Lengths | int, host: Host | None = None, *, most: int = MOST,
                 dynamic: Suffixes | None = None) -> None:
        """``lengths``: as of :class:`Paced`; ``most``: tokens of a run; ``dynamic``: the model of all texts."""
        super().__init__(lengths, host)
        self.most, self.dynamic = most, dynamic
        self.text: list[int] = []
        self._begin()

    def _begin(self) -> None:
        self.text = []
        self.own = Suffixes(self.most + 1)
        self.writers = [grams.writer() for grams in (self.own, self.dynamic) if grams]

    def _add(self, tokens: list[int]) -> None:
        self.text += tokens
        for writer in self.writers:
            writer.add(tokens)

    def begin(self, ids: list[int], dropped: int = 0) -> None:
        if self.text != ids[:len(self.text)]:
            self._begin()
        self._add(ids[len(self.text):])

    def propose(self, ids: list[int], budget: int) -> Tree:
        drafted: list[int] = []
        while len(drafted) < min(self.lengths.most(), budget):
            last = [*ids[-self.most:], *drafted][-self.most:]
            token = likeliest(self.own, last, LAX)
            if token is None and self.dynamic:
                token = likeliest(self.dynamic, last, STRICT)
            if token is None:
                break
            drafted.append(token)
        self.drafted = len(drafted)
        return Tree.chain(ids[-1], drafted)

    def observe(self, out: Forward, path: list[int], new: list[int]) -> None:
        self._add(new)
        super().observe(out, path, new)


def _make(request: Request) -> NGram:
    most = request.options["ngram_max"]
    dynamic = None
    if request.options["ngram_dynamic"] == "on":
        dynamic = request.memory.setdefault("n-grams of all texts", Suffixes(most + 1))
    return NGram(request.lengths, request.host, most=most, dynamic=dynamic)


METHOD = Method(
    name="ngram",
    cuts="no network drafts: a step costs the rows of the pass that verifies",
    source="llama.cpp's lookup decoding",
    make=_make, warm={"ngram_dynamic": "on"},
    says="an n-gram model learned on the fly, which proposes a chain of what followed the last tokens in most cases",
    drafts=Option(name="--num-speculative-tokens", limits=DRAFTS, default=15, help="Tokens drafted per step.",
                  otherwise="as many as a pass verifies"),
    options=(
        Option(name="--ngram-max", limits=Range(1, MOST, "tokens"), default=MOST,
               help="Longest run of tokens that is looked up; shorter ones follow."),
        Option(name="--ngram-dynamic", limits=("off", "on"), default="off",
               help="Whether texts of earlier requests count, too, by stricter thresholds.")))
