"""The schedule that tunes the shipped target for self-drafting (tuning.py): exits, layers left out, streams."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["TuningRecipe"]


@dataclass(frozen=True, kw_only=True)
class TuningRecipe:
    """Windows of library text and functions with their copies, and texts that the target wrote itself.

    Attributes:
        ranks: of the change of each matrix, by layer: the layers that draft get more.
        exit: depth whose exit drafts; its loss is in every pass.
        others: depths whose exits take turns beside it, one a pass (the rotational curriculum).
        exit_weight, other_weight: of their losses, beside 1 of the last layer.
        most_left_out: how often the last layer is left out; layers before it less, as in LayerSkip.
        streams: rows behind a token that guess further ones.
        stream_layers: layers that they run, the last ones.
        stream_weight: of the mean of their losses.
        chosen: positions of a window that have streams.
        prompt: tokens of a prompt of texts that the target writes; context: tokens of all texts.
        kept: likeliest tokens of each of the target's distributions.
        chunk: texts that are made at a time; text_chunks, pool_chunks: of windows and of texts that it writes.
        copies: share of windows that hold functions and their copies.
        judged: texts that nothing learns from.
        text_rows, pool_rows: windows and own texts of a step.
        steps, warm_up: of which so many raise the rate; it falls linearly to zero over the last ``decay``.
        rate, stream_rate: peak learning rates of AdamW, of changes and of the streams' first rows.
        hard: weight of the cross-entropy with the target's best token beside that with its distribution.
    """

    ranks: tuple[int, ...] = (80, 80, 16, 16, 16, 16, 16, 16)
    exit: int = 2
    others: tuple[int, ...] = (4, 6, 4, 3, 4, 5)
    exit_weight: float = 2.5
    other_weight: float = 0.5
    most_left_out: float = 0.1
    streams: int = 5
    stream_layers: int = 4
    stream_weight: float = 1.0
    chosen: int = 48
    prompt: int = 64
    context: int = 256
    kept: int = 32
    chunk: int = 1024
    text_chunks: int = 10
    pool_chunks: int = 8
    copies: float = 0.35
    judged: int = 64
    text_rows: int = 16
    pool_rows: int = 16
    steps: int = 1650
    warm_up: int = 50
    decay: float = 0.7
    rate: float = 2e-3
    stream_rate: float = 2e-2
    hard: float = 0.5

    def scaled(self, share: float) -> TuningRecipe:
        """With this share of all steps and texts, at least one of each: the same way in less time."""
        def some(count: int) -> int:
            return max(1, round(count * share))

        return replace(self, text_chunks=some(self.text_chunks), pool_chunks=some(self.pool_chunks),
                       steps=some(self.steps), warm_up=some(self.warm_up), chunk=max(8, some(self.chunk)),
                       judged=max(4, some(self.judged)))
