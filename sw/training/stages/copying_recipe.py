"""The schedule of the target's last lessons (copying.py): rates, mixtures, which heads are told where to look."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

__all__ = ["MATCH_THETA", "CopyingRecipe", "Lesson"]

MATCH_THETA = 1e6
"""Rotates most of a head's columns so slowly that what they hold compares over the whole context: a match looks for
equal tokens at any distance. Raised behind pretraining (Xiong et al. 2023), it costs the target little."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Steps of one mixture.

    Attributes:
        steps: how many.
        first, last: learning rates over their peaks, at its begin and behind its end, in a line between.
        text_rows, rows: windows a step of text and of requests.
        wanted_weight: of the loss of tokens that are asked for, beside 1 of text.
        guidance: weight of the loss that tells heads where to look.
        share: of the weights at its end in the finished target's, which are a mean (Izmailov et al. 2018).
    """

    steps: int
    first: float
    last: float
    text_rows: int = 4
    rows: int = 8
    wanted_weight: float
    guidance: float = 0.5
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CopyingRecipe:
    """The target's last lessons: requests to copy, beside text of library and packages.

    Attributes:
        rope_theta: of the finished target.
        lessons: one behind the other.
        text_context, context: tokens of windows of text and of requests.
        matrix_rate, vector_rate: peak learning rates of Muon and of AdamW.
        warm_up: steps of a linear rise.
        exit: depth of the early exit whose loss is kept low on text.
        given_weight: of the loss of a request's other tokens.
        slips: share of tokens that are asked for and read as another one.
        guided_rows: windows of requests on which heads are told where to look.
        before: (layer, distance): a head there looks at the token so far before.
        behind, behind_heads: layers of which so many heads look behind matches.
    """

    rope_theta: float = MATCH_THETA
    text_context: int = 1024
    context: int = 640
    lessons: tuple[Lesson, ...] = (
        Lesson(steps=200, first=1.0, last=0.5, wanted_weight=0.5),
        Lesson(steps=121, first=1.0, last=239 / 360, wanted_weight=0.5),
        Lesson(steps=340, first=0.8, last=0.0, wanted_weight=1.5),
        Lesson(steps=380, first=1.0, last=0.0, wanted_weight=3.0),
        Lesson(steps=44, first=0.8, last=0.72, wanted_weight=1.0, text_rows=8, rows=3, guidance=0.0),
        Lesson(steps=280, first=0.72, last=0.0, wanted_weight=1.0, text_rows=8, rows=3, guidance=0.0,
               share=0.3),
        Lesson(steps=62, first=0.8, last=0.8 * 518 / 580, wanted_weight=2.0, text_rows=8, rows=6),
        Lesson(steps=333, first=0.8 * 518 / 580, last=0.0, wanted_weight=2.0, text_rows=8, rows=6, share=0.7),
    )
    matrix_rate: float = 0.005
    vector_rate: float = 5e-4
    warm_up: int = 20
    exit: int = 2
    given_weight: float = 0.3
    slips: float = 0.03
    guided_rows: int = 3
    before: tuple[tuple[int, int], ...] = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 4), (3, 8))
    behind: tuple[int, ...] = (4, 5)
    behind_heads: int = 3

    @property
    def steps(self) -> int:
        """Of all lessons."""
        return sum(lesson.steps for lesson in self.lessons)

    def lesson(self, step: int) -> tuple[Lesson, float]:
        """The one that a step is of, and its learning rates over their peaks."""
        start = 0
        for lesson in self.lessons:
            left = start + lesson.steps - step
            if left > 0:
                share = (lesson.first * left + lesson.last * (lesson.steps - left)) / lesson.steps
                return lesson, min((step + 1) / self.warm_up, share)
            start += lesson.steps
        raise ValueError(f"a step must be less than {self.steps}, not {step}")

    def ended(self, step: int) -> float:
        """The share of the lesson that ends with so many steps, 0 where none does."""
        ends = accumulate(lesson.steps for lesson in self.lessons)
        return sum(lesson.share for end, lesson in zip(ends, self.lessons, strict=True) if end == step)

    @property
    def tokens(self) -> int:
        """Of all steps."""
        return sum(lesson.steps * (self.text_context * lesson.text_rows + self.context * lesson.rows)
                   for lesson in self.lessons)
