"""What decoding gave: the tokens, and how they came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from gemmule.sw.device.ledger import Ledger
from gemmule.sw.kv.text import Pruned

__all__ = ["LOOPING", "Generation", "beside", "distinct", "joined", "loops"]

LOOPING = 0.5
"""Share of distinct 4-grams below which a text counts as looping."""


@dataclass
class Generation:
    """What a run produced, and how.

    Attributes:
        tokens: new tokens, a stop token and the tokens of a stop string included.
        ledger: cycles of everything, prefill included.
        steps: per decoding step (drafted, accepted) counts.
        curve: per decoding step (tokens of the text before it, its cycles with the host's).
        before: tokens in front of the new ones that the models saw when the run began.
        given: of them, those that were given for this run.
        cached: of them, those whose rows were in the cache already.
        dropped: tokens of the text that the models saw no more when it ended.
        prefill: the ledger as it was before the first decoding step.
        finish_reason: why the text ended: ``length`` (``max_new_tokens``), ``stop`` (a stop token or string),
            ``context`` (full), ``interrupted``.
        stop_string: that the text came to.
        text_end: characters of the text of ``tokens`` in front of it; None: all.
        pruned: what a schedule of the cache has left out, since the text began; None: there is no schedule.
        layers_run: by decoding step, the target's layers that its answer took; empty: all of them.
        turns: of a conversation, or texts of a batch, whose sums this is.
    """

    tokens: list[int]
    ledger: Ledger
    steps: list[tuple[int, int]] = field(default_factory=list)
    curve: list[tuple[int, int]] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    given: int = 0
    cached: int = 0
    dropped: int = 0
    finish_reason: Literal["length", "stop", "context", "interrupted"] = "length"
    stop_string: str | None = None
    text_end: int | None = None
    pruned: Pruned | None = None
    layers_run: list[int] = field(default_factory=list)
    turns: Sequence[Generation] = ()
    prefill: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.prefill = self.ledger.so_far()

    @property
    def tokens_per_step(self) -> float:
        """Mean committed tokens per target pass, bonus included (autoregressive: 1.0)."""
        return len(self.tokens) / max(1, len(self.steps))

    @property
    def acceptance(self) -> float:
        """Accepted drafts over drafted tokens; 0 when nothing was drafted."""
        return sum(a for _, a in self.steps) / max(1, self.drafted)

    @property
    def drafted(self) -> int:
        """Drafted tokens."""
        return sum(d for d, _ in self.steps)


def joined(turns: Sequence[Generation]) -> Generation:
    """The turns of a conversation as one run: tokens one behind the other, sums of everything else."""
    if len(turns) == 1:
        return turns[0]
    last = turns[-1]
    found = Generation(
        [token for turn in turns for token in turn.tokens], reduce(Ledger.plus, (turn.ledger for turn in turns)),
        [step for turn in turns for step in turn.steps], [point for turn in turns for point in turn.curve],
        given=sum(turn.given for turn in turns), cached=turns[0].cached, dropped=last.dropped,
        finish_reason=last.finish_reason, stop_string=last.stop_string, pruned=last.pruned,
        layers_run=[count for turn in turns for count in turn.layers_run], turns=turns)
    found.prefill = reduce(Ledger.plus, (turn.prefill for turn in turns))
    return found


def beside(texts: Sequence[Generation], ledger: Ledger) -> Generation:
    """Texts of a batch as one run: their tokens one behind the other, and the cycles of all, which they shared."""
    found = Generation(
        [token for text in texts for token in text.tokens], ledger, [step for text in texts for step in text.steps],
        [point for text in texts for point in text.curve], given=sum(text.given for text in texts),
        dropped=sum(text.dropped for text in texts), turns=texts)
    found.prefill = texts[0].prefill
    reasons = {text.finish_reason for text in texts}
    found.finish_reason = "interrupted" if "interrupted" in reasons else texts[-1].finish_reason
    return found


def distinct(tokens: list[int], n: int) -> float:
    """Share of distinct n-grams: repeated text flatters every drafter."""
    grams = [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / max(1, len(grams))


def loops(tokens: list[int]) -> bool:
    """Whether a text repeats itself: less than :data:`LOOPING` of its 4-grams are distinct."""
    return len(tokens) >= 4 and distinct(tokens, 4) < LOOPING
