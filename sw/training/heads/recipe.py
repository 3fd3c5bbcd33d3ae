"""What heads learn from and how fast: for a bundled pair's target, and for SmolLM2."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gemmule.sw.training.drafters.recipe import WritingRecipe

__all__ = ["AnswersRecipe", "HeadsRecipe", "LearningRecipe"]


@dataclass(frozen=True, kw_only=True)
class LearningRecipe:
    """Kinds and rates.

    Attributes:
        kinds: by name, heads and the columns between a head's matrices.
        steps, warm_up, decay: of training, as of :func:`gemmule.sw.training.recipe.factor`.
        fading: the weight of a head's loss over that of the head before.
        hard: weight of the cross-entropy with the target's best token beside that with its distribution.
        matrix_rate, vector_rate: peak learning rates of Muon and of AdamW.
        judge_steps: between two points of the learning curve.
    """

    kinds: Mapping[str, tuple[int, int]]
    steps: int
    warm_up: int = 5
    decay: float = 0.6
    fading: float = 0.8
    hard: float = 1.0
    matrix_rate: float = 0.03
    vector_rate: float = 0.006
    judge_steps: int = 500

    @property
    def deepest(self) -> int:
        """Heads of the kind that has most."""
        return max(count for count, _ in self.kinds.values())


@dataclass(frozen=True, kw_only=True)
class HeadsRecipe(LearningRecipe):
    """For a bundled pair.

    Attributes:
        prompt, length: tokens of a prompt, and of a text with it.
        chunk, chunks: texts that are written at a time, and how often.
        drawn_every, temperature: every so many texts is drawn at this temperature, the others are greedy.
        judged: greedy texts that no head learns from.
        windows: of library and packages, as long as a text, which the target reads as well.
        rows, window_rows: texts and windows of a step, of which every ``stride``-th position is an anchor.
    """

    kinds: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {
        "medusa": (4, 0), "blockwise": (4, 192), "hydra": (5, 256)})
    steps: int = 5000
    prompt: int = 48
    length: int = 128
    chunk: int = 512
    chunks: int = 12
    drawn_every: int = 4
    temperature: float = 0.7
    judged: int = 128
    windows: int = 128
    rows: int = 14
    window_rows: int = 2
    stride: int = 2

    def texts_mark(self, seed: int, mark: str) -> str:
        """Of what texts depend on beside the target, whose weights' digest ends ``mark``; more chunks change none."""
        return _mark(self.prompt, self.length, self.chunk, self.drawn_every, self.temperature, self.judged, seed,
                     mark[-64:])


@dataclass(frozen=True, kw_only=True)
class AnswersRecipe(LearningRecipe):
    """For a published target, on two cores.

    Attributes:
        writing, rounds: of the answers that heads learn from, all greedy, as those that they are to draft.
        anchors: of a step, at least: whole answers, drawn.
    """

    kinds: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {
        "medusa": (4, 0), "blockwise": (4, 576), "hydra": (5, 1024)})
    steps: int = 400
    writing: WritingRecipe = field(default_factory=lambda: WritingRecipe(
        invented=320, chat_rows=128, given_rows=128, temperature=0.0, held_out=24, judged=128))
    rounds: int = 8
    anchors: int = 1536
    judge_steps: int = 50

    def answers_mark(self, seed: int, mark: str) -> str:
        """Of what answers depend on; more rounds change none. ``mark``: of target and prompts."""
        return _mark(asdict(self.writing), seed, mark)


def _mark(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
