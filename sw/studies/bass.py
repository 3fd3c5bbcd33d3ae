"""BASS on this device: texts of a batch that draft together, each with its own accepted length.

BASS (Qian et al. 2024) verifies the drafts of a batch in one pass. Linear layers take the rows of all texts; attention
either pads all caches to the longest (PAD) or goes text by text (SPLIT). All texts draft as many tokens, a number that
Algorithm 1 moves by what the best text had accepted. Here attention always goes text by text, and a pass has rows for
the longest draft of any; draft lengths are those of ``--draft-lengths batch``.

Measured on held-out completions with the bundled pair, in batches whose texts end one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gemmule.config import Config
from gemmule.sw.decoding.generation import Generation
from gemmule.sw.decoding.session import Session
from gemmule.sw.device.costs.cost_curve import CostCurve
from gemmule.sw.device.ledger import Ledger
from gemmule.sw.device.runtime import LoadedModel
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.pair import Pair, bundled_pair
from gemmule.sw.prompts.categories import load_categories
from gemmule.sw.studies import Row, Study

__all__ = ["STUDY", "bass_rows", "padded"]

BATCHES, ROWS, MOST_PROMPT, NEW_TOKENS = (1, 2, 4, 8), (4, 8), 96, 32
"""Texts of a batch, rows of each in a pass at most, and what is read and generated."""
PUBLISHED, PUBLISHED_BATCH = 2.15, 8
"""Speed-up over regular decoding of the same batch, 7.8 B parameters on an A100."""


@dataclass
class _Decoded:
    """A batch by one way to decode."""

    texts: list[Generation]
    ledger: Ledger
    prefill: Ledger

    @property
    def cycles(self) -> int:
        """Behind the prompts."""
        return self.ledger.since(self.prefill).cycles

    @property
    def tokens(self) -> int:
        """New ones."""
        return sum(len(text.tokens) for text in self.texts)

    @property
    def per_step(self) -> float:
        """Tokens of a text a step."""
        return self.tokens / max(1, sum(len(text.steps) for text in self.texts))

    @property
    def drafted(self) -> float:
        """Tokens of a text a step, in the mean."""
        steps = [drafted for text in self.texts for drafted, _ in text.steps]
        return sum(steps) / max(1, len(steps))


def _decoded(session: Session, method: str, prompts: Sequence[list[int]], new_tokens: int, drafts: int | None,
             lengths: str) -> _Decoded:
    """Texts of other lengths, so that they end one after another."""
    ledger = Ledger(session.config)
    texts = session.generate_batch(method, prompts, new_tokens, drafts, ledger=ledger, lengths=lengths)
    return _Decoded(texts, ledger, max((text.prefill for text in texts), key=lambda before: before.cycles))


def padded(model: LoadedModel, texts: Sequence[Generation], every: int = 4) -> float:
    """Cycles of the target's passes where all caches are as long as the longest one, over those of their own lengths.

    Of each ``every``-th pass, from the lengths that the texts then had.
    """
    cost, first, rows = CostCurve(model), model.first, model.program.max_rows
    lengths = [len(text.before) - 1 + np.cumsum([0, *(took + 1 for _, took in text.steps)]) for text in texts]
    split = pad = 0
    for step in range(0, max(len(text.steps) for text in texts), every):
        now = [first + int(own[step]) if step < len(own) - 1 else 0 for own in lengths]
        now += [0] * (model.program.batch - len(now))
        split += cost.of_batch(rows, now)
        pad += cost.of_batch(rows, [max(now)] * len(now))
    return pad / max(1, split)


def bass_rows(pair: Pair, config: Config, prompts: Sequence[list[int]], new_tokens: int,
              batches: Sequence[int] = BATCHES, rows: Sequence[int] = ROWS) -> Iterator[Row]:
    """For each batch `ar`, then drafts by Algorithm 1 and always as many; then what padding would cost."""
    for batch in batches:
        chosen, reference, padding = list(prompts[:batch]), dict[int, _Decoded](), 1.0
        for most in rows:
            with Session(config, pair=pair, interpreted=True, batch=batch, rows=most,
                         prefill=0 if batch == 1 else None) as session:
                plain = reference[most] = _decoded(session, "ar", chosen, new_tokens, None, "constant")
                for lengths, said in (("batch", "Algorithm 1"), ("constant", "always as many")):
                    found = _decoded(session, "draft", chosen, new_tokens, most - 1, lengths)
                    if [text.tokens for text in found.texts] != [text.tokens for text in plain.texts]:
                        raise ValueError(f"texts of a batch of {batch} must be those of ar: decoding is wrong")
                    gain = (found.tokens / found.cycles) / (plain.tokens / plain.cycles)
                    share = found.ledger.cycles_of("draft") / max(1, found.ledger.cycles)
                    yield Row(
                        setting=f"batch {batch}, up to {most - 1} drafts, {said}", unit="times ar of the batch",
                        published=PUBLISHED if batch == PUBLISHED_BATCH and lengths == "batch" else None, here=gain,
                        why=f"{found.per_step:.2f} tokens of a text a step with {found.drafted:.2f} drafts; the draft "
                            f"model takes {share:.0%} of the cycles; a pass of {batch} x {most} rows beside "
                            f"{config.dim} rows of the mesh, beyond which rows are no longer free. Published: up to "
                            "2.15, at batch 8, of 7.8 B parameters on an A100. It can multiply each 16-bit weight "
                            "that it loads some 150 times (312 TFLOP/s, 2 TB/s), this device each byte 16 times, so "
                            "there many more rows are free")
                    if batch > 1 and lengths == "batch":
                        padding = padded(session.target, found.texts)
        if batch > 1:
            yield Row(setting=f"batch {batch}: PAD over SPLIT, the target's passes", unit="times the cycles",
                      published=None, here=padding,
                      why="keys and values of every text loaded up to the longest one's, beside its own; the rows of "
                          "a pass are always padded here, to the longest draft")


def _run(config: Config) -> list[Row]:
    pair = bundled_pair(DEFAULT)
    prompts = [pair.encode(prompt.text)[:MOST_PROMPT] for prompt in load_categories()["completion"][:max(BATCHES)]]
    return list(bass_rows(pair, config, prompts, NEW_TOKENS))


STUDY = Study("BASS: batches that draft together", "Qian et al. 2024, arXiv 2404.15778: abstract, Algorithm 1", "base",
              _run)
