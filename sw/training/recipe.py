"""What training does, fixed beforehand: sizes, steps, rates, mixtures. All follows from a recipe and its seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gemmule.sw.training.networks.export import TARGET, ModelShape
from gemmule.sw.training.stages.copying_recipe import MATCH_THETA, CopyingRecipe

__all__ = ["CANDIDATES", "DraftRecipe", "EncoderRecipe", "Recipe", "Stage", "TargetRecipe", "factor", "fingerprint",
           "left_out_share"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Some steps on windows of one length.

    Attributes:
        context: tokens of a window.
        rows: windows a step.
        micro: windows that go through the network at a time; gradients of a step are added.
        steps: how many.
        most_left_out: the share of passes that leave the last layer out.
    """

    context: int
    rows: int
    micro: int
    steps: int
    most_left_out: float

    @property
    def tokens(self) -> int:
        """Of the stage."""
        return self.context * self.rows * self.steps


@dataclass(frozen=True, kw_only=True)
class TargetRecipe:
    """The target: Muon on the layers' matrices, AdamW on embedding and norms, one schedule over all stages.

    Attributes:
        copies: share of windows that hold functions and their copies.
        matrix_rate, vector_rate: peak learning rates of Muon and of AdamW.
        warm_up: steps of linear warm-up.
        decay: the share of steps, the last ones, over which rates fall linearly to zero.
        exit_weight: weight of the early exit's loss beside that of the last layer.
        exits: depths whose exit is trained, in turn, one a pass.
    """

    shape: ModelShape = TARGET
    stages: tuple[Stage, ...] = (
        Stage(context=256, rows=32, micro=16, steps=2000, most_left_out=0.3),
        Stage(context=1024, rows=8, micro=4, steps=900, most_left_out=0.1),
    )
    copies: float = 0.15
    matrix_rate: float = 0.02
    vector_rate: float = 3e-3
    warm_up: int = 100
    decay: float = 0.5
    exit_weight: float = 0.3
    exits: tuple[int, ...] = (2, 4, 2, 6, 2, 1, 2, 3, 2, 5, 2, 7)

    @property
    def steps(self) -> int:
        """Of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def tokens(self) -> int:
        """Of all stages."""
        return sum(stage.tokens for stage in self.stages)


def _draft(hidden: int, layers: int, inner: int, heads: int = 2) -> ModelShape:
    return ModelShape(hidden_size=hidden, intermediate_size=inner, num_layers=layers, num_heads=heads,
                      max_positions=TARGET.max_positions, activation=TARGET.activation, rope_theta=MATCH_THETA)


CANDIDATES = {
    "48 x 1": _draft(48, 1, 192), "64 x 1": _draft(64, 1, 512), "64 x 2": _draft(64, 2, 128),
    "96 x 1": _draft(96, 1, 64),
}
"""Drafts by width x depth; all below 0.15 million parameters."""


@dataclass(frozen=True, kw_only=True)
class DraftRecipe:
    """Drafts of several shapes, distilled side by side on what the target said to the same texts.

    The pool: texts that the target writes behind train prompts, half of them greedily, half drawn at temperature 1.
    Beside it windows of library and packages, and texts behind calibration prompts by which drafts are judged.

    Attributes:
        prompt: tokens of a prompt; a text of the pool is a window of the first stage's context.
        kept: likeliest tokens of each of the target's distributions.
        chunk: tokens of texts that are made and written at a time.
        pool_chunks, text_chunks: of the pool; of windows, for each stage.
        judged_rows: greedy texts that no draft learns from.
        pool_rows, text_rows: texts of the pool and windows of the first stage that a step sees.
        stages: (context, steps); a step sees as many tokens of windows in each.
        matrix_rate, vector_rate: peak learning rates of Muon and of AdamW.
        hard: weight of the cross-entropy with the target's best token beside that with its distribution.
        guidance: weight of the loss that tells heads where to look.
        least_match: tokens that must match for a head to be told to look behind them.
    """

    candidates: dict[str, ModelShape] = field(default_factory=lambda: {"64 x 2": CANDIDATES["64 x 2"]})
    prompt: int = 64
    kept: int = 32
    chunk: int = 65536
    pool_chunks: int = 16
    text_chunks: tuple[int, ...] = (4, 4)
    judged_rows: int = 128
    pool_rows: int = 10
    text_rows: int = 4
    stages: tuple[tuple[int, int], ...] = ((256, 4500), (1024, 500))
    matrix_rate: float = 0.02
    vector_rate: float = 4e-3
    hard: float = 0.5
    guidance: float = 1.0
    least_match: int = 2

    @property
    def context(self) -> int:
        """Of the first stage."""
        return self.stages[0][0]

    @property
    def steps(self) -> int:
        """Of all stages."""
        return sum(steps for _, steps in self.stages)

    @property
    def tokens(self) -> int:
        """That a draft reads in all of them."""
        return self.steps * (self.pool_rows + self.text_rows) * self.context


@dataclass(frozen=True, kw_only=True)
class EncoderRecipe:
    """The encoder, fold by fold.

    Attributes:
        hidden, layers, heads, inner, window: of the network.
        vector: columns of a token's vector in it; those of the token before stand beside.
        steps, pairs, rate: of the fit to the teacher's table: pairs of tokens a step, the peak learning rate.
        others: what a pair of other text weighs beside one of the classes' files.
    """

    hidden: int = 160
    layers: int = 2
    heads: int = 5
    inner: int = 384
    window: int = 128
    folds: int = 4
    vector: int = 61
    steps: int = 1500
    pairs: int = 4096
    rate: float = 0.01
    others: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that `make train` makes, but for the small pair."""

    seed: int = 1
    target: TargetRecipe = field(default_factory=TargetRecipe)
    copying: CopyingRecipe = field(default_factory=CopyingRecipe)
    draft: DraftRecipe = field(default_factory=DraftRecipe)
    encoder: EncoderRecipe = field(default_factory=EncoderRecipe)

    @property
    def shape(self) -> ModelShape:
        """Of the finished target."""
        return replace(self.target.shape, rope_theta=self.copying.rope_theta)

    def scaled(self, share: float) -> Recipe:
        """With this share of all steps and texts, at least one of each: the same way in less time."""
        def some(count: int) -> int:
            return max(1, round(count * share))

        target, copying, draft, encoder = self.target, self.copying, self.draft, self.encoder
        return replace(
            self,
            target=replace(target, warm_up=some(target.warm_up), stages=tuple(
                replace(stage, steps=some(stage.steps)) for stage in target.stages)),
            copying=replace(copying, warm_up=some(copying.warm_up), lessons=tuple(
                replace(lesson, steps=some(lesson.steps)) for lesson in copying.lessons)),
            draft=replace(draft, chunk=max(4 * draft.stages[-1][0], some(draft.chunk)),
                          judged_rows=max(4, some(draft.judged_rows)),
                          stages=tuple((context, some(steps)) for context, steps in draft.stages)),
            encoder=replace(encoder, steps=some(encoder.steps)))


def factor(step: int, steps: int, warm_up: int, decay: float) -> float:
    """The learning rate of a step over its peak: a linear rise, a plateau, a linear fall to zero."""
    return min(1.0, (step + 1) / warm_up, (steps - step) / max(1.0, steps * decay))


def left_out_share(layer: int, layers: int, most: float) -> float:
    """How often a layer is left out: ``most`` of the last, none of the first, growing with depth as in LayerSkip.

    ``most * (2 ** (layer / (layers - 1)) - 1)``.
    """
    return most * (2 ** (layer / max(1, layers - 1)) - 1)


def fingerprint(part: Any, seed: int) -> str:
    """SHA-256 of a recipe's fields and its seed: a run continues only from checkpoints of the same."""
    return hashlib.sha256(json.dumps([asdict(part), seed], sort_keys=True).encode()).hexdigest()
