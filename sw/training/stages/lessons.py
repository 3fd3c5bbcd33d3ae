"""What drafts learn from and are judged by: texts, with what the target says to their tokens."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gemmule.sw.training.data.batches import Batches
from gemmule.sw.training.data.prepare import Arrays
from gemmule.sw.training.networks.export import digest
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.networks.trained import Weights
from gemmule.sw.training.recipe import Recipe
from gemmule.sw.training.running import Place
from gemmule.sw.training.stages.answers import Answers, answered, kept, written

__all__ = ["Lessons", "lessons_of", "mark_of"]


@dataclass(frozen=True)
class Lessons:
    """What the teacher wrote; windows of library and packages by stage; what drafts are judged by."""

    pool: Answers
    windows: list[Answers]
    judged: Answers


def mark_of(recipe: Recipe, weights: Weights) -> str:
    """SHA-256 of what answers depend on: how many chunks of them there are does not change them."""
    plan = recipe.draft
    what = [recipe.seed, recipe.target.copies, plan.prompt, plan.kept, plan.chunk, plan.judged_rows,
            [context for context, _ in plan.stages], digest(weights)]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def lessons_of(recipe: Recipe, folder: Path, teacher: LanguageModel, arrays: Arrays, place: Place) -> Lessons:
    """What drafts learn from and are judged by, with the teacher's answers; what ``folder`` holds is read."""
    plan = recipe.draft
    rows = plan.chunk // plan.context
    prompts = Batches(arrays, plan.prompt, rows, 0.0, (recipe.seed, 4))
    warmth = np.arange(rows, dtype=np.float32) % 2  # even rows are greedy

    def write(chunk: int) -> Answers:
        return written(teacher, prompts.step(chunk)[:, :-1], plan.context + 1, warmth, recipe.seed + chunk, plan.kept,
                       place)

    def judge(chunk: int) -> Answers:
        starts = np.linspace(0, len(arrays.calibration) - plan.prompt, plan.judged_rows).astype(np.int64)
        given = np.stack([arrays.calibration[start:start + plan.prompt] for start in starts])
        cold = np.zeros(len(given), np.float32)
        return written(teacher, given, plan.context + 1, cold, recipe.seed, plan.kept, place)

    windows = []
    for number, ((context, _), chunks) in enumerate(zip(plan.stages, plan.text_chunks, strict=True)):
        batches = Batches(arrays, context, plan.chunk // context, recipe.target.copies, (recipe.seed, 5, number))
        windows.append(kept(folder, f"text_{context}", chunks, lambda chunk, batches=batches: answered(  # type: ignore
            teacher, batches.step(chunk), plan.kept, place)))
    return Lessons(kept(folder, "pool", plan.pool_chunks, write), windows, kept(folder, "judged", 1, judge))
