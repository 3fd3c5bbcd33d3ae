"""Weights of an earlier run as the beginning of another one, which keeps its vocabulary and the texts that judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from gemmule.sw.training.drafters.recipe import DraftersRecipe, NetworkRecipe
from gemmule.sw.training.drafters.writing import Pool

__all__ = ["Start", "continued", "mark_of", "open_start"]

PEAK = 0.6
"""Rates rise again to this share of a first run's peaks; from there they fall over the whole run."""
WARM_UP = 100


@dataclass(frozen=True)
class Start:
    """An earlier run.

    Attributes:
        mark: of its weights, see :func:`mark_of`.
        vocabulary: tokens that its drafters propose.
        weights: of each drafter that is continued, by name, in float32.
        tokens: that these drafters have seen.
        held_out: the texts that judged; they judge again, and nothing is trained on them.
    """

    mark: str
    vocabulary: Tensor
    weights: dict[str, dict[str, Tensor]]
    tokens: int
    held_out: Pool


def mark_of(folder: Path, kinds: Sequence[str]) -> str:
    """SHA-256 of a run's weights: a recipe that continues them names them by it."""
    return hashlib.sha256(b"".join((folder / f"{kind}.safetensors").read_bytes() for kind in kinds)).hexdigest()


def open_start(folder: Path, kinds: Sequence[str], network: NetworkRecipe) -> Start:
    """Read what an earlier run wrote with ``--out``.

    Raises:
        ValueError: a file is missing, or the weights are of another network, or not all of one run.
    """
    needed = ["held_out.npz", *(f"{kind}.safetensors" for kind in kinds)]
    if missing := [name for name in needed if not (folder / name).exists()]:
        raise ValueError(f"{folder}: lacks {', '.join(missing)}: --start must be what a run wrote with --out")
    weights, seen, vocabularies = dict[str, dict[str, Tensor]](), set[int](), list[Tensor]()
    wanted = json.loads(json.dumps(asdict(network)))
    for kind in kinds:
        with safe_open(folder / f"{kind}.safetensors", "pt") as file:
            said: dict[str, Any] = json.loads(file.metadata()["drafter"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if said["kind"] != kind or said["recipe"]["network"] != wanted:
            raise ValueError(f"{folder / kind}.safetensors: is a {said['kind']!r} of {said['recipe']['network']}, "
                             f"not a {kind!r} of {wanted}: start from weights of the same network")
        vocabularies.append(tensors.pop("vocabulary").long())
        weights[kind] = {name: value.float() for name, value in tensors.items()}
        seen.add(int(said["tokens"]))
    if len(seen) > 1 or not all(torch.equal(one, vocabularies[0]) for one in vocabularies):
        raise ValueError(f"{folder}: its drafters must have seen the same tokens and propose from one list: "
                         "take weights that one run wrote")
    return Start(mark_of(folder, kinds), vocabularies[0], weights, seen.pop(), Pool.load(folder / "held_out.npz"))


def continued(recipe: DraftersRecipe, start: Start) -> DraftersRecipe:
    """A recipe that begins with these weights: lower peaks, a longer rise, rates that fall from there on."""
    return replace(recipe, start=start.mark, matrix_rate=PEAK * recipe.matrix_rate,
                   vector_rate=PEAK * recipe.vector_rate, warm_up=WARM_UP, decay=1.0)
