"""Random checkpoints with planted massive activations, imported in int8 as `gemmule import` does by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import show
from benchmarks.planted import FAMILIES, write_checkpoint
from benchmarks.planted import planted as made

__all__ = ["SEEDS", "planted"]

SEEDS = (1, 2)
KEYS = ("prefix", "rotate", "residual", "inner", "usable", "perplexity_float", "perplexity_int", "kl_mean",
        "top1_agreement", "layer_error", "layer_drift")

Record = dict[str, Any]


def planted(record: Record, save: Callable[[], None]) -> None:
    """Fill ``record``: a row for each family and seed. Layer errors: each layer fed with float values."""
    rows = record.setdefault("rows", [])
    done = {(row["family"], row["seed"]) for row in rows}
    for family in FAMILIES:
        for seed in SEEDS:
            if (family, seed) not in done:
                rows.append({"family": family, "seed": seed, **_imported(family, seed)})
                save()
    show("int8, each layer fed with float values", [
        {"family": row["family"], "seed": row["seed"], "prefix": str(row["prefix"]), "rotated": str(row["rotate"]),
         "KL": row["kl_mean"], **{f"layer {at}": f"{error:.2%}" for at, error in enumerate(row["layer_error"])}}
        for row in rows])


def _imported(family: str, seed: int) -> Record:
    with tempfile.TemporaryDirectory() as name:
        folder = write_checkpoint(Path(name) / family, made(family, seed), seed)
        numbers = Path(name) / "numbers.json"
        done = subprocess.run(
            [sys.executable, "-m", "gemmule", "import", str(folder), "--calibrate", str(folder / "text.txt"), "--out",
             str(Path(name) / "model.safetensors"), "--json", str(numbers)], check=False, stdout=subprocess.DEVNULL)
        if done.returncode > 1:
            raise SystemExit(f"importing {family} ended with exit code {done.returncode}")
        found = json.loads(numbers.read_text())
    return {key: found[key] for key in KEYS}
