"""Train the target: one run over the recipe's stages, layers left out and early exits trained on the way.

    python -m gemmule.sw.training.stages.target --out build/train

LayerSkip (Elhoushi et al. 2024): a deeper layer is left out more often, and the next token is also read off an early
depth through the same norm and head, the depths in turn. Layers are left out for all windows of a pass at once, so that
what is left out costs nothing. A killed run continues from its checkpoint with the same numbers.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gemmule.sw.training.data.batches import Batches
from gemmule.sw.training.data.prepare import Arrays, load_arrays, prepare
from gemmule.sw.training.networks.export import save_checkpoint
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.recipe import Recipe, Stage, TargetRecipe, factor, fingerprint, left_out_share
from gemmule.sw.training.running import Log, Place, autocast, load_state, open_place, save_state
from gemmule.sw.training.yardstick import CONTEXT, Tokens

__all__ = ["FIRST", "gradients", "judge", "judged_windows", "train_target"]

NAME = "target"
FIRST = "pretrained"
"""The folder of what comes out; copying.py makes the target of it."""
SAVE_SECONDS = 120.0
PRINT_STEPS, JUDGE_STEPS = 20, 200
JUDGED = 64


def left_out(recipe: TargetRecipe, stage: Stage, key: tuple[int, ...]) -> frozenset[int]:
    """The layers that a pass leaves out."""
    layers = recipe.shape.num_layers
    draws = np.random.default_rng(key).random(layers)
    return frozenset(i for i in range(layers) if draws[i] < left_out_share(i, layers, stage.most_left_out))


def pass_losses(model: LanguageModel, windows: Tensor, skipped: frozenset[int], depth: int) -> tuple[Tensor, Tensor]:
    """Next-token loss of the last layer on all windows, and of the exit at ``depth`` on every other one."""
    found = model.hidden(windows[:, :-1], skipped)
    following = windows[:, 1:]
    return model.loss(found[-1], following), model.loss(found[depth][::2], following[::2])


def gradients(model: LanguageModel, plan: TargetRecipe, stage: Stage, windows: Tensor, step: int, seed: int,
              place: Place) -> tuple[float, dict[str, float]]:
    """Add the gradients of a step's windows [rows, context + 1]; the mean loss, and the exits' losses by depth."""
    losses, exits = [], {}
    for at in range(0, stage.rows, stage.micro):
        depth = plan.exits[(step * stage.rows + at) // stage.micro % len(plan.exits)]
        skipped = left_out(plan, stage, (seed, 3, step, at))
        with autocast(place):
            loss, early = pass_losses(model, windows[at:at + stage.micro], skipped, depth)
        ((loss + plan.exit_weight * early) * (stage.micro / stage.rows)).backward()
        losses.append(loss.item())
        exits[f"exit {depth}"] = early.item()
    return float(np.mean(losses)), exits


def judged_windows(arrays: Arrays) -> Tokens:
    """The windows of the calibration split behind each point of the learning curve  # [JUDGED, CONTEXT + 1]."""
    return np.stack([arrays.calibration[i * CONTEXT:(i + 1) * CONTEXT + 1] for i in range(JUDGED)])


@torch.no_grad()
def judge(model: LanguageModel, windows: Tokens, place: Place) -> float:
    """Mean loss in nats on windows [rows, tokens + 1], nothing left out."""
    losses = []
    for start in range(0, len(windows), 16):
        rows = torch.from_numpy(windows[start:start + 16]).to(place.device)
        with autocast(place):
            x = model.model.embed_tokens(rows[:, :-1]).float()
            for layer in model.model.layers:
                x = layer(x, *model._angles(0, rows.shape[1] - 1))
            losses.append(float(model.cross_entropy(x, rows[:, 1:])) * len(rows))
    return sum(losses) / len(windows)


def train_target(recipe: Recipe, out: Path, place: Place, most_steps: int | None = None) -> dict[str, Any] | None:
    """Train or go on, write ``out/pretrained`` in the exchange format, return the log's last numbers.

    ``most_steps`` ends this run early, with a checkpoint to go on from: then None.

    Raises:
        ValueError: there is a checkpoint of another recipe.
    """
    plan, arrays = recipe.target, load_arrays(out)
    mark = fingerprint(plan, recipe.seed)
    torch.manual_seed(recipe.seed)
    model = LanguageModel(plan.shape).to(place.device)
    optimizers = Optimizers(model, plan.matrix_rate, plan.vector_rate, place.products)
    log, step, tokens = Log(out / "log.jsonl", NAME), 0, 0
    state = load_state(out / "target.pt", mark)
    log.resume(state)
    if state:
        model.load_state_dict(state["model"])
        optimizers.load(state["optimizers"])
        step, tokens = state["step"], state["tokens"]
        print(f"{NAME}: resumed at step {step}", flush=True)
    if place.compiled:
        model.compile()
    last = min(plan.steps, step + (most_steps or plan.steps))
    judged = judged_windows(arrays)

    def save() -> None:
        save_state({"recipe": mark, "model": model.state_dict(), "optimizers": optimizers.state(), "step": step,
                    "tokens": tokens, "seconds": log.elapsed(), "resumed": log.resumed}, out / "target.pt")

    saved, first = time.monotonic(), 0
    for number, stage in enumerate(plan.stages):
        batches = Batches(arrays, stage.context, stage.rows, plan.copies, (recipe.seed, 2, number))
        while first <= step < min(first + stage.steps, last):
            windows = torch.from_numpy(batches.step(step - first)).to(place.device)
            loss, exits = gradients(model, plan, stage, windows, step, recipe.seed, place)
            share = factor(step, plan.steps, plan.warm_up, plan.decay)
            norm = optimizers.step(share)
            step, tokens = step + 1, tokens + stage.rows * stage.context
            values: dict[str, Any] = {}
            if step % JUDGE_STEPS == 0 or step == plan.steps:
                values = {"calibration": judge(model, judged, place)}
            if values or step % PRINT_STEPS == 0:
                log.write(step, plan.steps, tokens=tokens, loss=loss, **exits, rate=share, norm=norm, **values)
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
        first += stage.steps
    save()
    if step < plan.steps:
        return None
    save_checkpoint(out / FIRST, plan.shape, {name: weight.detach().float().cpu().numpy()
                                             for name, weight in model.named_parameters()})
    return {"steps": step, "tokens": tokens, "seconds": round(log.elapsed()), "resumed": log.resumed}


def main() -> None:
    """Train or resume the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    recipe = Recipe().scaled(args.share)
    try:
        prepare(args.out, recipe.seed)
        print(train_target(recipe, args.out, open_place(args.threads)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
