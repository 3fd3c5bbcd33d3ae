"""What tuning does: texts with the shipped target's answers, losses, and the run with its checkpoints (tuning.py).

Needs torch, numpy and safetensors alone, so that it also runs where nothing else is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gemmule.sw.training.data.batches import Epochs, shuffled
from gemmule.sw.training.networks.distillation import answer_loss
from gemmule.sw.training.networks.export import TARGET, write_json
from gemmule.sw.training.networks.low_rank import LowRank, Weights
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.recipe import factor, fingerprint, left_out_share
from gemmule.sw.training.running import Log, Place, autocast, load_state, save_state
from gemmule.sw.training.stages.answers import Answers, answered, kept, written
from gemmule.sw.training.stages.tuning_recipe import TuningRecipe
from gemmule.sw.training.yardstick import Tokens

__all__ = ["SEED", "Lessons", "Sources", "lessons_of", "run", "step_loss"]

NAME = "tuning"
SAVE_SECONDS, PRINT_STEPS, JUDGES = 60.0, 10, 8
SEED = 1


@dataclass(frozen=True)
class Sources:
    """Token streams that texts come from.

    Attributes:
        library, calibration: splits of Python's library.
        copies: functions, each followed by its copy; starts: where those begin that fit a window.
    """

    library: Tokens
    calibration: Tokens
    copies: Tokens
    starts: NDArray[np.int64]


@dataclass(frozen=True)
class Lessons:
    """Texts with the target's answers: windows, texts that it wrote, and texts that nothing learns from."""

    windows: Answers
    pool: Answers
    judged: Answers


def lessons_of(plan: TuningRecipe, sources: Callable[[], Sources], folder: Path, teacher: LanguageModel,
               place: Place) -> Lessons:
    """What ``folder`` holds is read, the rest is made."""
    copied = round(plan.chunk * plan.copies)

    @cache
    def windows() -> tuple[Sources, Epochs, Epochs]:
        found = sources()
        return (found, Epochs(found.library, plan.context, (SEED, 2)), Epochs(found.library, plan.prompt, (SEED, 3)))

    def answer(chunk: int) -> Answers:
        found, text, _ = windows()
        rows = [text.window(chunk * plan.chunk + i) for i in range(plan.chunk - copied)]
        rows += [found.copies[start:start + plan.context + 1]
                 for start in found.starts[np.arange(chunk * copied, (chunk + 1) * copied) % len(found.starts)]]
        return answered(teacher, np.stack(rows).astype(np.int64), plan.kept, place)

    def write(chunk: int) -> Answers:
        given = np.stack([windows()[2].window(chunk * plan.chunk + i)[:-1] for i in range(plan.chunk)])
        warmth = (np.arange(plan.chunk) % 4 == 3).astype(np.float32)  # three of four are greedy
        return written(teacher, given.astype(np.int64), plan.context + 1, warmth, SEED + chunk, plan.kept, place)

    def judge(chunk: int) -> Answers:
        stream = windows()[0].calibration
        at = np.linspace(0, len(stream) - plan.prompt, plan.judged).astype(np.int64)
        given = np.stack([stream[start:start + plan.prompt] for start in at]).astype(np.int64)
        return written(teacher, given, plan.context + 1, np.zeros(plan.judged, np.float32), SEED, plan.kept, place)

    return Lessons(kept(folder, "text", plan.text_chunks, answer), kept(folder, "pool", plan.pool_chunks, write),
                   kept(folder, "judged", 1, judge))


def _answers(part: Answers, place: Place) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens that are read, and the answers behind the last of them."""
    tokens, words = (torch.from_numpy(one.astype(np.int64)) for one in (part.tokens[:, :-1], part.words))
    return tokens.to(place.device), words.to(place.device), torch.from_numpy(part.logs).to(place.device)


def step_loss(model: LowRank, plan: TuningRecipe, part: Answers, step: int, number: int, place: Place) \
        -> tuple[Tensor, dict[str, float]]:
    """The loss of some texts, nats a token, and its parts by name."""
    tokens, words, logs = _answers(part, place)
    random = np.random.default_rng((SEED, 4, step, number))
    layers = model.shape.num_layers
    left_out = frozenset(i for i, draw in enumerate(random.random(layers))
                         if draw < left_out_share(i, layers, plan.most_left_out))
    count, told = tokens.shape[1], words.shape[1]
    places = np.stack([np.sort(random.choice(np.arange(count - told, count - plan.streams), plan.chosen, False))
                       for _ in range(len(tokens))])
    behind = torch.from_numpy(places).to(place.device)  # [rows, chosen]
    other = plan.others[(2 * step + number) % len(plan.others)]
    head = model.get_buffer("embedding")

    def nats(x: Tensor, words: Tensor, logs: Tensor) -> Tensor:
        return answer_loss(model.last_norm(x).flatten(0, -2), head, words.flatten(0, -2), logs.flatten(0, -2),
                           plan.hard, place.products)

    with autocast(place):
        states, streams = model.hidden(tokens, left_out, behind)
        assert streams is not None
        losses = {"last": nats(states[-1][:, -told:], words, logs),
                  f"exit {plan.exit}": nats(states[plan.exit][:, -told:], words, logs),
                  f"exit {other}": nats(states[other][:, -told:], words, logs)}
        # stream j (from 0) at t says what the token at t + 1 + j is followed by
        to = behind[..., None] - (count - told) + 1 + torch.arange(plan.streams, device=place.device)
        row = torch.arange(len(tokens), device=place.device)[:, None, None]
        losses["streams"] = nats(streams, words[row, to], logs[row, to])
    weights = {"last": 1.0, f"exit {plan.exit}": plan.exit_weight, f"exit {other}": plan.other_weight,
               "streams": plan.stream_weight}
    total = torch.stack([weights[name] * loss for name, loss in losses.items()]).sum()
    return total, {name: loss.item() for name, loss in losses.items()}


@torch.no_grad()
def judge(model: LowRank, plan: TuningRecipe, judged: Answers, place: Place) -> dict[str, Any]:
    """On texts that the shipped target wrote: how often the tuned one, its exits and its streams say the same.

    Streams: by place, the share among those whose forerunners were right.
    """
    depths = {"last": -1} | {f"exit {depth}": depth for depth in sorted({*plan.others, plan.exit, model.first})}
    right: dict[str, list[float]] = {name: [] for name in depths}
    places: list[np.ndarray] = []
    for start in range(0, len(judged), 16):
        tokens, words, _ = _answers(judged.rows(np.arange(start, min(start + 16, len(judged)))), place)
        count, told = tokens.shape[1], words.shape[1]
        behind = torch.arange(count - told, count - plan.streams, 4, device=place.device).expand(len(tokens), -1)
        with autocast(place):
            states, streams = model.hidden(tokens, behind=behind)
            assert streams is not None
            head = model.get_buffer("embedding")
            for name, depth in depths.items():
                best = (model.last_norm(states[depth][:, -told:]) @ head.T).argmax(-1)
                right[name].append(float((best == words[..., 0]).float().mean()))
            best = (model.last_norm(streams) @ head.T).argmax(-1)
        to = behind[..., None] - (count - told) + 1 + torch.arange(plan.streams, device=place.device)
        row = torch.arange(len(tokens), device=place.device)[:, None, None]
        places.append((best == words[row, to, 0]).flatten(0, 1).cpu().numpy())
    found = np.concatenate(places)
    reached = np.cumprod(np.pad(found, ((0, 0), (1, 0)), constant_values=True), axis=1).sum(0)
    return {name: round(float(np.mean(value)), 4) for name, value in right.items()} | {
        "streams": [round(float(b / max(1, a)), 4) for a, b in zip(reached, reached[1:])]}


def first_rows(model: LowRank, plan: TuningRecipe, part: Answers, place: Place) -> None:
    """Streams begin with what tokens have in the mean where they join."""
    tokens, *_ = _answers(part.rows(np.arange(min(16, len(part)))), place)
    with torch.no_grad(), autocast(place):
        state = model.hidden(tokens)[0][model.first].float()
        model.streams.copy_(state.mean((0, 1)) + 0.1 * state.std((0, 1)) * torch.randn(model.streams.shape).to(
            place.device))


def run(plan: TuningRecipe, weights: Weights, theta: float, sources: Callable[[], Sources], out: Path, place: Place,
        most_steps: int | None = None) -> dict[str, Any] | None:
    """Train or go on; write ``out/tuned.pt`` and ``out/tuned.json``, return the record.

    ``most_steps`` ends this run early, with a checkpoint to go on from: then None.

    Raises:
        ValueError: there is a checkpoint of another recipe.
    """
    out.mkdir(parents=True, exist_ok=True)
    shape, mark = replace(TARGET, rope_theta=theta), fingerprint(plan, SEED)
    teacher = LanguageModel(shape)
    teacher.load_state_dict({name: torch.from_numpy(weight) for name, weight in weights.items()})
    teacher.to(place.device).eval().requires_grad_(False)
    lessons = lessons_of(plan, sources, out / "lessons", teacher, place)
    torch.manual_seed(SEED)
    model = LowRank(shape, weights, plan.ranks, plan.streams, shape.num_layers - plan.stream_layers).to(place.device)
    first_rows(model, plan, lessons.pool, place)
    changes = [weight for name, weight in model.named_parameters() if name != "streams"]
    optimizer = torch.optim.AdamW([{"params": changes, "peak": plan.rate}, {"params": [model.streams],
                                                                            "peak": plan.stream_rate}],
                                  lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.0)
    log, step, curve = Log(out / "log.jsonl", NAME), 0, []
    state = load_state(out / "tuned.pt", mark)
    log.resume(state)
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, curve = state["step"], state["curve"]

    def save() -> None:
        save_state({"recipe": mark, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                    "curve": curve, "seconds": log.elapsed(), "resumed": log.resumed}, out / "tuned.pt")

    if not curve:
        curve.append({"step": 0} | judge(model, plan, lessons.judged, place))
    saved, last = time.monotonic(), min(plan.steps, step + (most_steps or plan.steps))
    while step < last:
        values: dict[str, Any] = {}
        for number, (source, rows) in enumerate(((lessons.windows, plan.text_rows), (lessons.pool, plan.pool_rows))):
            part = source.rows(shuffled(len(source), rows, step, (SEED, 5, number)))
            loss, told = step_loss(model, plan, part, step, number, place)
            (loss * rows / (plan.text_rows + plan.pool_rows)).backward()
            values |= {f"{name}, {('text', 'own')[number]}": value for name, value in told.items()}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * factor(step, plan.steps, plan.warm_up, plan.decay)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % max(1, plan.steps // JUDGES) == 0 or step == plan.steps:
            curve.append({"step": step} | judge(model, plan, lessons.judged, place))
            print(curve[-1], flush=True)
        if step % PRINT_STEPS == 0:
            log.write(step, plan.steps, **values)
        if time.monotonic() - saved > SAVE_SECONDS:
            save()
            saved = time.monotonic()
    save()
    if step < plan.steps:
        return None
    record = {"recipe": asdict(plan), "place": place.describe(), "steps": step, "curve": curve,
              "tokens": plan.steps * (plan.text_rows + plan.pool_rows) * plan.context,
              "seconds": round(log.elapsed()), "resumed": log.resumed,
              "parameters": sum(weight.numel() for weight in model.parameters())}
    write_json(out / "tuned.json", record)
    return record
