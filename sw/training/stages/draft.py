"""Distil drafts of several shapes on the target's own text, and choose one by speed-up per device cycle.

    python -m gemmule.sw.training.stages.draft --out build/train
    python -m gemmule.sw.training.stages.draft --out build/train --target shipped --models sw/models
    python -m gemmule.sw.training.stages.draft --target shipped --start sw/models/default/draft.safetensors --share 0.4

First the target writes texts behind train prompts, half of them greedily, and reads windows of library and packages;
what it says to each token is kept (answers.py), since asking costs several times what learning does. Then all
candidates learn side by side from the same batches. A candidate is judged on greedy texts behind calibration prompts,
which none has seen; the device's cycles are the simulator's. The second command needs no training of the target: the
shipped one, restored to float, is the teacher, and the draft beside it is replaced. The third begins with the weights
of a draft in integers, which a target that has changed a little needs fewer steps for.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.importers import load_network
from gemmule.compiler.ir import Rope
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.bundled import bundled_file
from gemmule.sw.training.data.batches import shuffled
from gemmule.sw.training.data.followers import followers
from gemmule.sw.training.data.prepare import load_arrays, prepare
from gemmule.sw.training.measure import PROMPTS, measure_draft
from gemmule.sw.training.networks.distillation import answer_loss
from gemmule.sw.training.networks.export import check_weights, digest, load_checkpoint, save_checkpoint, write_json
from gemmule.sw.training.networks.guidance import guidance_loss
from gemmule.sw.training.networks.model import LanguageModel, predictor
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.networks.trained import (
    Weights,
    calibration_windows,
    restored_weights,
    take_tokenizer,
    write_networks,
)
from gemmule.sw.training.recipe import DraftRecipe, Recipe, factor, fingerprint
from gemmule.sw.training.records import replace_stage
from gemmule.sw.training.running import Log, Place, autocast, load_state, open_place, save_state
from gemmule.sw.training.stages.answers import Answers
from gemmule.sw.training.stages.choice import CONTEXT, MOST_DRAFTS, choice_table, print_table
from gemmule.sw.training.stages.lessons import lessons_of, mark_of
from gemmule.sw.training.yardstick import acceptance_by_place, matches

__all__ = ["replace_shipped", "train_drafts"]

NAME = "draft"
SAVE_SECONDS, PRINT_STEPS, JUDGE_STEPS = 120.0, 50, 500
WARM_UP, DECAY = 50, 0.5


def losses_of(draft: LanguageModel, parts: list[Answers], plan: DraftRecipe, place: Place) -> tuple[Tensor, Tensor]:
    """Of the answers of all parts, nats a token, and of where heads look, nats a head, both in the mean."""
    total, count = torch.zeros((), device=place.device), 0
    looks = torch.zeros((), device=place.device)
    for part in parts:
        tokens = torch.from_numpy(part.tokens[:, :-1].astype(np.int64)).to(place.device)
        words = torch.from_numpy(part.words.astype(np.int64)).to(place.device).flatten(0, 1)  # [answers, kept]
        logs = torch.from_numpy(part.logs).to(place.device).flatten(0, 1)
        with autocast(place):
            states = draft.hidden(tokens)
            if plan.guidance and draft.shape.num_layers > 1:
                places = torch.from_numpy(followers(part.tokens, plan.least_match)).to(place.device)
                looks = looks + guidance_loss(draft, states, places) / len(parts)
        x = draft.model.norm(states[-1][:, -part.words.shape[1]:]).flatten(0, 1)  # [answers, hidden]
        total = total + len(x) * answer_loss(x, draft.model.embed_tokens.weight, words, logs, plan.hard, place.products)
        count += len(x)
    return total / count, looks


def train_drafts(recipe: Recipe, out: Path, place: Place, weights: Weights | None = None,
                 start: Weights | None = None) -> dict[str, Any]:
    """Train all candidates, write the chosen one as ``out/draft`` and the table as ``out/drafts.json``.

    ``weights`` are the target's, None for those that were trained; ``start`` are what a single candidate begins with.

    Raises:
        ValueError: there is a checkpoint of another recipe, or ``start`` is of another shape.
    """
    plan, arrays, shape = recipe.draft, load_arrays(out), recipe.shape
    teacher = LanguageModel(shape)
    weights = load_checkpoint(out / "target", shape) if weights is None else weights
    teacher.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    teacher.to(place.device).eval().requires_grad_(False)
    begins = digest(start) if start else None
    mark = fingerprint(plan, recipe.seed) + (begins or "")
    lessons = lessons_of(recipe, out / f"answers-{mark_of(recipe, weights)[:12]}", teacher, arrays, place)
    drafts, optimizers = {}, {}
    for name, candidate in plan.candidates.items():
        torch.manual_seed(recipe.seed)
        drafts[name] = LanguageModel(candidate)
        if start:
            check_weights(candidate, start)
            drafts[name].load_state_dict({part: torch.from_numpy(weight) for part, weight in start.items()})
        drafts[name].to(place.device)
        optimizers[name] = Optimizers(drafts[name], plan.matrix_rate, plan.vector_rate, place.products)
    log, step, since = Log(out / "log.jsonl", NAME), 0, 0
    state = load_state(out / "drafts.pt", mark)
    log.resume(state)
    if state:
        for name in drafts:
            drafts[name].load_state_dict(state["models"][name])
            optimizers[name].load(state["optimizers"][name])
        step = state["step"]

    def save() -> None:
        save_state({"recipe": mark, "models": {name: draft.state_dict() for name, draft in drafts.items()},
                    "optimizers": {name: one.state() for name, one in optimizers.items()}, "step": step,
                    "seconds": log.elapsed(), "resumed": log.resumed}, out / "drafts.pt")

    def judged() -> dict[str, list[Any]]:
        return {name: list(matches(predictor(draft), lessons.judged.tokens.astype(np.int64), plan.prompt))
                for name, draft in drafts.items()}

    saved = time.monotonic()
    for number, (context, steps) in enumerate(plan.stages):
        windows, rows = lessons.windows[number], max(1, plan.text_rows * plan.context // context)
        while since <= step < since + steps:
            parts = [windows.rows(shuffled(len(windows), rows, step - since, (recipe.seed, 7, number))),
                     lessons.pool.rows(shuffled(len(lessons.pool), plan.pool_rows, step, (recipe.seed, 6)))]
            values: dict[str, Any] = {}
            for name, draft in drafts.items():
                loss, looks = losses_of(draft, parts, plan, place)
                (loss + plan.guidance * looks).backward()
                optimizers[name].step(factor(step, plan.steps, WARM_UP, DECAY))
                values |= {name: loss.item(), f"{name}, looks": looks.item()}
            step += 1
            if step % JUDGE_STEPS == 0 or step == plan.steps:
                values |= {f"{name}, first accepted": acceptance_by_place(rows, MOST_DRAFTS)[0]
                           for name, rows in judged().items()}
            if step % PRINT_STEPS == 0 or step == plan.steps:
                log.write(step, plan.steps, **values)
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
        since += steps
    save()
    table = choice_table(plan, shape, judged())
    chosen = max(table, key=lambda row: row["speedup"])["shape"]
    print_table(table)
    print(f"{NAME}: {chosen} has the best speed-up per device cycle", flush=True)
    record = {"chosen": chosen, "candidates": table, "judged_texts": len(lessons.judged), "context": CONTEXT,
              "began_with": begins, "threads": place.threads, "tokens": plan.tokens, "steps": step,
              "seconds": round(log.elapsed()), "resumed": log.resumed}
    save_checkpoint(out / NAME, plan.candidates[chosen], {
        name: weight.detach().float().cpu().numpy() for name, weight in drafts[chosen].named_parameters()})
    write_json(out / "drafts.json", record)
    return record


def replace_shipped(recipe: Recipe, out: Path, models: Path, docs: Path, place: Place,
                    start: Path | None = None) -> None:
    """Train drafts of the default pair's target and ship the best one beside it; ``docs/results`` tells of it.

    Raises:
        ValueError: a file of the pair is damaged, its target is of another shape, or ``out`` has another tokenizer.
    """
    pair = models / DEFAULT
    tokenizer = take_tokenizer(pair, out)
    network = load_model(bundled_file(pair, "target")).network
    weights = restored_weights(network)
    check_weights(recipe.shape, weights)
    theta = next(node.theta for node in network.graph.nodes if isinstance(node, Rope))
    recipe = replace(recipe, copying=replace(recipe.copying, rope_theta=theta))
    prepare(out, recipe.seed)
    begin = restored_weights(load_model(start).network) if start else None
    record = train_drafts(recipe, out, place, weights, begin)
    write_networks(tokenizer, {NAME: load_network(out / NAME)}, pair,
                   calibration_windows(out, recipe.shape.max_positions, recipe.seed), recipe.seed)
    replace_stage(docs, out, NAME, recipe.draft, record)
    measure_draft(pair, docs / "results" / "models.json", out / NAME, PROMPTS)


def main() -> None:
    """Train or resume the drafts of a target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--target", choices=("trained", "shipped"), default="trained",
                        help="the teacher: the one trained below --out, or the shipped one, whose draft is replaced")
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the shipped pair is")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the shipped pair's numbers are")
    parser.add_argument("--start", type=Path, help="a draft in integers to begin with, of --target shipped")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    recipe, place = Recipe().scaled(args.share), open_place(args.threads)
    if args.start and args.target != "shipped":
        parser.error("--start is for --target shipped: add that, or leave it out")
    try:
        if args.target == "shipped":
            replace_shipped(recipe, args.out, args.models, args.docs, place, args.start)
        else:
            train_drafts(recipe, args.out, place)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
