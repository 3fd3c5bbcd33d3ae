"""All kinds of heads learn side by side from the same anchors; a killed run goes on to the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gemmule.sw.training.drafters.int8 import in_int8, write_int8
from gemmule.sw.training.heads.anchors import Frozen, Source, losses_of
from gemmule.sw.training.heads.recipe import LearningRecipe
from gemmule.sw.training.networks.drafting import DraftingHeads, build_heads
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.recipe import factor
from gemmule.sw.training.records import stage_log
from gemmule.sw.training.running import Log, Place, autocast, load_state, save_state

__all__ = ["Learned", "export", "learn"]

NAME = "heads"
SAVE_SECONDS, PRINT_STEPS = 60.0, 50


@dataclass(frozen=True)
class Learned:
    """Heads that have taken all steps, and what is told of it."""

    made: dict[str, DraftingHeads]
    told: dict[str, Any]


def learn(plan: LearningRecipe, source: Source, seed: int, out: Path, mark: str, place: Place,
          judge: Callable[[str, DraftingHeads], dict[str, float]], most_steps: int | None = None) -> Learned | None:
    """Train or go on; log and checkpoint lie in ``out``. ``most_steps`` ends this run early: then None.

    Args:
        judge: told a kind and its heads, a point of its learning curve.

    Raises:
        ValueError: there is a checkpoint of another recipe or target.
    """
    made, optimizers = dict[str, DraftingHeads](), dict[str, Optimizers]()
    frozen = source.frozen
    for kind, (count, inner) in plan.kinds.items():
        torch.manual_seed(seed)
        made[kind] = build_heads(kind, frozen.head.shape[1], count, inner).to(place.device)
        optimizers[kind] = Optimizers(made[kind], plan.matrix_rate, plan.vector_rate, place.products)
    log, step = Log(out / "log.jsonl", NAME), 0
    state = load_state(out / f"{NAME}.pt", mark)
    log.resume(state)
    if state:
        for kind in made:
            made[kind].load_state_dict(state["models"][kind])
            optimizers[kind].load(state["optimizers"][kind])
        step = state["step"]
    saved = time.monotonic()
    print(f"{NAME}: step {step}", flush=True)

    def save_all() -> None:
        save_state({"recipe": mark, "models": {kind: one.state_dict() for kind, one in made.items()},
                    "optimizers": {kind: one.state() for kind, one in optimizers.items()}, "step": step,
                    "seconds": log.elapsed(), "resumed": log.resumed}, out / f"{NAME}.pt")

    last = plan.steps if most_steps is None else min(plan.steps, step + most_steps)
    while step < last:
        anchors = source.step(step)
        with torch.no_grad(), autocast(place):
            wanted = [(rows @ frozen.head.T).float().softmax(-1) for rows in anchors.behind]
        values: dict[str, Any] = {}
        for kind, one in made.items():
            loss = losses_of(one, frozen, anchors, wanted, plan, place)
            loss.backward()
            optimizers[kind].step(factor(step, plan.steps, plan.warm_up, plan.decay))
            values[kind] = loss.item()
        step += 1
        if step % plan.judge_steps == 0 or step == plan.steps:
            for kind, one in made.items():
                values |= judge(kind, one)
        if step % PRINT_STEPS == 0 or step % plan.judge_steps == 0 or step == plan.steps:
            log.write(step, plan.steps, **values)
        if time.monotonic() - saved > SAVE_SECONDS:
            save_all()
            saved = time.monotonic()
    save_all()
    if step < plan.steps:
        return None
    return Learned(made, {
        "steps": step, "seconds": round(log.elapsed()), "resumed": log.resumed, "threads": place.threads,
        "curve": [line for line in stage_log(out, NAME) if any(key.startswith(f"{next(iter(made))}, ")
                                                               for key in line)]})


def export(path: Path, kind: str, heads: DraftingHeads, depth: int, frozen: Frozen, paths: list[Any]) -> int:
    """Write heads in int8 by row; bytes of the file.

    Args:
        depth: of the target, whose last rows they read.
        paths: of ranks with their shares, the largest first.
    """
    return write_int8(path, in_int8(heads, frozen.listed), {
        "kind": kind, "network": {"depths": [depth], "heads": heads.count, "inner": heads.inner}, "paths": paths})
