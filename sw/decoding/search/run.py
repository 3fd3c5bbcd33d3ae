"""The search loop: passes over a row of each text, and what two ways make of their logits.

Both begin with the prompt's cached rows, which all texts share. A step is one launch, whatever the number of texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol

import numpy as np

from gemmule.sw.decoding.asking import alone
from gemmule.sw.decoding.search.beams import Beams
from gemmule.sw.decoding.search.scores import log_probabilities
from gemmule.sw.decoding.stops import Stops, Watch
from gemmule.sw.decoding.tree import Tree
from gemmule.sw.decoding.verify import Rule
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.kv.branches import Branches, Shared
from gemmule.sw.kv.contiguous import ContiguousKV
from gemmule.sw.step import Forward, Want

__all__ = ["BeamSearch", "BestOf", "Candidate", "Found", "Search"]

LOGITS = Want(logits=True)
MEAN, MAJORITY = "mean", "majority"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A text that a search found.

    Attributes:
        tokens: new ones, a stop token and those of a stop string included.
        total: sum of their log-probabilities, in units of 2**-24 bits.
        score: what it is ranked by, in these units.
        finish_reason: as of :class:`gemmule.sw.decoding.generation.Generation`.
        number: of the sampled text, whose noise it has; of a beam its rank.
        votes: sampled texts that are the same.
        stop_string, text_end: as of a generation.
    """

    tokens: list[int]
    total: int
    score: int
    finish_reason: str
    number: int
    votes: int = 1
    stop_string: str | None = None
    text_end: int | None = None


@dataclass
class Found:
    """What a search gave, and how.

    Attributes:
        candidates: the best first.
        ledger, prefill: all cycles, and those before the first new token.
        shared: rows of the cache.
        rows: of each step's pass.
        curve: cycles of each step, host included.
        prompt_tokens: of the prompt.
        ties: decisions among equal scores.
        moved: texts that went on with the rows of another one.
    """

    candidates: list[Candidate]
    ledger: Ledger
    prefill: Ledger
    shared: Shared
    rows: list[int]
    curve: list[int]
    prompt_tokens: int
    ties: int = 0
    moved: int = 0


class Search(Protocol):
    """A way to look for texts."""

    @property
    def width(self) -> int:
        """Texts, each a row of a pass."""

    def run(self, target: LoadedModel, prompt: list[int], max_new_tokens: int, stops: Stops,
            ledger: Ledger) -> Found: ...


@dataclass
class _Passes:
    """Passes of the texts of a search, charged."""

    target: LoadedModel
    prompt: list[int]
    ledger: Ledger
    rows: list[int] = field(default_factory=list)
    curve: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.prompt)
        if not count:
            raise ValueError("the prompt must hold at least one token, not none")
        if count >= self.positions:
            raise ValueError(f"the prompt must hold at most {self.positions - 1} tokens, not {count}; shorten it")
        self.model = self.target.charging(self.ledger)
        kv = self.model.kv()
        assert isinstance(kv, ContiguousKV)
        self.before = self.ledger.so_far()
        alone(kv.begin(self.prompt))
        self.prefill = self.ledger.so_far()
        self.branches = Branches(kv)

    @property
    def positions(self) -> int:
        """Tokens of a text at most."""
        graph = self.target.program.graph
        return graph.whole_positions - graph.prefix

    def forward(self, tokens: Sequence[int]) -> Forward:
        """A step: a pass over the last token of each text."""
        before = self.ledger.cycles
        out = self.branches.forward(tokens, LOGITS)
        self.ledger.step()
        self.rows.append(len(tokens))
        self.curve.append(self.ledger.cycles - before)
        return out

    def found(self, candidates: list[Candidate], ties: int, moved: int) -> Found:
        return Found(candidates, self.ledger.since(self.before), self.prefill.since(self.before),
                     self.branches.shared(), self.rows, self.curve, len(self.prompt), ties, moved)


def _logits(out: Forward) -> np.ndarray:
    assert out.logits is not None
    return out.logits


@dataclass(frozen=True)
class BeamSearch:
    """The ``width`` likeliest texts that step by step extension of as many finds.

    Attributes:
        penalty: complete texts compete by their sums over this power of their lengths.
        early: as of :class:`Beams`.
        progress: called with each step.
    """

    width: int
    penalty: Decimal = Decimal(1)
    early: bool = False
    progress: Callable[[], None] | None = None

    def run(self, target: LoadedModel, prompt: list[int], max_new_tokens: int, stops: Stops, ledger: Ledger) -> Found:
        """``stops``: tokens alone.

        Raises:
            ValueError: the prompt is empty or does not fit.
        """
        passes = _Passes(target, prompt, ledger)
        beams, last = Beams(self.width, stops.tokens, self.penalty, early=self.early), [prompt[-1]]
        most = min(max_new_tokens, passes.positions - len(prompt))
        while True:
            rows = log_probabilities(_logits(passes.forward(last)), target.logit_scale)
            parents = beams.step(rows)
            if self.progress:
                self.progress()
            if beams.over or len(passes.rows) == most or not parents:
                break
            passes.branches.fork(parents)
            last = [beam.tokens[-1] for beam in beams.live]
        cut = "length" if most == max_new_tokens else "context"
        return passes.found([
            Candidate(tokens=list(one.beam.tokens), total=one.beam.total, score=one.score, number=rank,
                      finish_reason="stop" if one.ended else cut)
            for rank, one in enumerate(beams.finish())], beams.ties, beams.moved)


@dataclass(frozen=True)
class BestOf:
    """The best of ``width`` sampled texts: text i is that of autoregressive decoding by ``rule.of_text(i)``.

    Attributes:
        rank: by ``mean`` log-probability, or ``majority``: of how many of the texts are the same, then by the mean.
        words: text of tokens, by which a majority compares; by default tokens.
        progress: called with each step.
    """

    width: int
    rule: Rule
    rank: str = MEAN
    words: Callable[[list[int]], str] | None = None
    progress: Callable[[], None] | None = None

    def run(self, target: LoadedModel, prompt: list[int], max_new_tokens: int, stops: Stops, ledger: Ledger) -> Found:
        """As of :meth:`BeamSearch.run`, with stop strings too."""
        passes = _Passes(target, prompt, ledger)
        texts = [_Sampled(self.rule.of_text(number), stops.behind(prompt)) for number in range(self.width)]
        running, last = list(range(self.width)), [prompt[-1]]
        most = min(max_new_tokens, passes.positions - len(prompt))
        while True:
            logits = _logits(passes.forward(last))
            rows = log_probabilities(logits, target.logit_scale)
            position = len(prompt) + len(passes.rows) - 1
            of = [0] * self.width if position == len(prompt) else range(len(running))  # all begin with one row
            for number, row in zip(running, of):
                texts[number].go_on(prompt, logits[row], rows[row], target.logit_scale, position)
            if self.progress:
                self.progress()
            parents = [row for number, row in zip(running, of) if not texts[number].stopped]
            running = [number for number in running if not texts[number].stopped]
            if not running or len(passes.rows) == most:
                break
            passes.branches.fork(parents)
            last = [texts[number].tokens[-1] for number in running]
        cut = "length" if most == max_new_tokens else "context"
        ranked, ties = self._ranked([text.candidate(number, cut) for number, text in enumerate(texts)])
        return passes.found(ranked, ties, 0)

    def _ranked(self, candidates: list[Candidate]) -> tuple[list[Candidate], int]:
        """The best first, of equal ones the lowest number; and how many have the rank of the one before."""
        keys = [self._text(one) for one in candidates]
        votes = Counter(keys)
        candidates = [replace(one, votes=votes[key]) for one, key in zip(candidates, keys, strict=True)]

        def rank(one: Candidate) -> tuple[int, int]:
            return (-one.votes if self.rank == MAJORITY else 0, -one.score)

        found = sorted(candidates, key=rank)
        return found, sum(rank(one) == rank(other) for one, other in zip(found, found[1:]))

    def _text(self, one: Candidate) -> str | tuple[int, ...]:
        return self.words(one.tokens)[:one.text_end].strip() if self.words else tuple(one.tokens)


class _Sampled:
    """A text that is sampled by noise of its own."""

    def __init__(self, rule: Rule, watch: Watch) -> None:
        self.rule, self.watch = rule, watch
        self.tokens: list[int] = []
        self.total, self.stopped = 0, False
        self.stop_string: str | None = None
        self.text_end: int | None = None

    def go_on(self, prompt: list[int], logits: np.ndarray, rows: np.ndarray, scale: float, position: int) -> None:
        """A token more, by the logits behind the last one."""
        tree = Tree.chain(self.tokens[-1] if self.tokens else prompt[-1], [])
        _, new = self.rule.verify(tree, Forward([int(logits.argmax())], (), logits=logits[None]), scale, position)
        cut = self.watch.cut(new)
        self.tokens += cut.new
        self.total += int(rows[cut.new[-1]])
        self.stopped, self.stop_string, self.text_end = cut.stopped, cut.string, cut.end

    def candidate(self, number: int, cut: str) -> Candidate:
        return Candidate(tokens=self.tokens, total=self.total, score=round(Decimal(self.total) / len(self.tokens)),
                         number=number, finish_reason="stop" if self.stopped else cut, stop_string=self.stop_string,
                         text_end=self.text_end)
