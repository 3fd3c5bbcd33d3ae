"""How fast the target trains on this computer, and how long the recipe would take.

    python -m gemmule.sw.training.speed --threads 1 2 --seconds 60 --out docs/results/training_speed.json

Real steps of the recipe on random tokens, no layer left out. Tokens per second of wall time say what to expect now;
tokens per second of processor time what to expect of a computer that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gemmule.sw.training.networks.export import parameters, write_json
from gemmule.sw.training.networks.model import LanguageModel
from gemmule.sw.training.networks.optimizers import Optimizers
from gemmule.sw.training.recipe import Recipe, left_out_share
from gemmule.sw.training.running import open_place
from gemmule.sw.training.stages.target import gradients

__all__ = ["measure_speed", "predicted_seconds"]

WARM_UP = 2


def measure_speed(recipe: Recipe, threads: int, seconds: float) -> list[dict[str, Any]]:
    """Tokens per second of each context of the recipe, in steps like its own."""
    place, plan, rows = open_place(threads), recipe.target, []
    for context in dict.fromkeys(stage.context for stage in plan.stages):
        stage = replace(next(one for one in plan.stages if one.context == context), most_left_out=0.0)
        torch.manual_seed(recipe.seed)
        model = LanguageModel(plan.shape).to(place.device)
        optimizers = Optimizers(model, plan.matrix_rate, plan.vector_rate, place.products)
        if place.compiled:
            model.compile()

        def step(number: int, model: LanguageModel = model, stage: Any = stage, optimizers: Optimizers = optimizers,
                 ) -> None:
            windows = torch.randint(plan.shape.vocab_size, (stage.rows, stage.context + 1), device=place.device)
            gradients(model, plan, stage, windows, number, recipe.seed, place)
            optimizers.step(0.01)

        for number in range(WARM_UP):  # compiles
            step(number)
        wall, cpu, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - wall < seconds:
            step(WARM_UP + count)
            count += 1
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        tokens = count * stage.rows * context
        rows.append({"threads": threads, "context": context, "tokens": tokens, "tokens_per_second": tokens / wall,
                     "tokens_per_processor_second": tokens / cpu, "load_average": round(os.getloadavg()[0], 2)})
        print(f"{threads} threads, context {context}: {tokens / wall:,.0f} tokens a second, "
              f"{tokens / cpu:,.0f} a second of processor time, load {os.getloadavg()[0]:.1f}", flush=True)
    return rows


def predicted_seconds(recipe: Recipe, rates: dict[int, float]) -> float:
    """Of the target's training at these tokens per second by context, what is left out taken off."""
    layers, total = recipe.target.shape.num_layers, 0.0
    for stage in recipe.target.stages:
        saved = sum(left_out_share(i, layers, stage.most_left_out) for i in range(layers)) / layers
        total += stage.tokens / rates[stage.context] * (1 - saved)
    return total


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    parser.add_argument("--out", type=Path, default=Path("docs/results/training_speed.json"))
    args = parser.parse_args()
    recipe = Recipe()
    rows = [row for threads in args.threads for row in measure_speed(recipe, threads, args.seconds)]
    predicted = {}
    for threads in args.threads:
        mine = [row for row in rows if row["threads"] == threads]
        for name, key, many in (("wall", "tokens_per_second", 1), ("alone", "tokens_per_processor_second", threads)):
            rates = {row["context"]: row[key] * many for row in mine}
            predicted[f"{threads} threads, {name}"] = round(predicted_seconds(recipe, rates))
    print(f"the target's training would take, in seconds: {predicted}")
    write_json(args.out, {
        "place": open_place(max(args.threads)).describe(), "cores": os.cpu_count(), "python": platform.python_version(),
        "parameters": parameters(recipe.target.shape), "rows": rows, "predicted_seconds": predicted,
        "tokens": recipe.target.tokens})


if __name__ == "__main__":
    main()
