"""Distil drafts of several shapes on the target's own text, and choose one by speed-up per device cycle.

    python -m gemmule.sw.training.draft --out build/train

First the target writes texts behind train prompts, half of them greedily. Then all candidates learn side by side from
the same batches, half library and packages, half such texts: the target's pass over a batch, which costs most, serves
all. The loss is KL(target || draft) and the cross-entropy with the target's best token. A candidate is judged on greedy
texts that none has seen; the device's cycles are the simulator's.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from gemmule.config import load_config
from gemmule.sw.training.batches import Batches
from gemmule.sw.training.cycles import measure_passes
from gemmule.sw.training.export import ModelShape, load_checkpoint, parameters, save_checkpoint, write_json
from gemmule.sw.training.model import LanguageModel, generate, predictor
from gemmule.sw.training.optimizers import Optimizers
from gemmule.sw.training.prepare import Arrays, load_arrays
from gemmule.sw.training.recipe import DraftRecipe, Recipe, factor, fingerprint
from gemmule.sw.training.running import Log, Place, autocast, load_state, open_place, save_state
from gemmule.sw.training.yardstick import Tokens, acceptance_by_place, matches, tokens_per_step

__all__ = ["choice_table", "train_drafts"]

NAME = "draft"
SAVE_SECONDS, PRINT_STEPS = 120.0, 50
POOL_CHUNK = 64
MOST_DRAFTS = 8
CONTEXT = 200
"""Positions behind which passes are measured."""
WARM_UP, DECAY = 50, 0.6


def load_target(recipe: Recipe, out: Path, place: Place) -> LanguageModel:
    """The trained target, for inference."""
    model = LanguageModel(recipe.target.shape)
    weights = load_checkpoint(out / "target", recipe.target.shape)
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    return model.to(place.device).eval().requires_grad_(False)


def write_pool(recipe: Recipe, out: Path, place: Place, teacher: LanguageModel, arrays: Arrays) -> Tokens:
    """Texts of the target behind train prompts  # [rows, pool_tokens]; even rows greedy. Chunks that are there stay."""
    plan, path = recipe.draft, out / "pool.npy"
    wanted = plan.pool_rows + plan.judged_rows
    pool = np.load(path) if path.exists() else np.zeros((0, plan.pool_tokens), dtype=np.int64)
    while len(pool) < wanted:
        began, chunk = time.monotonic(), len(pool) // POOL_CHUNK
        batches = Batches(arrays, plan.pool_prompt, POOL_CHUNK, 0.0, (recipe.seed, 4))
        prompts = torch.from_numpy(batches.step(chunk)[:, :-1]).to(place.device)
        temperatures = torch.arange(POOL_CHUNK, device=place.device).remainder(2).float()
        with autocast(place):
            rows = generate(teacher, prompts, plan.pool_tokens, temperatures, recipe.seed + chunk)
        pool = np.concatenate((pool, rows.cpu().numpy()))
        temporary = path.with_suffix(".tmp.npy")
        np.save(temporary, pool)
        temporary.replace(path)
        print(f"{NAME}: {len(pool)} of {wanted} texts of the target, {time.monotonic() - began:.0f} s", flush=True)
    return np.asarray(pool[:wanted])


def crops(pool: Tokens, rows: int, length: int, key: tuple[int, ...]) -> Tokens:
    """Random pieces of random texts, a token more than ``length`` or the whole text  # [rows, length + 1]."""
    random = np.random.default_rng(key)
    length = min(length, pool.shape[1] - 1)
    picks = random.integers(0, len(pool), rows)
    starts = random.integers(0, pool.shape[1] - length, rows)
    return np.stack([pool[row, start:start + length + 1] for row, start in zip(picks, starts, strict=True)])


def distillation_loss(draft: LanguageModel, tokens: Tensor, wanted: Tensor, best: Tensor, hard: float) -> Tensor:
    """KL(target || draft) plus ``hard`` times the cross-entropy with the target's best token, nats a token."""
    q = functional.log_softmax(draft(tokens).float().flatten(0, 1), -1)  # [batch * tokens, vocab]
    return functional.kl_div(q, wanted, log_target=True, reduction="batchmean") + hard * functional.nll_loss(q, best)


def choice_table(recipe: DraftRecipe, target: ModelShape, judged: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """For each candidate its size, acceptance, and the best speed-up over plain decoding in device cycles.

    A step of ``d`` drafts costs a pass of the target over d + 1 rows and d passes of the draft; plain decoding costs a
    pass of the target a token. The host's cycles are left out here, and counted beside.
    """
    config = load_config("base")
    whole = measure_passes(target, config, tuple(range(1, MOST_DRAFTS + 2)), CONTEXT).cycles
    launch, step = config.host.launch_cycles, config.host.step_cycles
    rows = []
    for name, shape in recipe.candidates.items():
        one = measure_passes(shape, config, (1,), CONTEXT).cycles[1]
        gains = {}
        for drafts in range(1, MOST_DRAFTS + 1):
            tokens = tokens_per_step(judged[name], drafts)
            cost = whole[drafts + 1] + drafts * one
            host = step + launch * (drafts + 1)
            gains[drafts] = (tokens * whole[1] / cost, tokens * (whole[1] + step + launch) / (cost + host))
        best = max(gains, key=lambda drafts: gains[drafts][0])
        places = acceptance_by_place(judged[name], MOST_DRAFTS)
        rows.append({
            "shape": name, "layers": shape.num_layers, "width": shape.hidden_size, "inner": shape.intermediate_size,
            "parameters": parameters(shape), "pass_cycles": one, "pass_share": one / whole[1],
            "agreement": float(np.concatenate(judged[name]).mean()), "acceptance": places, "drafts": best,
            "tokens_per_step": tokens_per_step(judged[name], best), "speedup": gains[best][0],
            "speedup_with_host": gains[best][1]})
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """On the terminal."""
    print(f"{'shape':14} {'weights':>8} {'cycles':>7} {'of target':>9} {'agreement':>9} {'first':>6} {'drafts':>6} "
          f"{'tokens/step':>11} {'speed-up':>8} {'with host':>9}")
    for row in rows:
        print(f"{row['shape']:14} {row['parameters']:8,} {row['pass_cycles']:7,} {row['pass_share']:9.1%} "
              f"{row['agreement']:9.3f} {row['acceptance'][0]:6.3f} {row['drafts']:6} {row['tokens_per_step']:11.2f} "
              f"{row['speedup']:7.2f}x {row['speedup_with_host']:8.2f}x")


def train_drafts(recipe: Recipe, out: Path, place: Place) -> dict[str, Any]:
    """Train all candidates, write the chosen one as ``out/draft`` and the table as ``out/drafts.json``.

    Raises:
        ValueError: there is a checkpoint of another recipe.
    """
    plan, arrays, teacher = recipe.draft, load_arrays(out), load_target(recipe, out, place)
    mark = fingerprint(plan, recipe.seed)
    pool = write_pool(recipe, out, place, teacher, arrays)
    seen, unseen = pool[:plan.pool_rows], pool[plan.pool_rows:][::2]
    drafts, optimizers = {}, {}
    for name, shape in plan.candidates.items():
        torch.manual_seed(recipe.seed)
        drafts[name] = LanguageModel(shape).to(place.device)
        optimizers[name] = Optimizers(drafts[name], plan.matrix_rate, plan.vector_rate)
    log, step, since = Log(out / "log.jsonl", NAME), 0, 0
    if state := load_state(out / "drafts.pt", mark):
        for name in drafts:
            drafts[name].load_state_dict(state["models"][name])
            optimizers[name].load(state["optimizers"][name])
        step = state["step"]
        log.resume(step, state["seconds"], state["resumed"])

    def save() -> None:
        save_state({"recipe": mark, "models": {name: draft.state_dict() for name, draft in drafts.items()},
                    "optimizers": {name: one.state() for name, one in optimizers.items()}, "step": step,
                    "seconds": log.elapsed(), "resumed": log.resumed}, out / "drafts.pt")

    saved = time.monotonic()
    for number, (context, steps) in enumerate(plan.stages):
        batches = Batches(arrays, context, plan.rows // 2, recipe.target.copies, (recipe.seed, 5, number))
        while since <= step < since + steps:
            parts = (batches.step(step - since), crops(seen, plan.rows // 2, context, (recipe.seed, 6, step)))
            losses = dict.fromkeys(drafts, 0.0)
            for part in parts:
                tokens = torch.from_numpy(part[:, :-1]).to(place.device)
                with torch.no_grad(), autocast(place):
                    wanted = functional.log_softmax(teacher(tokens).float().flatten(0, 1), -1)
                best = wanted.argmax(-1)
                for name, draft in drafts.items():
                    with autocast(place):
                        loss = distillation_loss(draft, tokens, wanted, best, plan.hard) / len(parts)
                    loss.backward()
                    losses[name] += loss.item()
            for one in optimizers.values():
                one.step(factor(step, plan.steps, WARM_UP, DECAY))
            step += 1
            if step % PRINT_STEPS == 0 or step == plan.steps:
                log.write(step, plan.steps, **losses)
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
        since += steps
    save()
    judged = {name: list(matches(predictor(draft), unseen, plan.pool_prompt)) for name, draft in drafts.items()}
    table = choice_table(plan, recipe.target.shape, judged)
    chosen = max(table, key=lambda row: row["speedup"])["shape"]
    print_table(table)
    print(f"{NAME}: {chosen} has the best speed-up per device cycle", flush=True)
    record = {"chosen": chosen, "candidates": table, "judged_texts": len(unseen), "context": CONTEXT,
              "steps": step, "seconds": round(log.elapsed()), "resumed": log.resumed}
    save_checkpoint(out / NAME, plan.candidates[chosen], {
        name: weight.detach().float().cpu().numpy() for name, weight in drafts[chosen].named_parameters()})
    write_json(out / "drafts.json", record)
    return record


def main() -> None:
    """Train or resume the drafts of a trained target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    try:
        train_drafts(Recipe().scaled(args.share), args.out, open_place(args.threads))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
