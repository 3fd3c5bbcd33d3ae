"""What the run does, fixed beforehand: networks, prompts, tokens, rates, and the seconds that each part may take."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["KINDS", "DraftersRecipe", "NetworkRecipe", "WritingRecipe"]

KINDS = ("eagle", "parallel")
"""Names of the drafters, as records and files have them."""


@dataclass(frozen=True, kw_only=True)
class NetworkRecipe:
    """The drafters' networks.

    Attributes:
        depths: of the target, whose hidden rows are fused.
        vocabulary: tokens that a drafter can propose, those that the target writes most often.
        positions: how many tokens are drafted when a drafter is judged.
        rollouts: steps that the sequential drafter is trained on.
        eagle_inner, parallel_inner, parallel_layers: sizes.
    """

    depths: tuple[int, ...] = (10, 20, 30)
    vocabulary: int = 8192
    positions: int = 7
    rollouts: int = 5
    eagle_inner: int = 1536
    parallel_inner: int = 1024
    parallel_layers: int = 2


@dataclass(frozen=True, kw_only=True)
class WritingRecipe:
    """The texts that drafters learn from: the target's own answers.

    A round: prompts that the target invents, its answers to them, and its answers to requests about texts and code.

    Attributes:
        invented: prompts drawn at temperature 1 in a round, behind the head of a conversation alone.
        most_invented: tokens of such a prompt; longer ones are dropped.
        chat_rows, given_rows: answers written at a time: to invented prompts, and to those with a text or code.
        chat_length, given_length: most tokens of prompt and answer.
        answer: most tokens of an answer.
        drawn_every, temperature: every so many batches is drawn at this temperature, the others are greedy.
        held_out: invented and packed prompts each that only judge.
        judged: tokens of an answer when drafters are judged.
        least_open: a batch stops when at most this share of its texts has not ended.
    """

    invented: int = 8192
    most_invented: int = 64
    chat_rows: int = 4096
    given_rows: int = 2048
    chat_length: int = 288
    given_length: int = 448
    answer: int = 192
    drawn_every: int = 5
    temperature: float = 0.7
    held_out: int = 64
    judged: int = 160
    least_open: float = 0.25


@dataclass(frozen=True, kw_only=True)
class DraftersRecipe:
    """The run.

    Attributes:
        kinds: of the drafters that are trained.
        start: SHA-256 of the weights that it begins with (see ``start``); ``None`` for drawn ones.
        seconds: of all; ``None`` counts steps, so that runs can be compared.
        writing_share: of the seconds that go into writing texts.
        rounds: of writing, where no seconds are given.
        steps: of training, where no seconds are given.
        stride: every so many positions drafts more than one token in training; where they begin is drawn.
        rows: tokens of a batch; it holds as many texts of one length as fit.
        matrix_rate, vector_rate: peak learning rates of Muon and of AdamW.
        warm_up: steps over which rates rise.
        decay: the share of the run, its last, over which rates fall linearly to zero.
        hard: weight of the target's best token beside its distribution.
        fading: weight of a drafted position over that of the one before.
        judge_seconds, judge_steps: between two points of the learning curve.
    """

    seed: int = 1
    kinds: tuple[str, ...] = KINDS
    start: str | None = None
    network: NetworkRecipe = field(default_factory=NetworkRecipe)
    writing: WritingRecipe = field(default_factory=WritingRecipe)
    seconds: float | None = None
    writing_share: float = 0.3
    rounds: int = 1
    steps: int = 4
    stride: int = 2
    rows: int = 24576
    matrix_rate: float = 0.02
    vector_rate: float = 3e-3
    warm_up: int = 30
    decay: float = 0.7
    hard: float = 1.0
    fading: float = 0.8
    judge_seconds: float = 20.0
    judge_steps: int = 2
