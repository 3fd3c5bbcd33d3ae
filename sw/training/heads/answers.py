"""Answers of a published target with the rows that chose their tokens, written round by round.

The target keeps its rows as it writes, so that nothing is read a second time. A round is a file; a killed run goes on
with the one that it was at.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from gemmule.io.files import write_atomically
from gemmule.sw.limits import Range
from gemmule.sw.training.drafters.packed import Pack
from gemmule.sw.training.drafters.recipe import WritingRecipe
from gemmule.sw.training.drafters.target import Target
from gemmule.sw.training.drafters.writing import Pool, Writer

__all__ = ["ROUNDS", "Answers", "answers_of", "written_answers"]

ROUNDS = Range(1, 999, "rounds")
"""Each has a seed of its own."""


@dataclass(frozen=True)
class Answers:
    """Answers, one behind another.

    Attributes:
        tokens: int32 [tokens].
        rows: of the target before its head, each chose the token of its place; float16 [tokens, hidden].
        counts: tokens of each answer, int32.
        names: the category of each answer.
    """

    tokens: Tensor
    rows: Tensor
    counts: Tensor
    names: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        write_atomically(path, save({"tokens": self.tokens, "rows": self.rows, "counts": self.counts},
                                    {"names": json.dumps(self.names)}))

    @classmethod
    def load(cls, path: Path) -> Answers:
        """Read what :meth:`save` wrote."""
        with safe_open(path, "pt") as file:
            return cls(file.get_tensor("tokens"), file.get_tensor("rows"), file.get_tensor("counts"),
                       tuple(json.loads(file.metadata()["names"])))

    @staticmethod
    def joined(parts: list[Answers]) -> Answers:
        """Of all."""
        return Answers(torch.cat([part.tokens for part in parts]), torch.cat([part.rows for part in parts]),
                       torch.cat([part.counts for part in parts]), tuple(name for part in parts for name in part.names))


def answers_of(pool: Pool) -> Answers:
    """Of a pool whose rows were kept."""
    tokens, rows, counts = list[Tensor](), list[Tensor](), list[int]()
    for texts, starts, ends, kept in zip(pool.tokens, pool.starts, pool.ends, pool.rows, strict=True):
        for text, start, end, row in zip(texts, starts.tolist(), ends.tolist(), kept, strict=True):
            tokens.append(text[start:end])
            rows.append(row[:end - start])
            counts.append(end - start)
    return Answers(torch.cat(tokens), torch.cat(rows), torch.tensor(counts, dtype=torch.int32), tuple(pool.names))


def written_answers(target: Target, pack: Pack, plan: WritingRecipe, rounds: int, folder: Path, seed: int,
                    ) -> tuple[Answers, Answers]:
    """Those that judge and those that train; what the folder has is read."""
    folder.mkdir(parents=True, exist_ok=True)
    asked, path = folder / "held_out.npz", folder / "held_out.safetensors"
    if not path.exists():
        began, pool = time.monotonic(), Writer(target, pack, plan, seed, keep=True).held_out()
        held_out = answers_of(pool)
        pool.save(asked)
        held_out.save(path)
        print(f"{len(pool.names)} answers that judge, {time.monotonic() - began:.0f} s", flush=True)
    judging, held_out, parts = Pool.load(asked), Answers.load(path), list[Answers]()
    for number in range(rounds):
        path = folder / f"round_{number:03}.safetensors"
        if not path.exists():
            began, pools = time.monotonic(), (Pool(plan.chat_length), Pool(plan.given_length))
            writer = Writer(target, pack, plan, (ROUNDS.high + 1) * seed + number + 1, judging, keep=True)
            for _ in writer.round(*pools, lambda share: True):
                pass
            found = Answers.joined([answers_of(pool) for pool in pools if pool.names])
            found.save(path)
            print(f"round {number + 1} of {rounds}: {len(found.counts)} answers, {len(found.tokens):,} tokens, "
                  f"{time.monotonic() - began:.0f} s", flush=True)
        parts.append(Answers.load(path))
    return held_out, Answers.joined(parts)
