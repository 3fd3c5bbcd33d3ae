"""Train the linear heads of early exits: from a row of the residual stream, whether the exit says what all layers say.

``python -m gemmule.sw.training.exits --work build/exits --out FILE`` for the default pair's target. Texts are the
target's own: what it goes on with behind pieces of the text that calibrates imports, which no held-out prompt is cut
from. They are kept line by line in the work folder, and a run that was ended goes on; the rest takes seconds. All is
deterministic. Behind each depth a logistic regression, by Newton's method, says how likely the exit is right
(Schuster et al. 2022, section 3.5: "independent" training; there one head serves all layers).
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmule.compiler.ir import Cache, IntegerInterpreter, Network, Rows, residuals
from gemmule.io.files import write_atomically
from gemmule.io.progress import counting, say
from gemmule.sw.device.some_layers.layerwise import Layerwise
from gemmule.sw.limits import DEFAULT
from gemmule.sw.models.bundled_models import bundled_model, encode
from gemmule.sw.models.drafting.exit_heads import normed
from gemmule.sw.models.import_texts import default_texts

__all__ = ["area", "collected", "fitted", "main", "written"]

TEXTS, PROMPT, NEW = 240, 32, 48
RIDGE, TURNS = 512.0, 12
TOGETHER = 24
"""Texts whose passes are shared."""
HELD_OUT = 8
"""Every so many texts one is held out."""


def written(network: Network, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
    """Prompts, each with the ``new`` greedy tokens behind it, in passes that they share."""
    cache, interpreter, texts = Cache(network.graph), IntegerInterpreter(network), [list(prompt) for prompt in prompts]
    parts = [Rows.chain(text) for text in texts]
    for _ in range(new):
        logits = interpreter.forward(Rows.batch(parts).behind(network.graph.prefix), cache)
        ends = np.cumsum([len(part) for part in parts]) - 1
        for text, token in zip(texts, logits[ends].argmax(axis=1), strict=True):
            text.append(int(token))
        parts = [Rows.chain(text[-1:], len(text) - 1) for text in texts]
    return texts


def collected(network: Network, tokens: Sequence[int], given: int) -> tuple[np.ndarray, np.ndarray]:
    """Behind each depth but the last, of the rows from the prompt's last one on: rows of the stream over their root
    mean square, and whether the exit's choice is that of all layers  # float64 [depths, rows, columns], bool [depths,
    rows]
    """
    layers, names = Layerwise(network), residuals(network.graph)[1:]
    rows = Rows.chain(list(tokens[:-1])).behind(network.graph.prefix)
    found: dict[str, np.ndarray] = {}

    def observe(name: str, value: np.ndarray) -> None:
        if name in names:
            found[name] = value[given - 1:]

    last = IntegerInterpreter(network).forward(rows, Cache(network.graph), observe)[given - 1:].argmax(axis=1)
    own = rows.take(np.arange(given - 1, len(rows)))
    right = [layers.logits(own, found[name]).argmax(axis=1) == last for name in names[:-1]]
    return np.stack([normed(found[name]) for name in names[:-1]]), np.stack(right)


def fitted(rows: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and bias of a logistic regression with a ridge  # rows: [rows, columns], right: bool [rows]"""
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    penalty = np.full(inputs.shape[1], RIDGE)
    penalty[-1] = 1e-6
    weights = np.zeros(inputs.shape[1])
    for _ in range(TURNS):
        chance = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        slope = inputs.T @ (chance - right) + penalty * weights
        bend = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + np.diag(penalty)
        weights -= np.linalg.solve(bend, slope)
    return weights[:-1], float(weights[-1])


def area(scores: np.ndarray, right: np.ndarray) -> float:
    """Chance that a right row has a larger score than a wrong one; ties count half  # [rows], bool [rows]"""
    order = np.sort(scores[~right])
    below = np.searchsorted(order, scores[right], side="left") + np.searchsorted(order, scores[right], side="right")
    return float(below.mean() / (2 * len(order)))


def _texts(network: Network, work: Path, count: int) -> list[list[int]]:
    """The target's texts, each with its prompt, those of earlier runs first."""
    file = work / "texts.jsonl"
    work.mkdir(parents=True, exist_ok=True)
    lines = file.read_text().splitlines() if file.exists() else []
    if lines and not file.read_text().endswith("\n"):  # the run ended within a line
        lines.pop()
        file.write_text("".join(f"{line}\n" for line in lines))
    done: list[list[int]] = [json.loads(line) for line in lines[:count]]
    ids = [encode(text, pair=DEFAULT) for _, text in sorted(default_texts("calibration").items())]
    prompts = []
    for number in range(count):
        source, place = ids[number % len(ids)], number // len(ids)
        first = place * (len(source) - PROMPT) // -(-count // len(ids))
        prompts.append(source[first:first + PROMPT])
    with counting("texts", count) as tell, file.open("a") as more:
        while len(done) < count:
            made = written(network, prompts[len(done):len(done) + TOGETHER], NEW)
            more.writelines(json.dumps(text) + "\n" for text in made)
            more.flush()
            done += made
            tell(len(done), "")
    return done


def _trained(network: Network, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The heads, and what they tell of held-out texts."""
    rows, right = (list(part) for part in zip(*(collected(network, text, PROMPT) for text in texts)))
    seen = [number for number in range(len(texts)) if (number + 1) % HELD_OUT]
    held = [number for number in range(len(texts)) if not (number + 1) % HELD_OUT]
    heads = {}
    for depth in range(1, len(rows[0]) + 1):
        inside, outside = ((np.concatenate([rows[i][depth - 1] for i in numbers]),
                            np.concatenate([right[i][depth - 1] for i in numbers])) for numbers in (seen, held))
        weights, bias = fitted(*inside)
        heads[str(depth)] = {
            "weights": [float(f"{weight:.4g}") for weight in weights], "bias": float(f"{bias:.4g}"),
            "right": round(float(outside[1].mean()), 4), "area": round(area(outside[0] @ weights, outside[1]), 4)}
        say(f"depth {depth}: right {heads[str(depth)]['right']:.1%} of held-out tokens, area under the curve "
            f"{heads[str(depth)]['area']:.3f}")
    return heads


def _arguments() -> Namespace:
    parser = ArgumentParser(description="Train the linear heads of early exits for the default pair's target.")
    parser.add_argument("--work", type=Path, default=Path("build/exits"), help="folder of texts, kept from run to run")
    parser.add_argument("--out", type=Path, required=True, help="file of the heads")
    parser.add_argument("--texts", type=int, default=TEXTS, help=f"number of texts, default {TEXTS}")
    return parser.parse_args()


def main() -> None:
    """Write the heads."""
    given = _arguments()
    if given.texts < HELD_OUT:
        sys.exit(f"--texts must be at least {HELD_OUT}, not {given.texts}: one of so many is held out")
    model = bundled_model("target", DEFAULT)
    texts = _texts(model.network, given.work, given.texts)
    record = {"target": model.sha256, "texts": len(texts), "prompt": PROMPT, "new_tokens": NEW, "ridge": RIDGE,
              "heads": _trained(model.network, texts)}
    write_atomically(given.out, (json.dumps(record, separators=(",", ":")) + "\n").encode())


if __name__ == "__main__":
    main()
