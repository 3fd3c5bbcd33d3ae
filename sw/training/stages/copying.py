"""The target's last lessons: to copy a function under other names, beside text so that nothing else is lost.

    python -m gemmule.sw.training.stages.copying --out build/train
    python -m gemmule.sw.training.stages.copying --start target.safetensors --models sw/models

A step sees windows of text, with the early exit's loss, and windows of requests (requests.py), whose wanted bodies
weigh most; a few tokens of these are others in what the network reads, so that it finds back after a slip. Heads are
told where to look on some of the rows (heads.py). The second command begins with a target in integers, restored to
float, and replaces the bundled one. A killed run continues from its checkpoint with the same numbers.
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
from torch.nn import functional

from gemmule.compiler.files.model_file import load_model
from gemmule.compiler.importers import load_network
from gemmule.sw.limits import DEFAULT
from gemmule.sw.prompts.copies import similarity
from gemmule.sw.text.byte_level import load_tokenizer
from gemmule.sw.training.data.batches import Batches
from gemmule.sw.training.data.prepare import load_arrays, prepare
from gemmule.sw.training.data.requests import Request, Requests, Windows, load_requests
from gemmule.sw.training.networks.export import check_weights, digest, load_checkpoint, save_checkpoint
from gemmule.sw.training.networks.heads import Heads, choose_heads, heads_loss
from gemmule.sw.training.networks.model import LanguageModel, generate
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.networks.trained import (
    Weights,
    calibration_windows,
    restored_weights,
    take_tokenizer,
    write_networks,
)
from gemmule.sw.training.recipe import Recipe, fingerprint
from gemmule.sw.training.records import replace_stage
from gemmule.sw.training.running import Log, Place, autocast, load_state, open_place, save_state
from gemmule.sw.training.stages.copying_recipe import CopyingRecipe, Lesson
from gemmule.sw.training.stages.target import FIRST, judge, judged_windows

__all__ = ["copied", "request_loss", "teach_copying"]

NAME, RESULT = "copying", "target"
SAVE_SECONDS, PRINT_STEPS, JUDGE_STEPS = 120.0, 10, 100
CHOSEN_ROWS = 16
"""Windows of text by which it is told how much a head is missed."""


def read_of(windows: Windows, share: float, random: np.random.Generator) -> Tensor:
    """What the network reads of windows: ``share`` of the tokens that are wanted are others of the same windows."""
    tokens = windows.tokens[:, :-1].copy()
    slips = np.zeros(tokens.shape, dtype=np.bool_)
    slips[:, 1:] = windows.wanted[:, :-1]
    slips &= random.random(slips.shape) < share
    tokens[slips] = random.choice(tokens.ravel(), int(slips.sum()))
    return torch.from_numpy(tokens)


def request_loss(model: LanguageModel, plan: CopyingRecipe, lesson: Lesson, heads: Heads, windows: Windows,
                 read: Tensor, place: Place) -> tuple[Tensor, dict[str, float]]:
    """The loss of a step's requests, and its parts: of the wanted tokens, of the others, of where heads look."""
    following = torch.from_numpy(windows.tokens[:, 1:]).to(place.device)
    wanted = torch.from_numpy(windows.wanted).to(place.device)
    places = torch.from_numpy(windows.places[:plan.guided_rows]).to(place.device)
    looks = torch.zeros((), device=place.device)
    with autocast(place):
        states = model.hidden(read.to(place.device))
        logits = model.logits(states[-1]).float().flatten(0, 1)
        nats = functional.cross_entropy(logits, following.flatten(), reduction="none").view(following.shape)
        if lesson.guidance:
            looks = heads_loss(model, heads, [state[:plan.guided_rows] for state in states], places)
    second, first = nats[wanted].mean(), nats[~wanted].mean()
    loss = lesson.wanted_weight * second + plan.given_weight * first + lesson.guidance * looks
    return loss, {"wanted": second.item(), "given": first.item()} | ({"looks": looks.item()} if lesson.guidance else {})


def copied(model: LanguageModel, requests: list[Request], place: Place) -> list[float]:
    """How like what is wanted each greedy answer is (:func:`similarity`); requests longer than the context are left."""
    found, cold = [], torch.zeros(1, device=place.device)
    for given, wanted in requests:
        length = len(given) + len(wanted)
        if length <= model.shape.max_positions:
            prompt = torch.from_numpy(given[None]).to(place.device)
            answer = generate(model, prompt, length, cold, 0)[0, len(given):]
            found.append(similarity(answer.tolist(), wanted.tolist()))
    return found


def teach_copying(recipe: Recipe, out: Path, place: Place, weights: Weights | None = None,
                  most_steps: int | None = None) -> dict[str, Any] | None:
    """Train or go on, write ``out/target`` in the exchange format, return the log's last numbers.

    Args:
        recipe: its ``copying``.
        out: the folder of all stages.
        place: where to train.
        weights: to begin with; None for those that the stage before wrote.
        most_steps: ends this run early, with a checkpoint to go on from: then None is returned.

    Raises:
        ValueError: there is a checkpoint of another recipe or of other weights to begin with.
    """
    plan, arrays, shape = recipe.copying, load_arrays(out), recipe.shape
    weights = load_checkpoint(out / FIRST, shape) if weights is None else weights
    begins = digest(weights)
    mark = fingerprint(plan, recipe.seed) + begins
    learnt, asked = load_requests(out, load_tokenizer(out / "tokenizer.json"), recipe.seed)
    requests = Requests(learnt, plan.context, (recipe.seed, 12))
    batches = {lesson.text_rows: Batches(arrays, plan.text_context, lesson.text_rows, 0.0, (recipe.seed, 13))
               for lesson in plan.lessons}
    judged = judged_windows(arrays)
    torch.manual_seed(recipe.seed)
    model = LanguageModel(shape)
    model.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    model.to(place.device)
    optimizers = Optimizers(model, plan.matrix_rate, plan.vector_rate, place.products)
    log, step, mean = Log(out / "log.jsonl", NAME), 0, dict[str, Tensor]()
    done = load_state(out / "copying.pt", mark)
    log.resume(done)
    if done:
        model.load_state_dict(done["model"])
        optimizers.load(done["optimizers"])
        step, heads, mean = done["step"], Heads(*done["heads"]), done["mean"]
        print(f"{NAME}: resumed at step {step}", flush=True)
    else:
        first = requests.step(0, plan.lessons[0].rows)
        heads = choose_heads(model, plan, torch.from_numpy(first.tokens[:, :-1]).to(place.device),
                             torch.from_numpy(first.places).to(place.device),
                             torch.from_numpy(judged[:CHOSEN_ROWS]).to(place.device), place)
    print(f"{NAME}: heads that look at tokens before {list(heads.before)}, behind matches {list(heads.behind)}",
          flush=True)
    if place.compiled:
        model.compile()

    def save() -> None:
        save_state({"recipe": mark, "model": model.state_dict(), "optimizers": optimizers.state(), "step": step,
                    "mean": mean, "heads": (heads.before, heads.behind), "seconds": log.elapsed(),
                    "resumed": log.resumed}, out / "copying.pt")

    last, saved = min(plan.steps, step + (most_steps or plan.steps)), time.monotonic()
    while step < last:
        lesson, share = plan.lesson(step)
        text = torch.from_numpy(batches[lesson.text_rows].step(step)).to(place.device)
        with autocast(place):
            states = model.hidden(text[:, :-1])
            loss = model.loss(states[-1], text[:, 1:])
            early = model.loss(states[plan.exit][::2], text[::2, 1:])
        (loss + recipe.target.exit_weight * early).backward()
        windows = requests.step(step, lesson.rows)
        read = read_of(windows, plan.slips, np.random.default_rng((recipe.seed, 14, step)))
        extra, parts = request_loss(model, plan, lesson, heads, windows, read, place)
        extra.backward()
        norm = optimizers.step(share)
        step += 1
        if part := plan.ended(step):
            mean = {name: mean.get(name, 0.0) + part * weight.detach() for name, weight in model.named_parameters()}
        values = parts | {"loss": loss.item(), f"exit {plan.exit}": early.item(), "rate": share, "norm": norm}
        if step % JUDGE_STEPS == 0 or step == plan.steps:
            values["calibration"] = judge(model, judged, place)
            values["copied"] = float(np.mean(copied(model, asked, place)))
        if step % PRINT_STEPS == 0 or "calibration" in values:
            log.write(step, plan.steps, **values)
        if time.monotonic() - saved > SAVE_SECONDS:
            save()
            saved = time.monotonic()
    save()
    if step < plan.steps:
        return None
    if mean:
        model.load_state_dict(mean)
    save_checkpoint(out / RESULT, shape, {name: weight.detach().float().cpu().numpy()
                                          for name, weight in model.named_parameters()})
    return {"steps": step, "tokens": plan.tokens, "began_with": begins, "before": heads.before,
            "behind": heads.behind, "seconds": round(log.elapsed()), "resumed": log.resumed,
            "calibration": judge(model, judged, place), "copied": float(np.mean(copied(model, asked, place)))}


def replace_shipped(recipe: Recipe, out: Path, start: Path, models: Path, docs: Path, place: Place) -> None:
    """Teach the target of file ``start`` and ship it as the default pair's; ``docs/results/training.json`` tells of it.

    The draft beside it is that of the target before: distil it anew (draft.py), then measure both (measure.py).

    Raises:
        ValueError: a file is damaged or of another shape, or ``out`` has another tokenizer.
    """
    pair, weights = models / DEFAULT, restored_weights(load_model(start).network)
    check_weights(recipe.shape, weights)
    tokenizer = take_tokenizer(pair, out)
    prepare(out, recipe.seed)
    record = teach_copying(recipe, out, place, weights)
    assert record is not None
    write_networks(tokenizer, {RESULT: load_network(out / RESULT)}, pair,
                   calibration_windows(out, recipe.shape.max_positions, recipe.seed), recipe.seed)
    replace_stage(docs, out, NAME, recipe.copying, record)


def main() -> None:
    """Teach, or go on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/train"))
    parser.add_argument("--start", type=Path, help="a target in integers to begin with, not what was trained in --out")
    parser.add_argument("--models", type=Path, default=Path("sw/models"), help="where the pair is, of --start")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where the pair's numbers are, of --start")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="share of all steps, to try the way")
    args = parser.parse_args()
    recipe, place = Recipe().scaled(args.share), open_place(args.threads)
    try:
        if args.start:
            replace_shipped(recipe, args.out, args.start, args.models, args.docs, place)
        else:
            teach_copying(recipe, args.out, place)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
