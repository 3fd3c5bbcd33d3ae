"""Which of several drafts is the best: by the device cycles of a step, and by what it foresees of the target's text."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmule.config import load_config
from gemmule.sw.training.cycles import measure_passes
from gemmule.sw.training.networks.export import ModelShape, parameters
from gemmule.sw.training.recipe import DraftRecipe
from gemmule.sw.training.yardstick import acceptance_by_place, tokens_per_step

__all__ = ["CONTEXT", "MOST_DRAFTS", "choice_table", "print_table"]

MOST_DRAFTS = 8
CONTEXT = 200
"""Positions behind which passes are measured."""


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
